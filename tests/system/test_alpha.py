"""The comparison of beams and length penalties."""

import importlib
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def alpha():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("alpha")


def test_sampled_sentences_are_evenly_spaced(alpha, tmp_path):
    file = tmp_path / "set.en"
    file.write_text("".join(f"{i}\n" for i in range(10)), encoding="utf-8")
    assert alpha.lines(file, 3) == ["0", "3", "6"]
    assert alpha.lines(file, 99) == [str(i) for i in range(10)]


def test_there_is_a_row_for_each_search_and_set(alpha, model_file, tmp_path, monkeypatch, capsys):
    for language in ("en", "de"):
        (tmp_path / f"set.{language}").write_text("the old house\na new tree\na bird\n", encoding="utf-8")
    out = tmp_path / "rows.jsonl"
    command = ["alpha.py", "--model", str(model_file), "--data", str(tmp_path), "--sets", "set", "-o", str(out)]
    monkeypatch.setattr(sys, "argv", [*command, "--most", "2"])
    alpha.main()
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    assert [(row["beam"], row["alpha"]) for row in rows] == [
        *((4, value) for value in alpha.ALPHAS),
        *((beam, 0.6) for beam in alpha.BEAMS),
    ]
    assert all(row["set"] == "set" and row["sentences"] == 2 for row in rows)
