"""Translations through English."""

import json
import pickle

import pytest
from typer.testing import CliRunner

from onehop.cli import app
from onehop.errors import SettingsError
from onehop.pipelines.translate import translate
from onehop.pipelines.translator import Translator


def test_each_sentence_goes_through_both_models(install):
    install("de-en", "en-fr")
    text = "The old house. A bird\n\n  the new tree"
    found = Translator(source="de", to="fr").translate(text)
    assert (found.models, found.via) == (("de-en", "en-fr"), "en")
    into, out_of = Translator("de-en"), Translator("en-fr")
    for sentence in found.sentences:
        (first,) = into.translate([sentence.source])
        second = out_of.translate(first.text)
        assert sentence.text == second.text
        assert sentence.score == pytest.approx(first.score + second.score)
        assert sentence.token_scores == tuple(score for s in second.sentences for score in s.token_scores)
        assert len(sentence.token_scores) == len(sentence.tokens)
        assert sentence.alignment is None
        assert "alignment" not in found.details(alignments=True)["sentences"][0]
        assert sentence.legs[0].alignment == first.sentences[0].alignment
    assert [s.source for s in found.sentences] == ["The old house.", "A bird", "the new tree"]
    assert "".join(found.text.split("\n\n  ")[-1:]) == found.sentences[2].text
    assert repr(found).startswith("Result(")
    assert "via='en'" in repr(found)


def test_warnings_of_both_legs_are_reported(install):
    install("de-en", "en-fr")
    (result,) = translate(["the old house 42"], to="fr", source="de", glossary={"house": "maison"})
    assert "not in the translation: house → maison" in result.warnings
    assert any("maximum length" in w or "over and over" in w for w in result.warnings)


def test_text_without_words_is_copied(install):
    install("de-en", "en-fr")
    assert translate(" ?! \nhttps://example.com", to="fr", source="de").text == " ?! \nhttps://example.com"


def test_a_pair_of_models_can_be_given_and_pickled(install):
    install("de-en", "en-fr")
    translator = Translator(["de-en", "en-fr"])
    assert repr(translator) == "Translator('de-en', 'en-fr', de → fr)"
    again = pickle.loads(pickle.dumps(translator))
    assert again.translate("a bird") == translator.translate("a bird") == translate("a bird", to="fr", source="de")


@pytest.mark.parametrize("asked", [{"source": "xx"}, {"to": "xx"}])
def test_a_pair_of_models_for_other_languages_is_refused(install, asked):
    install("de-en", "en-fr")
    assert Translator(["de-en", "en-fr"], source="German", to="fr").via == "en"
    with pytest.raises(SettingsError, match=r"^The models translate from de to fr, not from .*xx"):
        Translator(["de-en", "en-fr"], **asked)


def test_options_without_support_through_english_are_refused(install):
    install("de-en", "en-fr")
    translator = Translator(source="de", to="fr")
    with pytest.raises(SettingsError, match=r"^Through English each sentence has one translation, not 2\. Leave out"):
        translator.translate("a bird", n_best=2)
    with pytest.raises(SettingsError, match=r"through English has no one score\. Score with one of de-en and en-fr\.$"):
        translator.score("a bird", "a bird")


# --- on the command line --------------------------------------------------------------------------------------


def onehop(*args, stdin=None):
    return CliRunner().invoke(app, ["translate", *args], input=stdin)


@pytest.mark.parametrize("names", [("--from", "--to"), ("--source", "--target")])
def test_the_command_line_reports_the_pivot_language(install, names):
    install("de-en", "en-fr", "en-de")
    done = onehop("--json", names[0], "de", names[1], "fr", "a bird\nthe tree")
    assert done.exit_code == 0, done.output
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["models"], first["via"]) == (second["models"], second["via"]) == (["de-en", "en-fr"], "en")
    assert first["text"] == translate("a bird", to="fr", source="de").text
    direct = json.loads(onehop("--json", "a bird").stdout)
    assert (direct["models"], direct["via"]) == (["en-de"], None)


def test_the_language_of_standard_input_is_identified_without_losing_lines(install):
    install("de-en", "en-fr")
    lines = "Dies ist gewiss kein englischer Satz, oder etwa doch?\na bird\n"
    done = onehop("--json", "--to", "fr", stdin=lines)
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f["source"] for f in found] == lines.splitlines()
    assert found[0]["models"] == ["de-en", "en-fr"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--to", "it"],
            "No model from any language to it is installed. Choose one of de → en, en → fr, de → en → fr, ",
        ),
        (["--from", "de", "--to", "de"], "The text would be translated from de to de. Choose two languages."),
        (
            ["--from", "de", "--to", "fr", "--json", "--n-best", "2"],
            "There are no --alignments and --n-best through en",
        ),
        (["--from", "de", "--to", "fr", "--json", "--alignments"], "There are no --alignments and --n-best through en"),
    ],
)
def test_unsupported_languages_and_options_are_one_line_errors(install, args, message):
    install("de-en", "en-fr")
    done = onehop("a bird", *args)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"onehop: {message}")
    assert done.stderr.count("\n") == 1
