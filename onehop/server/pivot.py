"""Translation by two models through a language between, for pairs that no model has."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.result import Result
from onehop.server.problems import Problem
from onehop.server.service import Service, Translating, Wish
from onehop.server.stream import stream
from onehop.text.language_id import name_of


class PivotService(Translating):
    """Works like a `Service`, through a pivot language, and shares the lanes of two services."""

    def __init__(self, first: Service, second: Service) -> None:
        self.first, self.second = self.legs = (first, second)
        self.source, self.target, self.via = first.source, second.target, second.source
        self.models = (*first.models, *second.models)

    def asked(self, wish: Wish) -> tuple[Wish, Wish]:
        """The options for each model: one translation, and no glossary, whose terms are in other languages."""
        options = replace(wish.options, n_best=1)
        first, second = (Wish(options=options, terms=terms) for terms in wish.terms.for_pivot())
        return first, replace(second, prefixes=wish.prefixes)

    def pipeline(self, wish: Wish) -> PivotTranslator:
        first, second = self.asked(wish)
        return PivotTranslator(self.first.pipeline(first), self.second.pipeline(second), wish.terms)

    async def translate_html(self, documents: Sequence[str], wish: Wish, variants: int = 1) -> list[list[Result]]:
        if wish.terms.glossary:
            raise Problem(400, f"Through {name_of(self.second.source)} HTML has no glossary: send the format text.")
        return await super().translate_html(documents, wish, variants)

    async def stream(self, text: str, wish: Wish) -> AsyncGenerator[dict[str, Any]]:
        """The events of the second model, once the first has translated all sentences."""
        by, two = await asyncio.to_thread(lambda: (self.pipeline(wish), self.asked(wish)[1]))
        [segments], [translated] = await self.run(by.first.plan([text]))
        last: list[Result] = []
        for number, sentence in enumerate(translated):
            own = two if number == 0 else replace(two, prefixes=())
            async with aclosing(stream(self.second, sentence.text, own, line=number)) as events:
                part = 0  # the second model may split a sentence into several
                async for event in events:
                    if "translation" in event:
                        last.append(event["translation"])
                    elif "final" not in event:
                        gap = " " if event["sentence"] > part else ""
                        part = event["sentence"]
                        yield {**event, "sentence": number, "text": gap + event["text"]}
            whole = await asyncio.to_thread(by.join_legs, sentence, last[-1])
            yield {"sentence": number, "text": whole.text, "final": True}
        joined = by.join([translated], last)
        [result] = await asyncio.to_thread(by.results, [text], [segments], joined)
        yield {"translation": result}
