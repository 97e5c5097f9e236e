"""A tracer over a model with random weights, and rows of table 3 that take a second."""

import pytest

from onehop.config import with_changes
from onehop.experiments.reverse import digit_strings, in_words, write_pairs
from onehop.interpret.tracer import Tracer


@pytest.fixture(scope="module")
def short_outputs():
    """Models with random weights seldom predict EOS, so outputs are limited to a few tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onehop.decoding.engine.MORE_THAN_SOURCE", 3)
        yield


@pytest.fixture(scope="module")
def tracer(short_outputs, model_file):
    return Tracer.load(model_file, "cpu")


@pytest.fixture
def few_rows(digits, tmp_path, quick_peak):
    """Settings whose rows take a second, and the folder with their data."""
    write_pairs(tmp_path / "digits.tsv", in_words(digit_strings(200)))
    return with_changes(digits[0], ["train.steps=6", "data.valid_size=5"]), tmp_path
