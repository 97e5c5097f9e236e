"""What `make test` proves in short and `make test-long`, which runs the tests marked `long`, at length."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

LONG = bool(os.environ.get("ONEHOP_LONG_TESTS"))
LONG_ONLY = (pytest.mark.long, pytest.mark.skipif(not LONG, reason="a longer proof: make test-long"))


def long_only(test: Any) -> Any:
    """A test that has a shorter one beside it."""
    for mark in LONG_ONLY:
        test = mark(test)
    return test


def examples(few: int) -> Callable[[Any], Any]:
    """So many examples of a costly property, and twenty times as many in `make test-long`."""

    def decorate(test: Any) -> Any:
        return pytest.mark.long(settings(max_examples=20 * few if LONG else few)(test))

    return decorate
