"""The tests' own check of types and shapes refuses what jaxtyping's would refuse."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import shape_checks
import torch
from jaxtyping import Float

from onehop.config import ModelSettings
from onehop.model.loss import cross_entropy
from onehop.model.transformer import Transformer

beartype = pytest.importorskip("beartype").beartype
Matrix = Float[np.ndarray, "rows columns"]


def checked(thing):
    return shape_checks.quick(thing, typechecker=beartype)


def product(a: Float[np.ndarray, "rows inner"], b: Float[np.ndarray, "inner columns"], turned: bool = False) -> Matrix:
    return (a @ b).T if turned else a @ b


def rows_of(matrix: Matrix) -> Iterator[int]:
    yield from range(len(matrix))


def double(number: int) -> int:
    return 2 * number if number else ""


@dataclass(frozen=True)
class Pair:
    first: Float[np.ndarray, " rows"]
    second: Float[np.ndarray, " rows"] | None


A, B = np.zeros((2, 3)), np.zeros((3, 4))


def test_an_axis_has_one_size_within_a_call():
    by = checked(product)
    assert by(A, B).shape == (2, 4)
    assert by(B, np.zeros((4, 1))).shape == (3, 1)
    with pytest.raises(Exception, match="violates type hint"):
        by(B, A)
    with pytest.raises(Exception, match="violates type hint"):
        by(A, B, turned=True)  # the result has a wrong shape
    assert by(A, B).shape == (2, 4)  # a failed call has no effect on the next


def test_plain_types_generators_and_dataclasses_are_checked():
    assert checked(double)(2) == 4
    with pytest.raises(Exception, match="violates type hint"):
        checked(double)("a")
    with pytest.raises(Exception, match="violates type hint"):
        checked(double)(0)
    assert list(checked(rows_of)(A)) == [0, 1]
    with pytest.raises(Exception, match="rows_of"):
        checked(rows_of)(A[0])
    pair = checked(Pair)
    assert pair(A[0], None).second is None
    with pytest.raises(Exception, match="violates type hint"):
        pair(A[0], B[0])


def test_functions_and_classes_of_onehop_are_checked():
    with pytest.raises(Exception, match="violates type hint"):
        cross_entropy(torch.zeros(2, 5), torch.zeros(3, dtype=torch.int64), 0.1)
    with pytest.raises(Exception, match="violates type hint"):
        Transformer(ModelSettings(), "many")
