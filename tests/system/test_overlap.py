"""The search for test sentences in the training text finds all overlaps and nothing else."""

import importlib
import json
import lzma
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
TEST = "The quick brown fox jumps over the lazy dog today"  # ten words, six runs of five


@pytest.fixture(scope="module")
def overlap():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("overlap")


def test_word_runs_ignore_case_and_punctuation(overlap):
    assert overlap.runs("One, two; THREE four (five) six!") == {"one two three four five", "two three four five six"}
    assert overlap.runs("Only four words here") == set()


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        ([TEST.lower() + "."], {"50%": 1, "80%": 1}),
        (["Yes: the quick brown fox jumps over the lazy cat"], {"50%": 1, "80%": 0}),
        (["The quick brown fox jumps high", "A cat jumps over the lazy dog today"], {"50%": 0, "80%": 0}),
        (["Something else altogether stands in this line"], {"50%": 0, "80%": 0}),
    ],
)
def test_overlap_is_counted_within_single_lines(overlap, tmp_path, monkeypatch, lines, shared):
    """Two halves in two lines do not count as an overlap."""
    for language in ("en", "de"):
        (tmp_path / f"test.{language}").write_text(f"{TEST}\nToo short to say\n", encoding="utf-8")
    train, out = tmp_path / "train.tsv.xz", tmp_path / "found.json"
    train.write_bytes(lzma.compress("".join(f"{line}\tnichts davon\n" for line in lines).encode()))
    command = ["overlap.py", "--train", str(train), "--sets", str(tmp_path / "test"), "-o", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    overlap.main()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["test"]["en"] == {"counted": 1, **shared}
    assert found["test"]["de"] == {"counted": 1, "50%": 0, "80%": 0}
