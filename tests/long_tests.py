"""Marks and examples of `make test-long`, which runs longer forms of tests."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

LONG = bool(os.environ.get("ONEHOP_LONG_TESTS"))
LONG_ONLY = (pytest.mark.long, pytest.mark.skipif(not LONG, reason="a longer proof: make test-long"))


def long_only(test: Any) -> Any:
    """Mark a test that only `make test-long` runs. A shorter test must check the same claim."""
    for mark in LONG_ONLY:
        test = mark(test)
    return test


def examples(few: int) -> Callable[[Any], Any]:
    """Limit the examples of a slow property test; `make test-long` draws twenty times as many."""

    def decorate(test: Any) -> Any:
        return pytest.mark.long(settings(max_examples=20 * few if LONG else few)(test))

    return decorate
