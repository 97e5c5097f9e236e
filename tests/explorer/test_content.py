"""The explorer's Python side: what the page is given, how it is put together and served, and what is measured."""

import ast
import base64
import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

import onehop
from onehop.cli import app
from onehop.config import ModelSettings
from onehop.errors import OnehopError, SettingsError
from onehop.experiments import measure
from onehop.experiments.heads import (
    PATTERNS,
    Tally,
    attention_weights,
    coreference,
    coreference_sentences,
    pair,
    patterns,
    places_of,
    subject_sentences,
    words,
)
from onehop.experiments.lengths import by_length, entropy, lengths
from onehop.experiments.patches import chosen, patches
from onehop.experiments.pruning import Head, gate_gradients, heads_by_importance, pruning, without_heads
from onehop.experiments.short_runs import means, thinned, twins, warmup
from onehop.experiments.synthetic import complexity, dimension, full_attention, paths, restricted_attention
from onehop.explorer import serve
from onehop.explorer.content import (
    MEASUREMENTS,
    SENTENCES,
    Explorer,
    is_shown,
    measured,
    patches_in,
    read_data,
    worked_example,
)
from onehop.explorer.html import ALONE, assets, in_script, policy_of
from onehop.explorer.routes import MOST_BODY, explorer_routes
from onehop.explorer.view import View
from onehop.interpret.ablations import EditTap, parse_edits
from onehop.interpret.trace_file import Trace, unpack
from onehop.interpret.tracer import Tracer
from onehop.model.taps import watch
from onehop.model.transformer import Tokens
from onehop.model.variants import VisionTransformer
from onehop.storage.model_io import describe

TEXT = "the old house"
HOSTILE = "</script><!--"


@pytest.fixture(scope="module", autouse=True)
def short_outputs():
    """Random weights end no sentence: let the greatest length do it soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onehop.decoding.engine.MORE_THAN_SOURCE", 3)
        yield


@pytest.fixture(scope="module")
def tracer(model_file):
    return Tracer.load(model_file, "cpu")


@pytest.fixture(scope="module")
def explorer(tracer):
    return Explorer(tracer, TEXT)


@pytest.fixture(scope="module")
def client(explorer):
    return TestClient(Starlette(routes=explorer_routes(lambda: explorer)))


def data_of(html: str, name: str = "data"):
    (found,) = re.findall(rf'<script type="application/json" id="onehop-{name}">(.*?)</script>', html, re.DOTALL)
    return json.loads(found)


# --- the worked example


def test_the_worked_example_has_the_numbers_that_its_matrices_give():
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


def test_the_opening_sentence_comes_first_and_once(explorer, tracer):
    assert explorer.about()["sentences"] == [TEXT, *SENTENCES]
    assert Explorer(tracer).about()["sentences"] == list(SENTENCES)


def test_a_model_of_another_language_is_offered_no_english(model_file, tracer, tmp_path, monkeypatch):
    other = Tracer.load(model_file, "cpu")
    monkeypatch.setattr(other.translator, "source", "de")
    assert Explorer(other, "Ein Baum.").about()["sentences"] == ["Ein Baum."]
    monkeypatch.setattr(Tracer, "load", lambda *_: other)
    page = str(tmp_path / "x.html")
    done = CliRunner().invoke(app, ["explore", "-m", str(model_file), "--export", page])
    assert done.stderr == "It reads de, and the page opens in English: give a TEXT.\n"
    assert CliRunner().invoke(app, ["explore", "Ein Baum.", "-m", str(model_file), "--export", page]).stderr == ""


def test_traces_are_remembered(explorer, monkeypatch):
    first = explorer.trace(TEXT)
    monkeypatch.setattr(Tracer, "trace", lambda *_: pytest.fail("it was computed again"))
    assert explorer.trace(TEXT) == first


def test_a_variant_says_whether_the_translation_is_still_the_same(explorer):
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


def test_every_measurement_has_a_place_in_the_page():
    assert MEASUREMENTS == tuple(measure.MEASURE) == tuple(measure.OPTIONS)
    assert tuple(measured()) == (*MEASUREMENTS, "patches")


def test_every_measurement_was_made():
    assert [name for name, found in measured().items() if found is None] == []


def test_what_is_measured_says_how():
    for name, found in measured().items():
        if found is not None:
            assert found["name"] == name
            command = "onehop digits" if name == "patches" else f"python -m onehop.experiments.measure {name}"
            assert found["made_by"].startswith(command)
            assert {"date", "machine", "model"} <= set(found)


def test_the_papers_table_has_its_best_and_cheapest_last():
    systems = {s["system"]: s for s in read_data("paper")["systems"] if not s["ensemble"]}
    best = max((s for s in systems.values() if s["en_de"]), key=lambda s: s["en_de"])
    assert (best["system"], best["en_de"], best["en_fr"]) == ("Transformer (big)", 28.4, 41.8)
    assert min(s["flop_en_de"] for s in systems.values() if s["flop_en_de"]) == 3.3e18


# --- the page in one file


def test_the_page_alone_holds_everything_and_asks_for_nothing(explorer):
    html = explorer.alone(TEXT)
    data = data_of(html)
    assert data["home"] == "export"
    trace = Trace.from_json(explorer.trace(TEXT))
    assert {key: value for key, value in data["trace"].items() if key not in ("tensors", "opening")} == trace.header
    assert len(data_of(html, "variants")) == 12
    assert [w["role"] for w in data_of(html, "weights")] == ["encoder", "decoder", "cross"]
    assert set(data) >= {"about", "measured", "worked", "paper"}
    (imports,) = re.findall(r'<script type="importmap">(.*?)</script>', html)
    modules = json.loads(imports)["imports"]
    assert set(modules) == {f"onehop/{path}" for path in assets() if path.endswith(".js")}
    for name, url in modules.items():
        content = base64.b64decode(url.removeprefix("data:text/javascript;base64,"))
        assert content == assets()[name.removeprefix("onehop/")]
    assert ALONE in html
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?!data:)', html)
    assert "<!-- onehop:" not in html


def test_the_page_alone_begins_with_its_first_picture(explorer):
    """The tensors that no figure shows stay away; the others come after the script, but for those of the opening."""
    html = explorer.alone(TEXT)
    trace, first = Trace.from_json(explorer.trace(TEXT)), data_of(html)["trace"]
    shown = unpack({"tensors": first["tensors"], "blob": data_of(html, "blob")})
    assert shown.keys() == {name for name in trace if is_shown(name, trace.header)} < set(trace)
    for name, tensor in shown.items():
        np.testing.assert_array_equal(tensor.values, trace[name])
    ((name, tensor),) = unpack(first["opening"]).items()
    layers = explorer.tracer.model.settings.n_decoder_layers
    assert name == f"decoder.layers.{layers - 2}.cross_attention.weights"  # the layer that aligns
    np.testing.assert_array_equal(tensor.values, trace[name])
    places = [html.index(mark) for mark in ('id="onehop-data"', '<script type="module" async>', 'id="onehop-blob"')]
    assert places == sorted(places)


def test_edits_can_be_on_when_the_page_opens(explorer):
    assert data_of(explorer.alone(TEXT, ["scale=off"]))["trace"]["edits"] == ["scale=off"]


def test_no_text_can_end_the_script_it_stands_in(explorer):
    html = explorer.alone(HOSTILE)
    assert HOSTILE not in html
    assert html.count("</script>") == 6
    assert data_of(html)["trace"]["source"]["text"] == HOSTILE
    assert "<" not in in_script({"text": "<!--<script>\u2028"})


def test_every_bare_import_of_the_page_has_a_file():
    """The page's modules name each other as onehop/…, which the import map resolves in every home."""
    for path, content in assets().items():
        if path.endswith(".js") and not path.startswith("vendor/"):
            for name in re.findall(
                r'^(?:import|export)\b(?:[^;"=]*\bfrom)?\s+"([^"]+)"', content.decode(), re.MULTILINE
            ):
                assert name.removeprefix("onehop/") in assets(), f"{path} imports {name}"


# --- served


def test_the_served_page_links_its_files_and_allows_only_its_own_scripts(client, explorer):
    answer = client.get("/")
    assert answer.status_code == 200
    data = data_of(answer.text)
    assert data["home"] == "live"
    assert data["about"] == explorer.about()
    assert "trace" not in data
    policy = answer.headers["content-security-policy"]
    inline = re.findall(r"<script type=\"(?:importmap|module)\"(?: async)?>(.*?)</script>", answer.text, re.DOTALL)
    assert len(inline) == 2
    for script in inline:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    for path in assets():
        found = client.get(f"/page/{path}")
        assert found.status_code == 200
        assert found.content == assets()[path]
        assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/page/../content.py", "/page/%2e%2e/content.py", "/page/none.js", "/page/"])
def test_nothing_but_the_pages_own_files_is_served(client, path):
    assert client.get(path).status_code == 404


def test_the_policy_of_a_page_without_scripts_allows_none():
    assert "sha256" not in policy_of("<p>nothing</p>")


def test_the_questions_of_the_page_are_answered(client, explorer, tracer):
    assert client.get("/api/about").json() == explorer.about()
    assert client.get("/api/measured").json() == measured()
    trace = client.post("/api/trace", json={"text": TEXT, "edits": ["scale=off"]}).json()
    assert trace["edits"] == ["scale=off"]
    assert client.post("/api/trace", json={"text": TEXT}).json() == json.loads(explorer.trace(TEXT))
    variant = client.post("/api/variant", json={"text": TEXT, "edits": ["heads=averaged"]}).json()
    assert variant == explorer.variant(TEXT, ["heads=averaged"])
    weights = client.get("/api/weights?role=cross&layer=1&head=0").json()
    assert weights == tracer.weights("cross", 1, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", 'The request holds no text. Send {"text": "…", "edits": []} as JSON.'),
        (b"[]", 'The request holds no text. Send {"text": "…", "edits": []} as JSON.'),
        (b'{"text": 3}', 'The request holds no text. Send {"text": "…", "edits": []} as JSON.'),
        (b'{"text": "the", "edits": "scale=off"}', "The edits of a request are a list of texts. Send at most 16."),
        (b'{"text": "the", "edits": [1]}', "The edits of a request are a list of texts. Send at most 16."),
        (b'{"text": "", "edits": []}', "There is nothing to trace: the text is empty. Give a sentence."),
        (b'{"text": "the", "edits": ["mask=on"]}', "'mask=on' is no edit of mask. Write mask=off."),
        (b"[" * 60_000, 'The request holds no text. Send {"text": "…", "edits": []} as JSON.'),
        (b"\xff\xfe", 'The request holds no text. Send {"text": "…", "edits": []} as JSON.'),
    ],
)
def test_a_wrong_question_is_answered_in_one_line(client, body, message):
    for path in ("/api/trace", "/api/variant"):
        answer = client.post(path, content=body)
        assert (answer.status_code, answer.json()) == (422, {"error": message})


def test_a_question_that_is_too_long_is_not_read_to_its_end(client):
    answer = client.post("/api/trace", content=b'{"text": "' + b"x" * MOST_BODY + b'"}')
    assert (answer.status_code, answer.json()) == (
        413,
        {"error": "A question may have 65,536 bytes. Give a shorter text."},
    )


@pytest.mark.parametrize(
    "query",
    [
        "",
        "role=encoder",
        "role=attic&layer=0&head=0",
        "role=encoder&layer=-1&head=0",
        "role=encoder&layer=99999&head=9999",
    ],
)
def test_a_head_must_be_named(client, query):
    answer = client.get(f"/api/weights?{query}")
    assert (answer.status_code, answer.json()) == (
        422,
        {"error": "The request names no head. Ask for role=encoder&layer=0&head=0."},
    )


@pytest.mark.parametrize("query", ["role=encoder&layer=7&head=0", "role=cross&layer=0&head=2"])
def test_a_head_that_is_not_there_is_told(client, query):
    answer = client.get(f"/api/weights?{query}")
    assert answer.status_code == 422
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "👩‍👩‍👧‍👦🏳️‍🌈", "\u202eesuoh\u202c البيت", "\u200b\u200d\ufeff", "the\x00\x1b[31m", "\ud83d"],
    ids=["script", "emoji", "right to left", "zero width", "controls", "half a pair"],
)
def test_hostile_texts_break_nothing(client, text):
    answer = client.post("/api/trace", content=json.dumps({"text": text}))
    assert answer.status_code == 200
    assert answer.json()["format"] == "onehop trace"
    assert client.post("/api/variant", content=json.dumps({"text": text, "edits": ["norm=off"]})).status_code == 200


def test_the_routes_can_be_had_without_torch():
    code = "import sys, onehop.explorer.routes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_port_that_is_taken_is_told():
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as error:
            serve.listening(port)
    assert str(error.value) == f"Port {port} cannot be had. Choose another with --port, or leave it out."


def test_where_the_usual_port_is_taken_any_other_does(monkeypatch):
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        monkeypatch.setattr(serve, "PORT", taken.getsockname()[1])
        with serve.listening(None) as bound:
            assert bound.getsockname()[0] == "127.0.0.1"
            assert bound.getsockname()[1] != serve.PORT


def test_serving_needs_its_packages(monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(SettingsError) as error:
        serve.check_installed()
    assert str(error.value) == (
        "The explorer's server needs starlette and uvicorn. "
        "Run: pip install 'onehop[serve]', or write a file with --export."
    )


def test_a_link_opens_the_page_with_edits():
    assert serve.fragment([]) == ""
    assert serve.fragment(["scale=off", "head=off@cross.1.0"]) == "#edit=scale%3Doff&edit=head%3Doff%40cross.1.0"


def test_serve_opens_the_browser_and_answers_this_machine_alone(explorer, monkeypatch):
    served, opened = {}, []

    class Server:
        def __init__(self, config):
            served["app"] = config.app

        def run(self, sockets):
            served["address"] = sockets[0].getsockname()
            sockets[0].close()

    def timer(seconds, function, args):
        return SimpleNamespace(start=lambda: function(*args))

    monkeypatch.setattr("uvicorn.Server", Server)
    ready = []
    now = SimpleNamespace(Timer=timer, Thread=lambda target, args, daemon: timer(0, target, args))
    monkeypatch.setattr(serve, "threading", now)
    monkeypatch.setattr(explorer, "trace", ready.append)
    monkeypatch.setattr("webbrowser.open", opened.append)
    said = []
    serve.serve(explorer, port=0, browser=True, say=said.append, edits=["mask=off"])
    host, port = served["address"]
    assert host == "127.0.0.1"
    assert ready == [TEXT]
    assert opened == [f"http://127.0.0.1:{port}/#edit=mask%3Doff"]
    assert said == [f"The explorer is at http://127.0.0.1:{port}/ (Ctrl-C ends it)."]
    assert TestClient(served["app"], base_url="http://127.0.0.1").get("/api/about").status_code == 200
    assert TestClient(served["app"], base_url="http://evil.example").get("/api/about").status_code == 400


@pytest.mark.slow
def test_the_verb_serves_until_it_is_interrupted(model_file):
    command = [sys.executable, "-m", "onehop", "explore", TEXT, "-m", str(model_file), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            (address,) = re.findall(r"http://127\.0\.0\.1:\d+/", line)
            with httpx.Client(base_url=address, timeout=60) as client:
                assert data_of(client.get("/").text)["about"]["sentences"][0] == TEXT
                assert client.post("/api/trace", json={"text": TEXT}).json()["source"]["text"] == TEXT
                assert client.post("/api/trace", json={"text": "the old house. " * 667}).status_code == 422
                assert client.get("/api/about", headers={"Host": "evil.example"}).status_code == 400
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert "Traceback" not in process.stderr.read()


def test_an_opening_sentence_that_cannot_be_traced_does_not_stop_the_server(tracer):
    serve.warm_up(Explorer(tracer, ""))


# --- the verb and the notebook


def test_the_verb_writes_one_file(model_file, tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explore", TEXT, "-m", str(model_file), "--export", str(out), "--edit", "mask=off"])
    assert done.exit_code == 0, done.output
    data = data_of(out.read_text(encoding="utf-8"))
    assert data["trace"]["source"]["text"] == TEXT
    assert data["trace"]["edits"] == ["mask=off"]


def test_the_verb_serves_the_sentence_it_is_given(model_file, monkeypatch):
    asked = {}
    monkeypatch.setattr(serve, "serve", lambda explorer, **options: asked.update(options, opening=explorer.opening))
    done = CliRunner().invoke(app, ["explore", "a new tree", "-m", str(model_file), "--port", "0", "--no-browser"])
    assert done.exit_code == 0, done.output
    assert asked.pop("say") is not None
    assert asked == {"port": 0, "browser": False, "edits": [], "opening": "a new tree"}


def test_the_verbs_errors_are_one_line(model_file, tmp_path):
    for text, edit in (("", "mask=off"), ("the", "mask=on")):
        args = ["explore", text, "-m", str(model_file), "--export", str(tmp_path / "x.html"), "--edit", edit]
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 2
        assert done.stderr.startswith("onehop: ")
        assert done.stderr.count("\n") == 1


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(model_file, tmp_path):
    translator = onehop.Translator.load(model_file, "cpu")
    view = translator.explore('"<!--')
    html = view._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "<script" not in html
    (inside,) = re.findall(r'srcdoc="([^"]*)"', html)
    assert unescape(inside) == view.page
    assert data_of(view.page)["home"] == "notebook"
    assert data_of(view.page)["trace"]["model"]["hash"] == data_of(view.page)["about"]["model"]["hash"] is not None
    view.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == view.page
    assert repr(view).startswith("<the explorer's page, ")


def test_a_translator_without_a_file_can_be_looked_into(tracer):
    there = tracer.translator
    translator = onehop.Translator.of_model(tracer.model, there.tokenizer, "en", "de")
    trace = translator.trace(TEXT, ["scale=off"])
    assert trace.header["model"]["hash"] is None
    assert trace.header["edits"] == ["scale=off"]


def test_a_view_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(OnehopError, match=r"cannot be written: .* Choose another place\.$"):
        View("").save(tmp_path / "none" / "page.html")


# --- measured without a model


def test_the_variance_of_a_dot_product_grows_with_the_dimension_and_the_softmax_dies():
    found = dimension()
    assert dimension() == found
    for row in found["rows"]:
        assert row["variance"] == pytest.approx(row["d"], rel=0.15)
        assert sum(row["scaled"]["weights"]) == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(
            np.array(row["scaled"]["scores"]) * row["d"] ** 0.5, row["unscaled"]["scores"], rtol=1e-5
        )
    first, last = found["rows"][0], found["rows"][-1]
    assert last["unscaled"]["top"] > 0.9 > 0.4 > last["scaled"]["top"]
    assert last["unscaled"]["gradient"] < first["unscaled"]["gradient"] / 3
    assert last["scaled"]["gradient"] == pytest.approx(first["scaled"]["gradient"], rel=0.2)


def test_gradients_fade_along_a_chain_and_not_in_attention():
    rows = {row["distance"]: row for row in paths(draws=8)["rows"]}
    assert rows[1]["recurrent"] == rows[1]["attention"] == 1
    assert rows[16]["recurrent"] < 0.01
    assert rows[64]["recurrent"] < rows[16]["recurrent"] < rows[4]["recurrent"]
    assert 0.5 < rows[64]["attention"] < 2


def test_the_costs_are_of_the_layers_that_they_name():
    found = complexity(lengths=(8, 16), widths=(16,), repeats=1)
    assert [(row["d"], row["n"]) for row in found["rows"]] == [(16, 8), (16, 16)]
    assert all(row[kind] > 0 for row in found["rows"] for kind in ("self_attention", "recurrence", "convolution"))


def test_restricted_attention_is_attention_to_the_neighbours():
    torch.manual_seed(1)
    x = torch.randn(1, 20, 16)
    torch.testing.assert_close(restricted_attention(x)[:, :, 16:17].shape, full_attention(x)[:, :, 16:17].shape)
    heads = x.view(1, 20, 8, 2).transpose(1, 2)
    padded = torch.nn.functional.pad(heads, (0, 0, 16, 15))
    near = padded[0, 3, 10 : 10 + 32]  # what position 10 sees: 16 before it, itself, 15 after it
    weights = (near @ heads[0, 3, 10] / 2**0.5).softmax(0)
    torch.testing.assert_close(restricted_attention(x)[0, 3, 10], weights @ near)


# --- measured on a model


def test_pieces_make_words():
    tokens = ["▁The", "▁ani", "mal", "▁slept", ".", "</s>"]
    assert [(w.text, w.places) for w in words(tokens)] == [("The", (0,)), ("animal", (1, 2)), ("slept.</s>", (3, 4, 5))]
    assert places_of("animal", tokens) == [1, 2]
    assert places_of("dog", tokens) == []
    assert places_of("it", ["▁it", "."]) == [0]


def test_the_patterns_want_what_their_names_say():
    tokens = ["▁a", "▁b", "▁a", "</s>"]
    wanted = {name: pattern(tokens).int().tolist() for (name, role), pattern in PATTERNS.items() if role == "encoder"}
    assert wanted["previous token"] == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert wanted["next token"] == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert wanted["itself"] == torch.eye(4).int().tolist()
    assert wanted["first token"] == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert wanted["end mark"] == [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert wanted["same word"] == [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert pair("b", "a")(tokens).nonzero().tolist() == [[1, 0]]
    assert PATTERNS["same word", "decoder"](tokens).nonzero().tolist() == [[2, 0]]


def test_a_tally_finds_the_head_that_was_planted():
    torch.manual_seed(1)
    tally, tokens = Tally(), ["▁a", "▁b", "▁c", "▁d", "▁e"]
    for _ in range(10):
        weights = torch.rand(2, 3, 5, 5).softmax(-1)
        weights[1, 2] = torch.eye(5).roll(-1, 1) * 0.9 + 0.02  # row i looks at i - 1
        tally.add(weights, PATTERNS["previous token", "encoder"](tokens), causal=False)
    found = tally.result("previous token", "encoder")
    assert (found["heads"][0]["layer"], found["heads"][0]["head"], found["heads"][0]["share"]) == (1, 2, 1.0)
    assert found["heads"][0]["weight"] == pytest.approx(0.92)
    assert found["all"][1][2] == 1.0
    assert found["heads"][1]["share"] < 1.0
    assert found["chance"] == pytest.approx(1 / 5)
    assert Tally().result("nothing", "encoder") is None


def test_patterns_are_counted_over_sentences(tracer, monkeypatch):
    monkeypatch.setattr("onehop.experiments.heads.SUBJECTS", ("cat",))
    found = patterns(tracer, ["the old house", "a new bird the bird"])
    names = {(p["name"], p["role"]) for p in found["patterns"]}
    assert {*PATTERNS, ("verb to subject", "encoder"), ("pronoun to noun", "encoder")} >= names
    assert ("previous token", "encoder") in names
    for p in found["patterns"]:
        assert p["sentences"] > 0
        assert all(0 <= share <= 1 for layer in p["all"] for share in layer)
        assert p["heads"][0]["share"] == max(share for layer in p["all"] for share in layer)


def test_attention_is_looked_at_with_both_marks(tracer):
    weights = attention_weights(tracer, [5, 6], [7])
    assert {role: tuple(w.shape) for role, w in weights.items()} == {
        "encoder": (1, 2, 3, 3),
        "decoder": (2, 2, 2, 2),
        "cross": (2, 2, 2, 3),
    }


def test_it_is_followed_in_every_sentence(tracer):
    found = coreference(tracer)
    sentences = coreference_sentences()
    assert len(found["sentences"]) == len(sentences) >= 30
    assert {s.pronoun for s in sentences} == {"er", "sie", "es"}
    assert all(" it " in s.source and s.noun in s.source for s in sentences)
    assert len(set(subject_sentences())) == 320
    row = found["sentences"][0]
    assert row["expected"] == "es"
    assert row["right"] == (row["pronoun"] == "es")
    assert found["none"] == (found["best"][0]["share"] <= 0.5)
    shares = [head["share"] for head in found["best"]]
    assert shares == sorted(shares, reverse=True)


def test_a_pronoun_is_read_from_the_translation(tracer, monkeypatch):
    text = "Das Tier überquerte die Straße nicht, weil es zu müde war."
    monkeypatch.setattr(type(tracer.translator), "translate", lambda *_: [SimpleNamespace(text=text)])
    rows = coreference(tracer)["sentences"]
    assert (rows[0]["pronoun"], rows[0]["right"], rows[0]["noun_found"]) == ("es", True, True)
    assert (rows[1]["pronoun"], rows[1]["right"], rows[1]["noun_found"]) == ("es", False, True)
    assert (rows[2]["german"], rows[2]["noun_found"]) == ("Katze", False)


def test_heads_are_removed_by_zeros_in_w_o_which_is_the_edit(tracer):
    heads = [Head("cross", 1, 0, 0.0), Head("encoder", 0, 1, 0.0)]
    src, tgt = (Tokens.padded(torch.tensor([ids])) for ids in ([5, 6, 3], [2, 7]))
    tap = EditTap(tracer.model, parse_edits(["head=off@cross.1.0", "head=off@encoder.0.1"]))
    with torch.no_grad():
        expected = watch(tracer.model, tap)(src, tgt)
        torch.testing.assert_close(without_heads(tracer.model, heads)(src, tgt), expected)
        assert not torch.allclose(tracer.model(src, tgt), expected)


def test_the_importance_of_a_head_is_the_slope_of_the_loss(tracer):
    gradients = gate_gradients(tracer.model, [5, 6], [7, 8])
    path, head, step = "decoder.layers.1.cross_attention", 1, 1e-2

    def loss(factor: float) -> float:
        def gated(name, value):
            scale = torch.ones(value.shape[1] if value.dim() == 4 else 1)
            scale[head if value.dim() == 4 else 0] = factor
            return value * scale[:, None, None] if name == f"{path}.head_outputs" else value

        src, tgt = (Tokens.padded(torch.tensor([ids])) for ids in ([5, 6, 3], [2, 7, 8]))
        with torch.no_grad():
            logits = watch(tracer.model, gated)(src, tgt)[0]
        return float(torch.nn.functional.cross_entropy(logits.double(), torch.tensor([7, 8, 3])))

    slope = (loss(1 + step) - loss(1 - step)) / (2 * step)
    assert float(gradients[path][head]) == pytest.approx(slope, rel=0.05, abs=1e-5)


def test_pruning_goes_from_all_heads_to_none(tracer):
    texts = ["the old house", "a new bird"]
    found = pruning(tracer, texts, texts)
    order = found["order"]
    assert len(order) == found["heads"] == 2 * 5
    assert [h["importance"] for h in order] == sorted(h["importance"] for h in order)
    assert [row["removed"] for row in found["rows"]] == list(range(11))
    assert {h.role for h in heads_by_importance(tracer, texts, texts)} == {"encoder", "decoder", "cross"}


def test_lengths_fill_buckets_with_joined_sentences(tracer):
    texts = ["the old house", "a new bird"] * 20
    filled = by_length(tracer, texts, texts)
    for place, pairs in filled.items():
        assert len(pairs) <= 30
        assert all(text == reference for text, reference, _ in pairs)
        assert all(place == 0 or length > 10 for _, _, length in pairs)
    found = lengths(tracer, texts[:4], texts[:4], 12)
    assert found["trained_to"] == 12
    assert [b["to"] for b in found["buckets"]] == sorted(b["to"] for b in found["buckets"])
    assert all(0 <= b["attention_entropy"]["cross"] <= 8 for b in found["buckets"])


def test_entropy_is_in_bits():
    assert entropy(torch.full((1, 1, 1, 8), 1 / 8)) == pytest.approx(3)
    assert entropy(torch.eye(8)[None, None, :1]) == pytest.approx(0)


@pytest.mark.slow
def test_warm_up_is_tried_in_both_norm_orders(digits):
    _, store = digits
    small = ModelSettings(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=32, n_heads=2, max_length=64)
    found = warmup(store, 12, model=small, batch_tokens=256, device="cpu")
    assert [(run["norm"], run["warmup"]) for run in found["runs"]] == [("post", 1), ("post", 4), ("pre", 1), ("pre", 4)]
    for run in found["runs"]:
        assert not run["diverged"]
        assert [step for step, _ in run["curve"]] == list(range(1, 13))
    assert len({json.dumps(run["curve"]) for run in found["runs"]}) == 4
    assert found["data"]["pairs"] == len(store.pairs("train"))


def test_twins_are_the_rows_of_table_3_that_differ_in_their_heads():
    def row(name: str, seed: int, heads: int, bleu: float) -> dict:
        model = {"n_encoder_layers": 3, "n_decoder_layers": 3, "d_model": 16, "d_ff": 32, "n_heads": heads}
        train = {"steps": 9, "warmup": 3, "batch_tokens": 64, "label_smoothing": 0.1}
        settings = {"model": {**model, "dropout": 0.1}, "train": train}
        scores = {"parameters": 7, "perplexity": 5.0, "bleu": bleu, "machines": [{"device": "NVIDIA H200"}]}
        return {"row": name, "seed": seed, "settings": settings, **scores}

    rows = [row("base", 1, 8, 30.0), row("base", 2, 8, 32.0), row("heads-1/8", 1, 1, 29.0), row("big", 1, 16, 40.0)]
    table = {"date": "2026-11-15", "pairs": 30, "valid": 4, "data": "a1", "search": "beam 4", "rows": rows}
    found = twins(table)
    assert [(r["n_heads"], r["d_k"], r["bleu"], r["bleu_range"]) for r in found["rows"]] == [
        (1, 16, 29.0, [29.0, 29.0]),
        (8, 2, 31.0, [30.0, 32.0]),
    ]
    assert (found["base"], found["machine"], found["date"]) == (8, {"device": "NVIDIA H200"}, "2026-11-15")
    with pytest.raises(
        OnehopError, match=r"^The table has no rows A\. Train them: onehop paper table3 SETTINGS --rows A"
    ):
        twins({**table, "rows": rows[:2]})


def test_a_training_that_was_stopped_is_no_measurement(digits, monkeypatch):
    monkeypatch.setattr("onehop.experiments.short_runs.train", lambda *_, **__: None)
    with pytest.raises(OnehopError, match=r"^The training was stopped before its end\. Start the measurement again\.$"):
        warmup(digits[1], 10)


def test_the_runs_of_several_seeds_become_a_mean_and_a_range():
    runs = [
        {"n_heads": heads, "d_k": 8 // heads, "parameters": 7, "perplexity": perplexity, "bleu": 2 * perplexity}
        for heads, perplexity in ((1, 4.0), (2, 3.0), (1, 6.0), (2, 3.5))
    ]
    one, two = means(runs, (1, 2))
    assert (one["perplexity"], one["perplexity_range"]) == (5.0, [4.0, 6.0])
    assert (two["bleu"], two["bleu_range"], two["d_k"]) == (6.5, [6.0, 7.0], 4)


def test_curves_are_thinned_by_means():
    assert thinned([(i, float(i)) for i in range(1, 5)]) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    few = thinned([(i, float(i)) for i in range(1, 201)])
    assert len(few) == 100
    assert few[0] == (2, 1.5)
    assert thinned([]) == []


def test_a_run_whose_loss_is_no_number_is_said_to_have_diverged(digits, monkeypatch):
    from onehop.errors import DivergedError, RunError
    from onehop.experiments import short_runs as module

    def breaks(*_, listener, **__):
        listener.stepped({"step": 1, "loss": 9.0})
        raise DivergedError("Step 2 is not finite.", "Lower the learning rate.")

    def is_too_large(*_, **__):
        raise RunError("Step 1 does not fit into memory.", "Begin again with a smaller train.batch_tokens.")

    monkeypatch.setattr(module, "train", breaks)
    run = warmup(digits[1], 10)["runs"][0]
    assert (run["diverged"], run["curve"]) == (True, [(1, 9.0)])
    monkeypatch.setattr(module, "train", is_too_large)
    with pytest.raises(RunError, match="does not fit into memory"):
        warmup(digits[1], 10)


# --- images


@pytest.fixture(scope="module")
def vision():
    sizes = {"image": 4, "patch": 2, "levels": 5, "d_model": 8, "d_ff": 8, "n_heads": 2, "n_encoder_layers": 2}
    torch.manual_seed(1)
    return VisionTransformer(ModelSettings(kind="vision", **sizes, dropout=0.0), 4).eval()


def test_patches_hold_every_weight_that_the_vision_model_used(vision):
    """Against a plain forward pass: same classes, and each row of each head adds up to one."""
    pixels, digits = np.random.default_rng(1).integers(0, 5, (6, 4, 4)), np.array([0, 1, 2, 0, 1, 2])
    found = patches(vision, pixels, digits, [4, 2])
    weights = unpack(found)["weights"]
    assert weights.axes == ("image", "layer", "head", "query", "key")
    assert weights.values.shape == (2, 2, 2, 5, 5)
    np.testing.assert_allclose(weights.values.astype(float).sum(-1), 1, atol=2e-3)
    logits = vision.logits(vision.gathered(torch.from_numpy(pixels[[4, 2]]))[None])[0]
    for image, row in zip(found["images"], logits[:, 1:].softmax(-1).tolist(), strict=True):
        assert image["probabilities"] == pytest.approx(row, abs=1e-5)
    assert [(image["place"], image["digit"]) for image in found["images"]] == [(4, 1), (2, 2)]
    assert found["images"][0]["pixels"] == pixels[4].tolist()


def test_the_first_of_each_digit_is_shown_and_two_that_were_read_wrong():
    digits = np.array([1, 0, 1, 0, 1, 0])
    assert chosen(np.array([1, 0, 0, 1, 1, 1]), digits) == [1, 0, 2, 3]
    assert chosen(digits, digits) == [1, 0]


def test_images_of_ones_own_stand_on_the_page(model_file, vision, tmp_path):
    file, out = tmp_path / "patches.json", tmp_path / "page.html"
    own = patches(vision, np.zeros((1, 4, 4), np.int64), np.array([0]), [0])
    file.write_text(json.dumps({"name": "patches", **own}), encoding="utf-8")
    args = ["explore", TEXT, "-m", str(model_file), "--export", str(out), "--patches", str(file)]
    assert CliRunner().invoke(app, args).exit_code == 0
    assert data_of(out.read_text(encoding="utf-8"))["measured"]["patches"] == {**patches_in(file), "file": str(file)}


@pytest.mark.parametrize("content", [None, "[", "[]", "{}", '{"name": "lengths"}'])
def test_a_file_without_images_is_refused_in_a_line(model_file, tmp_path, content):
    file = tmp_path / "patches.json"
    if content is not None:
        file.write_text(content)
    args = ["explore", TEXT, "-m", str(model_file), "--export", str(tmp_path / "x.html"), "--patches", str(file)]
    done = CliRunner().invoke(app, args)
    assert (done.exit_code, done.stderr) == (
        2,
        f"onehop: {file} holds no images that a model has looked at. "
        "Give the patches.json that `onehop digits -o FOLDER` writes.\n",
    )


def test_the_images_that_come_with_the_page_are_a_trained_models(explorer):
    found = measured()["patches"]
    assert found["right"] / found["of"] >= 0.97
    assert {image["digit"] for image in found["images"]} == set(range(10))


# --- the command


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
