"""A trace as a file: a JSON header and the tensors in base64. docs/reference/trace-file.md describes it."""

import base64
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from onehop.atomic import json_object
from onehop.errors import OnehopError, TextError, write_errors

FORMAT, VERSION = "onehop trace", 1

# Tensors that a reader computes with are float32; float16 is enough for the rest.
_EXACT = ("q", "k", "v", "scores", "scaled_scores", "weights", "head_outputs", "positions")
# Tensors that are dropped first if a trace is too large: those that can be recomputed, then those shown least.
# All others always stay.
LEAVE_OUT: tuple[str, ...] = ("logits", "hidden", "concatenation", "masked_scores", "scaled_scores", "projection")
LEAVE_OUT += ("skip", "norm", "residual", "output")

Json = dict[str, Any]
Array = Shaped[np.ndarray, "..."]


@dataclass(frozen=True)
class Named:
    """An array whose axes have names."""

    axes: tuple[str, ...]
    values: Array


def lay_out(tensors: Mapping[str, Named]) -> tuple[Json, bytes]:
    """Where each tensor is in one little-endian buffer, and the buffer."""
    raw = {
        name: tensor.values.astype(tensor.values.dtype.newbyteorder("<")).tobytes() for name, tensor in tensors.items()
    }
    padded = [bytes_ + b"\0" * (-len(bytes_) % 8) for bytes_ in raw.values()]
    offsets = accumulate(map(len, padded), initial=0)
    layout = {
        name: {
            "axes": list(tensor.axes),
            "shape": list(tensor.values.shape),
            "type": str(tensor.values.dtype),
            "offset": offset,
            "bytes": len(raw[name]),
        }
        for (name, tensor), offset in zip(tensors.items(), offsets, strict=False)
    }
    return layout, b"".join(padded)


def pack(tensors: Mapping[str, Named]) -> Json:
    """Tensors as JSON: the offset of each in one little-endian buffer, and the buffer in base64."""
    layout, buffer = lay_out(tensors)
    return {"tensors": layout, "blob": base64.b64encode(buffer).decode("ascii")}


def unpack(packed: Mapping[str, Any]) -> dict[str, Named]:
    """The tensors that `pack` wrote."""
    blob = base64.b64decode(packed["blob"])
    return {
        name: Named(
            tuple(t["axes"]),
            np.frombuffer(blob, np.dtype(t["type"]).newbyteorder("<"), math.prod(t["shape"]), t["offset"]).reshape(
                t["shape"]
            ),
        )
        for name, t in packed["tensors"].items()
    }


def compact(name: str, values: Array) -> Array:
    """The values in float16, unless the tensor must be exact or a value is too large."""
    if name.rpartition(".")[2] in _EXACT:
        return values.astype(np.float32, copy=False)
    largest = np.abs(values).max(initial=0.0, where=np.isfinite(values))
    return values.astype(np.float16 if largest <= np.finfo(np.float16).max else np.float32)


@dataclass(frozen=True)
class Trace(Mapping[str, Array]):
    """A translation with its recorded tensors.

    trace = Tracer.load("model.safetensors").trace("Hello world.")
    trace["encoder.layers.0.self_attention.weights"]  # a numpy array; its axes: trace.axes(name)
    """

    header: Json
    tensors: Mapping[str, Named]

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name].values

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        return f"Trace({self.header['source']['text']!r} -> {self.text!r}, tensors={len(self)})"

    def axes(self, name: str) -> tuple[str, ...]:
        """The names of a tensor's axes."""
        return self.tensors[name].axes

    @property
    def text(self) -> str:
        return str(self.header["target"]["text"])

    def to_json(self) -> str:
        return json.dumps({**self.header, **pack(self.tensors)}, ensure_ascii=False, allow_nan=False)

    def write(self, file: Path | str) -> None:
        with write_errors(file, "Choose another path.", OnehopError):
            Path(file).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        whole = json_object(text)
        if whole is None or whole.get("format") != FORMAT:
            raise OnehopError("This is not a trace.", "Give a file that `onehop trace` has written.")
        if whole["version"] != VERSION:
            what = f"The trace has version {whole['version']}, but this onehop reads version {VERSION}."
            raise OnehopError(what, "Make it again with `onehop trace`.")
        tensors = unpack(whole)
        return cls({key: value for key, value in whole.items() if key not in ("tensors", "blob")}, tensors)

    @classmethod
    def read(cls, file: Path | str) -> "Trace":
        try:
            return cls.from_json(Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise OnehopError(f"{file} cannot be read.", "Check the path.") from None


def fit_to_limit(limit: int, tensors: Mapping[str, Named]) -> tuple[dict[str, Named], list[Json]]:
    """The tensors that fit into the limit, and the omitted ones."""
    kept, left_out = dict(tensors), []
    for kind in LEAVE_OUT:
        size = sum(tensor.values.nbytes for tensor in kept.values())
        if size <= limit:
            break
        why = f"the trace was larger than {limit:,} bytes"
        for name in [name for name in kept if name.rpartition(".")[2] == kind]:
            left_out.append({"name": name, "bytes": kept.pop(name).values.nbytes, "why": why})
    size = sum(tensor.values.nbytes for tensor in kept.values())
    if size > limit:
        raise too_large_error(size, limit)
    return kept, left_out


def too_large_error(size: int, limit: int) -> TextError:
    """The error for a text whose smallest trace exceeds the limit."""
    what = f"The trace of this text takes at least {size / 2**20:,.1f} MB; the limit is {limit / 2**20:,.0f} MB."
    return TextError(what, "Give a shorter sentence, or raise --limit of `onehop trace` or `onehop explore`.")
