"""`onehop explore --site`: the page as a static site that runs the model in the visitor's browser."""

import contextlib
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onehop.atomic import new_folder
from onehop.decoding import engine
from onehop.errors import ModelFileError, OnehopError
from onehop.explorer.content import Explorer, first_picture
from onehop.explorer.html import assets, policy_of, served_page
from onehop.interpret.trace_file import Json, Trace
from onehop.pipelines.confidence import DOUBTFUL, WEIGHTS
from onehop.storage.model_io import read_unchanged, write_model
from onehop.text.tokenizer import Tokenizer

MODEL, DESCRIPTION, EXAMPLE = "model.safetensors", "model.json", "example.json"
_BPE, _UNKNOWN = 2, " \u2047 "  # SentencePiece's code for BPE, and its text for an unknown token


def write_site(explorer: Explorer, model: Path, folder: Path) -> int:
    """Write the site of an explorer whose model file is `model`; the folder appears when it is complete.

    Returns its size in bytes.
    """
    tracer = explorer.tracer
    rules = tokenizer_rules(tracer.translator.tokenizer)
    assert tracer.hash is not None
    stored = read_unchanged(model, tracer.hash)
    # The first sentence is shown before the model is loaded.
    first, blob = first_picture(Trace.from_json(explorer.trace(explorer.opening)))
    late = {"blob": blob, "heads": explorer.swept(explorer.opening, (), len(first["source"]["ids"]))}
    try:
        with new_folder(folder) as partial:
            for path, content in assets().items():
                (partial / "page" / path).parent.mkdir(parents=True, exist_ok=True)
                (partial / "page" / path).write_bytes(content)
            write_model(partial / MODEL, stored)
            described = {**_description(explorer), **rules, "bytes": (partial / MODEL).stat().st_size}
            (partial / DESCRIPTION).write_text(json.dumps(described, ensure_ascii=False), encoding="utf-8")
            (partial / EXAMPLE).write_text(json.dumps(late), encoding="utf-8")
            (partial / "index.html").write_text(_page_of(explorer, first), encoding="utf-8")
            size = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file())
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()  # only an empty folder is replaced
    except OSError as e:
        raise OnehopError(f"The site cannot be written to {folder} ({e.strerror}).", "Choose another path.") from None
    return size


def _page_of(explorer: Explorer, example: Json) -> str:
    """index.html. A static server sends no headers of ours, so the policy is in a meta element."""
    html = served_page({"backend": "local", **explorer.constant(), "trace": example})
    policy = policy_of(html).replace("; frame-ancestors 'self'", "; worker-src 'self'")
    charset = '<meta charset="utf-8">'
    return html.replace(charset, f'{charset}\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)


def _description(explorer: Explorer) -> Json:
    """The settings, search options and projections that the browser needs besides the weights."""
    tracer = explorer.tracer
    options = tracer.translator.with_defaults(None)
    named = ("beam", "penalty", "min_length", "patience", "loop_repeats")
    matrices = ["embedding.weight", "embedding.weight" if tracer.model.settings.tied else "target_embedding.weight"]
    return {
        "file": MODEL,
        "about": tracer.about(),
        "limit": explorer.limit,
        "options": {
            **{name: value for name, value in asdict(options).items() if name in named},
            "alpha": options.exponent,
            "more_than_source": engine.MORE_THAN_SOURCE,
        },
        "confidence": {"weights": WEIGHTS.get(tracer.name or ""), "doubtful": DOUBTFUL},
        "spaces": [
            {"matrix": matrix, "mean": s.mean.tolist(), "plane": s.plane.tolist(), "explained": s.explained}
            for matrix, s in zip(matrices, tracer.spaces, strict=True)
        ],
    }


# --- the tokenizer ---------------------------------------------------------------------------------------------


def tokenizer_rules(tokenizer: Tokenizer) -> Json:
    """The tokens with score and type, and the text of an unknown token, from SentencePiece's file.

    The page implements the rules of tokenizers that onehop learns. Others are refused.
    """
    # The numbers of fields are those of sentencepiece_model.proto.
    parts = list(_fields(tokenizer.model))
    trainer, normalizer = (dict(_fields(next((v for n, v in parts if n == number), b""))) for number in (2, 3))
    plain = all(normalizer.get(number, 1) for number in (3, 4, 5)) and not normalizer.get(2) and not trainer.get(24)
    if trainer.get(3) != _BPE or not plain or tokenizer.target is not tokenizer:
        raise ModelFileError(
            "The model's tokenizer was made by another program; a site supports only onehop's.",
            "Use onehop explore or its --export, or give a model that onehop has trained.",
        )
    fields = (dict(_fields(value)) for number, value in parts if number == 1)
    pieces = [(piece[1].decode(), piece.get(2, 0.0), piece.get(3, 1)) for piece in fields]
    return {"pieces": pieces, "unknown": trainer.get(44, _UNKNOWN.encode()).decode()}


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer by number: integers, floats and bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
        elif kind == 2:
            length, at = _varint(message, at)
            yield number, message[at : at + length]
            at += length
        else:
            width = {1: 8, 5: 4}[kind]
            yield number, struct.unpack("<d" if kind == 1 else "<f", message[at : at + width])[0]
            at += width


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
