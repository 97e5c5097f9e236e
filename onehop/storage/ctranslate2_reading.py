"""The variables of a CTranslate2 file, as `ctranslate2_format` and CTranslate2's own converters write it.

The file is not trusted: every length is checked against the file's size.
"""

import math
import struct
from typing import Any

import numpy as np

from onehop.errors import ExportError
from onehop.storage.number_formats import Array

# CTranslate2's type codes. Before version 4 the file has the item size instead. bfloat16 is kept as bits.
_TYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2", 5: "<u2"}
_BY_SIZE = {1: "<i1", 2: "<i2", 4: "<f4"}
_VERSIONS = range(2, 7)
_BFLOAT16 = 5
_DAMAGED = "Download it again."


class _Reader:
    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.at = memoryview(data), name, 0

    def take(self, count: int) -> memoryview:
        if self.at + count > len(self.data):
            raise ExportError(f"{self.name} is cut off.", _DAMAGED)
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0])

    def string(self) -> str:
        """Length, characters and a zero, which the length counts."""
        raw = bytes(self.take(self.number("H"))).rstrip(b"\0")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ExportError(f"{self.name} is not a CTranslate2 model, or is damaged.", _DAMAGED) from None


def read_variables(data: bytes, name: str) -> tuple[str, dict[str, Array]]:
    """The kind of model and every variable. A variable with an alias is listed under both names."""
    source = _Reader(data, name)
    version = source.number("I")
    if version not in _VERSIONS:
        raise ExportError(
            f"{name} is not a CTranslate2 model, or has version {version}.", "Versions 2 to 6 can be read."
        )
    specification = source.string()
    source.number("I")  # the revision is not needed: its effects show in the variables
    variables: dict[str, Array] = {}
    for _ in range(source.number("I")):
        key = source.string()
        variables[key] = _variable(source, version)
    if version >= 3:
        for _ in range(source.number("I")):
            alias, key = source.string(), source.string()
            if key not in variables:
                raise ExportError(f"{name} names {key!r}, which is missing.", _DAMAGED)
            variables[alias] = variables[key]
            if f"{key}_scale" in variables:  # the alias shares the scale, too
                variables[f"{alias}_scale"] = variables[f"{key}_scale"]
    return specification, variables


def _variable(source: _Reader, version: int) -> Array:
    """One variable; float16 and bfloat16 become float32, which holds them exactly."""
    shape = [source.number("I") for _ in range(source.number("B"))]
    code = source.number("B")
    known: dict[int, Any] = _TYPES if version >= 4 else _BY_SIZE
    if code not in known:
        raise ExportError(f"{source.name} has an unknown dtype.", _DAMAGED)
    kind = np.dtype(known[code])
    size = source.number("I") * (1 if version >= 4 else kind.itemsize)
    if size != math.prod(shape) * kind.itemsize:
        raise ExportError(f"{source.name} has a variable whose size does not match its header.", _DAMAGED)
    values = np.frombuffer(source.take(size), kind).reshape(shape)
    if version >= 4 and code == _BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32) if kind.kind == "f" else values
