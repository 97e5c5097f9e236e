"""Translation by two models through a language between, for pairs that no model has; the models for each pair."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.result import Result
from onehop.pipelines.route import Pair, all_routes
from onehop.server.problems import Problem
from onehop.server.service import RequestOptions, Service, Translating
from onehop.server.stream import stream
from onehop.storage.registry import SMALL, Quality
from onehop.text.language_id import name_of


class _PivotService(Translating):
    """Works like a `Service`, through a pivot language, and shares the lanes of two services."""

    def __init__(self, first: Service, second: Service) -> None:
        self.first, self.second = self.legs = (first, second)
        self.source, self.target, self.via = first.source, second.target, second.source
        self.models = (*first.models, *second.models)

    def leg_options(self, options: RequestOptions) -> tuple[RequestOptions, RequestOptions]:
        """The options for each model: one translation, and no glossary, whose terms are in other languages."""
        search = replace(options.search, n_best=1)
        first, second = (RequestOptions(search=search, terms=terms) for terms in options.terms.for_pivot())
        return first, replace(second, prefixes=options.prefixes)

    def pipeline(self, options: RequestOptions) -> PivotTranslator:
        first, second = self.leg_options(options)
        return PivotTranslator(self.first.pipeline(first), self.second.pipeline(second), options.terms)

    async def translate_html(
        self, documents: Sequence[str], options: RequestOptions, variants: int = 1
    ) -> list[list[Result]]:
        if options.terms.glossary:
            raise Problem(400, f"Through {name_of(self.second.source)} HTML has no glossary: send the format text.")
        return await super().translate_html(documents, options, variants)

    async def stream(self, text: str, options: RequestOptions) -> AsyncGenerator[dict[str, Any]]:
        """The events of the second model, once the first has translated all sentences."""
        pipeline = await asyncio.to_thread(self.pipeline, options)
        [segments], [translated] = await self.run(pipeline.first.plan([text]))
        _, second = await asyncio.to_thread(self.leg_options, options)
        last: list[Result] = []
        for number, sentence in enumerate(translated):
            if number == 1:
                second = replace(second, prefixes=())
            async with aclosing(stream(self.second, sentence.text, second, line=number)) as events:
                part = 0  # the second model may split a sentence into several
                async for event in events:
                    if "translation" in event:
                        last.append(event["translation"])
                    elif "final" not in event:
                        gap = " " if event["sentence"] > part else ""
                        part = event["sentence"]
                        yield {**event, "sentence": number, "text": gap + event["text"]}
            whole = await asyncio.to_thread(pipeline.join_legs, sentence, last[-1])
            yield {"sentence": number, "text": whole.text, "final": True}
        joined = pipeline.join([translated], last)
        [result] = await asyncio.to_thread(pipeline.results, [text], [segments], joined)
        yield {"translation": result}


def first_of_each_pair(services: Sequence[Service]) -> dict[Pair, Service]:
    models: dict[Pair, Service] = {}
    for service in services:
        models.setdefault((service.source, service.target), service)
    return models


def routes_by_quality(services: Sequence[Service]) -> dict[Quality | None, dict[Pair, Translating]]:
    """The model or the two for each pair: full ones, small ones and, without a quality, the first of each pair."""
    small = [service for service in services if service.models[0].endswith(SMALL)]
    full = [service for service in services if service not in small]
    forms: dict[Quality | None, Sequence[Service]] = {None: services, "best": full, "fast": small}
    routes: dict[Quality | None, dict[Pair, Translating]] = {quality: {} for quality in forms}
    for quality, form in forms.items():
        models = first_of_each_pair(form)
        for pair, (first, *rest) in all_routes(models).items():
            routes[quality][pair] = _PivotService(models[first], models[rest[0]]) if rest else models[first]
    return routes
