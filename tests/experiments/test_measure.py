"""`onehop paper measure`: the explorer's measurements over many sentences."""

import json

import pytest
from command_line import onehop

from onehop.interpret.tracer import Tracer
from onehop.storage.model_label import describe


def measured(*arguments):
    return onehop("paper", "measure", *arguments)


def test_a_measurement_records_its_provenance(model_file, tmp_path):
    (tmp_path / "s.en").write_text("the old house\na new bird\nthe tree\n", encoding="utf-8")
    given = ["-m", model_file, "--source", tmp_path / "s.en", "--reference", tmp_path / "s.en", "--sentences", "2"]
    out = tmp_path / "new" / "folder"
    result = measured("coreference", "lengths", *given, "--device", "cpu", "-o", out)
    assert result.stdout.split() == [str(out / "coreference.json"), str(out / "lengths.json")], result.output
    found = json.loads((out / "lengths.json").read_text(encoding="utf-8"))
    assert found["made_by"] == (
        "onehop paper measure lengths --model model.safetensors --source s.en --reference s.en --sentences 2"
    )
    assert found["model"]["hash"] == Tracer.load(model_file).hash
    settings = describe(model_file).content["settings"]
    assert (found["set"], found["trained_to"]) == ("s", settings["data"]["longest"])
    assert {"cpu", "cores", "torch"} <= set(found["machine"])


def test_the_name_of_the_default_model_is_recorded(install, tmp_path):
    install("en-de")
    assert measured("coreference", "-o", tmp_path).exit_code == 0
    found = json.loads((tmp_path / "coreference.json").read_text(encoding="utf-8"))
    assert found["made_by"] == "onehop paper measure coreference --model en-de"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["patterns"], "onehop: --source is missing. Give --source SOURCE.\n"),
        (["lengths", "--source", "a"], "onehop: --reference is missing. Give --reference REFERENCE.\n"),
        (["warmup"], "onehop: --store is missing. Give --store STORE.\n"),
        (["twins"], "onehop: --table3 is missing. Give --table3 TABLE3.\n"),
        (
            ["twins", "--table3", "nowhere.json"],
            "onehop: nowhere.json cannot be read ([Errno 2] No such file or directory: 'nowhere.json'). "
            "Give a table3.json of onehop paper table3.\n",
        ),
        (
            ["path"],
            "onehop: There is no measurement path. Choose from dimension, paths, complexity, coreference, patterns, "
            "pruning, lengths, warmup, twins.\n",
        ),
    ],
)
def test_missing_options_of_a_measurement_are_named(arguments, message, tmp_path):
    result = measured(*arguments, "-o", tmp_path)
    assert (result.exit_code, result.stderr) == (2, message)


def test_files_that_are_not_aligned_are_refused(model_file, tmp_path):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("one\n")
    result = measured("lengths", "-m", model_file, "--source", tmp_path / "a", "--reference", tmp_path / "b")
    assert result.exit_code == 2
    assert "has 2 lines" in result.stderr
