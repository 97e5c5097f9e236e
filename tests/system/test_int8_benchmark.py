"""The comparison of int8 with float32."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def int8():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("int8")


def test_the_loss_is_the_score_difference_to_float32(int8):
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


class Counting:
    """Marks texts as translated, and may be stopped before a part."""

    def __init__(self, stop_at=None):
        self.parts, self.stop_at = [], stop_at

    def translate(self, texts):
        if len(self.parts) == self.stop_at:
            raise KeyboardInterrupt
        self.parts.append(texts)
        return [SimpleNamespace(text=f"{text}!") for text in texts]


def test_a_stopped_run_resumes_with_the_next_part(int8, tmp_path):
    parts, key, file = [["a", "b"], ["c"], ["d"]], {"int8": "hash"}, tmp_path / "int8.json.parts"
    whole = [{"int8": [f"{text}!" for text in part]} for part in parts]
    with pytest.raises(KeyboardInterrupt):
        list(int8.translated({"int8": Counting(stop_at=2)}, parts, key, file))
    with file.open("a") as opened:
        opened.write('{"int8": ["d')  # the disk was full
    again = Counting()
    assert list(int8.translated({"int8": again}, parts, key, file)) == whole
    assert again.parts == [["d"]]
    assert list(int8.translated({"int8": Counting(stop_at=0)}, parts, key, file)) == whole
    with pytest.raises(SystemExit, match="belongs to other models or another set"):
        list(int8.translated({"int8": again}, parts, {"int8": "other"}, file))
