"""One model at work for many requests: text or HTML in, paragraphs out, through the lanes of its engines."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from onehop.decoding.engine import Engine, GivenUp, Settled
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.errors import OnehopError, is_installed
from onehop.pipelines.glossary import Terms
from onehop.pipelines.html import Aligned, aligned, check_markup, flows, needs_alignment, put_together, reading
from onehop.pipelines.html_markup import Flow, parse
from onehop.pipelines.html_tags import TooMuchMarkup
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of, nth_best, paragraph
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.pipelines.streaming import settle, tells
from onehop.server.joining_lane import JoiningLane, Steps
from onehop.server.metrics import Metrics
from onehop.server.problems import Problem, busy
from onehop.server.scheduler import Call, Found, Lane
from onehop.server.settings import ServerSettings
from onehop.server.stream import stream
from onehop.storage.registry import short_name
from onehop.text.sentences import Segment

# Searches that are watched or forced run one at a time; so many may wait.
_MOST_SETTLING = 32
# Tokens of translations that are aligned in one turn.
_ALIGNED_TOKENS = 256

T = TypeVar("T")
_State = Literal["starting", "ok", "failing"]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for some texts."""

    options: SearchOptions = field(default_factory=SearchOptions)
    terms: Terms = field(default_factory=Terms)
    prefixes: Sequence[str] = ()


class Service:
    """A model."""

    via: str | None = None  # the language between two models; here there is one

    def __init__(
        self,
        translator: SentenceTranslator,
        max_length: int,
        settings: ServerSettings,
        metrics: Metrics,
        name: str,
    ) -> None:
        self.translator, self.max_length = translator, max_length
        self.models = (name,)
        self.settings, self.metrics = settings, metrics
        self.source, self.target = self.languages = translator.source, translator.target
        self.state: _State = "starting"
        self.settling = 0
        if translator.fast is not None:
            translator.fast.spread = 1  # type: ignore[attr-defined]

    @classmethod
    def load(
        cls,
        path: Path,
        settings: ServerSettings,
        metrics: Metrics,
        **engine: Any,
    ) -> "Service":
        """Read a model file; `engine` as for SentenceTranslator.load."""
        translator = SentenceTranslator.load(path, **engine)
        return cls(translator, max_length_of(path), settings, metrics, short_name(path))

    # --- lanes ------------------------------------------------------------------------------------------------

    @cached_property
    def fast(self) -> Lane | None:
        """CTranslate2's lane, one thread for each of its workers."""
        engine: Any = self.translator.fast
        return None if engine is None else self.lane(lambda: engine, engine.workers)

    @cached_property
    def reference(self) -> Lane:
        """Torch's lane for whole batches; it uses all cores by itself."""
        return self.lane(self.torch_engine, 1)

    @cached_property
    def joining(self) -> Lane:
        """Torch's lane that sentences join between two steps; where its engine does not let them, the other."""
        # Beside a fast engine, torch runs on the CPU and is made later; alone, it is there already.
        if self.translator.fast is None and not self.torch_engine().joins:
            return self.reference

        def begin() -> Steps:
            from onehop.decoding.continuous_batching import Joining

            return Joining(self.torch_engine())

        def read(found: list[Hypothesis]) -> Found:
            return [self.translator.translation(h, self.torch_engine()) for h in found]

        return JoiningLane(self.way_to(self.torch_engine), begin, read, **self.limits)

    def torch_engine(self) -> Any:
        """The torch engine, which the translator makes when it is first asked for."""
        return self.translator.reference

    def lane(self, engine: Callable[[], Engine], threads: int) -> Lane:
        """A lane to an engine, which is made when it is first used."""
        return Lane(self.way_to(engine), threads=threads, **self.limits)

    def way_to(self, engine: Callable[[], Engine]) -> Call:
        """How a lane calls an engine."""
        return lambda sources, options, numbers: self.call(engine(), sources, options, numbers)

    @property
    def limits(self) -> dict[str, Any]:
        return {
            "budget": self.settings.batch_tokens,
            "batch_seconds": self.settings.batch_seconds,
            "patience": self.settings.patience,
            "most_waiting": self.settings.max_queue,
            "most_seconds": self.settings.answer_seconds,
            "metrics": self.metrics,
        }

    def call(
        self, engine: Engine, sources: Sequence[list[int]], options: SearchOptions, numbers: Sequence[int]
    ) -> list[Found]:
        """In a thread: what an engine finds."""
        found = engine.translate(sources, options, numbers)
        return [[self.translator.translation(h, engine) for h in best] for best in found]

    def check_torch(self) -> None:
        """Refuse what only torch does where it is not installed."""
        if not is_installed("torch"):
            raise Problem(501, "This needs torch, which is not installed on the server: ask for a plain beam.")

    async def n_best(self, sources: Sequence[list[int]], options: SearchOptions) -> list[Found]:
        """The n best of each sentence, by the engine that has the options."""
        options = self.translator.with_defaults(options)
        quick = [i for i, ids in enumerate(sources) if self.translator.is_fast(ids, options)]
        rest = sorted(set(range(len(sources))) - set(quick))
        shares: list[tuple[Lane, list[int]]] = [(self.fast, quick)] if quick and self.fast else []
        if rest:
            self.check_torch()
            shares.append((self.reference if options.sample else self.joining, rest))
        waits = [lane.translate([sources[i] for i in places], options) for lane, places in shares]
        found: list[Found] = [[] for _ in sources]
        with self.watching():
            answers = await together(waits)
        for (_, places), answer in zip(shares, answers, strict=True):
            for i, best in zip(places, answer, strict=True):
                found[i] = best
        return found

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Remember whether the engine works; what a client got wrong, or gave up, says nothing about it."""
        try:
            yield
        except (Problem, OnehopError):
            raise
        except Exception:
            self.state = "failing"
            raise
        self.state = "ok"

    # --- text -------------------------------------------------------------------------------------------------

    async def translate(self, lines: Sequence[str], wish: Wish, variants: int = 1) -> list[list[Result]]:
        """Lines, each on its own: so many translations of each, best first."""
        parted, sentences = await self.parted(lines, wish)
        return await asyncio.to_thread(
            lambda: [
                [
                    self.paragraph(line, segments, [nth_best(s, n, self.languages) for s in translated])
                    for n in range(variants)
                ]
                for line, segments, translated in zip(lines, parted, sentences, strict=True)
            ]
        )

    async def parted(self, lines: Sequence[str], wish: Wish) -> tuple[list[list[Segment]], list[list[Sentence]]]:
        """The segments of each line, and their translations."""
        by = self.by(wish)
        parted = await asyncio.to_thread(lambda: [by.segments(line) for line in lines])
        return parted, await self.sentences(by, parted, wish)

    def paragraph(self, line: str, segments: Sequence[Segment], translated: Sequence[Sentence]) -> Result:
        return replace(paragraph(line, segments, translated), models=self.models)

    def by(self, wish: Wish) -> ParagraphTranslator:
        """What takes lines apart and chooses among translations; what is given of one decides on its letters."""
        return ParagraphTranslator(
            self.translator,
            max_length=self.max_length,
            options=wish.options,
            terms=wish.terms,
            keep_capitals=any(wish.prefixes),
            model=self.models[0],
        )

    async def sentences(
        self, by: ParagraphTranslator, parted: Sequence[Sequence[Segment]], wish: Wish
    ) -> list[list[Sentence]]:
        """The sentences of each line, translated together with all others that wait."""
        flat = [segment for segments in parted for segment in segments]
        if len(flat) > self.settings.max_sentences:
            raise Problem(413, f"{len(flat):,} sentences are too many: send at most {self.settings.max_sentences:,}.")
        sources = await asyncio.to_thread(self.sources, by, flat)
        wanted = await asyncio.to_thread(lambda: [by.terms.wanted(segment.text) for segment in flat])
        found: list[Found] = [[] for _ in flat]
        forced = {i: prefix for i, prefix in self.forced(parted, wish) if i in sources}
        plain = [i for i in sources if not by.chooses(wanted[i]) and i not in forced]
        choosy = [i for i in sources if by.chooses(wanted[i]) and i not in forced]
        waits: dict[Any, list[int]] = {}
        for share, options in ((plain, wish.options), (choosy, by.wide)):
            if share:
                waits[self.n_best([sources[i] for i in share], options)] = share
        if forced:
            waits[self.completed(sources, wish.options, forced)] = list(forced)
        for share, answer in zip(waits.values(), await together(waits), strict=True):
            for i, best in zip(share, answer, strict=True):
                found[i] = best
        done = iter(await asyncio.to_thread(lambda: list(map(by.sentence, flat, found, wanted))))
        return [[next(done) for _ in segments] for segments in parted]

    def sources(self, by: ParagraphTranslator, segments: Sequence[Segment]) -> dict[int, list[int]]:
        """The ids of each sentence that has words to translate, by its place."""
        places = [i for i, segment in enumerate(segments) if by.terms.has_words(segment.text)]
        if by.terms.any:
            encoded = [by.ids(segments[i].text) for i in places]
        else:
            encoded = self.translator.tokenizer.encode_batch([segments[i].text for i in places], 1)
        return {i: ids for i, ids in zip(places, encoded, strict=True) if ids}

    def forced(self, parted: Sequence[Sequence[Segment]], wish: Wish) -> list[tuple[int, list[int]]]:
        """The sentences that must begin with a prefix: the first of each text that has one."""
        found, at = [], 0
        for segments, prefix in zip(parted, wish.prefixes or [""] * len(parted), strict=True):
            if prefix and segments:
                found.append((at, self.translator.tokenizer.target.encode(prefix)))
            at += len(segments)
        return found

    async def completed(
        self, sources: dict[int, list[int]], options: SearchOptions, prefixes: dict[int, list[int]]
    ) -> list[Found]:
        """Sentences that go on from a prefix, one after the other."""
        return [
            await self.settled(sources[i], options, prefix=prefix, number=number)
            for number, (i, prefix) in enumerate(prefixes.items())
        ]

    async def settled(
        self,
        source: list[int],
        options: SearchOptions,
        *,
        prefix: Sequence[int] = (),
        number: int = 0,
        tell: Settled = lambda ids: None,
    ) -> Found:
        """A search in the one thread for such; given up when nobody waits any more."""
        if prefix or self.translator.fast is None or not tells(self.translator, source, options):
            self.check_torch()
        if self.settling >= _MOST_SETTLING:
            raise busy(5)
        gone = threading.Event()

        def hear(ids: Sequence[int]) -> None:
            if gone.is_set():
                raise GivenUp
            tell(ids)

        self.settling += 1
        search = partial(settle, self.translator, source, options, prefix=prefix, settled=hear, number=number)
        try:
            with self.watching():
                return await self.in_thread(search)
        finally:
            self.settling -= 1
            gone.set()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """In the thread for what is done one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self.reference.executor, work)

    def stream(self, text: str, wish: Wish) -> AsyncGenerator[dict[str, Any]]:
        """What is settled, as it is: events with the sentence's number and its new text; at last the result."""
        return stream(self, text, wish)

    # --- alignments -------------------------------------------------------------------------------------------

    async def document_alignments(self, sentences: Sequence[Sentence]) -> list[Aligned]:
        """Which words of a document's sentences come from which."""
        return await self.alignments(sentences)

    async def alignments(self, sentences: Sequence[Sentence]) -> list[Aligned]:
        """Which tokens of each translation come from which; in parts, between which others have their turn."""
        found: list[Aligned] = []
        for part in _parts_of_tokens(sentences, _ALIGNED_TOKENS):
            found += await self.in_thread(partial(aligned, self.translator, part))
        return found

    # --- HTML -------------------------------------------------------------------------------------------------

    async def translate_html(self, documents: Sequence[str], wish: Wish, variants: int = 1) -> list[list[Result]]:
        """The same for HTML: its markup around the translations of its sentences."""
        by = self.by(wish)
        parsed = await asyncio.to_thread(lambda: [parse(document) for document in documents])
        every = [flow for pieces in parsed for flow in flows(pieces)]
        parted = await asyncio.to_thread(lambda: [by.segments(reading(flow)) for flow in every])
        try:
            await asyncio.to_thread(lambda: list(map(check_markup, every, parted)))
        except TooMuchMarkup:
            raise _too_much_markup() from None
        sentences = await self.sentences(by, parted, wish)
        found: list[list[Result]] = [[] for _ in documents]
        for n in range(variants):
            texts = iter(await self.flows_html(every, parted, sentences, n))
            chosen = iter(sentences)
            for document, pieces, best in zip(documents, parsed, found, strict=True):
                text = "".join(next(texts) if isinstance(piece, Flow) else piece for piece in pieces)
                mine = [s for _ in flows(pieces) for s in next(chosen) if s.source]
                best.append(Result(source=document, text=text, sentences=tuple(mine), models=self.models))
        return found

    async def flows_html(
        self, every: Sequence[Flow], parted: Sequence[list[Segment]], sentences: Sequence[list[Sentence]], n: int
    ) -> list[str]:
        """Flows with the n-th best translation of each sentence."""
        chosen = await asyncio.to_thread(
            lambda: [[nth_best(s, n, self.languages) for s in translated] for translated in sentences]
        )
        needed = await asyncio.to_thread(lambda: list(map(needs_alignment, every, parted)))
        wanted = [
            s
            for translated, needs in zip(chosen, needed, strict=True)
            for s, need in zip(translated, needs, strict=True)
            if need
        ]
        aligned = iter(await self.alignments(wanted) if wanted else [])
        each = [
            [next(aligned) if need else Aligned(s) for s, need in zip(translated, needs, strict=True)]
            for translated, needs in zip(chosen, needed, strict=True)
        ]
        try:
            return await asyncio.to_thread(lambda: list(map(put_together, every, parted, each)))
        except TooMuchMarkup:  # in a sentence without letters
            raise _too_much_markup() from None

    def close(self) -> None:
        for name in ("fast", "reference", "joining"):
            if (lane := self.__dict__.get(name)) is not None:
                lane.close()


def _too_much_markup() -> Problem:
    """A sentence has more tags than can be placed."""
    return Problem(400, "A sentence has hundreds of tags: send its text, or less markup.")


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All of some works; when one fails, nobody waits for the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _parts_of_tokens(sentences: Sequence[Sentence], most: int) -> Iterator[list[Sentence]]:
    """Sentences in order, as many together as have at most so many tokens in their translations."""
    part: list[Sentence] = []
    for sentence in sentences:
        if part and sum(len(s.found[0].tokens) for s in (*part, sentence) if s.found) > most:
            yield part
            part = []
        part.append(sentence)
    if part:
        yield part
