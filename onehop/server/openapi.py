"""The OpenAPI description, generated from the models that validate requests."""

import html
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from onehop._version import __version__
from onehop.server import schemas

_REF = "#/components/schemas/{model}"
_ERRORS = {
    400: "The request is not valid, or its Host is not a name of this server.",
    401: "An API key is missing.",
    403: "A page of another origin called the server, or an API key is not valid.",
    404: "Not found.",
    405: "The path does not support this method.",
    408: "The request arrived too slowly.",
    413: "The request is too large.",
    415: "The body has another content type.",
    429: "Too many requests: try again after Retry-After seconds.",
    500: "The server has an internal error.",
    501: "The server lacks a package that this needs.",
    503: "The server is busy: try again after Retry-After seconds.",
    504: "The answer took too long.",
}


@dataclass(frozen=True)
class _Operation:
    method: Literal["get", "post"]
    path: str
    summary: str
    body: type[BaseModel] | None = None
    form: bool = False
    answer: type[BaseModel] | None = None
    many: bool = False
    media: str = "application/json"
    errors: tuple[int, ...] = ()
    events: tuple[str, ...] = ()


_ANYWHERE = (400, 403)  # a wrong Host, and pages of other origins
_BYTES, _EVENTS = "application/octet-stream", "text/event-stream"
_ASKED = (400, 401, 408, 413, 415, 429, 500, 501, 503, 504)
_get, _post = partial(_Operation, "get"), partial(_Operation, "post", errors=_ASKED)
OPERATIONS = (
    _post("/translate", "LibreTranslate: translate", schemas.LibreBody, form=True, answer=schemas.LibreAnswer),
    _post("/detect", "LibreTranslate: detect", schemas.DetectBody, form=True, answer=schemas.Guess, many=True),
    _get("/languages", "Languages", answer=schemas.LanguageAnswer, many=True),
    _get("/frontend/settings", "LibreTranslate: what its clients ask for"),
    _get("/health", "Whether translations work", answer=schemas.HealthAnswer),
    _get("/metrics", "Counts for Prometheus", media="text/plain", errors=(401,)),
    _post("/v1/translate", "Translate a batch", schemas.TranslateBody, answer=schemas.TranslateAnswer),
    _post(
        "/v1/trace",
        "Every tapped quantity of a translation, as docs/reference/trace-file.md describes it",
        schemas.TraceBody,
    ),
    _post(
        "/v1/stream",
        "Tokens as they are settled",
        schemas.StreamBody,
        media=_EVENTS,
        events=("settled", "sentence", "done", "error"),
    ),
    _post("/translate_file", "LibreTranslate: translate a file", schemas.LibreFileBody, answer=schemas.FileAnswer),
    _get("/download_file/{name}", "LibreTranslate: a file that was translated", media=_BYTES, errors=(404,)),
    _post(
        "/v1/translate_file",
        "Translate a file: the answer is the file, or with Accept: text/event-stream its progress and its address",
        schemas.OwnFileBody,
        media=_BYTES,
        events=("progress", "done", "error"),
    ),
)


def description() -> dict[str, Any]:
    answers = {o.answer for o in OPERATIONS if o.answer} | {schemas.ErrorAnswer}
    models = [(o.body, "validation") for o in OPERATIONS if o.body] + [(a, "serialization") for a in answers]
    _, definitions = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "onehop", "version": __version__, "description": "Translation by a Transformer."},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(definitions["$defs"].items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def page() -> str:
    rows = [f"<tr><td>{o.method.upper()} {o.path}</td><td>{html.escape(o.summary)}</td></tr>" for o in OPERATIONS]
    title = f"<title>onehop {__version__}</title><h1>onehop {__version__}</h1>"
    more = '<p>All details, for programs: <a href="openapi.json">openapi.json</a>.</p>'
    return f'<!doctype html><html lang="en"><meta charset="utf-8">{title}<table>{"".join(rows)}</table>{more}</html>'


def _described(operation: _Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": {"200": _good(operation)}}
    if operation.body:
        schema = {"$ref": _REF.format(model=operation.body.__name__)}
        kinds = [schemas.JSON, *((schemas.FORM, schemas.MULTIPART) if operation.form else ())]
        if "file" in operation.body.model_fields:
            kinds = [schemas.MULTIPART]
        content = {kind: {"schema": schema} for kind in kinds}
        described["requestBody"] = {"required": True, "content": content}
    if "{name}" in operation.path:
        described["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    for status in sorted({*_ANYWHERE, *operation.errors}):
        described["responses"][str(status)] = _answer(_ERRORS[status], schemas.ErrorAnswer)
    if operation.path == "/health":
        described["responses"]["503"] = _answer("No translation has succeeded yet.", schemas.HealthAnswer)
    return described


def _good(operation: _Operation) -> dict[str, Any]:
    if operation.media != schemas.JSON:
        text: dict[str, Any] = {"type": "string"}
        content = {operation.media: {"schema": text | ({"format": "binary"} if operation.media == _BYTES else {})}}
        if operation.events:
            properties = {"event": {"enum": list(operation.events)}, "data": text}
            schema = {"type": "object", "properties": properties, "required": ["event", "data"]}
            content[_EVENTS] = {"schema": schema}
        return {"description": operation.summary, "content": content}
    if operation.answer is None:
        return {"description": operation.summary, "content": {operation.media: {"schema": {"type": "object"}}}}
    return _answer(operation.summary, operation.answer, many=operation.many)


def _answer(text: str, model: type[BaseModel], *, many: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": _REF.format(model=model.__name__)}
    schema = {"type": "array", "items": schema} if many else schema
    return {"description": text, "content": {"application/json": {"schema": schema}}}
