"""The files of a table: raw numbers, Markdown, a figure."""

import json
import sys
from pathlib import Path

import pytest
from command_line import onehop

from onehop.config import settings_to_toml
from onehop.errors import MissingPackageError, RunError
from onehop.evaluation.curves import new_figure
from onehop.experiments import heads, provenance, table1, table3


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as error:
        provenance.write_table(tmp_path / "file", "table1", {}, "", lambda: new_figure(1, 1, (5, 4))[0])
    assert str(error.value) == f"{tmp_path / 'file'} cannot be written: File exists. Give another -o."


def test_without_matplotlib_the_table_is_written_without_its_figure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError) as error:
        provenance.write_table(tmp_path, "table1", {"found": 1}, "a table", lambda: new_figure(1, 1, (5, 4))[0])
    assert str(error.value) == (
        f"The table is in {tmp_path / 'table1.md'}, without a picture: This needs matplotlib."
        ' Install it with: pip install "onehop[plots]"'
    )
    assert (tmp_path / "table1.md").read_text() == "a table"
    assert json.loads((tmp_path / "table1.json").read_text()) == {"found": 1}


def test_a_stopped_table_exits_with_status_130(few_rows, monkeypatch):
    settings, folder = few_rows
    (folder / "small.toml").write_text(settings_to_toml(settings))
    monkeypatch.setattr(table3, "train", lambda *args, **more: None)
    words = ["paper", "table3", str(folder / "small.toml"), "--rows", "base", "--data", str(folder)]
    assert onehop(*words, "-o", str(folder / "out")).exit_code == 130
    assert not (folder / "out" / "table3.md").exists()


def test_the_docs_tables_equal_the_raw_files():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "results" / "paper-tables.md").read_text(encoding="utf-8")
    for name, module in (("table1", table1), ("heads", heads)):
        measured = json.loads((root / "results" / "paper" / f"{name}.json").read_text(encoding="utf-8"))
        for block in module.table_text(measured).strip().split("\n\n"):  # the page folds some of them
            assert block in page
