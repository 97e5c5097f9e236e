"""A server for tests: an application in this process, or `onehop serve` in another."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx

from onehop.server.app import Application
from onehop.server.metrics import Metrics
from onehop.server.service import Service
from onehop.server.settings import ServerSettings

MODEL_NAME = "small"


def refused(answer, status, sentence):
    """Assert that an answer is this error."""
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})


class Server:
    """An application and its client. Each translator is a model."""

    def __init__(self, *translators, explorers=None, hosts=(), names=None, **settings):
        self.log = []
        self.settings, counts = ServerSettings(**settings), Metrics()
        names = names or ([MODEL_NAME] if len(translators) == 1 else [f"{t.source}-{t.target}" for t in translators])
        self.services = [
            Service(t, 64, self.settings, counts, name) for t, name in zip(translators, names, strict=True)
        ]
        self.service = self.services[0]
        self.app = Application(
            self.services, self.settings, counts, explorers=explorers, hosts=hosts, write=self.log.append
        )

    def ask(self, method, path, headers=None, address="127.0.0.1", **more):
        async def once():
            transport = httpx.ASGITransport(self.app.asgi, raise_app_exceptions=False, client=(address, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                return await client.request(method, path, headers=headers, **more)

        for service in self.services:
            for lane in ("fast", "reference", "joining"):
                service.__dict__.pop(lane, None)  # a lane belongs to one event loop
        return asyncio.run(once())

    def post(self, path, json, **more):
        return self.ask("POST", path, json=json, **more)

    def get(self, path, **more):
        return self.ask("GET", path, **more)


class Looks:
    """A stub of an explorer."""

    def served(self):
        return "<!doctype html><title>explorer</title>"

    def about(self):
        return {"model": "x"}

    def trace(self, text, edits=()):
        return json.dumps({"text": text, "edits": list(edits)})

    def streamed_trace(self, text, edits, on_step, on_translation):
        return [self.trace(text, edits).encode() + b"\n"]

    def variant(self, text, edits):
        return {}

    def heads(self, text, edits=()):
        yield {"attentions": 0}

    def neurons(self, stack, layer, places):
        return []

    def weights(self, role, layer, head):
        return {}


class Process:
    """`onehop serve` with its logs."""

    def __init__(self, model, *options, environment=None, reads=True):
        """`model`: None for all installed models; `reads`: whether the access log is read."""
        command = [sys.executable, "-m", "onehop", "serve", "--port", "0", "--compute", "float32"]
        command += [] if model is None else ["-m", str(model)]
        self.process = subprocess.Popen(
            [*command, *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.errors = [self.process.stderr.readline()]
        self.lines = []
        found = re.search(r"http://(\S+):(\d+)", self.errors[0])
        if found is None:
            raise AssertionError(self.errors[0] + self.process.stderr.read())
        self.host, self.port = found[1], int(found[2])
        self.url = f"http://{self.host}:{self.port}"
        self.readers = [
            *([threading.Thread(target=self.lines.extend, args=[self.process.stdout], daemon=True)] if reads else []),
            threading.Thread(target=self.errors.extend, args=[self.process.stderr], daemon=True),
        ]
        for reader in self.readers:
            reader.start()
        self.wait_until_ready()

    def wait_until_ready(self):
        for _ in range(600):
            with contextlib.suppress(httpx.ConnectError):
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            time.sleep(0.05)
        self.stop()
        raise AssertionError(f"never ready: {self.errors}")

    def post(self, path, body, **more):
        return httpx.post(self.url + path, json=body, timeout=60, **more)

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=30)

    def metric(self, name):
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        for reader in self.readers:
            reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
