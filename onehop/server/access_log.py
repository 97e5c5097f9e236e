"""Middleware around every request: metrics, the access log, security headers, and a check of the Host header."""

import atexit
import io
import json
import os
import re
import select
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Counter
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onehop.server.metrics import Metrics

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

# Characters that JSON does not escape, but that control a terminal or its text direction.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_MOST_BYTES = 1 << 22  # maximum size of the queue


class LogWriter:
    """Writes lines to a file descriptor in a thread. A blocked reader or a full disk costs lines, never requests.

    Lines beyond `most_bytes`, or that cannot be written, are counted in `dropped`.
    """

    def __init__(self, dropped: Counter, descriptor: int = _STANDARD_OUTPUT, most_bytes: int = _MOST_BYTES) -> None:
        self.dropped, self.descriptor, self.most_bytes = dropped, descriptor, most_bytes
        self.lines, self.waiting_bytes, self.closed = deque[bytes](), 0, False
        self.changed = threading.Condition()
        # A daemon thread: a write that blocks forever must not keep the process alive.
        self.thread = threading.Thread(target=self._write_all, name="onehop-log", daemon=True)

    def __call__(self, line: str) -> None:
        self.put(line.encode("utf-8", "backslashreplace") + b"\n")

    def put(self, data: bytes) -> None:
        """Queue bytes without waiting for the reader."""
        with self.changed:
            if self.closed or self.waiting_bytes + len(data) > self.most_bytes:
                self.dropped.inc()
                return
            self.lines.append(data)
            self.waiting_bytes += len(data)
            if self.thread.ident is None:
                self.thread.start()
            self.changed.notify()

    def close(self, seconds: float = 2.0) -> None:
        """Accept no more lines, and wait at most `seconds` for the queue to be written."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        if self.thread.ident is not None:
            self.thread.join(seconds)

    def _write_all(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.lines or self.closed)
                if not self.lines:
                    return
                data = self.lines.popleft()
            try:
                _write_whole(self.descriptor, data)
            except OSError:  # a full disk or a closed pipe
                self.dropped.inc()
            with self.changed:
                self.waiting_bytes -= len(data)


class _NonBlockingFile(io.RawIOBase):
    def __init__(self, writer: LogWriter) -> None:
        self.put = writer.put

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.put(bytes(data))
        return len(data)


def make_stderr_non_blocking(dropped: Counter) -> None:
    """Write this process's tracebacks and warnings through a `LogWriter`, like the access log."""
    writer = LogWriter(dropped, _STANDARD_ERROR)
    raw = io.BufferedWriter(_NonBlockingFile(writer))
    sys.stderr = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)

    def end() -> None:
        sys.stderr.flush()
        sys.stderr = sys.__stderr__
        writer.close()

    atexit.register(end)


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write all bytes without sys.stdout: if a blocked thread held its lock, Python's exit would abort."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # the parent process may have made it non-blocking
            select.select([], [descriptor], [])


class KnownNames:
    """An ASGI application that answers only requests whose Host is one of its names.

    This prevents DNS rebinding: a foreign name that resolves to this machine.
    """

    def __init__(self, app: ASGIApp, *, names: Sequence[str]) -> None:
        self.app, self.names = app, tuple(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "").lower() if scope["type"] == "http" else ""
        # Without the port; an IPv6 address is in brackets.
        name, bracket, _ = host.rpartition("]")
        if scope["type"] != "http" or (name + bracket or host.partition(":")[0]) in self.names:
            await self.app(scope, receive, send)
            return
        what = f"The Host of this request is not a name of this server: use {' or '.join(self.names)}."
        await JSONResponse({"error": what}, 400)(scope, receive, send)


class AccessLog:
    """An ASGI application that counts and logs the requests of another, and adds security headers."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: frozenset[str], write: Callable[[str], None]) -> None:
        self.app, self.metrics, self.paths, self.write = app, metrics, paths, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        app = self.app if (problem := _refusal(scope)) is None else problem
        began, status = time.perf_counter(), 0
        # Handlers add fields to the log line; texts only if the server was started with log_texts.
        log_fields: dict[str, Any] = {"request": uuid.uuid4().hex[:12]}
        scope.setdefault("state", {})["log_fields"] = log_fields

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = log_fields["request"]
            await send(message)

        self.metrics.running.inc()
        try:
            await app(scope, receive, answer)
        finally:
            self.metrics.running.dec()
            self.done(scope, status, time.perf_counter() - began, log_fields)

    def malformed(self, status: int, address: str | None) -> None:
        """Count and log a malformed HTTP request, which reached no application."""
        self.done({"path": None, "method": None, "client": (address, 0)}, status, 0.0, {})

    def done(self, scope: Scope, status: int, seconds: float, log_fields: dict[str, Any]) -> None:
        """Count and log a request; status 0 means that the client disconnected."""
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "address": scope["client"][0] if scope.get("client") else None,
            "method": scope["method"],
            "path": path,
            "status": status,
            "ms": round(1e3 * seconds, 1),
            **log_fields,
        }
        self.write(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(line, ensure_ascii=False)))


def _refusal(scope: Scope) -> ASGIApp | None:
    """The response to a request that no application should see; None for others."""
    if scope.get("state", {}).get("overloaded"):
        what = "The server has too many connections: try again soon."
        return JSONResponse({"error": what}, 503, headers={"Retry-After": "1", "Connection": "close"})
    headers = Headers(scope=scope)
    if "content-length" in headers and "transfer-encoding" in headers:
        # Proxies disagree about which one counts, which allows request smuggling.
        what = "The request has both Content-Length and Transfer-Encoding: send one of them."
        return JSONResponse({"error": what}, 400, headers={"Connection": "close"})
    return None
