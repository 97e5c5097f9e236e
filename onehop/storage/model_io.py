"""Reads and writes model files: a damaged file is refused with its reason, and every write is atomic."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from onehop.atomic import new_file
from onehop.config import settings_from_dict
from onehop.errors import ModelFileError, OnehopError
from onehop.storage import model_label
from onehop.storage.model_file import (
    StoredModel,
    canonical_json,
    check_fits,
    content_hash,
    content_of,
    from_arrays,
    to_arrays,
)
from onehop.storage.number_formats import DTYPES, TAGS, Array, NumberFormat, plain_bytes


def read_model(path: str | Path) -> StoredModel:
    """Read a model from its file, or from any part or the common name of its parts, and verify its hash."""
    head = model_label.find_head(Path(path))
    data = model_label.read_bytes(head)
    label = model_label.read_label(head, data)
    pieces = {key: [array] for key, array in _decode_arrays(head, data).items()}
    names = model_label.part_names(head, label)
    if missing := [name.name for name in names if not os.path.isfile(name)]:
        shown = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
        raise ModelFileError(
            f"{head} is the first of {len(names) + 1} parts, and {shown} is missing.", model_label.REMEDY_SCATTERED
        )
    for part, name in enumerate(names, start=2):
        data = model_label.read_bytes(name)
        if model_label.read_label(name, data) != replace(label, part=part, content={}):
            raise model_label.another_model_error(name, head)
        for key, array in _decode_arrays(name, data).items():
            pieces.setdefault(key, []).append(array)
    with model_label.malformed_errors(head):
        arrays = {
            key: parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=parts[0].dtype, casting="no")
            for key, parts in pieces.items()
        }
        actual = content_hash(label.content, arrays)
        if actual != label.hash:
            raise ModelFileError(
                f"{head} is damaged: its hash is {actual}, not {label.hash}.", model_label.REMEDY_DAMAGED
            )
        model = _to_model(head, label.content, arrays)
    check_fits(head, model)
    return model


def read_unchanged(path: str | Path, expected: str) -> StoredModel:
    model_label.check_unchanged(path, expected)
    model = read_model(path)
    if model.hash != expected:
        raise model_label.model_changed_error()
    return model


def _decode_arrays(path: Path, data: bytes) -> dict[str, Array]:
    """The arrays of one file. The safetensors library checks that they lie within it and do not overlap."""
    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as e:
        reason = str(e).removeprefix("Error while deserializing: ")
        raise ModelFileError(f"{path} is cut off or damaged: {reason}.", model_label.REMEDY_DAMAGED) from None
    with model_label.malformed_errors(path):
        return {
            name: np.frombuffer(tensor["data"], dtype=DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
            for name, tensor in tensors
        }


def _to_model(path: Path, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> StoredModel:
    """The model, once its hash is verified."""
    tokenizer, tensors = from_arrays(arrays)
    try:
        settings = settings_from_dict(content["settings"])
    except OnehopError as e:
        raise ModelFileError(
            f"{path} has settings that this onehop does not know: {e.what}", "Update onehop."
        ) from None
    about = {key: content[key] for key in ("source", "target", "provenance")}
    return StoredModel(settings=settings, tokenizer=tokenizer, tensors=tensors, **about)


def write_model(path: str | Path, model: StoredModel, *, store: NumberFormat | None = None) -> Path:
    """Write a model, in another number format if `store` is given.

    Renaming the file replaces the old model by the new one. One process at a time may write to a name.
    """
    head = model_label.with_suffix(Path(path))
    model = model if store is None else model.stored_as(store)
    check_fits(head, model)
    content, arrays = content_of(model), to_arrays(model)
    digest = content_hash(content, arrays)
    label = model_label.Label(hash=digest, layout=layout_of(digest, [arrays]), part=1, parts=1, content=content)
    try:
        with new_file(head) as unfinished, unfinished.open("wb") as out:
            out.writelines(encode_part(label, arrays))
    except OSError as e:
        raise _writing_error(head, e) from None
    with contextlib.suppress(OSError):  # the new model is in place; the next write removes old shards
        remove_shards(head)
    return head


def layout_of(digest: str, parts: Sequence[Mapping[str, Array]]) -> str:
    """The id of a split into parts, so that parts of two splits of one model are never mixed."""
    shapes = [{name: array.shape for name, array in part.items()} for part in parts]
    return hashlib.sha256(canonical_json([digest, shapes]).encode()).hexdigest()[:8]


def encode_part(label: model_label.Label, arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """A safetensors file as the pieces to write one after the other.

    Written by hand because the library can do it only from torch, by copying everything, or from raw addresses.
    """
    described = {"hash": label.hash, "layout": label.layout, "part": label.part, "parts": label.parts}
    described |= label.content if label.part == 1 else {"format": model_label.FORMAT}
    header: dict[str, Any] = {"__metadata__": {"onehop": canonical_json(described)}}
    end = 0
    # Wide numbers first, so that each array begins at a multiple of its width.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": TAGS[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(plain_bytes(array) for _, array in ordered)]


def remove_shards(head: Path) -> None:
    shard = re.compile(rf"{re.escape(head.name.removesuffix(model_label.SUFFIX))}{model_label.PART}\.safetensors")
    for file in head.parent.iterdir():
        if shard.fullmatch(file.name):
            file.unlink()


def _writing_error(head: Path, e: OSError) -> ModelFileError:
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelFileError(
            f"The disk is full: {head} was not written, and the old file is unchanged.",
            "Free some space or choose another disk.",
        )
    if isinstance(e, FileNotFoundError):
        return ModelFileError(f"There is no folder {head.parent} to write the model to.", "Create it first.")
    return ModelFileError(f"The model cannot be written to {head} ({e.strerror}).", "Choose another path.")
