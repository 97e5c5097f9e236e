"""The explorer inside the server: the page of `onehop explore`, under the server's limits."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from onehop.explorer.routes import Explores, explorer_routes
from onehop.server.problems import Problem, busy
from onehop.storage.model_io import read_unchanged

# One request is computed at a time; this many may be waiting or running.
MOST_QUESTIONS = 8

T = TypeVar("T")


class Exploring:
    """One explorer per model, made at its first request: it needs torch, and the server does not."""

    def __init__(self, *make: Callable[[], Explores]) -> None:
        self._make, self._lock = make, Lock()
        self._made: dict[int, Explores] = {}
        self.places = BoundedSemaphore(MOST_QUESTIONS)
        # A separate thread: those of the event loop split and encode the texts of translations.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onehop-explorer")

    @classmethod
    def of(cls, paths: Sequence[Path], device: str | None, hashes: Sequence[str]) -> "Exploring":
        """Explorers of model files that had these hashes at the start."""

        def make(path: Path, hash: str) -> Explores:
            from onehop.explorer.content import Explorer
            from onehop.interpret.tracer import Tracer

            read_unchanged(path, hash)
            return Explorer(Tracer.load(path, device))

        return cls(*(partial(make, path, hash) for path, hash in zip(paths, hashes, strict=True)))

    def explorer(self, number: int = 0) -> Explores:
        """The explorer of a model, made once. Call it in a thread."""
        with self._lock:
            if number not in self._made:
                self._made[number] = self._make[number]()
            return self._made[number]

    async def trace(self, text: str, edits: list[str], number: int = 0) -> str:
        """A trace by one of the models, as JSON."""
        return await self.compute(lambda: self.explorer(number).trace(text, edits))

    async def compute(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread. It holds its place until it is done, even if the client has left."""
        if not self.places.acquire(blocking=False):
            raise busy(5)
        running = self._thread.submit(work)
        running.add_done_callback(lambda _: self.places.release())
        return await asyncio.wrap_future(running)

    def mounted(self, let_in: Callable[[Request], None], read_seconds: float, number: int = 0) -> "Guarded":
        """The explorer's routes for a model."""
        return Guarded(Router(explorer_routes(partial(self.explorer, number), self.compute, read_seconds)), let_in)

    def close(self) -> None:
        """Stop the thread after its current work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Guarded:
    """Routes that require authentication."""

    def __init__(self, inner: Any, let_in: Callable[[Request], None]) -> None:
        self.inner, self.let_in = inner, let_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "/page/" not in scope["path"]:  # static files, the same on every server
            self.let_in(Request(scope))
        await self.inner(scope, receive, send)


def off() -> Problem:
    """The error of a server without the explorer."""
    return Problem(501, "The explorer is off: start the server with --explore.")
