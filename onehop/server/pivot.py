"""Two models at work one after the other, for languages that none of them has both of."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from onehop.pipelines.documents.translate import legs_of, through_both
from onehop.pipelines.html import Aligned
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.result import Result, Sentence
from onehop.server.problems import Problem
from onehop.server.service import Service, Wish
from onehop.text.language_id import name_of
from onehop.text.sentences import Segment


class PivotService:
    """Does what a `Service` does, through the language between two of them, whose lanes it shares."""

    def __init__(self, first: Service, second: Service) -> None:
        self.first, self.second = first, second
        self.source, self.target, self.via = first.source, second.target, second.source
        self.models = (*first.models, *second.models)

    def asked(self, wish: Wish) -> tuple[PivotTranslator, Wish, Wish]:
        """What joins the two, and what is asked of each: one translation, and no term, which is in other languages."""
        options = replace(wish.options, n_best=1)
        first, second = (Wish(options=options, terms=terms) for terms in wish.terms.of_legs())
        return PivotTranslator(self.first.by(first), self.second.by(second), wish.terms), first, second

    async def translate(self, lines: Sequence[str], wish: Wish, variants: int = 1) -> list[list[Result]]:
        """Lines, each on its own; of each there is one translation, whatever the number of variants."""
        by, parted, joined = await self.through(lines, wish)
        return [[result] for result in await asyncio.to_thread(by.results, lines, parted, joined)]

    async def parted(self, lines: Sequence[str], wish: Wish) -> tuple[list[list[Segment]], list[list[Sentence]]]:
        """The segments of each line, and their translations."""
        _, parted, joined = await self.through(lines, wish)
        return parted, joined

    async def through(
        self, lines: Sequence[str], wish: Wish
    ) -> tuple[PivotTranslator, list[list[Segment]], list[list[Sentence]]]:
        """What joins the two, the segments of each line, and their translations."""
        by, one, two = await asyncio.to_thread(self.asked, wish)
        parted = await asyncio.to_thread(lambda: [by.first.segments(line) for line in lines])
        translated = await self.first.sentences(by.first, parted, one)
        starts = wish.prefixes or [""] * len(lines)
        prefixes = [
            start if i == 0 else "" for start, some in zip(starts, translated, strict=True) for i in range(len(some))
        ]
        between = [sentence.text for some in translated for sentence in some]
        last = await self.second.translate(between, replace(two, prefixes=prefixes))
        return by, parted, await asyncio.to_thread(by.joined, translated, [best[0] for best in last])

    async def translate_html(self, documents: Sequence[str], wish: Wish, variants: int = 1) -> list[list[Result]]:
        """HTML through both: sentences are those of the second, whose source is in the language between."""
        by, one, two = await asyncio.to_thread(self.asked, wish)
        if by.terms.glossary:
            raise Problem(400, f"Through {name_of(self.via)} HTML has no glossary: send the format text.")
        first = [best[0] for best in await self.first.translate_html(documents, one)]
        second = [best[0] for best in await self.second.translate_html([result.text for result in first], two)]
        return [
            [replace(after, source=document, models=self.models, via=self.via, notes=tuple(before.warnings))]
            for document, before, after in zip(documents, first, second, strict=True)
        ]

    async def stream(self, text: str, wish: Wish) -> AsyncGenerator[dict[str, Any]]:
        """What the second model settles of each sentence, once the first has translated them all."""
        by, one, two = await asyncio.to_thread(self.asked, wish)
        segments = await asyncio.to_thread(by.first.segments, text)
        [translated] = await self.first.sentences(by.first, [segments], one)
        last: list[Result] = []
        for number, sentence in enumerate(translated):
            own = replace(two, prefixes=wish.prefixes if number == 0 else ())
            async with aclosing(self.second.stream(sentence.text, own)) as events:
                part = 0  # the second model may take a sentence for several
                async for event in events:
                    if "translation" in event:
                        last.append(event["translation"])
                    elif "final" not in event:
                        gap = " " if event["sentence"] > part else ""
                        part = event["sentence"]
                        yield {**event, "sentence": number, "text": gap + event["text"]}
            whole = await asyncio.to_thread(by.through, sentence, last[-1])
            yield {"sentence": number, "text": whole.text, "final": True}
        joined = by.joined([translated], last)
        [result] = await asyncio.to_thread(by.results, [text], [segments], joined)
        yield {"translation": result}

    async def document_alignments(self, sentences: Sequence[Sentence]) -> list[Aligned]:
        """Which words of a document's sentences come from which, through those of the language between."""
        first, second = legs_of(sentences)
        return through_both(sentences, await self.first.alignments(first), await self.second.alignments(second))

    async def alignments(self, sentences: Sequence[Sentence]) -> list[Aligned]:
        """Refused: no token of the one language comes from one of the other."""
        raise Problem(400, f"Through {name_of(self.via)} there are no alignments: leave them out.")
