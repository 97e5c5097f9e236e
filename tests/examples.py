"""How many examples a costly property test draws: a few in `make test`, twenty times as many in `make test-long`."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

LONG = bool(os.environ.get("ONEHOP_LONG_TESTS"))


def examples(few: int) -> Callable[[Any], Any]:
    def decorate(test: Any) -> Any:
        return pytest.mark.examples(settings(max_examples=20 * few if LONG else few)(test))

    return decorate
