"""The robustness check: it has inputs of every kind, and finds each fault."""

import json
import sys
from pathlib import Path

import pytest

from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import Translation

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def checked():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import robustness

        yield robustness


def translated(text: str, *, finished: bool = True, looped: bool = False) -> Result:
    found = Translation(text, (), 0.0, 0.0, finished=finished, looped=looped)
    return Result(source="", text=text, sentences=(Sentence(source="x", text=text, n_best=(found,)),))


def test_every_kind_of_input_exists_with_its_required_parts(checked):
    kinds = {case.kind for case in checked.cases()}
    assert kinds >= {"digits", "names", "address", "capitals", "no full stop", "typos", "two sentences", "German"}
    assert kinds >= {"nothing", "500 words", "emoji"}
    assert all(text in case.text for case in checked.cases() for text in case.keep)
    assert [case.text for case in checked.cases() if case.kind == "nothing"] == [""]


def test_long_inputs_have_500_words_and_numbers_of_their_own(checked):
    for case in [case for case in checked.cases() if case.kind == "500 words"]:
        assert 500 <= len(case.text.split()) <= 580
        assert set(checked.numbers(case.text).values()) == {1}
    assert checked.one_sentence().count(".") == 1


def test_only_capitals_may_not_be_copied(checked):
    for case in checked.cases():
        assert list(checked.faults(case, translated(case.text))) == ["is copied"] * (case.kind == "capitals")


@pytest.mark.parametrize(
    ("text", "keep", "found", "fault"),
    [
        ("Four words are enough.", (), translated("Ja."), "has 1 words for 4"),
        ("Four words are enough.", (), translated("Ja " * 9), "has 9 words for 4"),
        ("Hello", (), translated(" "), "is empty"),
        ("", (), translated("Hallo"), "is not empty"),
        ("It was 1,250 or 12.", (), translated("Es waren 1.250 oder 13."), "lacks 12"),
        ("7 and 7", (), translated("7 und"), "lacks 7"),
        ("Ask Anna", ("Anna",), translated("Frag Hanna"), "lacks Anna"),
        ("Hello", (), translated("Ha ha ha", looped=True, finished=False), "loops"),
        ("Hello", (), translated("Hallo und", finished=False), "has no end"),
    ],
)
def test_each_fault_is_reported(checked, text, keep, found, fault):
    assert list(checked.faults(checked.Case("x", keep, text), found)) == [fault]


def test_punctuation_in_numbers_is_ignored(checked):
    assert checked.numbers("384,400 and 10:30 and 3.75.") == checked.numbers("384.400 und 10.30 und 3,75")


def test_the_command_writes_a_report(checked, model_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checked, "cases", lambda original=checked.cases: original()[:3])
    file = tmp_path / "robustness.json"
    monkeypatch.setattr(sys, "argv", ["robustness.py", "--model", str(model_file), "--beam", "1", "--json", str(file)])
    checked.main()
    shown = capsys.readouterr().out
    assert shown.startswith("| | input | translation | |\n|---|---|---|---|\n| digits | In 1969, ")
    assert shown.endswith("3 inputs, something wrong with 3.\n")  # a model with random weights keeps no number
    outcomes = json.loads(file.read_text())["outcomes"]
    assert "lacks 1969" in outcomes[0]["faults"]
