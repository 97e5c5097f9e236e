"""`onehop serve` as a process, for tests that talk to it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx


class Process:
    """`onehop serve` with its logs."""

    def __init__(self, model, *options, environment=None, reads=True):
        """`reads`: whether somebody reads the access log."""
        command = [sys.executable, "-m", "onehop", "serve", "-m", str(model), "--port", "0", "--compute", "float32"]
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
