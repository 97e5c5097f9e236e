"""Shapes of NumPy arrays in signatures: jaxtyping's annotations where they are checked, the plain array type elsewhere.

The tests check them and load jaxtyping first. Translating neither needs jaxtyping nor waits for its import.
"""

import sys
from typing import TYPE_CHECKING, Any

__all__ = ["Bool", "Float", "Float32", "Int", "Int8", "Num", "UInt16"]

if TYPE_CHECKING or sys.modules.get("jaxtyping"):
    from jaxtyping import Bool, Float, Float32, Int, Int8, Num, UInt16
else:

    class Unchecked:
        """`Float[np.ndarray, "rows cols"]` is `np.ndarray`."""

        def __class_getitem__(cls, annotation: tuple[Any, str]) -> Any:
            return annotation[0]

    Bool = Float = Float32 = Int = Int8 = Num = UInt16 = Unchecked
