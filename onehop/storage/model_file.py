"""One model file: weights, settings, tokenizer, languages, provenance, and a hash over all of it.

It is a safetensors file, so reading it executes nothing and needs no torch.
`docs/reference/model-file.md` describes the layout, the hash and the shards.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onehop.config import Settings, settings_to_dict
from onehop.errors import ModelFileError
from onehop.shapes import Float32
from onehop.storage import number_formats
from onehop.storage.model_label import FORMAT
from onehop.storage.number_formats import Array, Int8Rows, Tensor
from onehop.storage.parameter_shapes import parameter_shapes
from onehop.text.tokenizer import vocabulary_of

_TOKENIZER = "__tokenizer__"
_SCALE = ".scale"


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredModel:
    """The content of a model file. Two are equal if their hashes are."""

    settings: Settings
    tokenizer: bytes
    source: str
    target: str
    provenance: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def hash(self) -> str:
        """The SHA-256 of the content, with tensors in their stored number format."""
        return content_hash(content_of(self), to_arrays(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredModel) and self.hash == other.hash

    def __hash__(self) -> int:
        return int(self.hash[:15], 16)

    def weights(self) -> dict[str, Float32[np.ndarray, "..."]]:
        return {name: number_formats.to_float32(tensor) for name, tensor in self.tensors.items()}

    def stored_as(self, store: number_formats.NumberFormat) -> "StoredModel":
        """The same model in another number format. Tensors that already have it are kept bit for bit."""
        return replace(self, tensors={name: number_formats.convert(name, t, store) for name, t in self.tensors.items()})


def canonical_json(value: Any) -> str:
    """Deterministic JSON: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_of(model: StoredModel) -> dict[str, Any]:
    """The description of a model, without its arrays."""
    try:
        provenance = json.loads(canonical_json(dict(model.provenance)))
    except (TypeError, ValueError) as e:
        raise ModelFileError(
            f"The provenance cannot be stored as JSON ({e}).", "Keep it to strings, finite numbers, lists and tables."
        ) from None
    return {
        "format": FORMAT,
        "settings": settings_to_dict(model.settings),
        "source": model.source,
        "target": model.target,
        "provenance": provenance,
    }


def to_arrays(model: StoredModel) -> dict[str, Array]:
    """The arrays as they are written: the tokenizer's bytes too, and int8 rows beside their scales."""
    arrays: list[tuple[str, Array]] = [(_TOKENIZER, np.frombuffer(model.tokenizer, dtype=np.uint8))]
    for name, tensor in model.tensors.items():
        if isinstance(tensor, Int8Rows):
            arrays += [(name, tensor.values), (name + _SCALE, tensor.scale)]
        elif tensor.dtype in (np.float32, np.uint16):
            arrays.append((name, tensor))
        else:
            raise ModelFileError(
                f"The tensor {name} has the dtype {tensor.dtype}.",
                "Give float32, bfloat16 bits as uint16, or Int8Rows.",
            )
    if twice := [name for name, times in Counter(name for name, _ in arrays).items() if times > 1]:
        raise ModelFileError(f"Two tensors are named {twice[0]}.", "Rename one of them.")
    return dict(arrays)


def from_arrays(arrays: Mapping[str, Array]) -> tuple[bytes, dict[str, Tensor]]:
    """Tokenizer and tensors; the inverse of `to_arrays`. A KeyError or ValueError says what is missing or wrong."""
    rest = dict(arrays)
    tokenizer = rest.pop(_TOKENIZER).tobytes()
    quantised = {
        name: number_formats.int8_rows(a, rest[name + _SCALE]) for name, a in rest.items() if a.dtype == np.int8
    }
    scales = {name + _SCALE for name in quantised}
    floats = {name: a for name, a in rest.items() if name not in quantised and name not in scales}
    for name, array in floats.items():
        if array.dtype == np.uint8:
            raise ValueError(f"{name} is not a tensor of weights")
    return tokenizer, {**floats, **quantised}


def content_hash(content: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """SHA-256 of the description and of each array's name, type, shape and bytes: the same however it is sharded."""
    digest = hashlib.sha256(canonical_json(content).encode() + b"\n")
    for name, array in sorted(arrays.items()):
        digest.update(canonical_json([name, number_formats.TAGS[array.dtype.name], list(array.shape)]).encode() + b"\n")
        digest.update(number_formats.plain_bytes(array))
    return digest.hexdigest()


def check_fits(path: Path, model: StoredModel) -> None:
    """Refuse a model whose tokenizer, settings and weights do not match."""
    try:
        vocab_size = vocabulary_of(model.tokenizer).vocab_size
    except ModelFileError as e:
        raise ModelFileError(f"{path} is inconsistent: {e.what}", e.remedy) from None
    shapes = {name: tensor.shape for name, tensor in model.tensors.items()}
    expected = parameter_shapes(model.settings.model, vocab_size)
    if difference := _first_difference(shapes, expected):
        raise ModelFileError(
            f"{path} is inconsistent: {difference}.",
            "Use the settings and the tokenizer that it was trained with.",
        )


def _first_difference(shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> str | None:
    """The first mismatch between tensor shapes and the expected ones, or None."""
    for name in sorted(shapes.keys() | expected.keys()):
        if name not in expected:
            return f"the settings have no tensor {name[:100]!r}"
        if name not in shapes:
            return f"the tensor {name} is missing"
        if shapes[name] != expected[name]:
            return f"{name} has the shape {shapes[name]}, but settings and tokenizer need {expected[name]}"
    return None
