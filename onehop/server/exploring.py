"""The explorer inside the server: the same page that `onehop explore` serves, under the server's limits."""

import asyncio
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from onehop.explorer.routes import Explores, explorer_routes
from onehop.server.problems import Problem, busy

# One question is computed at a time; so many may wait.
MOST_QUESTIONS = 8


class Exploring:
    """An explorer that is made when the first question comes: it needs torch, and the server does not."""

    def __init__(self, make: Callable[[], Explores]) -> None:
        self._make, self._lock = make, Lock()
        self.questions = 0

    @classmethod
    def of(cls, path: Path, device: str | None) -> "Exploring":
        """Of a model file."""

        def make() -> Explores:
            from onehop.explorer.content import Explorer
            from onehop.trace import Tracer

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
        if self.questions >= MOST_QUESTIONS:
            raise busy(5)
        self.questions += 1
        try:
            return await asyncio.to_thread(lambda: self.explorer().trace(text, edits))
        finally:
            self.questions -= 1

    def mounted(self, let_in: Callable[[Request], None]) -> "Guarded":
        """The page and its questions."""
        return Guarded(self, Router(explorer_routes(self.explorer)), let_in)


class Guarded:
    """Routes whose questions are counted, and answered only to those who may ask."""

    def __init__(self, exploring: Exploring, inner: Any, let_in: Callable[[Request], None]) -> None:
        self.exploring, self.inner, self.let_in = exploring, inner, let_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if "/api/" not in scope["path"]:
            await self.inner(scope, receive, send)
            return
        self.let_in(Request(scope))
        if self.exploring.questions >= MOST_QUESTIONS:
            raise busy(5)
        self.exploring.questions += 1
        try:
            await self.inner(scope, receive, send)
        finally:
            self.exploring.questions -= 1


def off() -> Problem:
    """The server was started without it."""
    return Problem(501, "Nothing can be looked into here: start the server with --explore.")
