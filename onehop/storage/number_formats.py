"""Number formats of stored weights: float32, bfloat16 as its bits, int8 with a scale a row."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from onehop.errors import ModelFileError
from onehop.shapes import Float, Float32, Int8, Num, UInt16

TAGS = {"float32": "F32", "uint16": "BF16", "int8": "I8", "uint8": "U8"}
DTYPES = {tag: np.dtype(name).newbyteorder("<") for name, tag in TAGS.items()}

NumberFormat = Literal["float32", "bfloat16", "int8"]
Array: TypeAlias = Num[np.ndarray, "..."]


@dataclass(frozen=True)
class Int8Rows:
    """A matrix as int8 rows from -127 to 127, each with a float32 scale."""

    values: Int8[np.ndarray, "rows cols"]
    scale: Float32[np.ndarray, " rows"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


# A uint16 array holds the bits of bfloat16, for which numpy has no type.
Tensor: TypeAlias = Float32[np.ndarray, "..."] | UInt16[np.ndarray, "..."] | Int8Rows


def to_float32(tensor: Tensor) -> Float32[np.ndarray, "..."]:
    if isinstance(tensor, Int8Rows):
        return np.asarray(tensor.values * tensor.scale[:, None])
    if tensor.dtype == np.uint16:
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor


def to_bfloat16(values: Float32[np.ndarray, "*shape"]) -> UInt16[np.ndarray, "*shape"]:
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.array(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding the bits of a NaN could carry into the sign, so its upper half is taken and kept a NaN.
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def to_int8(values: Float[np.ndarray, "rows cols"]) -> Int8Rows:
    """Symmetric: the largest magnitude of a row becomes 127."""
    scale = np.abs(values).max(axis=1, initial=0).astype(np.float32) / np.float32(127)
    scale[scale < np.finfo(np.float32).tiny] = 1  # a row of zeros, or so small that its scale underflows in float32
    return Int8Rows(np.rint(values / scale[:, None]).clip(-127, 127).astype(np.int8), scale)


def convert(name: str, tensor: Tensor, store: NumberFormat) -> Tensor:
    """Convert a tensor to a number format. Vectors stay float32: they are small and sensitive."""
    shrink = len(tensor.shape) == 2
    if store == "int8" and shrink and not isinstance(tensor, Int8Rows):
        values = to_float32(tensor)
        if not np.isfinite(values).all():
            raise ModelFileError(
                f"The tensor {name} has values that are not finite, which int8 cannot hold.",
                "Take an earlier checkpoint: the training diverged.",
            )
        return to_int8(values)
    if store == "bfloat16" and shrink and (isinstance(tensor, Int8Rows) or tensor.dtype != np.uint16):
        return to_bfloat16(to_float32(tensor))
    return tensor if shrink and store != "float32" else to_float32(tensor)


def int8_rows(values: Array, scale: Array) -> Int8Rows:
    """Rows and scales as a matrix, if their shapes match."""
    if values.ndim != 2 or scale.dtype != np.float32 or scale.shape != values.shape[:1]:
        raise ValueError("int8 rows and their scales do not match")
    return Int8Rows(values, scale)


def plain_bytes(array: Array) -> bytes | memoryview:
    """An array's bytes in C order, little-endian, without a copy if possible."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
