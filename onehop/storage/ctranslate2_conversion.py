"""Converts a model file to CTranslate2's files, without torch and without CTranslate2's converter.

Stored int8 rows are copied unchanged; `ctranslate2_centring` may change vectors. CTranslate2 divides a row by its
`weight_scale` where we multiply by a scale, so one is the inverse of the other. Models that CTranslate2 cannot express
are refused with the reason.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from onehop.config import ModelSettings
from onehop.shapes import Float32
from onehop.storage.cache import Pieces
from onehop.storage.ctranslate2_centring import centred
from onehop.storage.ctranslate2_format import (
    METADATA_FILE,
    TOKENIZER_FILE,
    Compute,
    alignment_layer,
    positions_of,
    vocabulary,
)
from onehop.storage.model_file import StoredModel
from onehop.storage.number_formats import Array, Int8Rows, convert, plain_bytes, to_float32
from onehop.text.tokenizer import BOS, EOS, UNK

_BINARY_VERSION = 6
_SPECIFICATION, _REVISION = "TransformerSpec", 7
_TYPE_IDS = {"float32": 0, "int8": 1, "int16": 2}
ACTIVATIONS = {"relu": 0, "swish": 2, "gelu": 3}
_EMBEDDINGS_ADDED = 0


def ct2_files(stored: StoredModel, compute: Compute) -> dict[str, Pieces]:
    """CTranslate2's files: the weights, how to begin and end a sentence, the vocabulary."""
    model, pieces = stored.settings.model, vocabulary(stored.tokenizer)
    variables = _variables(stored, compute)
    if compute == "int8":
        variables = centred(variables, model)
    config = {
        "add_source_bos": False,
        "add_source_eos": model.source_end is not False,
        "bos_token": pieces[BOS],
        "decoder_start_token": pieces[BOS],
        "eos_token": pieces[EOS],
        "layer_norm_epsilon": None,
        "multi_query_attention": False,
        "unk_token": pieces[UNK],
    }
    return {
        "model.bin": _binary(variables, _aliases(model)),
        "config.json": [json.dumps(config, indent=2).encode()],
        "shared_vocabulary.json": [json.dumps(pieces, ensure_ascii=False).encode()],
    }


def cached_files(stored: StoredModel, compute: Compute) -> dict[str, Pieces]:
    """The same plus what a translator needs, so that the model file need not be read again."""
    model = stored.settings.model
    metadata: dict[str, Any] = {
        "source": stored.source,
        "target": stored.target,
        "d_model": model.d_model,
        "positions": positions_of(model),
        "learned": model.positions == "learned",
    }
    own: dict[str, Pieces] = {TOKENIZER_FILE: [stored.tokenizer], METADATA_FILE: [json.dumps(metadata).encode()]}
    return {**ct2_files(stored, compute), **own}


# --- the variables --------------------------------------------------------------------------------------------


def _variables(stored: StoredModel, compute: Compute) -> dict[str, Array]:
    """Every variable by CTranslate2's name for it."""
    model, tensors = stored.settings.model, _Tensors(stored, compute)
    variables = tensors.matrix("decoder/embeddings", "embedding.weight" if model.tied else "target_embedding.weight")
    if not model.tied:
        variables |= tensors.matrix("encoder/embeddings_0", "embedding.weight")
        variables |= tensors.matrix("decoder/projection", "output.weight")
    if model.output_bias:
        variables["decoder/projection/bias"] = tensors.plain("output_bias")
    for stack, side, layers in (
        ("encoder", "source_input", model.n_encoder_layers),
        ("decoder", "target_input", model.n_decoder_layers),
    ):
        variables |= _switches(stack, model)
        if model.positions == "learned":
            variables[f"{stack}/position_encodings/encodings"] = tensors.plain(f"{side}.positions")
        if model.norm == "pre":
            variables |= tensors.norm(f"{stack}/layer_norm", f"{stack}.last_norm")
        for i in range(layers):
            variables |= _layer(tensors, f"{stack}/layer_{i}", f"{stack}.layers.{i}", cross=stack == "decoder")
    if model.positions == "sinusoidal":
        variables["decoder/position_encodings/encodings"] = sinusoids(positions_of(model), model.d_model)
    return variables


def _aliases(model: ModelSettings) -> dict[str, str]:
    """Variables that share another one's tensor; scales follow their weights."""
    aliases = {}
    if model.tied:
        for name in ("encoder/embeddings_0", "decoder/projection"):
            aliases[f"{name}/weight"] = "decoder/embeddings/weight"
    if model.positions == "sinusoidal":
        aliases["encoder/position_encodings/encodings"] = "decoder/position_encodings/encodings"
    return aliases


def _switches(stack: str, model: ModelSettings) -> dict[str, Array]:
    flags = {"pre_norm": model.norm == "pre", "scale_embeddings": True, "activation": ACTIVATIONS[model.activation]}
    flags |= {"embeddings_merge": _EMBEDDINGS_ADDED} if stack == "encoder" else {"start_from_zero_embedding": False}
    variables: dict[str, Array] = {f"{stack}/{name}": np.array(value, dtype=np.int8) for name, value in flags.items()}
    variables[f"{stack}/num_heads"] = np.array(model.n_heads, dtype=np.int16)
    if stack == "decoder":
        variables["decoder/alignment_layer"] = np.array(alignment_layer(model), dtype=np.int16)
        variables["decoder/alignment_heads"] = np.array(model.n_heads, dtype=np.int16)
    return variables


# A layer's parts: CTranslate2's name and ours, our norm, and our projections that each of its matrices stacks.
SUBLAYERS = (
    ("self_attention", "self_attention", "self_add_norm", (("w_q", "w_k", "w_v"), ("w_o",))),
    ("attention", "cross_attention", "cross_add_norm", (("w_q",), ("w_k", "w_v"), ("w_o",))),
    ("ffn", "feed_forward", "feed_add_norm", (("w_1",), ("w_2",))),
)


def _layer(tensors: "_Tensors", theirs: str, ours: str, *, cross: bool) -> dict[str, Array]:
    variables: dict[str, Array] = {}
    for name, own_name, norm, matrices in SUBLAYERS:
        if cross or name != "attention":
            for i, stacked in enumerate(matrices):
                own = (f"{ours}.{own_name}.{projection}.weight" for projection in stacked)
                variables |= tensors.matrix(f"{theirs}/{name}/linear_{i}", *own)
            variables |= tensors.norm(f"{theirs}/{name}/layer_norm", f"{ours}.{norm}.norm")
    return variables


class _Tensors:
    """A model's tensors in the dtype of the computation."""

    def __init__(self, stored: StoredModel, compute: Compute) -> None:
        self.stored, self.compute = stored, compute

    def plain(self, name: str) -> Array:
        return to_float32(self.stored.tensors[name])

    def norm(self, theirs: str, ours: str) -> dict[str, Array]:
        return {f"{theirs}/gamma": self.plain(f"{ours}.weight"), f"{theirs}/beta": self.plain(f"{ours}.bias")}

    def matrix(self, theirs: str, *ours: str) -> dict[str, Array]:
        """Matrices stacked by rows, with their biases if they have any."""
        biases = [
            name for name in (f"{name.removesuffix('.weight')}.bias" for name in ours) if name in self.stored.tensors
        ]
        variables = {f"{theirs}/bias": np.concatenate([self.plain(name) for name in biases])} if biases else {}
        parts = [convert(name, self.stored.tensors[name], self.compute) for name in ours]
        rows = [part for part in parts if isinstance(part, Int8Rows)]
        if not rows:
            return variables | {f"{theirs}/weight": np.concatenate([to_float32(part) for part in parts])}
        scale = np.concatenate([part.scale for part in rows])
        values = np.concatenate([part.values for part in rows])
        return variables | {f"{theirs}/weight": values, f"{theirs}/weight_scale": np.float32(1) / scale}


def sinusoids(length: int, d_model: int) -> Float32[np.ndarray, "length d_model"]:
    """Section 3.5, as `model.transformer.sinusoids` has it, sines and cosines alternating."""
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model).astype(np.float32)


# --- the file -------------------------------------------------------------------------------------------------


def _binary(arrays: Mapping[str, Array], other_names: Mapping[str, str]) -> Pieces:
    """CTranslate2's binary format, as the pieces to write one after the other."""
    head = struct.pack("<I", _BINARY_VERSION) + _string(_SPECIFICATION) + struct.pack("<II", _REVISION, len(arrays))
    pieces: list[bytes | memoryview] = [head]
    for name, array in sorted(arrays.items()):
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        size = struct.pack("<BI", _TYPE_IDS[array.dtype.name], math.prod(array.shape) * array.itemsize)
        pieces += [_string(name) + shape + size, plain_bytes(array)]
    pieces.append(struct.pack("<I", len(other_names)))
    pieces += [_string(alias) + _string(name) for alias, name in sorted(other_names.items())]
    return pieces


def _string(text: str) -> bytes:
    """Length, characters and a zero, which the length counts."""
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data
