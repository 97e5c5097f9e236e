"""Take parent, worker, log or model from a server under load.

The port becomes free, no answer is wrong, and every accepted request is answered or clearly refused.

    python benchmarks/chaos/faults.py
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from common import ROOT, report, small_model

from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.sentence_translator import SentenceTranslator

sys.path.insert(0, str(ROOT / "tests"))
from serving import Process

TEXTS = [f"{a} {b} {c}." for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
CLIENTS, REQUESTS = 16, 10
PATIENCE = 60  # seconds until a port must be free, on a busy machine


def load(server: Process, right: dict[str, str], meanwhile: Callable[[], Any], **more: Any) -> Counter[str]:
    """Send requests while something happens, and count their outcomes."""

    def ask(i: int) -> Counter[str]:
        found = Counter[str]()
        for k in range(REQUESTS):
            mine = [TEXTS[(i + k + n) % len(TEXTS)] for n in range(4)]
            try:
                answer = server.post("/v1/translate", {"texts": mine, **more})
            except httpx.TransportError as e:
                found["no connection" if isinstance(e, httpx.ConnectError) else "connection lost"] += 1
                continue
            if answer.status_code != 200:
                found[f"refused {answer.status_code}" if "error" in answer.json() else "UNCLEAR"] += 1
                continue
            same = [t["text"] for t in answer.json()["translations"]] == [right[text] for text in mine]
            found["right" if same or more else "WRONG"] += 1
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(ask, i) for i in range(CLIENTS)]
        while server.metric("onehop_requests_running") < CLIENTS / 2 and not all(task.done() for task in running):
            time.sleep(0.01)
        meanwhile()
        return sum((task.result() for task in running), Counter())


def is_free(port: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return True
        except OSError:
            time.sleep(0.2)
    return False


def workers_of(server: Process) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.process.pid)], capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def main() -> None:
    found: dict[str, Any] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        model = small_model(Path(name))
        os.environ["ONEHOP_CACHE"] = f"{name}/cache"
        by = ParagraphTranslator(SentenceTranslator.load(model, "cpu", compute="float32", threads=1), max_length=64)
        right = {text: by.translate([text])[0].text for text in TEXTS}

        def scenario(
            title: str, meanwhile: Callable[[Process], Any], *options: Any, end: bool = True, **more: Any
        ) -> None:
            reads = more.pop("reads", True)
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            server = Process(more.pop("model", model), "--port", port, *options, reads=reads)
            outcomes = load(server, right, lambda: meanwhile(server), **more)
            if end:
                server.stop()
            free_again = is_free(port)
            found[title] = {**dict(sorted(outcomes.items())), "port free": free_again}
            if not free_again or any(key.isupper() for key in outcomes):
                failures.append(f"{title}: {found[title]}")
            print(f"  {title}: {found[title]}", flush=True)

        scenario("SIGTERM", lambda s: s.process.send_signal(signal.SIGTERM))
        scenario("SIGKILL of the parent of two workers", lambda s: s.process.kill(), "--workers", 2, end=False)
        scenario("SIGKILL of a worker", lambda s: os.kill(workers_of(s)[-1], signal.SIGKILL), "--workers", 2)
        scenario("a stalled log", lambda s: None, reads=False)
        copy = Path(name) / "replaced.safetensors"
        shutil.copy(model, copy)
        # Torch loads the model after the file is gone: old and new weights must not mix.
        scenario("a model that is removed", lambda s: copy.unlink(), model=copy)
        full_disk(model, right, found, failures)
    report("faults", found, failures)


def full_disk(model: Path, right: dict[str, str], found: dict[str, Any], failures: list[str]) -> None:
    """Write the access log to a device that is always full."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "onehop", "serve", "-m", str(model), "--compute", "float32", "--port", str(port)]
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(command, stdout=full, stderr=subprocess.DEVNULL)
    statuses = Counter[str]()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            for i in range(100):
                text = TEXTS[i % len(TEXTS)]
                answer = client.post("/v1/translate", json={"texts": [text]})
                statuses["right" if answer.json()["translations"][0]["text"] == right[text] else "WRONG"] += 1
    finally:
        process.terminate()
        process.wait(PATIENCE)
    found["a full disk for the log"] = {**statuses, "port free": is_free(port)}
    if statuses["right"] != 100:
        failures.append(f"a full disk: {statuses}")


if __name__ == "__main__":
    main()
