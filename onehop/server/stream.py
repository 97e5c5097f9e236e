"""A translation as a stream of events: the settled part of a search while it runs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from onehop.decoding.options import SearchOptions
from onehop.pipelines.paragraphs import LINE_BREAKS, ParagraphTranslator
from onehop.pipelines.plan import run
from onehop.pipelines.result import Sentence
from onehop.pipelines.streaming import settled_text
from onehop.server.scheduler import Found
from onehop.text.sentences import Segment
from onehop.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from onehop.server.service import Service, Wish


async def stream(service: "Service", text: str, wish: "Wish", line: int = 0) -> AsyncGenerator[dict[str, Any]]:
    """Events with the sentence's number and its new text, as it is settled; finally the result."""
    by = await asyncio.to_thread(service.pipeline, wish)
    segments = await asyncio.to_thread(by.segments, text)
    service.check_sentences(len(segments))
    prefix = service.translator.tokenizer.target.encode(wish.prefixes[0]) if any(wish.prefixes) else []
    done: list[Sentence] = []
    for number, segment in enumerate(segments):
        found: Found = []
        wanted = by.terms.required(segment.text)
        if by.terms.has_words(segment.text) and (ids := by.ids(segment.text)):
            search = _watched(service, ids, wish.options, [] if number else prefix, by.number(line, number))
            async with search as (events, searched):
                async for event in in_its_letters(segment, by, events):
                    yield {"sentence": number, **event}
                found = await searched
        done += await asyncio.to_thread(run, by.selection_plan([segment], [found], [wanted], [by.number(line, number)]))
        yield {"sentence": number, "text": done[-1].text, "final": True}
    yield {"translation": by.results([text], [segments], [done])[0]}


@asynccontextmanager
async def _watched(
    service: "Service", ids: list[int], options: SearchOptions, prefix: list[int], number: int
) -> AsyncIterator[tuple[AsyncIterator[dict[str, Any]], "asyncio.Task[Found]"]]:
    """Run a search and yield its events; if the consumer stops early, the search is cancelled."""
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[list[int] | None]()

    def tell(settled: Sequence[int]) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, list(settled))

    task = asyncio.create_task(service.settled(ids, options, prefix=prefix, number=number, tell=tell))
    task.add_done_callback(lambda _: heard.put_nowait(None))
    try:
        yield _events(service.translator.tokenizer, heard), task
    finally:
        task.cancel()


async def _events(tokenizer: Tokenizer, heard: "asyncio.Queue[list[int] | None]") -> AsyncIterator[dict[str, Any]]:
    """Events with the text that each longer prefix adds."""
    told, said = 0, ""
    while (ids := await heard.get()) is not None:
        text = LINE_BREAKS.sub(" ", settled_text(tokenizer, ids))
        if len(ids) > told and text.startswith(said):
            yield {"tokens": tokenizer.tokens(ids[told:]), "text": text[len(said) :]}
            told, said = len(ids), text


async def in_its_letters(
    segment: Segment, by: ParagraphTranslator, events: AsyncIterator[dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """The settled text of a sentence in the casing of its source: all-capitals text comes in whole words.

    Which letters stay lower case is known only at the end of a word, an address or a kept word.
    """
    text, told = "", 0
    async for event in events:
        if segment.original is None:
            yield event
            continue
        text += event["text"]
        decided = by.terms.stable_length(text)
        yield {**event, "text": by.restore_case(segment, text)[told:decided]}
        told = decided
