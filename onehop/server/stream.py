"""A translation as a stream of events: the settled part of a search while it runs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from onehop.decoding.options import SearchOptions
from onehop.pipelines.paragraphs import LINE_BREAKS, ParagraphTranslator
from onehop.pipelines.plan import run
from onehop.pipelines.result import Sentence
from onehop.server.scheduler import NBest
from onehop.text.sentences import Segment
from onehop.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from onehop.server.service import RequestOptions, Service


async def stream(
    service: "Service", text: str, options: "RequestOptions", line: int = 0
) -> AsyncGenerator[dict[str, Any]]:
    """Events with the sentence's number and its new text, as it is settled; finally the result."""
    pipeline = await asyncio.to_thread(service.pipeline, options)
    segments = await asyncio.to_thread(pipeline.segments, text)
    service.check_sentences(len(segments))
    prefix = service.translator.tokenizer.target.encode(options.prefixes[0]) if any(options.prefixes) else []
    done: list[Sentence] = []
    for i, segment in enumerate(segments):
        n_best: NBest = []
        index, required = pipeline.index(line, i), pipeline.terms.required(segment.text)
        if pipeline.terms.has_words(segment.text) and (ids := pipeline.ids(segment.text)):
            async with _search(service, ids, options.search, [] if i else prefix, index) as (events, search):
                async for event in in_source_casing(segment, pipeline, events):
                    yield {"sentence": i, **event}
                n_best = await search
        done += await asyncio.to_thread(run, pipeline.selection_plan([segment], [n_best], [required], [index]))
        yield {"sentence": i, "text": done[-1].text, "final": True}
    yield {"translation": pipeline.results([text], [segments], [done])[0]}


@asynccontextmanager
async def _search(
    service: "Service", ids: list[int], options: SearchOptions, prefix: list[int], index: int
) -> AsyncIterator[tuple[AsyncIterator[dict[str, Any]], "asyncio.Task[NBest]"]]:
    """Run a search and yield its events; if the consumer stops early, the search is cancelled."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[list[int] | None]()

    def on_settled(settled: Sequence[int]) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, list(settled))

    task = asyncio.create_task(service.search(ids, options, prefix=prefix, index=index, on_settled=on_settled))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        yield _events(service.translator.tokenizer, queue), task
    finally:
        task.cancel()


async def _events(tokenizer: Tokenizer, queue: "asyncio.Queue[list[int] | None]") -> AsyncIterator[dict[str, Any]]:
    """Events with the text that each longer prefix adds."""
    sent_ids, sent_text = 0, ""
    while (ids := await queue.get()) is not None:
        text = LINE_BREAKS.sub(" ", tokenizer.decode_complete(ids))
        if len(ids) > sent_ids and text.startswith(sent_text):
            yield {"tokens": tokenizer.tokens(ids[sent_ids:]), "text": text[len(sent_text) :]}
            sent_ids, sent_text = len(ids), text


async def in_source_casing(
    segment: Segment, pipeline: ParagraphTranslator, events: AsyncIterator[dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """The settled text of a sentence in the casing of its source: all-capitals text comes in whole words.

    Which letters stay lower case is known only at the end of a word, an address or a kept word.
    """
    text, sent = "", 0
    async for event in events:
        if segment.original is None:
            yield event
            continue
        text += event["text"]
        decided = pipeline.terms.stable_length(text)
        yield {**event, "text": pipeline.restore_case(segment, text)[sent:decided]}
        sent = decided
