"""The command that measures what the page shows."""

import ast
import json
from pathlib import Path

import pytest

from onehop.experiments import measure
from onehop.explorer.content import (
    MEASUREMENTS,
)
from onehop.interpret.tracer import Tracer
from onehop.storage.model_label import describe


def test_a_measurement_carries_its_provenance(model_file, tmp_path, capsys):
    (tmp_path / "s.en").write_text("the old house\na new bird\nthe tree\n", encoding="utf-8")
    args = ["coreference", "lengths", "-m", str(model_file), "--source", str(tmp_path / "s.en")]
    args += ["--reference", str(tmp_path / "s.en"), "--sentences", "2", "--device", "cpu", "-o", str(tmp_path)]
    assert measure.main(args) == 0
    found = json.loads((tmp_path / "lengths.json").read_text(encoding="utf-8"))
    assert found["made_by"] == (
        "python -m onehop.experiments.measure lengths --model model.safetensors --source s.en --reference s.en "
        "--sentences 2"
    )
    assert found["model"]["hash"] == Tracer.load(model_file).hash
    settings = describe(model_file).content["settings"]
    assert (found["set"], found["trained_to"]) == ("s", settings["data"]["longest"])
    assert {"cpu", "cores", "torch"} <= set(found["machine"])
    assert "coreference.json: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["patterns"], "onehop: This measurement needs -m. Give -m MODEL.\n"),
        (["warmup"], "onehop: This measurement needs --store. Give --store STORE.\n"),
        (["twins"], "onehop: This measurement needs --table3. Give --table3 FILE.\n"),
        (
            ["twins", "--table3", "nowhere.json"],
            "onehop: nowhere.json cannot be read ([Errno 2] No such file or directory: 'nowhere.json'). "
            "Give a table3.json of onehop paper table3.\n",
        ),
    ],
)
def test_what_a_measurement_needs_is_told(names, message, tmp_path, capsys):
    assert measure.main([*names, "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == message


def test_files_that_are_not_aligned_are_refused(model_file, tmp_path, capsys):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("one\n")
    args = ["lengths", "-m", str(model_file), "--source", str(tmp_path / "a"), "--reference", str(tmp_path / "b")]
    assert measure.main(args) == 2
    assert capsys.readouterr().err == "onehop: There are 2 sources and 1 references. Give aligned files.\n"


def test_the_command_is_documented_as_it_is():
    """The module's own help names every measurement once."""
    named = ast.get_docstring(ast.parse(Path(measure.__file__).read_text(encoding="utf-8")))
    assert all(name in named for name in MEASUREMENTS)
