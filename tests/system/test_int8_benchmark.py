"""The comparison of int8 with float32."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def int8():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("int8")


def test_a_loss_is_what_int8_has_less(int8):
    references = [f"the old house number {i} has a new door and a small garden" for i in range(6)]
    rounded = [*references[:5], "a bird sat there"]
    found = int8.report(references, rounded, references)
    assert (found["sentences"], found["same"]) == (6, 5)
    assert found["bleu"]["float32"] == pytest.approx(100)
    assert found["bleu"]["loss"] == pytest.approx(100 - found["bleu"]["int8"], abs=0.01)
    assert found["bleu"]["loss"] > 1
    assert found["bleu"]["p"] == 1.0, "one sentence that differs proves nothing"


def test_equal_translations_lose_nothing(int8):
    texts = ["the old house has a door", "a bird sat in the tree"]
    found = int8.report(texts, texts, texts)
    assert (found["same"], found["bleu"]["loss"], found["chrf"]["loss"]) == (2, 0, 0)
