"""`onehop import`: a Hugging Face Marian folder, such as OPUS-MT publishes, as a model file of ours.

Our ids begin with pad, unk, bos and eos. Theirs may be anywhere, so rows are reordered.
"""

import hashlib
import io
import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load

from onehop.atomic import json_object
from onehop.config import ModelSettings, Settings, TokenizerSettings
from onehop.converters.huggingface import BIAS, EMBEDDING, POSITIONS, Array, from_marian, order
from onehop.converters.pieces import ImportedPieces, joint_pieces
from onehop.errors import ExportError, SettingsError
from onehop.model.loss import NEVER
from onehop.model.transformer import sinusoids
from onehop.storage.model_file import StoredModel
from onehop.storage.parameter_shapes import parameter_shapes

_WEIGHTS, _PICKLE = "model.safetensors", "pytorch_model.bin"
_CT2_WEIGHTS = "model.bin"
_ACTIVATIONS: Mapping[str, Literal["relu", "swish", "gelu"]] = {
    "relu": "relu",
    "swish": "swish",
    "silu": "swish",
    "gelu": "gelu",
}
_REQUIRED = (
    *("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("encoder_attention_heads", "decoder_attention_heads"),
    *("pad_token_id", "eos_token_id", "decoder_start_token_id"),
)


@dataclass(frozen=True)
class Imported:
    """The model, and for each of our ids the original id."""

    stored: StoredModel
    rows: Sequence[int]


def import_marian(folder: Path) -> Imported:
    config = read_json(folder / "config.json")
    _refuse_other_formats(folder, config)
    _refuse_inexpressible(config)
    weights, digest = read_weights(folder)
    _refuse_other_positions(weights)
    tokenizer_config = read_json(folder / "tokenizer_config.json", required=False)
    pieces = _read_pieces(folder, config, tokenizer_config)
    banned = _banned_ids(folder, config)
    output_bias = bool(pieces.silent or banned or np.any(weights.get(BIAS, 0)))
    settings = _model_settings(config, tokenizer_config, weights, output_bias=output_bias)
    tensors = _to_ours(folder, weights, settings, pieces, banned)
    stored = StoredModel(
        settings=Settings(model=settings, tokenizer=TokenizerSettings(vocab_size=max(300, len(pieces.rows)))),
        tokenizer=pieces.model,
        source=tokenizer_config.get("source_lang") or "",
        target=tokenizer_config.get("target_lang") or "",
        provenance={"imported_from": {"format": "Hugging Face Marian", "name": folder.name, "sha256": digest}},
        tensors=tensors,
    )
    return Imported(stored, pieces.rows)


# --- reading --------------------------------------------------------------------------------------------------


def read_json(file: Path, *, required: bool = True) -> dict[str, Any]:
    if not required and not file.is_file():
        return {}
    value = json_object(read_bytes(file))
    if value is None:
        raise ExportError(f"{file} is not a JSON object.", "Download the folder again.")
    return value


def read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as e:
        raise ExportError(
            f"{file} cannot be read ({e.strerror}).",
            "Give the folder of a Hugging Face model, Marian or BERT: config.json, its weights, its tokenizer.",
        ) from None


def read_weights(folder: Path) -> tuple[dict[str, Array], str]:
    """The tensors as float32, and the file's SHA-256."""
    file = folder / (_WEIGHTS if (folder / _WEIGHTS).is_file() or not (folder / _PICKLE).is_file() else _PICKLE)
    data = read_bytes(file)
    try:
        tensors = load(data) if file.name == _WEIGHTS else _load_pickle(file, data)
        arrays = {name: t.float().numpy() for name, t in tensors.items()}
    except (SafetensorError, RuntimeError, TypeError):
        raise ExportError(f"{file} is cut off or damaged.", "Download it again.") from None
    return arrays, hashlib.sha256(data).hexdigest()


def _load_pickle(file: Path, data: bytes) -> dict[str, torch.Tensor]:
    """The tensors of PyTorch's older format. Only tensors are unpickled, so no code in it runs."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > len(data):
                raise ExportError(f"{file} is compressed, but PyTorch's files are not.", "Download it again.")
    except zipfile.BadZipFile:
        pass  # the format before 2020
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about other pickle protocols; the error says enough
            tensors = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        what = f"{file} is damaged, or holds other objects than tensors, which could run code. No code was run."
        raise ExportError(what, "Download the model from another source.") from None
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, AssertionError, OSError):
        raise ExportError(f"{file} is cut off or damaged.", "Download it again.") from None
    # A tensor may claim to be larger than its stored data.
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(t, torch.Tensor) and t.numel() * t.element_size() <= len(data)
        for name, t in tensors.items()
    ):
        raise ExportError(f"{file} is not a table of tensors.", "Download it again.")
    return tensors


def _read_pieces(folder: Path, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> ImportedPieces:
    vocab = read_json(folder / "vocab.json")
    if sorted(vocab.values()) != list(range(config["vocab_size"])):
        raise ExportError(
            f"{folder / 'vocab.json'} does not name each of the {config['vocab_size']} ids once.",
            "Only a vocabulary with one entry per row of the weights can be imported.",
        )
    source, target = (read_bytes(folder / name) for name in ("source.spm", "target.spm"))
    unk = tokenizer_config.get("unk_token", "<unk>")
    if not isinstance(unk, str) or unk not in vocab:
        raise ExportError(f"{folder / 'vocab.json'} has no token for unknown words.", "Download the folder again.")
    marks = (config["pad_token_id"], vocab[unk], config["decoder_start_token_id"], config["eos_token_id"])
    return joint_pieces(source, target, vocab, marks)


def _banned_ids(folder: Path, config: Mapping[str, Any]) -> list[int]:
    """Original ids that generation bans, as OPUS-MT bans padding."""
    generation = {**config, **read_json(folder / "generation_config.json", required=False)}
    words = generation.get("bad_words_ids") or []
    if any(len(word) != 1 for word in words):
        raise ExportError(
            "generation_config.json bans words of several tokens.", "Remove them from bad_words_ids first."
        )
    return [word[0] for word in words]


# --- refusals --------------------------------------------------------------------------------------------------


def _refuse_other_formats(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder that is not Marian's, and say what it is."""
    kind = config.get("model_type")
    if kind == "marian":
        return
    if kind is not None:
        what = f"{folder} holds a model of the type {kind!r}."
    elif (folder / _CT2_WEIGHTS).is_file():
        what = f"{folder} holds a model converted for CTranslate2."
    else:
        what = f"{folder / 'config.json'} names no model_type."
    raise ExportError(what, "Give the Hugging Face folder of a Marian or BERT model: only these can be imported.")


def _refuse_inexpressible(config: Mapping[str, Any]) -> None:
    require_numbers(config, _REQUIRED)
    reasons = {
        "separate vocabularies of the two languages": not config.get("share_encoder_decoder_embeddings", True),
        "an output matrix apart from the embeddings": not config.get("tie_word_embeddings", True),
        "embeddings that are not scaled by √d_model": not config.get("scale_embedding", False),
        "other heads in the decoder": config["encoder_attention_heads"] != config["decoder_attention_heads"],
        "another feed-forward width in the decoder": config["encoder_ffn_dim"] != config["decoder_ffn_dim"],
        f"the activation {config.get('activation_function')}": config.get("activation_function") not in _ACTIVATIONS,
    }
    refuse_first(reasons)


def require_numbers(config: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(config.get(name), int):
            raise ExportError(f"config.json has no {name}.", "Download the folder again.")


def refuse_first(reasons: Mapping[str, bool]) -> None:
    """Refuse a model for the first reason that holds."""
    for reason, holds in reasons.items():
        if holds:
            raise ExportError(f"The model has {reason}, which onehop's model cannot express.", "It cannot be imported.")


def _refuse_other_positions(weights: Mapping[str, Array]) -> None:
    """Refuse stored positions that differ from Marian's computed ones."""
    for name in POSITIONS:
        if name in weights:
            table = weights[name]
            expected = sinusoids(*table.shape).numpy()[:, order(table.shape[1])]
            if not np.allclose(table, expected, atol=1e-3):  # the precision of float16
                raise ExportError(f"{name} are not sinusoids.", "It cannot be imported.")


# --- to ours --------------------------------------------------------------------------------------------------


def _model_settings(
    config: Mapping[str, Any], tokenizer_config: Mapping[str, Any], weights: Mapping[str, Array], *, output_bias: bool
) -> ModelSettings:
    """The architecture in the paper's names. Biases that are all zero are omitted."""
    longest = min(config.get("max_position_embeddings", 512), int(tokenizer_config.get("model_max_length") or 512))
    biased = any(np.any(tensor) for name, tensor in weights.items() if name.endswith("_proj.bias"))
    try:
        return ModelSettings(
            n_encoder_layers=config["encoder_layers"],
            n_decoder_layers=config["decoder_layers"],
            d_model=config["d_model"],
            d_ff=config["encoder_ffn_dim"],
            n_heads=config["encoder_attention_heads"],
            dropout=float(config.get("dropout", 0.1)),
            activation=_ACTIVATIONS[config["activation_function"]],
            attention_bias=biased,
            output_bias=output_bias,
            max_length=longest,
        )
    except SettingsError as e:
        raise ExportError(f"config.json is wrong: {e.what}", "Download the folder again.") from None


def _to_ours(
    folder: Path, weights: Mapping[str, Array], settings: ModelSettings, pieces: ImportedPieces, banned: Sequence[int]
) -> dict[str, Array]:
    """The weights under our names, rows in the order of our ids."""
    rows = np.array(pieces.rows)
    shared = next((n for n in (EMBEDDING, "model.encoder.embed_tokens.weight", "lm_head.weight") if n in weights), "")
    if not shared or weights[shared].shape != (1 + rows.max(), settings.d_model):
        raise ExportError(f"{folder / _WEIGHTS} has no embeddings that match config.json.", "Download it again.")
    bias = weights.get(BIAS, np.zeros((1, len(weights[shared])), dtype=np.float32)).reshape(-1)[rows]
    bias[[*pieces.silent, *np.flatnonzero(np.isin(rows, banned))]] = NEVER
    reordered = {**weights, EMBEDDING: weights[shared][rows], BIAS: bias}
    try:
        tensors = from_marian(reordered, settings)
    except KeyError as e:
        raise ExportError(f"{folder / _WEIGHTS} has no tensor {e}.", "Download it again.") from None
    shapes = parameter_shapes(settings, len(tensors["embedding.weight"]))
    if wrong := next((name for name, tensor in tensors.items() if shapes[name] != tensor.shape), None):
        what = f"{folder / _WEIGHTS} does not match config.json: see {wrong}."
        raise ExportError(what, "Download the folder again.")
    return tensors
