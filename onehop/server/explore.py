"""The explorer inside the server: the same page that `onehop explore` serves, under the server's limits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from onehop.explorer.routes import Explores, explorer_routes
from onehop.server.problems import Problem, busy
from onehop.storage.model_io import read_unchanged

# One question is computed at a time; with it, so many may be there.
MOST_QUESTIONS = 8

T = TypeVar("T")


class Exploring:
    """An explorer that is made when the first question comes: it needs torch, and the server does not."""

    def __init__(self, make: Callable[[], Explores]) -> None:
        self._make, self._lock = make, Lock()
        self.places = BoundedSemaphore(MOST_QUESTIONS)
        # Its own thread, for those of the event loop cut and encode the texts of translations.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onehop-explorer")

    @classmethod
    def of(cls, path: Path, device: str | None, hash: str) -> "Exploring":
        """Of a model file that had this hash when the server started."""

        def make() -> Explores:
            from onehop.explorer.content import Explorer
            from onehop.interpret.tracer import Tracer

            read_unchanged(path, hash)
            return Explorer(Tracer.load(path, device))

        return cls(make)

    @cached_property
    def _explorer(self) -> Explores:
        return self._make()

    def explorer(self) -> Explores:
        """In a thread: the explorer, made once."""
        with self._lock:
            return self._explorer

    async def trace(self, text: str, edits: list[str]) -> str:
        """A trace as JSON."""
        return await self.compute(lambda: self.explorer().trace(text, edits))

    async def compute(self, work: Callable[[], T]) -> T:
        """What a question asks for; it has its place until the work is done, though nobody may wait any more."""
        if not self.places.acquire(blocking=False):
            raise busy(5)
        running = self._thread.submit(work)
        running.add_done_callback(lambda _: self.places.release())
        return await asyncio.wrap_future(running)

    def mounted(self, let_in: Callable[[Request], None], read_seconds: float) -> "Guarded":
        """The page and its questions."""
        return Guarded(Router(explorer_routes(self.explorer, self.compute, read_seconds)), let_in)

    def close(self) -> None:
        """End the thread when it is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Guarded:
    """Routes whose page and questions are only for those who may ask."""

    def __init__(self, inner: Any, let_in: Callable[[Request], None]) -> None:
        self.inner, self.let_in = inner, let_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if "/page/" not in scope["path"]:  # files that are the same everywhere
            self.let_in(Request(scope))
        await self.inner(scope, receive, send)


def off() -> Problem:
    """The server was started without it."""
    return Problem(501, "Nothing can be looked into here: start the server with --explore.")
