"""Which models translate between two languages."""

import pytest

from onehop.errors import ModelFileError, SettingsError
from onehop.pipelines import route
from onehop.pipelines.route import AlreadyTranslatedError, find_route

GERMAN = "Dies ist gewiss kein englischer Satz, oder etwa doch?"
ENGLISH = "This surely is an English sentence, and a long one."
SPANISH = "Esta frase no está en inglés ni en alemán, está en español."


def names(found):
    return [path.stem for path in found]


def test_a_model_for_both_languages_is_chosen(install):
    install("en-de", "de-en", "en-fr", "fr-en")
    assert names(find_route(source="fr", target="en")) == ["fr-en"]
    assert names(find_route(source="French", target="EN")) == ["fr-en"]
    assert names(find_route("en-fr", target="fr")) == names(find_route(None, "en", "fr")) == ["en-fr"]
    assert names(find_route()) == ["en-de"]


def test_languages_without_a_model_go_through_english(install):
    install("en-de", "de-en", "en-fr", "fr-en")
    assert names(find_route(source="de", target="fr")) == ["de-en", "en-fr"]
    assert names(find_route(source="fr", target="de")) == ["fr-en", "en-de"]


def test_a_quality_applies_to_both_legs(install):
    install("en-de", "de-en", "en-fr", "de-en-small", "en-fr-small")
    assert names(find_route(source="de", target="fr", quality="fast")) == ["de-en-small", "en-fr-small"]
    assert names(find_route(source="de", target="fr", quality="best")) == ["de-en", "en-fr"]
    install("fr-en", "fr-en-small")
    with pytest.raises(ModelFileError, match="No small model from en to de is installed: --quality fast needs en-de-s"):
        find_route(source="fr", target="de", quality="fast")


def test_the_language_of_the_text_chooses_among_models(install):
    install("en-de", "de-en", "en-fr")
    assert names(find_route(target="fr", text=lambda: GERMAN)) == ["de-en", "en-fr"]
    assert names(find_route(target="fr", text=lambda: ENGLISH)) == ["en-fr"]
    assert names(find_route(target="fr", text=lambda: "Hallo Welt")) == ["de-en", "en-fr"]


def test_the_text_is_not_read_if_its_language_is_given(install):
    install("en-de", "de-en")
    for asked in ({"source": "en", "target": "de"}, {"model": "en-de", "target": "de"}, {}):
        assert names(find_route(**asked, text=lambda: pytest.fail("asked"))) == ["en-de"]


def test_a_text_in_the_target_language_is_refused_with_one_model(install):
    install("en-de", "de-en")
    with pytest.raises(AlreadyTranslatedError, match=r"^The text seems to be in English \(en\) already\. Give --from"):
        find_route(target="en", text=lambda: "The weather is nice today.")
    assert names(find_route(target="en", source="de", text=lambda: ENGLISH)) == ["de-en"]
    for other in ("Hamburg", "Taxi", "", SPANISH, GERMAN):  # too short, or the pipeline warns of it
        assert names(find_route(target="en", text=lambda other=other: other)) == ["de-en"]


def test_the_source_auto_is_identified(install):
    install("en-de", "de-en", "en-fr")
    assert names(find_route(source="auto", target="fr", text=lambda: GERMAN)) == ["de-en", "en-fr"]
    for asked in ({}, {"model": "en-de"}, {"target": "de"}):
        assert names(find_route(source="AUTO", **asked, text=lambda: ENGLISH)) == ["en-de"]
        with pytest.raises(AlreadyTranslatedError, match=r"in German \(de\) already"):
            find_route(source="auto", **asked, text=lambda: GERMAN)


def test_a_text_in_the_target_language_is_refused_with_several_models(install):
    install("en-de", "fr-de", "de-en")
    with pytest.raises(AlreadyTranslatedError):
        find_route(target="de", text=lambda: "Das Wetter ist heute schön.")


def test_without_the_identifier_the_direct_model_is_chosen(install, monkeypatch):
    install("en-de", "de-en", "en-fr")
    monkeypatch.setattr(route.identifier(), "is_installed", False)
    assert names(find_route(target="fr", text=lambda: GERMAN)) == ["en-fr"]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"source": "de", "target": "it"}, ModelFileError, "No model from de to it is installed. Choose one of "),
        (
            {"target": "xx"},
            ModelFileError,
            "No model from any language to xx is installed. Choose one of de → en, en → de",
        ),
        ({"source": "xx"}, ModelFileError, "No model from xx to any language is installed. Choose one of "),
        ({"source": "de", "target": "de"}, SettingsError, "The text would be translated from de to de. Choose two"),
        (
            {"target": "fr", "text": lambda: SPANISH},
            ModelFileError,
            "The text seems to be in Spanish (es), and no model from es to fr is installed. "
            "Give --from if it is in one of de, en.",
        ),
        (
            {"target": "fr", "text": lambda: "Ceci est une phrase en français, sans aucun doute."},
            AlreadyTranslatedError,
            "The text seems to be in French (fr) already. Give --from if it is not.",
        ),
        ({"target": ""}, SettingsError, "'' is no language. Give a code or a name, such as de or German."),
        ({"source": "en"}, ModelFileError, "Several models are installed: en-de, en-fr. Choose one with --model, or"),
    ],
)
def test_language_pairs_without_a_route_are_refused(install, asked, error, message):
    install("en-de", "de-en", "en-fr", "fr-en")
    if "text" in asked:
        (install() / "fr-en.safetensors").unlink()
    with pytest.raises(error) as caught:
        find_route(**asked)
    assert str(caught.value).startswith(message)
