"""A server with several models: language pairs, also through English, and the choice of the model."""

import asyncio
import json
from copy import copy

import pytest
from serving import Looks, Server, refused

from onehop.decoding.options import SearchOptions
from onehop.pipelines.glossary import Term, Terms
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.server.explore import Explorers
from onehop.server.schemas import TranslationAnswer
from onehop.server.service import Service

TEXT = "the old house. A new tree!"
ENGLISH = "This surely is an English sentence, and a long one."
GERMAN = "Dies ist gewiss kein englischer Satz, oder etwa doch?"
SPANISH = "Esta frase no está en inglés ni en alemán, está en español."
ALL = "en to de, de to en, en to fr, de to fr"


@pytest.fixture(scope="module")
def translators(model_file):
    """One model under three language pairs. de → fr goes through English."""
    one = SentenceTranslator.load(model_file, "cpu", compute="float32", threads=1)
    made = []
    for source, target in (("en", "de"), ("de", "en"), ("en", "fr")):
        other = copy(one)
        other.source, other.target = source, target
        made.append(other)
    return made


@pytest.fixture(scope="module")
def server(translators):
    return Server(*translators)


def translate_through_english(translators, text, terms=None, **options):
    """The translation of the same text without a server."""
    _, first, second = translators
    kept = Terms(keep=list(terms.kept) if terms else [])
    legs = [
        ParagraphTranslator(
            t, max_length=64, options=SearchOptions(**options), terms=kept, model=f"{t.source}-{t.target}"
        )
        for t in (first, second)
    ]
    return PivotTranslator(*legs, terms or Terms()).translate([text])[0]


def chosen(server, **body):
    answer = server.post("/v1/translate", {"texts": ["the old house"], **body}).json()
    return (answer["source"], answer["target"]) if "source" in answer else answer["error"]


def test_all_pairs_are_offered_including_pivots(server):
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "fr", "en"]},
        {"code": "de", "name": "German", "targets": ["en", "fr", "de"]},
        {"code": "fr", "name": "French", "targets": ["fr"]},
    ]
    pairs = {(p["source"], p["target"]): p for p in server.get("/frontend/settings").json()["pairs"]}
    assert {pair: (p["models"], p["via"]) for pair, p in pairs.items()} == {
        ("en", "de"): (["en-de"], None),
        ("de", "en"): (["de-en"], None),
        ("en", "fr"): (["en-fr"], None),
        ("de", "fr"): (["de-en", "en-fr"], "en"),
    }


def test_quality_chooses_the_full_or_small_model(translators):
    en_de, de_en, _ = translators
    server = Server(en_de, de_en, en_de, names=["en-de", "de-en", "en-de-small"])
    asked = {}
    for service in server.services:
        service.translate = lambda texts, options, *, of=service: (
            asked.update({of.models: options}) or Service.translate(of, texts, options)
        )

    def models(**body):
        answer = server.post("/v1/translate", {"texts": ["a bird"], "source": "en", "target": "de", **body})
        return answer.json()["translations"][0]["models"]

    assert models() == models(quality="best") == ["en-de"]
    assert models(quality="fast") == ["en-de-small"]
    assert [options.search.beam for options in asked.values()] == [4, 1]
    assert models(quality="fast", beam=3) == ["en-de-small"]
    assert asked["en-de-small",].search.beam == 3
    stream = server.post("/v1/stream", {"text": "a bird", "source": "en", "target": "de", "quality": "fast"})
    assert '"models":["en-de-small"]' in stream.text.replace(" ", "")
    body = {"texts": ["a bird"], "target": "en", "quality": "fast"}
    refused(server.post("/v1/translate", body), 400, "This server has no small model for de to en: leave out quality.")
    assert server.get("/health").json() == {"status": "starting"}
    assert [pair["models"] for pair in server.get("/frontend/settings").json()["pairs"]] == [["en-de"], ["de-en"]]


def test_a_small_model_alone_refuses_quality_best(translators):
    server = Server(translators[0], names=["en-de-small"])
    assert chosen(server) == chosen(server, quality="fast") == ("en", "de")
    assert chosen(server, quality="best") == "This server has no full model for en to de: leave out quality."


def test_a_request_through_english_is_answered_as_python_does(server, translators):
    expected = translate_through_english(translators, TEXT)
    answer = server.post("/v1/translate", {"texts": [TEXT, ""], "source": "de", "target": "fr"}).json()
    assert (answer["source"], answer["target"]) == ("de", "fr")
    found = answer["translations"][0]
    assert found == json.loads(json.dumps(expected.details()))
    assert (found["models"], found["via"]) == (["de-en", "en-fr"], "en")
    assert found.keys() == TranslationAnswer.model_fields.keys()
    assert answer["translations"][1]["text"] == ""
    body = {"q": TEXT, "source": "de", "target": "fr", "alternatives": 2}
    assert server.post("/translate", body).json() == {"translatedText": expected.text, "alternatives": []}


def test_glossary_terms_apply_to_the_last_language(server, translators):
    terms = Terms([Term("old house", "maison")], ["tree"])
    body = {"texts": [TEXT], "source": "de", "target": "fr", "glossary": {"old house": "maison"}, "keep": ["tree"]}
    found = server.post("/v1/translate", body).json()["translations"][0]
    assert found == json.loads(json.dumps(translate_through_english(translators, TEXT, terms).details()))
    assert {"source": "old house", "target": "maison"} in found["unmet"]
    refused(
        server.post("/v1/translate", {**body, "format": "html"}),
        400,
        "Through English HTML has no glossary: send the format text.",
    )


def test_html_through_english_keeps_its_markup(server):
    html = '<p class="the old">the <b>old</b> house</p>'
    body = {"texts": [html], "source": "de", "target": "fr", "format": "html"}
    found = server.post("/v1/translate", body).json()["translations"][0]
    assert found["text"].startswith('<p class="the old">')
    assert (found["text"].count("<b>"), found["text"].count("</b>")) == (1, 1)
    assert (found["source"], found["models"], found["via"]) == (html, ["de-en", "en-fr"], "en")


def test_a_prefix_applies_to_the_last_language(server):
    body = {"texts": [TEXT], "source": "de", "target": "fr", "prefixes": ["a bird"], "beam": 1}
    found = server.post("/v1/translate", body).json()["translations"][0]
    assert found["text"].startswith("a bird")


def test_a_stream_through_english_ends_with_the_same_translation(server, translators):
    answer = server.post("/v1/stream", {"text": TEXT, "source": "de", "target": "fr", "beam": 1}).text
    events = [block.split("\n") for block in answer.strip().split("\n\n")]
    told = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
    expected = json.loads(json.dumps(translate_through_english(translators, TEXT, beam=1).details()))
    name, done = told[-1]
    assert (name, done["source"], done["target"]) == ("done", "de", "fr")
    for key in ("source", "text", "models", "via", "tokens", "warnings"):
        assert done["translation"][key] == expected[key]
    final = {e["sentence"]: e["text"] for name, e in told if name == "sentence"}
    assert list(final.values()) == [s["text"] for s in expected["sentences"]]
    for number, text in final.items():
        settled = "".join(e["text"] for name, e in told if name == "settled" and e["sentence"] == number)
        assert text.startswith(settled)


def test_options_that_a_pivot_lacks_are_refused(server):
    pair = {"source": "de", "target": "fr"}
    sentence = "Through English each sentence has one translation and no alignment: leave out n_best and alignments."
    refused(server.post("/v1/translate", {"texts": [TEXT], "n_best": 2, **pair}), 400, sentence)
    refused(server.post("/v1/translate", {"texts": [TEXT], "alignments": True, **pair}), 400, sentence)


@pytest.mark.parametrize(
    ("asked", "pair"),
    [
        ({}, ("en", "de")),  # the first model
        ({"source": "de", "target": "fr"}, ("de", "fr")),
        ({"target": "de"}, ("en", "de")),
        ({"target": "fr", "texts": [GERMAN]}, ("de", "fr")),
        ({"target": "fr", "texts": [ENGLISH], "source": "auto"}, ("en", "fr")),
        ({"target": "fr", "texts": [""]}, ("en", "fr")),  # not identified: the direct model
        ({"target": "de", "texts": [GERMAN]}, ("en", "de")),  # one model, and auto is not requested
        (
            {"source": "auto", "target": "de", "texts": [GERMAN]},
            "The text seems to be in German (de) already. Give source if it is not.",
        ),
        ({"source": "de"}, "From de there are several targets: name one, en or fr."),
        ({"source": "fr"}, f"This server does not translate fr to any, but {ALL}."),
        ({"source": "fr", "target": "de"}, f"This server does not translate fr to de, but {ALL}."),
        ({"target": "it"}, f"This server does not translate any to it, but {ALL}."),
        (
            {"target": "fr", "texts": [SPANISH]},
            "The text seems to be in Spanish (es), and no model from es to fr is installed. "
            "Give source if it is in one of de, en.",
        ),
    ],
)
def test_languages_choose_the_models(server, asked, pair):
    assert chosen(server, **asked) == pair


def test_auto_chooses_the_model_and_says_which(server):
    body = {"q": [GERMAN, "12"], "source": "auto", "target": "fr"}
    found = server.post("/translate", body).json()["detectedLanguage"]
    assert [guess["language"] for guess in found] == ["de", "en"]
    assert found[0]["confidence"] > 50
    assert found[1]["confidence"] < 50
    refused(
        server.post("/translate", {**body, "q": SPANISH}),
        400,
        "The text seems to be in Spanish (es), and no model from es to fr is installed. "
        "Give source if it is in one of de, en.",
    )


def test_every_model_has_an_explorer(translators):
    def named(name):
        explorer = Looks()
        explorer.trace = lambda text, edits=(): json.dumps(name)
        return lambda: explorer

    server = Server(*translators, explorers=Explorers(*map(named, ("first", "second", "third"))))
    for path, name in (("", "first"), ("en-de/", "first"), ("de-en/", "second"), ("en-fr/", "third")):
        assert server.get(f"/explore/{path}").status_code == 200
        assert server.post(f"/explore/{path}api/trace", {"text": "a"}).json() == name
    assert server.get("/explore/de-en", follow_redirects=True).status_code == 200
    assert server.post("/v1/trace", {"text": "a"}).json() == "first"
    assert server.post("/v1/trace", {"text": "a", "source": "de", "target": "en"}).json() == "second"
    refused(
        server.post("/v1/trace", {"text": "a", "source": "de", "target": "fr"}),
        400,
        "This pair uses two models, one after the other: ask for de to en, or for en to fr.",
    )


def test_cross_site_links_to_every_explorer_are_allowed(translators):
    server = Server(*translators, explorers=Explorers(Looks, Looks, Looks))
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    for path in ("/explore", "/explore/", "/explore/de-en", "/explore/de-en/"):
        assert server.get(path, headers=foreign, follow_redirects=True).status_code == 200
    assert server.get("/explore/de-en/api/about", headers=foreign).status_code == 403


def test_every_model_is_warmed_up_and_failures_are_reported(translators):
    server = Server(*translators)
    assert server.get("/health").json() == {"status": "starting"}
    asyncio.run(server.app.warm_up())
    assert server.get("/health").json() == {"status": "ok"}
    server.services[1].state = "failing"
    server.services[1].translate = None  # so that the next attempt fails too
    assert server.get("/health").json() == {"status": "failing"}
