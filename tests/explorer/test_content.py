"""The data of the explorer's page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import onehop
from page_data import TEXT

from onehop.errors import OnehopError
from onehop.experiments import measure
from onehop.explorer.content import (
    ENGLISH,
    MEASUREMENTS,
    SENTENCES,
    Explorer,
    measured,
    read_data,
    worked_example,
)
from onehop.interpret.ablations import EditTap, parse_edits
from onehop.interpret.trace_file import unpack
from onehop.interpret.tracer import Tracer
from onehop.pipelines.confidence import confidence
from onehop.pipelines.route import identifier

# --- the worked example


def test_the_worked_example_has_the_expected_numbers():
    steps = worked_example()["steps"]
    golden = {
        "q": [[0.8, 1.0, 1.2], [0.5, 0.7, 0.9]],
        "k": [[1.0, 1.2, 0.5], [0.7, 0.9, 1.1]],
        "v": [[1.2, 0.5, 0.7], [0.9, 1.1, 1.3]],
        "scores": [[2.60, 2.78], [1.79, 1.97]],
        "scaled_scores": [[1.501, 1.605], [1.033, 1.137]],
        "weights": [[0.474, 0.526], [0.474, 0.526]],
        "head_outputs": [[1.042, 0.816, 1.016], [1.042, 0.816, 1.016]],
    }
    for name, expected in golden.items():
        np.testing.assert_allclose(steps[name], expected, atol=5e-4, err_msg=name)


# --- the content


def test_an_edited_translation_is_computed_once(tracer, monkeypatch):
    asked, compute = [], tracer.variant
    monkeypatch.setattr(tracer, "variant", lambda text, edits: asked.append(edits) or compute(text, edits))
    explorer = Explorer(tracer, TEXT)
    first, again = (explorer.variant(TEXT, ["mask=off"]) for _ in range(2))
    assert first == again
    assert explorer.variant(TEXT, ["scale=off"]) != first
    assert asked == [("mask=off",), ("scale=off",)]


def test_the_page_offers_a_dozen_edits_that_the_model_can_make(explorer, tracer):
    offered = explorer.about()["edits"]
    assert len(offered) == 12
    for entry in offered:
        EditTap(tracer.model, parse_edits(entry["edits"]))
        assert entry["label"]
    assert {parse_edits(e["edits"])[0].name for e in offered} == {
        *("scale", "mask", "positions", "head", "heads", "residual", "norm")
    }


def test_the_opening_sentence_is_offered_first_and_only_once(explorer, tracer):
    assert explorer.about()["sentences"] == [TEXT, *ENGLISH]
    assert Explorer(tracer).about()["sentences"] == list(ENGLISH)


@pytest.fixture
def opening_alone(monkeypatch):
    """An exported page is its first sentence: the figures are tested elsewhere and take seconds."""
    monkeypatch.setattr(Explorer, "alone", lambda self, text, edits: json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_a_model_is_offered_sentences_in_its_language(language, model_file, tmp_path, monkeypatch, opening_alone):
    other = Tracer.load(model_file, "cpu")
    monkeypatch.setattr(other.translator, "source", language)
    assert Explorer(other).about()["sentences"] == list(SENTENCES[language])
    assert {identifier().guess(" ".join(SENTENCES[language]))["language"]} == {language}
    monkeypatch.setattr(Tracer, "load", lambda *_: other)
    page = tmp_path / "x.html"
    done = onehop("explore", "-m", model_file, "--export", page)
    assert done.stderr == ""
    assert json.loads(page.read_text(encoding="utf-8")) == SENTENCES[language][0]


def test_a_model_without_sample_sentences_in_its_language_gets_none(model_file, tmp_path, monkeypatch, opening_alone):
    other = Tracer.load(model_file, "cpu")
    monkeypatch.setattr(other.translator, "source", "fi")
    assert Explorer(other, "Puu.").about()["sentences"] == ["Puu."]
    monkeypatch.setattr(Tracer, "load", lambda *_: other)
    page = tmp_path / "x.html"
    done = onehop("explore", "-m", model_file, "--export", page)
    assert done.stderr == "It reads fi, and the page opens in English: give a TEXT.\n"
    assert onehop("explore", "Puu.", "-m", model_file, "--export", page).stderr == ""
    assert json.loads(page.read_text(encoding="utf-8")) == "Puu."


def test_traces_are_cached(explorer, monkeypatch):
    first = explorer.trace(TEXT)
    monkeypatch.setattr(Tracer, "trace", lambda *_: pytest.fail("it was computed again"))
    assert explorer.trace(TEXT) == first


def test_a_variant_says_whether_the_translation_changed(explorer):
    plain = json.loads(explorer.trace(TEXT))["target"]["text"]
    for entry in explorer.about()["edits"]:
        found = explorer.variant_or_error(TEXT, entry["edits"][0])
        assert found["label"] == entry["label"]
        assert found["same"] == (found["target"]["text"] == plain)
        cross = unpack(found)["cross"].values
        assert cross.shape[2:] == (len(found["steps"]), len(json.loads(explorer.trace(TEXT))["source"]["ids"]))
    assert not all(explorer.variant_or_error(TEXT, e["edits"][0])["same"] for e in explorer.about()["edits"])


def test_a_variant_that_cannot_be_computed_says_why(tracer, monkeypatch):
    def fails(*_):
        raise OnehopError("The numbers are gone.", "Leave out an edit.")

    monkeypatch.setattr(Tracer, "variant", fails)
    found = Explorer(tracer, TEXT).variant_or_error(TEXT, "norm=off")
    assert found == {
        "edits": ["norm=off"],
        "label": "no layer norm",
        "error": "The numbers are gone. Leave out an edit.",
    }


def test_page_and_command_have_the_same_measurements():
    assert MEASUREMENTS == tuple(measure.MEASURE) == tuple(measure.OPTIONS)
    assert tuple(measured()) == (*MEASUREMENTS, "patches")


def test_every_measurement_has_a_data_file():
    assert [name for name, found in measured().items() if found is None] == []


def test_every_measurement_names_date_machine_model_and_command():
    for name, found in measured().items():
        if found is not None:
            assert found["name"] == name
            digits = ("onehop digits", "onehop demo digits")  # as it was called until 0.1, and since
            command = digits if name == "patches" else f"onehop paper measure {name}"
            assert found["made_by"].startswith(command)
            assert {"date", "machine", "model"} <= set(found)


def test_the_paper_table_has_its_best_score_and_lowest_cost():
    systems = {s["system"]: s for s in read_data("paper")["systems"] if not s["ensemble"]}
    best = max((s for s in systems.values() if s["en_de"]), key=lambda s: s["en_de"])
    assert (best["system"], best["en_de"], best["en_fr"]) == ("Transformer (big)", 28.4, 41.8)
    assert min(s["flop_en_de"] for s in systems.values() if s["flop_en_de"]) == 3.3e18


def test_the_stored_images_come_from_a_trained_model(explorer):
    found = measured()["patches"]
    assert found["right"] / found["of"] >= 0.97
    assert {image["digit"] for image in found["images"]} == set(range(10))


def test_a_trace_has_the_size_that_was_asked_for(explorer, model_file, monkeypatch):
    small = Explorer(explorer.tracer, limit=20_000)
    assert small.about()["limit_bytes"] == 20_000
    assert json.loads(small.trace(TEXT))["left_out"]
    asked = []
    monkeypatch.setattr(Explorer, "__init__", lambda self, *args, limit, **_: asked.append(limit) or 1 / 0)
    onehop("explore", "-m", model_file, "--limit", "3", "--export", "x.html")
    assert asked == [3 * 2**20]


def test_a_limit_must_be_a_whole_number_of_megabytes(model_file):
    for limit in ("0", "-1", "1.5"):
        done = onehop("explore", "-m", model_file, "--limit", limit, "--export", "x.html")
        assert done.exit_code == 2
        assert re.fullmatch(r"onehop: Invalid value for '--limit': .*\. See `onehop explore --help`\.\n", done.stderr)


# --- how likely a translation is good


def test_a_fitted_model_has_a_confidence_and_others_have_none(explorer, monkeypatch):
    target = {"ids": [5, 6, 7], "finished": True, "looped": False, "log_prob": -0.4}
    assert explorer.confidence({"target": target, "edits": []}) is None
    assert json.loads(explorer.trace(TEXT))["confidence"] is None
    monkeypatch.setattr(explorer.tracer, "name", "en-de")
    sure = confidence("en-de", -0.4, 4, finished=True)
    assert explorer.confidence({"target": target, "edits": []}) == {"value": sure, "doubtful": False}
    assert explorer.confidence({"target": target, "edits": ["mask=off"]}) is None
    looped = {**target, "looped": True}
    assert explorer.confidence({"target": looped, "edits": []}) == {"value": 0.0, "doubtful": True}


# --- the language of a sentence


def test_the_language_of_a_text_in_another_language_is_named(explorer):
    assert explorer.tracer.translator.source == "en"
    german = "Die Katze saß auf der Matte, weil sie sehr müde war."
    assert explorer.other_language(german) == {"code": "de", "read": "German", "reads": "English"}
    assert all(explorer.other_language(text) is None for text in (*ENGLISH, "", "Haus", "12 345 6"))
    assert json.loads(explorer.trace(TEXT))["language"] is None


@pytest.mark.parametrize(("pair", "score"), [("en_de", "bleu_compounds"), ("en_fr", "bleu_tokenised")])
def test_own_results_equal_the_recorded_scores(pair, score):
    """As the paper scores: tokenised, in German with compounds split."""
    folder = Path(__file__).parents[2] / "results" / pair.replace("_", "-")
    report = json.loads((folder / "newstest2014.json").read_text(encoding="utf-8"))
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    steps = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"]
    (own,) = [s for s in read_data("paper")["own"] if s[pair] is not None]
    assert own[pair] == round(report["scores"][score]["score"]["value"], 1)
    assert own[f"flop_{pair}"] == pytest.approx(6 * run["parameters"] * run["batch_tokens"] * steps, rel=0.01)
