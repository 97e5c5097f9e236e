"""The page over HTTP: the routes that `onehop explore` serves and that other servers mount."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from onehop.atomic import json_object
from onehop.errors import ModelChangedError, OnehopError, SettingsError
from onehop.explorer.html import TYPES, assets, policy_of

if TYPE_CHECKING:  # importing the routes must not import torch
    from onehop.explorer.content import Explorer

STREAM = "application/x-onehop-trace"
MOST_BODY = 64 * 1024
_MOST_EDITS, _MOST_NEURONS = 16, 64
_READ_SECONDS = 10.0
_ROLES = ("encoder", "decoder", "cross")
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}

_Answer = Callable[[Request], Awaitable[Response]]
Compute = Callable[[Callable[[], Any]], Awaitable[Any]]


class _BodyError(OnehopError):
    """A request whose body is refused with an HTTP status."""

    def __init__(self, status: int, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.status = status


def explorer_routes(
    explorer: "Callable[[], Explorer]", compute: Compute = run_in_threadpool, read_seconds: float = _READ_SECONDS
) -> list[Route]:
    """The routes of the page. Requests are computed in a thread; the explorer is made for the first one."""

    async def page(request: Request) -> Response:
        html = await run_in_threadpool(lambda: explorer().served())
        return HTMLResponse(html, headers={**_HEADERS, "Content-Security-Policy": policy_of(html)})

    async def asset(request: Request) -> Response:
        path = request.path_params["path"]
        if path not in assets():
            return JSONResponse({"error": "There is no such file."}, 404, _HEADERS)
        return Response(assets()[path], media_type=TYPES[path[path.rindex(".") :]], headers=_HEADERS)

    def computed(work: Callable[[Request], Any]) -> _Answer:
        async def answer(request: Request) -> Response:
            return JSONResponse(await compute(lambda: work(request)), headers=_HEADERS)

        return _one_line_errors(answer)

    async def trace(request: Request) -> Response:
        text, edits = await _text_and_edits(request, read_seconds)
        if STREAM in request.headers.get("accept", ""):
            parts = _progress_and_trace(lambda *calls: explorer().streamed_trace(text, edits, *calls), compute)
            first = await anext(parts)  # an error in the text must be raised before the response starts
            return StreamingResponse(_chained(first, parts), media_type=STREAM, headers=_HEADERS)
        trace = await compute(lambda: explorer().trace(text, edits))
        return Response(trace, media_type="application/json", headers=_HEADERS)

    async def variant(request: Request) -> Response:
        text, edits = await _text_and_edits(request, read_seconds)
        return JSONResponse(await compute(lambda: explorer().variant(text, edits)), headers=_HEADERS)

    async def heads(request: Request) -> Response:
        text, edits = await _text_and_edits(request, read_seconds)
        parts = await compute(lambda: explorer().heads(text, edits))
        first = await compute(lambda: next(parts))  # an error in the text must be raised before the response starts
        return StreamingResponse(_in_lines(first, parts, compute), media_type="application/x-ndjson", headers=_HEADERS)

    return [
        Route("/", page),
        Route("/page/{path:path}", asset),
        Route("/api/about", computed(lambda _: explorer().about())),
        Route("/api/trace", _one_line_errors(trace), methods=["POST"]),
        Route("/api/variant", _one_line_errors(variant), methods=["POST"]),
        Route("/api/heads", _one_line_errors(heads), methods=["POST"]),
        Route("/api/neurons", computed(lambda request: explorer().tracer.neurons(*_neurons_of(request)))),
        Route("/api/weights", computed(lambda request: explorer().tracer.weights(*_head_of(request)))),
        Route("/api/measured", computed(lambda _: _everything())),
    ]


def _everything() -> dict[str, Any]:
    """All measurements. The module that reads them imports torch, so it is imported here."""
    from onehop.explorer.content import measured

    return measured()


def _one_line_errors(answer: _Answer) -> _Answer:
    """Send an error that the reader can correct to the page."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except OnehopError as e:
            status = e.status if isinstance(e, _BodyError) else 503 if isinstance(e, ModelChangedError) else 422
            return JSONResponse({"error": str(e)}, status, _HEADERS)

    return answered


class _ClientLeftError(Exception):
    """Stops a search whose client has disconnected."""


async def _progress_and_trace(work: Callable[..., list[bytes]], compute: Compute) -> AsyncIterator[bytes]:
    """Lines of JSON with the progress, then the trace. A disconnect stops the search.

    `work` gets two functions to call: with the number of tokens so far, and with what the top of the page needs.
    """
    loop, left = asyncio.get_running_loop(), threading.Event()
    lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def send(line: dict[str, Any]) -> None:
        if left.is_set():
            raise _ClientLeftError
        loop.call_soon_threadsafe(lines.put_nowait, line)

    running = asyncio.ensure_future(
        compute(lambda: work(lambda count: send({"written": count}), lambda opening: send({"opening": opening})))
    )
    running.add_done_callback(lambda _: lines.put_nowait(None))
    started = False
    try:
        while (line := await lines.get()) is not None:
            started = True
            yield json.dumps(line).encode() + b"\n"
        for part in await running:
            yield part
    except OnehopError as e:
        if not started:
            raise
        yield json.dumps({"error": str(e)}).encode() + b"\n"
    finally:
        left.set()
        running.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs unread ones


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


async def _in_lines(part: Any, rest: Iterator[Any], compute: Compute) -> AsyncIterator[str]:
    """One line of JSON per part, as soon as it is computed. A disconnect stops after the current part."""
    while part is not None:
        yield json.dumps(part) + "\n"
        part = await compute(lambda: next(rest, None))


async def body_of(request: Request, most: int, seconds: float, too_large: Exception, too_slow: Exception) -> bytes:
    """The body of a request, limited in size and time."""
    body, announced = bytearray(), request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise too_large
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise too_slow from None
    return bytes(body)


async def _text_and_edits(request: Request, seconds: float) -> tuple[str, list[str]]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # A page of another origin can send other types without a preflight.
        raise _BodyError(415, "The request is not JSON.", "Send it with Content-Type: application/json.")
    too_large = _BodyError(413, f"A request may have at most {MOST_BODY:,} bytes.", "Give a shorter text.")
    too_slow = _BodyError(408, f"The request took longer than {seconds:g} seconds.", "Send it again.")
    content = json_object(await body_of(request, MOST_BODY, seconds, too_large, too_slow))
    if content is None or not isinstance(content.get("text"), str):
        raise SettingsError("The request has no text.", 'Send {"text": "…", "edits": []} as JSON.')
    edits = content.get("edits", [])
    if not isinstance(edits, list) or len(edits) > _MOST_EDITS or not all(isinstance(e, str) for e in edits):
        raise SettingsError("The edits of a request are a list of strings.", f"Send at most {_MOST_EDITS}.")
    return content["text"], edits


def _head_of(request: Request) -> tuple[Any, int, int]:
    role, layer, head = (request.query_params.get(name, "") for name in ("role", "layer", "head"))
    if role not in _ROLES or not (layer.isdecimal() and head.isdecimal() and len(layer + head) < 9):
        raise SettingsError("The request names no head.", "Ask for role=encoder&layer=0&head=0.")
    return role, int(layer), int(head)


def _neurons_of(request: Request) -> tuple[str, int, list[int]]:
    stack, layer, places = (request.query_params.get(name, "") for name in ("stack", "layer", "places"))
    numbers = places.split(",")
    if (
        stack not in _ROLES[:2]
        or not all(n.isdecimal() and len(n) < 7 for n in (layer, *numbers))
        or len(numbers) > _MOST_NEURONS
    ):
        raise SettingsError(
            "The request names no neurons.",
            f"Ask for stack=decoder&layer=0&places=3,14, at most {_MOST_NEURONS} of them.",
        )
    return stack, int(layer), [int(n) for n in numbers]


REFUSED = "A page of another origin may not call this server: start it with --cors ORIGIN to allow one."


class CrossOriginGuard:
    """An ASGI application that answers 403 to pages of other origins, except the allowed ones; "*" allows any.

    Any page in the user's browser could send requests to a local server. The rules are those of Go's
    http.CrossOriginProtection: browsers state the origin in Sec-Fetch-Site or Origin, and a page cannot change either.
    Programs send neither and are accepted. Links to one of the `pages` are allowed from everywhere.
    """

    def __init__(self, app: ASGIApp, *, origins: Collection[str] = (), pages: Collection[str] = ("/",)) -> None:
        self.app, self.origins, self.pages = app, origins, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.is_foreign(scope["method"], scope["path"], Headers(scope=scope)):
            await JSONResponse({"error": REFUSED}, 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def is_foreign(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request comes from a page that may not send it."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if "*" in self.origins or origin in self.origins or site in ("same-origin", "none"):
            return False
        if site is None:  # a program, an old browser, or a page without TLS
            return origin is not None and urlsplit(origin).netloc != headers.get("host")
        follows_link = method == "GET" and headers.get("sec-fetch-dest") == "document" and path in self.pages
        return not follows_link
