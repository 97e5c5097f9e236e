"""The page over HTTP."""

import asyncio
import base64
import hashlib
import json
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from page_data import HOSTILE, TEXT, data_of
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.testclient import TestClient

from onehop.errors import OnehopError
from onehop.explorer.content import is_shown, measured
from onehop.explorer.html import assets, policy_of
from onehop.explorer.routes import MOST_BODY, STREAM, _progress_and_trace, explorer_routes
from onehop.interpret.trace_file import unpack

JSON = {"Content-Type": "application/json"}


def test_the_served_page_links_its_files_and_allows_only_its_own_scripts(client, explorer):
    answer = client.get("/")
    assert answer.status_code == 200
    data = data_of(answer.text)
    assert data["backend"] == "live"
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
def test_only_the_pages_own_files_are_served(client, path):
    assert client.get(path).status_code == 404


def test_the_policy_of_a_page_without_scripts_allows_none():
    assert "sha256" not in policy_of("<p>nothing</p>")


def test_all_api_routes_answer(client, explorer, tracer):
    assert client.get("/api/about").json() == explorer.about()
    assert client.get("/api/measured").json() == measured()
    trace = client.post("/api/trace", json={"text": TEXT, "edits": ["scale=off"]}).json()
    assert trace["edits"] == ["scale=off"]
    assert client.post("/api/trace", json={"text": TEXT}).json() == json.loads(explorer.trace(TEXT))
    variant = client.post("/api/variant", json={"text": TEXT, "edits": ["heads=averaged"]}).json()
    assert variant == explorer.variant(TEXT, ["heads=averaged"])
    weights = client.get("/api/weights?role=cross&layer=1&head=0").json()
    assert weights == tracer.weights("cross", 1, 0)


def read_stream(content):
    """The lines before the trace, the trace's header, and its tensors."""
    lines = []
    while True:
        line, _, content = content.partition(b"\n")
        lines.append(json.loads(line))
        if "trace" in lines[-1]:
            *before, last = lines
            assert len(content) == last["bytes"]
            return before, last["trace"], unpack({**last["trace"], "blob": base64.b64encode(content)})


def test_the_page_reads_a_trace_as_progress_header_and_bytes(client, explorer):
    question = {"json": {"text": "the old tree", "edits": ["scale=off"]}, "headers": {"Accept": STREAM}}
    first, again = (client.post("/api/trace", **question) for _ in range(2))
    assert first.headers["content-type"] == STREAM
    before, header, tensors = read_stream(first.content)
    *progress, last = before
    assert progress == [{"written": i} for i in range(1, len(header["beam"]["steps"]) + 1)]
    trace = explorer.traced("the old tree", ["scale=off"])
    opening = last["opening"]
    assert {key: opening[key] for key in ("source", "target", "steps", "aligner", "beam", "confidence")} == {
        key: header[key] for key in ("source", "target", "steps", "aligner", "beam", "confidence")
    }
    ((name, weights),) = unpack(opening["opening"]).items()
    assert name == f"decoder.layers.{header['aligner']['layer']}.cross_attention.weights"
    np.testing.assert_array_equal(weights.values, trace[name])
    assert {key: value for key, value in header.items() if key != "tensors"} == json.loads(json.dumps(trace.header))
    assert list(tensors) == [name for name in trace if is_shown(name, trace.header)]
    for name, tensor in tensors.items():
        assert tensor.axes == trace.axes(name)
        np.testing.assert_array_equal(tensor.values, trace[name])
    assert read_stream(again.content)[0] == []  # it is cached


def test_an_early_error_gets_422_and_a_late_one_ends_the_stream(client):
    class Fails:
        def streamed_trace(self, text, edits, on_step, on_translation):
            on_step(1)
            raise OnehopError("It failed.", "Try again.")

    empty = client.post("/api/trace", json={"text": ""}, headers={"Accept": STREAM})
    assert (empty.status_code, list(empty.json())) == (422, ["error"])
    fails = TestClient(Starlette(routes=explorer_routes(Fails)))
    answer = fails.post("/api/trace", json={"text": "the"}, headers={"Accept": STREAM})
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert (answer.status_code, lines) == (200, [{"written": 1}, {"error": "It failed. Try again."}])


def test_the_search_stops_when_its_client_leaves():
    stopped = threading.Event()

    def search(on_step, on_translation):
        try:
            for count in range(1, 1000):
                on_step(count)
                time.sleep(0.01)
        except Exception:
            stopped.set()
            raise

    async def leave_early():
        parts = _progress_and_trace(search, run_in_threadpool)
        assert json.loads(await anext(parts)) == {"written": 1}
        await parts.aclose()

    asyncio.run(leave_early())
    assert stopped.wait(20)


def test_head_effects_are_streamed_line_by_line(client, explorer):
    with client.stream("POST", "/api/heads", json={"text": TEXT, "edits": ["scale=off"]}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert lines == list(explorer.heads(TEXT, ["scale=off"]))
    assert lines[0] == {"attentions": len(lines) - 1}
    steps = len(json.loads(explorer.trace(TEXT, ["scale=off"]))["steps"])
    for part in lines[1:]:
        assert {len(row) for row in part["effect"]} == {len(row) for row in part["top"]} == {steps}


def test_other_requests_are_answered_during_a_head_sweep(explorer):
    parts = explorer.heads(TEXT)
    next(parts)
    next(parts)
    assert explorer.variant(TEXT, ["mask=off"])["edits"] == ["mask=off"]
    assert next(parts)["role"] in ("encoder", "decoder")


def test_neurons_are_requested_by_index(client, tracer):
    found = client.get("/api/neurons?stack=decoder&layer=1&places=3,14").json()
    assert found == tracer.neurons("decoder", 1, [3, 14])


@pytest.mark.parametrize(
    "query", ["", "stack=cross&layer=0&places=1", "stack=decoder&layer=x&places=1", "stack=decoder&layer=0&places=1,,2"]
)
def test_invalid_neuron_requests_are_refused(client, query):
    answer = client.get(f"/api/neurons?{query}")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("The request names no neurons. Ask for stack=decoder&layer=0&places=3,14")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", 'The request has no text. Send {"text": "…", "edits": []} as JSON.'),
        (b"[]", 'The request has no text. Send {"text": "…", "edits": []} as JSON.'),
        (b'{"text": 3}', 'The request has no text. Send {"text": "…", "edits": []} as JSON.'),
        (b'{"text": "the", "edits": "scale=off"}', "The edits of a request are a list of strings. Send at most 16."),
        (b'{"text": "the", "edits": [1]}', "The edits of a request are a list of strings. Send at most 16."),
        (b'{"text": "", "edits": []}', "There is nothing to trace: the text is empty. Give a sentence."),
        (b'{"text": "the", "edits": ["mask=on"]}', "'mask=on' is no edit of mask. Write mask=off."),
        (b"[" * 60_000, 'The request has no text. Send {"text": "…", "edits": []} as JSON.'),
        (b"\xff\xfe", 'The request has no text. Send {"text": "…", "edits": []} as JSON.'),
    ],
)
def test_invalid_requests_get_a_one_line_error(client, body, message):
    for path in ("/api/trace", "/api/variant", "/api/heads"):
        answer = client.post(path, content=body, headers=JSON)
        assert (answer.status_code, answer.json()) == (422, {"error": message})


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_requests_without_json_content_type_are_refused(client, kind):
    answer = client.post("/api/trace", content=b'{"text": "the"}', headers={"Content-Type": kind} if kind else {})
    message = "The request is not JSON. Send it with Content-Type: application/json."
    assert (answer.status_code, answer.json()) == (415, {"error": message})


def test_an_oversized_body_is_not_read_to_its_end(client):
    answer = client.post("/api/trace", content=b'{"text": "' + b"x" * MOST_BODY + b'"}', headers=JSON)
    assert (answer.status_code, answer.json()) == (
        413,
        {"error": "A request may have at most 65,536 bytes. Give a shorter text."},
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
def test_invalid_head_requests_are_refused(client, query):
    answer = client.get(f"/api/weights?{query}")
    assert (answer.status_code, answer.json()) == (
        422,
        {"error": "The request names no head. Ask for role=encoder&layer=0&head=0."},
    )


@pytest.mark.parametrize("query", ["role=encoder&layer=7&head=0", "role=cross&layer=0&head=2"])
def test_an_unknown_head_is_an_error(client, query):
    answer = client.get(f"/api/weights?{query}")
    assert answer.status_code == 422
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "👩‍👩‍👧‍👦🏳️‍🌈", "\u202eesuoh\u202c البيت", "\u200b\u200d\ufeff", "the\x00\x1b[31m", "\ud83d"],
    ids=["script", "emoji", "right to left", "zero width", "controls", "lone surrogate"],
)
def test_hostile_texts_are_traced_over_http(client, text):
    answer = client.post("/api/trace", content=json.dumps({"text": text}), headers=JSON)
    assert answer.status_code == 200
    assert answer.json()["format"] == "onehop trace"
    assert (
        client.post("/api/variant", content=json.dumps({"text": text, "edits": ["norm=off"]}), headers=JSON).status_code
        == 200
    )


def test_the_routes_can_be_imported_without_torch():
    code = "import sys, onehop.explorer.routes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
