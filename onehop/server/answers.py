"""Responses: translations as JSON, events, files of the package, and errors."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onehop.errors import OnehopError
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.result import Result
from onehop.server.problems import Problem
from onehop.server.service import Service, Translating

T = TypeVar("T")


def others(best: Sequence[Result]) -> list[str]:
    """The alternative translations without duplicates and without the first."""
    return [text for text in dict.fromkeys(p.text for p in best) if text != best[0].text]


def batch_answer(
    service: Translating, paragraphs: Sequence[Result], n_best: int, aligned: Sequence[Aligned]
) -> JSONResponse:
    """The details of paragraphs, with the alignments of their sentences if given. Call it in a thread."""
    answers = [details(paragraph, n_best) for paragraph in paragraphs]
    shown = [sentence for answer in answers for sentence in answer["sentences"]]
    if isinstance(service, Service):
        for sentence, alignment in zip(shown, aligned, strict=False):
            sentence["alignment"] = alignment.details(service.translator.tokenizer)
    return JSONResponse({"source": service.source, "target": service.target, "translations": answers})


def details(paragraph: Result, n_best: int) -> dict[str, Any]:
    """The details of a paragraph. A score that is not finite is null, since JSON has no NaN."""
    found: dict[str, Any] = _finite(paragraph.details(n_best))
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _event(content: dict[str, Any], named: dict[str, str]) -> str:
    """A server-sent event; its name depends on its content."""
    if (result := content.get("translation")) is not None:
        doubtful = [sentence.text for sentence in result.doubtful]
        content = {**named, "translation": result.details(), "doubtful": doubtful}
    names = {"error": "error", "translation": "done", "final": "sentence"}
    name = next((names[key] for key in names if key in content), "settled")
    content = {key: value for key, value in content.items() if key != "final"}
    return f"event: {name}\ndata: {json.dumps(_finite(content), ensure_ascii=False)}\n\n"


async def while_wanted(request: Request, work: Coroutine[Any, Any, T]) -> T | Response:
    """The result of `work`. If the client disconnects, the work is cancelled."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else Response(status_code=499)
    finally:
        task.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def page(file: Traversable, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """A handler that sends a file of the package."""

    async def endpoint(request: Request) -> Response:
        return Response(file.read_bytes(), media_type=kind)

    return endpoint


# --- errors -------------------------------------------------------------------------------------------------------


async def on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return JSONResponse({"error": problem.sentence}, problem.status, headers=problem.headers)


async def on_user_error(request: Request, error: Exception) -> Response:
    """Answer 400 to options that contradict each other."""
    return JSONResponse({"error": " ".join(str(error).split())}, 400)


async def on_changed(request: Request, error: Exception) -> Response:
    """Answer that a model file has changed since the start, so the rest of it cannot be loaded."""
    return JSONResponse({"error": str(error)}, 503)


async def on_http(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method."""
    assert isinstance(error, HTTPException)
    what = {404: "There is no such path: see /openapi.json.", 405: "The path has another method: see /openapi.json."}
    return JSONResponse(
        {"error": what.get(error.status_code, error.detail)}, error.status_code, headers=dict(error.headers or {})
    )


async def on_gone(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected during its request."""
    return Response(status_code=499)


async def on_fault(request: Request, error: Exception) -> Response:
    """Answer 500; uvicorn logs the traceback."""
    return JSONResponse({"error": "The server has an internal error: see its log."}, 500)


async def written(
    first: dict[str, Any],
    rest: AsyncGenerator[dict[str, Any]],
    named: dict[str, str],
    deadline: float,
    seconds: float,
) -> AsyncIterator[str]:
    """Events in the format of browsers, until the deadline of the whole stream. The last one names the languages."""
    yield _event(first, named)
    try:
        async with aclosing(rest):
            while True:
                # Do not yield under the timeout: it would cancel a task that is sending.
                async with asyncio.timeout_at(deadline):
                    each = await anext(rest)
                yield _event(each, named)
    except StopAsyncIteration:
        pass
    except TimeoutError:
        yield _event({"error": f"The translation took longer than {seconds:g} seconds."}, named)
    except (Problem, OnehopError) as e:
        yield _event({"error": str(e)}, named)
