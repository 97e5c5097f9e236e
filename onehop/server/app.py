"""The application: routes, authentication, limits, and the handlers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from onehop.errors import OnehopError
from onehop.explorer.routes import CrossOriginGuard, body_of
from onehop.pipelines.arguments import terms_of
from onehop.pipelines.glossary import Terms
from onehop.pipelines.result import Result
from onehop.pipelines.route import identifier, identify_source, sources_into
from onehop.server import access_log, answers, auth, metrics, openapi, schemas
from onehop.server.answers import batch_answer, cancelled_on_disconnect, event_stream
from onehop.server.explore import Explorers
from onehop.server.files import Files
from onehop.server.libretranslate import LibreTranslate
from onehop.server.pivot import first_of_each_pair, routes_by_quality
from onehop.server.problems import Problem
from onehop.server.service import RequestOptions, Service, Translating
from onehop.server.settings import ServerSettings
from onehop.text.language_id import name_of

_STATIC = resources.files("onehop.server") / "static"
_WARM_UP = "Hello."
# Terms become one regular expression that is matched against every sentence.
_MOST_TERM_CHARACTERS = 20_000
# From this confidence on, a guess that a text is in the target language is trusted: 0 errors in 1,000 sentences.
_SURE = 80.0
_SAMPLE = 20  # maximum texts of a request whose language is identified
T = TypeVar("T")
_LOG = logging.getLogger("uvicorn.error")


class Application:
    """All routes of the server, and the state that they share."""

    def __init__(
        self,
        services: Sequence[Service],
        settings: ServerSettings,
        counts: metrics.Metrics,
        *,
        explorers: Explorers | None = None,
        hosts: Sequence[str] = (),
        folder: Path | None = None,
        write: Callable[[str], None] | None = None,
    ) -> None:
        """`explorers` are those of the models, if enabled. `hosts` are the allowed Host headers; empty: any.
        `folder` is shared by several processes for translated files. `write` receives the access log's lines; the
        default is standard output.
        """
        self.all_services, self.models = services, first_of_each_pair(services)
        self.by_quality = routes_by_quality(services)
        self.services = self.by_quality[None]
        self.settings, self.metrics, self.explorers = settings, counts, explorers
        self.keys = auth.read(settings.keys_file)
        self.rates = auth.Rates(settings.per_minute)
        self.identifier = identifier()
        self.description = openapi.description()
        self.files = Files(self, folder)
        routes = self.routes()
        paths = frozenset(route.path for route in routes if isinstance(route, Route))
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
        names = Middleware(access_log.KnownNames, names=hosts)
        # Paths that other sites may link to.
        pages = ("/", "/docs", *chain(*((path, f"{path}/") for path in self.explorer_mounts())))
        guard = Middleware(CrossOriginGuard, origins=settings.origins, pages=pages)
        inner = Starlette(
            routes=routes,
            middleware=[*([names] if hosts else []), guard, *([cors] if settings.origins else [])],
            exception_handlers={
                Problem: answers.on_problem,
                OnehopError: answers.on_user_error,
                HTTPException: answers.on_http,
                ClientDisconnect: answers.on_disconnect,
                Exception: answers.on_internal_error,
            },
            lifespan=self.lifespan,
        )
        # Outermost, so that errors are counted and logged too.
        self.log = access_log.LogWriter(counts.dropped_lines)
        self.asgi = access_log.AccessLog(inner, metrics=counts, paths=paths, write=write or self.log)

    def routes(self) -> list[BaseRoute]:
        explorers = self.explorer_mounts()
        return [
            *(Route(path, RedirectResponse(f"{path}/")) for path in explorers),
            *(Mount(path, explorer) for path, explorer in explorers.items()),
            Route("/", self.page),
            Mount("/static", StaticFiles(directory=str(_STATIC))),
            Route("/health", self.health),
            Route("/metrics", self.exposition),
            Route("/openapi.json", self.describe),
            Route("/spec", self.describe),
            Route("/docs", self.docs),
            Route("/v1/translate", self.post(self.translate, schemas.TranslateBody), methods=["POST"]),
            Route("/v1/stream", self.post(self.stream, schemas.StreamBody), methods=["POST"]),
            Route("/v1/trace", self.post(self.trace, schemas.TraceBody), methods=["POST"]),
            *LibreTranslate(self).routes(),
            *self.files.routes(),
        ]

    def explorer_mounts(self) -> dict[str, ASGIApp]:
        """The explorer of each model under its language pair, and of the first model without one."""
        if self.explorers is None:
            return {}
        paths = {f"/explore/{quote(f'{source}-{target}')}": i for i, (source, target) in enumerate(self.models)}
        seconds = self.settings.read_seconds
        return {
            path: self.explorers.mount(self.authenticate, seconds, i) for path, i in {**paths, "/explore": 0}.items()
        }

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """While the server runs: translate once at the start, so that /health can report it."""
        tasks = [asyncio.create_task(self.warm_up()), asyncio.create_task(self.files.sweep())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            self.files.store.close()
            for service in self.all_services:
                service.close()
            if self.explorers:
                self.explorers.close()
            self.log.close()

    async def warm_up(self) -> None:
        """Let every model translate once; a failure is remembered."""
        for service in self.all_services:
            try:
                await service.translate([_WARM_UP], RequestOptions())
            except Exception:
                _LOG.exception("A model does not translate.")

    def post(
        self, answer: Callable[[Request, Any], Awaitable[Response]], kind: type[BaseModel], *, form: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that authenticates, reads and checks the body, and answers within the time limit."""

        async def endpoint(request: Request) -> Response:
            data = await self.read(request)
            header = request.headers.get("content-type", "")
            media = header.partition(";")[0].strip().lower()
            try:
                if form and (media in (schemas.FORM, schemas.MULTIPART) or not data):
                    body, _ = schemas.read_form(kind, data, header, request.url.query)
                elif media == schemas.JSON or (form and not media):
                    body = schemas.read_json(kind, data)
                else:
                    raise Problem(415, f"The body is {media[:100] or 'of no known type'}: send {schemas.JSON}.")
            except Problem:
                self.authenticate(request)
                raise
            self.authenticate(request, getattr(body, "api_key", None))
            return await cancelled_on_disconnect(request, self.in_time(answer(request, body)))

        return endpoint

    def authenticate(self, request: Request, key: str | None = None) -> None:
        """Refuse requests without a valid key, if keys are required, and clients above the rate limit."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        key = key or request.query_params.get("api_key") or (bearer.strip() if scheme.lower() == "bearer" else None)
        name = self.keys.get(auth.hashed(key)) if key else None
        if name is not None:
            request.state.log_fields["key"] = name
        client = f"address {request.client.host if request.client else None}" if name is None else f"key {name}"
        if seconds := self.rates.wait(client):
            what = f"More than {self.settings.per_minute} requests per minute: wait a little."
            raise Problem(429, what, retry_after=seconds)
        if self.keys and name is None and key:
            raise Problem(403, "This API key is not valid: ask the operator of this server for one.")
        if self.keys and name is None:
            raise Problem(401, "An API key is required: send it as api_key or in the header Authorization: Bearer KEY.")

    async def read(self, request: Request, most: int | None = None, seconds: float | None = None) -> bytes:
        """The body of a request, limited in size and time."""
        most, seconds = most or self.settings.max_body, seconds or self.settings.read_seconds
        too_large = Problem(413, f"The body is larger than {most:,} bytes: send less at a time.")
        too_slow = Problem(408, f"The body took longer than {seconds:g} seconds.")
        return await body_of(request, most, seconds, too_large, too_slow)

    async def in_time(self, answer: Awaitable[T]) -> T:
        """The result of `answer`; Problem 504 after the time limit."""
        try:
            async with asyncio.timeout(self.settings.answer_seconds):
                return await answer
        except TimeoutError:
            what = f"The translation took longer than {self.settings.answer_seconds:g} seconds: send less at a time."
            raise Problem(504, what) from None

    async def translate(self, request: Request, body: schemas.TranslateBody) -> Response:
        """Translate a batch and return all details."""
        terms = [*chain(*body.glossary.items()), *body.keep]
        self.check([*body.texts, *(body.prefixes or [])], beam=body.width, n_best=body.n_best, terms=terms)
        if body.prefixes is not None and len(body.prefixes) != len(body.texts):
            raise Problem(400, f"{len(body.texts)} texts have {len(body.prefixes)} prefixes: give one for each text.")
        if body.prefixes is not None and body.format == "html":
            raise Problem(400, "HTML cannot have a prefix: send the format text.")
        service = await self.service_for(body, body.texts)
        if service.via and (body.alignments or body.n_best > 1):
            what = f"Through {name_of(service.via)} each sentence has one translation and no alignment"
            raise Problem(400, f"{what}: leave out n_best and alignments.")
        options = RequestOptions(
            search=body.options(body.n_best),
            terms=await asyncio.to_thread(terms_of, body.glossary, body.keep, body.formality),
            prefixes=body.prefixes or (),
        )
        translate = service.translate_html if body.format == "html" else service.translate
        results = [n_best[0] for n_best in await translate(body.texts, options)]
        self.log_sizes(request, body.texts, results)
        sentences = [sentence for result in results for sentence in result.sentences]
        alignments = await service.alignments(sentences) if body.alignments else []
        return await asyncio.to_thread(batch_answer, service, results, body.n_best, alignments)

    async def stream(self, request: Request, body: schemas.StreamBody) -> Response:
        """Translate as server-sent events. Errors before the first event are plain responses."""
        deadline = asyncio.get_running_loop().time() + self.settings.answer_seconds
        self.check([body.text, body.prefix], beam=body.width)
        service = await self.service_for(body, [body.text])
        terms = Terms(formality=body.formality)
        options = RequestOptions(search=body.options(), terms=terms, prefixes=[body.prefix])
        events = service.stream(body.text, options)
        first = await anext(events)
        self.log_sizes(request, [body.text], [])
        languages = {"source": service.source, "target": service.target}

        def log_result(result: Result) -> None:
            self.log_sizes(request, [body.text], [result])

        content = event_stream(first, events, languages, deadline, self.settings.answer_seconds, log_result)
        return StreamingResponse(content, media_type="text/event-stream")

    async def trace(self, request: Request, body: schemas.TraceBody) -> Response:
        """Every tapped quantity of a translation (docs/reference/trace-file.md)."""
        self.check([body.text])
        if self.explorers is None:
            raise Problem(501, "The explorer is off: start the server with --explore.")
        service = await self.service_for(body, [body.text])
        if service.via:
            legs = f"{service.source} to {service.via}, or for {service.via} to {service.target}"
            raise Problem(400, f"This pair uses two models, one after the other: ask for {legs}.")
        self.models[service.source, service.target].check_torch()
        number = list(self.models).index((service.source, service.target))
        trace = await self.explorers.trace(body.text, body.edits, number)
        self.log_sizes(request, [body.text], [])
        return Response(trace, media_type=schemas.JSON)

    async def health(self, request: Request) -> Response:
        """Ready if every model's last translation succeeded; otherwise one is tried again."""
        if any(service.state == "failing" for service in self.all_services):
            await self.warm_up()
        states = {service.state for service in self.all_services}
        status = next((state for state in ("failing", "starting") if state in states), "ok")
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    async def page(self, request: Request) -> Response:
        return HTMLResponse((_STATIC / "index.html").read_bytes())

    async def exposition(self, request: Request) -> Response:
        if self.keys:
            self.authenticate(request)
        return Response(self.metrics.exposition(), media_type=metrics.CONTENT_TYPE)

    async def describe(self, request: Request) -> Response:
        return JSONResponse(self.description)

    async def docs(self, request: Request) -> Response:
        """The list of paths as HTML. /spec and /docs are LibreTranslate's paths for them."""
        return HTMLResponse(openapi.page())

    def check(self, texts: Sequence[str], *, beam: int = 1, n_best: int = 1, terms: Sequence[str] = ()) -> None:
        """Refuse requests above the limits."""
        limits, characters = self.settings, sum(map(len, texts))
        if (length := sum(map(len, terms))) > _MOST_TERM_CHARACTERS:
            what = f"Glossary and kept words have {length:,} characters: send at most {_MOST_TERM_CHARACTERS:,}."
            raise Problem(413, what)
        if len(texts) > limits.max_texts:
            raise Problem(413, f"{len(texts):,} texts are too many: send at most {limits.max_texts:,}.")
        if characters > limits.max_characters:
            raise Problem(413, f"{characters:,} characters are too many: send at most {limits.max_characters:,}.")
        if beam > limits.max_beam:
            raise Problem(400, f"A beam of {beam} is too wide: take at most {limits.max_beam}.")
        if n_best > limits.max_n_best:
            raise Problem(400, f"{n_best} translations are too many: take at most {limits.max_n_best}.")

    async def service_for(self, body: schemas.Languages | schemas.LibreBody, texts: Sequence[str]) -> Translating:
        """The service for a body's languages. If the body has no source, it is identified from the texts."""
        source = None if body.source == "auto" else body.source
        if source is None and body.target is not None:
            source = await asyncio.to_thread(self.identified, body.target, texts, always=body.source == "auto")
        quality = getattr(body, "quality", None)
        services = self.by_quality[quality]
        possible = [p for p in self.services if source in (None, p[0]) and body.target in (None, p[1])]
        fitting = [p for p in possible if p in services]
        if source is not None and len(fitting) > 1:
            targets = " or ".join(target for _, target in fitting)
            raise Problem(400, f"From {source} there are several targets: name one, {targets}.")
        if possible and not fitting:
            form, languages = "small" if quality == "fast" else "full", " or ".join(f"{s} to {t}" for s, t in possible)
            raise Problem(400, f"This server has no {form} model for {languages}: leave out quality.")
        return services[fitting[0]] if fitting else self.service(source or "any", body.target or "any")

    def identified(self, target: str, texts: Sequence[str], *, always: bool) -> str | None:
        """The language of texts, if the target has several sources or `always` is set. Call it in a thread."""
        sources = sources_into(self.models, target)
        if len(sources) < (1 if always else 2):
            return None
        try:
            return identify_source(sources, target, "\n".join(texts[:_SAMPLE]))
        except OnehopError as e:
            raise Problem(400, str(e).replace("--from", "source")) from None

    def service(self, source: str, target: str) -> Translating:
        if (source, target) not in self.services:
            pairs = ", ".join(f"{s} to {t}" for s, t in self.services)
            raise Problem(400, f"This server does not translate {source[:20]} to {target[:20]}, but {pairs}.")
        return self.services[source, target]

    def known(self, code: str) -> str:
        """A language code as the models have it: EN and en-US mean en, unless there is another English."""
        codes = {code.lower(): code for pair in self.services for code in pair}
        wanted = code.lower().replace("_", "-")
        return codes.get(wanted) or codes.get(wanted.partition("-")[0]) or code

    def source_of(self, guess: dict[str, Any] | None, target: str) -> str:
        """For `auto`: the guess if it can be translated or is certainly the target, else a possible source."""
        possible = [source for source, other in self.services if other == target]
        if guess and (guess["language"] in possible or (guess["language"] == target and guess["confidence"] >= _SURE)):
            return str(guess["language"])
        if guess and possible and guess["confidence"] >= _SURE:
            code = guess["language"]
            what = f"The text seems to be in {name_of(code)} ({code})"
            remedy = f"Give source if it is in one of {', '.join(sorted(possible))}."
            raise Problem(400, f"{what}, and no model from {code} to {target} is installed. {remedy}")
        return next(iter(possible), "auto")

    def log_sizes(self, request: Request, texts: Sequence[str], results: Sequence[Result]) -> None:
        """Add sizes to the access log, and texts only with log_texts."""
        fields = request.state.log_fields
        fields["characters"] = sum(map(len, texts))
        fields["sentences"] = sum(len(result.sentences) for result in results)
        if self.settings.log_texts:
            fields["texts"] = list(texts)
            fields["translations"] = [result.text for result in results]
