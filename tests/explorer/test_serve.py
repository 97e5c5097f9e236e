"""`onehop explore`: the page at a local address."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest
from page_data import TEXT, data_of
from starlette.applications import Starlette
from starlette.testclient import TestClient

from onehop.errors import MissingPackageError, SettingsError
from onehop.explorer import serve
from onehop.explorer.content import Explorer
from onehop.interpret.tracer import Tracer


def test_a_port_in_use_is_an_error():
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as error:
            serve.listening(port)
    assert str(error.value) == f"Port {port} is not available. Choose another with --port, or leave it out."


def test_another_port_is_used_if_the_default_is_taken(monkeypatch):
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        monkeypatch.setattr(serve, "PORT", taken.getsockname()[1])
        with serve.listening(None) as bound:
            assert bound.getsockname()[0] == "127.0.0.1"
            assert bound.getsockname()[1] != serve.PORT


def test_missing_server_packages_are_named(explorer, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingPackageError) as error:
        serve.serve(explorer, port=None, browser=False, say=print)
    install = 'This needs uvicorn. Install it with: pip install "onehop[serve]"'
    assert str(error.value) == f"{install}, or write a file with --export"


def test_a_link_opens_the_page_with_edits(explorer):
    assert serve.fragment(explorer, []) == ""
    edits = ["scale=off", "head=off@cross.1.0"]
    assert serve.fragment(explorer, edits) == "#edit=scale%3Doff&edit=head%3Doff%40cross.1.0"


def test_two_models_are_served_at_one_address(explorer, tracer):
    second = Tracer(tracer.translator, "second", "cd" * 32)
    both = Explorer(tracer, TEXT, other=Explorer(second, TEXT))
    assert serve.fragment(both, []) == "#against=%40model%3Asecond"
    client = TestClient(Starlette(routes=serve.routes_of(both)))
    assert data_of(client.get("/").text)["other"]["about"]["model"]["name"] == "second"
    names = [client.post(f"{at}/api/trace", json={"text": TEXT}).json()["model"]["name"] for at in ("", "/other")]
    assert names == [tracer.name, "second"]
    alone = TestClient(Starlette(routes=serve.routes_of(explorer)))
    assert alone.post("/other/api/trace", json={"text": TEXT}).status_code == 404
    assert "other" not in data_of(alone.get("/").text)


def test_serve_opens_the_browser_and_answers_local_requests_only(explorer, monkeypatch):
    served, opened = {}, []

    class Server:
        def __init__(self, config):
            served["app"] = config.app

        def run(self, sockets):
            served["address"] = sockets[0].getsockname()
            sockets[0].close()

    def timer(seconds, function, args):
        return SimpleNamespace(start=lambda: function(*args), cancel=lambda: None)

    monkeypatch.setattr("uvicorn.Server", Server)
    ready = []
    monkeypatch.setattr(serve.threading, "Timer", timer)
    monkeypatch.setattr(explorer, "trace", ready.append)
    monkeypatch.setattr("webbrowser.open", opened.append)
    said = []
    serve.serve(explorer, port=0, browser=True, say=said.append, edits=["mask=off"])
    host, port = served["address"]
    assert host == "127.0.0.1"
    assert ready == [TEXT]
    assert opened == [f"http://127.0.0.1:{port}/#edit=mask%3Doff"]
    assert said == [f"The explorer is at {opened[0]} (Ctrl-C stops it)."]
    assert TestClient(served["app"], base_url="http://127.0.0.1").get("/api/about").status_code == 200
    assert TestClient(served["app"], base_url="http://evil.example").get("/api/about").status_code == 400


def test_no_thread_outlives_the_server(explorer, monkeypatch):
    """A thread that still computes at exit aborts the process; a browser would open without a server."""
    before, tracing, traced, opened = set(threading.enumerate()), threading.Event(), [], []

    class Server:
        def __init__(self, config):
            pass

        def run(self, sockets):
            assert tracing.wait(60)

    def trace(text):
        tracing.set()
        time.sleep(0.2)
        traced.append(text)

    monkeypatch.setattr("uvicorn.Server", Server)
    monkeypatch.setattr(explorer, "trace", trace)
    monkeypatch.setattr("webbrowser.open", opened.append)
    serve.serve(explorer, port=0, browser=True, say=lambda text: None)
    assert traced == [TEXT]
    for thread in set(threading.enumerate()) - before:
        thread.join(60)  # a timer that was cancelled
    assert opened == []


@pytest.mark.slow
def test_the_command_serves_until_interrupted(model_file):
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
