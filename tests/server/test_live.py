"""A server in a separate process, with real clients and clients that misbehave."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx
import pytest
from command_line import refused
from libretranslatepy import LibreTranslateAPI
from serving import Process
from typer.testing import CliRunner

from onehop.cli import app
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.server import auth, start

WORDS = ["the", "a", "old", "new", "house", "tree", "bird"]
TEXTS = [" ".join(WORDS[(i * k) % 7] for k in range(1, 3 + i % 9)) + "." for i in range(1, 40)]


@pytest.fixture(scope="module")
def server(model_file):
    made = Process(model_file)
    yield made
    made.stop()
    assert "Traceback" not in "".join(made.errors)


@pytest.fixture(scope="module")
def expected(model_file):
    by = ParagraphTranslator(SentenceTranslator.load(model_file, "cpu", compute="float32", threads=1), max_length=64)
    return {text: by.translate([text])[0].text for text in TEXTS}


def is_well(server, expected):
    text = TEXTS[3]
    assert server.post("/v1/translate", {"texts": [text]}).json()["translations"][0]["text"] == expected[text]


def test_libretranslates_own_client_works(server, expected):
    client = LibreTranslateAPI(server.url)
    assert client.translate(TEXTS[0], "en", "de") == expected[TEXTS[0]]
    assert client.languages()[0]["code"] == "en"
    assert client.detect("This surely is an English sentence, and long.")[0]["language"] == "en"


def test_deep_translator_works(server, expected, model_file, tmp_path):
    """It sends all parameters in the query and expects 403 for a wrong key."""
    deep_translator = pytest.importorskip("deep_translator")
    client = deep_translator.LibreTranslator("en", "de", api_key="any", custom_url=f"{server.url}/")
    assert client.translate(TEXTS[0]) == expected[TEXTS[0]]
    key, line = auth.make("anna")
    (tmp_path / "keys").write_text(line)
    guarded = Process(model_file, "--keys", tmp_path / "keys")
    try:
        options = {"source": "en", "target": "de", "custom_url": f"{guarded.url}/"}
        assert deep_translator.LibreTranslator(api_key=key, **options).translate(TEXTS[0]) == expected[TEXTS[0]]
        with pytest.raises(deep_translator.exceptions.AuthorizationException):
            deep_translator.LibreTranslator(api_key="wrong", **options).translate(TEXTS[0])
    finally:
        guarded.stop()


def test_many_clients_get_their_own_translations(server, expected):
    def ask(i):
        mine = [TEXTS[(i + k) % len(TEXTS)] for k in range(1 + i % 3)]
        found = server.post("/v1/translate", {"texts": mine}).json()
        return [t["text"] for t in found["translations"]] == [expected[text] for text in mine]

    before = server.metric("onehop_batch_sentences_count")
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(120)))
    batches = server.metric("onehop_batch_sentences_count") - before
    assert batches < 240  # of as many sentences: they were decoded together


def test_torch_is_not_imported_until_it_is_needed(server):
    """In a separate process that translates only plain text and HTML."""
    maps = f"/proc/{server.process.pid}/maps"
    if not os.path.exists(maps):
        pytest.skip("no /proc")
    server.post("/translate", {"q": "the <b>old</b> house", "source": "en", "target": "de", "format": "html"})
    server.post("/v1/stream", {"text": "the old house", "beam": 1})
    with open(maps) as file:
        assert "libtorch" not in file.read()


GARBAGE = [
    b"\x00\xff\xfe garbage\r\n\r\n",
    b"GET /\r\nHost: localhost\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 99999999999\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


def answer_on(connection):
    """The head and the body of an answer with Content-Length."""
    received = b""
    while chunk := connection.recv(1000):
        received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        if (length := re.search(rb"(?i)content-length: (\d+)", head)) and len(body) >= int(length[1]):
            break
    return head, body


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_refused_without_stopping_the_server(server, expected, garbage):
    with server.connect() as connection:
        connection.sendall(garbage)
        head, body = answer_on(connection)
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 431"))
    assert list(json.loads(body)) == ["error"]
    is_well(server, expected)


def test_invalid_http_is_logged_and_counted(server):
    name = 'onehop_requests_total{path="other",status="431"}'
    before = server.metric(name)
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: " + b"a" * 100_000)
        _, body = answer_on(connection)
    assert json.loads(body) == {"error": "The request's header is too long: send a shorter one."}
    assert server.metric(name) == before + 1
    for _ in range(100):
        if found := [line for line in server.lines if '"status": 431' in line]:
            break
        time.sleep(0.05)
    assert json.loads(found[-1])["address"] == "127.0.0.1"


def test_too_many_connections_get_retry_after(model_file):
    server = Process(model_file, "--set", "max_connections=2")
    try:
        with server.connect(), server.connect():
            answer = httpx.get(f"{server.url}/languages")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json() == {"error": "The server has too many connections: try again soon."}
    finally:
        server.stop()
    assert any('"status": 503' in line for line in server.lines)


def test_disconnected_clients_are_dropped(server, expected):
    body = json.dumps({"texts": TEXTS * 20, "beam": 16}).encode()
    lines = ["POST /v1/translate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", "", ""]
    head = "\r\n".join(lines)
    for attempt in range(200):  # when a request is read and done depends on the machine
        with server.connect() as connection:
            connection.sendall(head.encode() + body)
            time.sleep(0.02 * (attempt % 10))
        if server.metric("onehop_dropped_sentences_total") > 0:
            break
    is_well(server, expected)
    for _ in range(600):
        if server.metric("onehop_queue_sentences") == 0 and server.metric("onehop_requests_running") == 1:
            break
        time.sleep(0.05)
    assert server.metric("onehop_queue_sentences") == 0
    assert server.metric("onehop_dropped_sentences_total") > 0


def test_a_slow_sender_gets_408_without_blocking_others(model_file, expected):
    server = Process(model_file, "--set", "read_seconds=1")
    try:
        with server.connect() as slow:
            slow.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            is_well(server, expected)
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        with server.connect() as slower:
            slower.sendall(b"GET / HTT")
            assert slower.recv(1000) == b""  # closed: an incomplete head gets no answer
            is_well(server, expected)
        patient = HTTPConnection(server.host, server.port, timeout=30)
        for _ in range(2):  # a second request on the same connection has its own time
            patient.request("GET", "/languages")
            assert json.loads(patient.getresponse().read())[0]["code"] == "en"
            connection = patient.sock
            time.sleep(1.2)
        assert patient.sock is connection
        patient.close()
    finally:
        server.stop()


def test_sigterm_under_load_answers_every_accepted_request(model_file, expected):
    server = Process(model_file, "--set", "patience=0.05")
    clients = 12

    def ask(i):
        mine = [TEXTS[(i + k) % len(TEXTS)] for k in range(20)]
        answer = server.post("/v1/translate", {"texts": mine, "beam": 4})
        return [t["text"] for t in answer.json()["translations"]] == [expected[text] for text in mine]

    def accepted():
        """The number of requests that the server has begun, without the one for the metrics."""
        done = server.metric('onehop_requests_total{path="/v1/translate",status="200"}')
        return done + server.metric("onehop_requests_running") - 1

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(ask, i) for i in range(clients)]
        # Finished requests are counted first, so that one that ends in between is not counted twice.
        deadline = time.monotonic() + 60
        while accepted() < clients and time.monotonic() < deadline:
            pass
        server.process.send_signal(signal.SIGTERM)
        assert all(task.result() for task in running)
    assert server.process.wait(60) in (0, -signal.SIGTERM)  # uvicorn raises the signal again at the end
    with pytest.raises(httpx.ConnectError):
        ask(0)
    server.stop()
    assert "Traceback" not in "".join(server.errors)


@pytest.mark.parametrize("workers", [1, 2])
def test_translated_files_are_shared_by_all_workers_and_removed_at_exit(model_file, tmp_path, workers):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {"TMPDIR": str(tmp_path)}
    server = Process(model_file, "--workers", workers, "--port", port, environment=environment)

    def kept():
        return list(tmp_path.glob("onehop-files-*/*"))

    answers = [
        httpx.post(
            f"{server.url}/translate_file",
            files={"file": (f"{i}.txt", TEXTS[i].encode())},
            data={"source": "en", "target": "de"},
            timeout=60,
        )
        for i in range(2)
    ]
    addresses = [answer.json()["translatedFileUrl"] for answer in answers]
    assert len(kept()) == 2
    for address in addresses * 4:  # the system distributes requests over the processes
        assert httpx.get(address).status_code == 200
    server.stop()
    assert kept() == []
    assert list(tmp_path.glob("onehop-files-*")) == []
    assert "Traceback" not in "".join(server.errors)


def test_a_paused_log_reader_blocks_no_request(model_file, expected):
    server = Process(model_file, reads=False)
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for _ in range(800):  # about twice what a pipe holds
            assert client.get("/health").status_code == 200
    is_well(server, expected)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 20
    assert server.process.returncode in (0, -signal.SIGTERM)
    assert [line for line in server.errors[1:] if "onehop translates" not in line] == []


FAULTY = """
from onehop.server.service import Service
translate = Service.translate
async def faulty(self, lines, wish, variants=1):
    if "fault" in lines[0]:
        raise RuntimeError("x" * 8000)
    return await translate(self, lines, wish, variants)
Service.translate = faulty
if __name__ == "__main__":  # the processes of several workers import this file
    from onehop.cli import main
    main()
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_paused_stderr_reader_blocks_no_request(model_file, expected, tmp_path, workers):
    """Tracebacks of faults fill stderr with eight times what a pipe holds."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, tmp_path / "faulty.py", "serve", "--port", str(port), "--compute", "float32"]
    command += ["-m", model_file, "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        one_each = httpx.Limits(max_keepalive_connections=0)  # a fault closes its connection
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=one_each) as client:
            await_health(client)
            for _ in range(64):
                assert client.post("/v1/translate", json={"texts": ["a fault"]}).status_code == 500
            answer = client.post("/v1/translate", json={"texts": [TEXTS[3]]}).json()
            assert answer["translations"][0]["text"] == expected[TEXTS[3]]
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    said = process.stderr.read().decode()  # the reader continues
    process.stderr.close()
    assert said.startswith("onehop serves at")
    assert "RuntimeError: xxx" in said


def await_health(client):
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail("never ready")


@pytest.mark.slow
def test_all_installed_models_are_served_by_default(install):
    folder = install("en-de", "en-de-small", "de-en", "en-fr", "fr-en")  # these precede installed packages
    server = Process(None, environment={"ONEHOP_MODELS": str(folder)})
    try:
        body = {"texts": ["the old house"], "source": "de", "target": "fr"}
        (found,) = server.post("/v1/translate", body).json()["translations"]
    finally:
        server.stop()
    assert (found["models"], found["via"]) == (["de-en", "en-fr"], "en")
    direct = "en → de (en-de or en-de-small), de → en (de-en), en → fr (en-fr), fr → en (fr-en)"
    assert f"{direct}, de → en → fr, fr → en → de" in server.errors[1]


def test_several_processes_share_a_port_and_their_counts(model_file, expected):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Process(model_file, "--workers", "2", "--port", port)
    try:
        for _ in range(10):
            is_well(server, expected)
        assert server.metric('onehop_requests_total{path="/v1/translate",status="200"}') == 10
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills")
def test_workers_end_when_their_parent_is_killed(model_file, expected, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    left = tmp_path / f"onehop-metrics-{socket.gethostname()}-999999999-killed"
    left.mkdir()
    server = Process(model_file, "--workers", "2", "--port", port, environment={"TMPDIR": str(tmp_path)})
    assert not left.exists()
    is_well(server, expected)
    assert list(tmp_path.iterdir()) != []
    server.process.kill()
    server.process.wait(30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.1)
    else:
        pytest.fail("the port is still taken")
    for reader in server.readers:  # the pipes close with the last process
        reader.join(30)
        assert not reader.is_alive()
    assert list(tmp_path.iterdir()) == []
    server.process.stdout.close()
    server.process.stderr.close()


# --- the command ----------------------------------------------------------------------------------------------


def onehop(*args):
    return CliRunner().invoke(app, ["serve", *map(str, args)])


def test_start_errors_are_one_line(model_file, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        what = f"127.0.0.1:{port} cannot be listened on: address already in use."
        refused(onehop("-m", model_file, "--port", port), f"{what} Choose another --host or --port.")
    refused(onehop("-m", model_file, "--set", "patience"), "'patience' changes nothing. Write KEY=VALUE.")
    refused(onehop("-m", model_file, "--set", "max_bean=3"), "There is no limit max_bean. Did you mean max_beam?")
    refused(onehop("-m", model_file, "--set", "max_beam=x"), "max_beam is 'x'. It must be a number.")
    refused(
        onehop("-m", model_file, "--set", "max_beam=0"),
        "serve.max_beam is 0. It must be at least 1: width of the beam.",
    )
    missing = tmp_path / "keys"
    args = ("-m", model_file, "--port", 0, "--keys", missing)
    refused(onehop(*args), f"{missing} cannot be read. Give a file of API keys that you may read.")
    missing.write_text("# nobody\n")
    refused(onehop(*args), f"{missing} has no key. Make one: onehop serve --make-key NAME.")
    missing.write_text("anna secret\n")
    refused(onehop(*args), f"Line 1 of {missing} is not a name and a SHA-256. Make one: onehop serve --make-key NAME.")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = onehop("-m", model_file)
    install = 'Install it with: pip install "onehop[serve]"'
    assert (found.exit_code, found.stderr) == (2, f"onehop serve: needs prometheus-client. {install}\n")


def test_without_torch_tracing_is_off_and_explore_is_refused(model_file, monkeypatch):
    assert start.ServeOptions().explores
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not start.ServeOptions().explores
    found = onehop("-m", model_file, "--explore")
    install = 'Install it with: pip install "onehop[torch]"'
    assert (found.exit_code, found.stderr) == (2, f"onehop serve: needs PyTorch. {install}\n")


def test_a_key_is_made_and_only_its_hash_is_kept(tmp_path):
    made = onehop("--make-key", "anna").stdout.splitlines()
    key, line = (text.split(": ")[1] for text in made)
    assert line == f"anna {auth.hashed(key)}"
    assert auth.parse([line], "x") == {auth.hashed(key): "anna"}
    refused(onehop("--make-key", "an na"), "'an na' cannot be a key's name. Use only letters, digits and . @ - _.")
