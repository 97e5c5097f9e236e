"""The explorer inside the server: the page of `onehop explore`, under the server's limits."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from onehop.explorer.routes import explorer_routes
from onehop.server.problems import busy
from onehop.storage.model_io import read_unchanged

if TYPE_CHECKING:  # it imports torch
    from onehop.explorer.content import Explorer

# One request is computed at a time; this many may be waiting or running.
MOST_REQUESTS = 8

T = TypeVar("T")


class Explorers:
    """One explorer per model, made at its first request: it needs torch, and the server does not."""

    def __init__(self, *make: "Callable[[], Explorer]") -> None:
        self._make, self._lock = make, Lock()
        self._made: dict[int, Explorer] = {}
        self.slots = BoundedSemaphore(MOST_REQUESTS)
        # A separate thread: those of the event loop split and encode the texts of translations.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onehop-explorer")

    @classmethod
    def of(cls, paths: Sequence[Path], device: str | None, hashes: Sequence[str]) -> "Explorers":
        """Explorers of model files that had these hashes at the start."""

        def make(path: Path, hash: str) -> "Explorer":
            from onehop.explorer.content import Explorer
            from onehop.interpret.tracer import Tracer

            read_unchanged(path, hash)
            return Explorer(Tracer.load(path, device))

        return cls(*(partial(make, path, hash) for path, hash in zip(paths, hashes, strict=True)))

    def explorer(self, number: int = 0) -> "Explorer":
        """The explorer of a model, made once. Call it in a thread."""
        with self._lock:
            if number not in self._made:
                self._made[number] = self._make[number]()
            return self._made[number]

    async def trace(self, text: str, edits: list[str], number: int = 0) -> str:
        return await self.compute(lambda: self.explorer(number).trace(text, edits))

    async def compute(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread. It keeps its slot until it is done, even if the client disconnects."""
        if not self.slots.acquire(blocking=False):
            raise busy(5)
        running = self._thread.submit(work)
        running.add_done_callback(lambda _: self.slots.release())
        return await asyncio.wrap_future(running)

    def mount(self, authenticate: Callable[[Request], None], read_seconds: float, number: int) -> "_Guarded":
        return _Guarded(
            Router(explorer_routes(partial(self.explorer, number), self.compute, read_seconds)), authenticate
        )

    def close(self) -> None:
        """Stop the thread after its current work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Guarded:
    """Routes that require authentication."""

    def __init__(self, inner: Any, authenticate: Callable[[Request], None]) -> None:
        self.inner, self.authenticate = inner, authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "/page/" not in scope["path"]:  # static files, the same on every server
            self.authenticate(Request(scope))
        await self.inner(scope, receive, send)
