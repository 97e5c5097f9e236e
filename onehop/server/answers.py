"""Responses: translations as JSON, events, and errors."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onehop.errors import ModelChangedError, OnehopError
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.result import Result
from onehop.server.problems import Problem
from onehop.server.service import Service, Translating

T = TypeVar("T")


def alternatives(n_best: Sequence[Result]) -> list[str]:
    """The translations after the first, without duplicates of it or of each other."""
    return list(dict.fromkeys(result.text for result in n_best if result.text != n_best[0].text))


def batch_answer(
    service: Translating, results: Sequence[Result], n_best: int, alignments: Sequence[Aligned]
) -> JSONResponse:
    """The details of results, with the alignments of their sentences if given. Call it in a thread."""
    translations = [_finite(result.details(n_best)) for result in results]
    sentences = [sentence for translation in translations for sentence in translation["sentences"]]
    if isinstance(service, Service):
        for sentence, alignment in zip(sentences, alignments, strict=False):
            sentence["alignment"] = alignment.details(service.translator.tokenizer)
    return JSONResponse({"source": service.source, "target": service.target, "translations": translations})


def _finite(value: Any) -> Any:
    """A JSON value with null for numbers that are not finite, since JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def event(name: str, content: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(_finite(content), ensure_ascii=False)}\n\n"


def _stream_event(content: dict[str, Any], languages: dict[str, str], on_result: Callable[[Result], None]) -> str:
    """An event of a streamed translation; its name depends on its content."""
    if (result := content.get("translation")) is not None:
        on_result(result)
        doubtful = [sentence.text for sentence in result.doubtful]
        return event("done", {**languages, "translation": result.details(), "doubtful": doubtful})
    is_final = content.pop("final", False)
    return event("sentence" if is_final else "settled", content)


async def cancelled_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T | Response:
    """The result of `work`. If the client disconnects, the work is cancelled."""

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, disconnected = asyncio.create_task(work), asyncio.create_task(disconnect())
    try:
        await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else Response(status_code=499)
    finally:
        task.cancel()
        disconnected.cancel()


# --- errors -------------------------------------------------------------------------------------------------------


async def on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return JSONResponse({"error": problem.sentence}, problem.status, headers=problem.headers)


async def on_user_error(request: Request, error: Exception) -> Response:
    """Answer 400 to options that contradict each other, and 503 if a model file has changed since the start."""
    status = 503 if isinstance(error, ModelChangedError) else 400
    return JSONResponse({"error": " ".join(str(error).split())}, status)


async def on_http(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method."""
    assert isinstance(error, HTTPException)
    what = {404: "There is no such path: see /openapi.json.", 405: "The path has another method: see /openapi.json."}
    return JSONResponse(
        {"error": what.get(error.status_code, error.detail)}, error.status_code, headers=dict(error.headers or {})
    )


async def on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def on_internal_error(request: Request, error: Exception) -> Response:
    """Answer 500; uvicorn logs the traceback."""
    return JSONResponse({"error": "The server has an internal error: see its log."}, 500)


async def event_stream(
    first: dict[str, Any],
    rest: AsyncGenerator[dict[str, Any]],
    languages: dict[str, str],
    deadline: float,
    seconds: float,
    on_result: Callable[[Result], None],
) -> AsyncIterator[str]:
    """Server-sent events until the deadline of the whole stream. The last one names the languages."""
    yield _stream_event(first, languages, on_result)
    try:
        async with aclosing(rest):
            while True:
                # Do not yield under the timeout: it would cancel a task that is sending.
                async with asyncio.timeout_at(deadline):
                    content = await anext(rest)
                yield _stream_event(content, languages, on_result)
    except StopAsyncIteration:
        pass
    except TimeoutError:
        yield event("error", {"error": f"The translation took longer than {seconds:g} seconds."})
    except (Problem, OnehopError) as e:
        yield event("error", {"error": str(e)})
