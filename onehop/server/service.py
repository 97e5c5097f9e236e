"""One model that serves many requests: text or HTML in, paragraphs out, through the lanes of its engines."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from onehop.decoding.engine import Engine, SearchCancelled, Settled
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.errors import OnehopError, is_installed
from onehop.pipelines.alignment import Aligned, align_sentences
from onehop.pipelines.glossary import Terms
from onehop.pipelines.html import html_plan
from onehop.pipelines.html_tags import TooMuchMarkup
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of, nth_best
from onehop.pipelines.pivot import LinePipeline
from onehop.pipelines.plan import Alignments, Plan, Search, Translated
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.server.joining_lane import JoiningLane
from onehop.server.metrics import Metrics
from onehop.server.problems import Problem, busy
from onehop.server.scheduler import Lane, NBest
from onehop.server.settings import ServerSettings
from onehop.server.stream import stream
from onehop.storage.registry import short_name

# Streamed searches and searches with a prefix run one at a time; this many may wait.
_MOST_SETTLING = 32
# Maximum target tokens that are aligned at once.
_ALIGNED_TOKENS = 256

T = TypeVar("T")
_State = Literal["starting", "ok", "failing"]


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    search: SearchOptions = field(default_factory=SearchOptions)
    terms: Terms = field(default_factory=Terms)
    prefixes: Sequence[str] = ()


class Translating(ABC):
    """Texts through the pipeline of one model, or of two, by way of the models' queues."""

    source: str
    target: str
    via: str | None = None  # the pivot language of two models
    models: tuple[str, ...]
    legs: "tuple[Service, ...]"

    @abstractmethod
    def pipeline(self, options: RequestOptions) -> LinePipeline:
        """The pipeline that splits lines into sentences, selects translations and joins them."""

    @abstractmethod
    def stream(self, text: str, options: RequestOptions) -> AsyncGenerator[dict[str, Any]]:
        """The translation as events: a sentence's number and its new text, as it is settled; finally the result."""

    async def run(self, plan: Plan[T]) -> T:
        """The result of a plan. Its own work runs in threads; its requests are queued with those of other clients."""
        services = {id(leg.translator): leg for leg in self.legs}
        requests, result = await asyncio.to_thread(_advance, plan)
        while requests is not None:
            self.check_sentences(sum(len(request.sources) for request in requests if isinstance(request, Search)))
            answers = await _gather([services[id(request.translator)].answer(request) for request in requests])
            requests, result = await asyncio.to_thread(_advance, plan, answers)
        return cast("T", result)

    def check_sentences(self, count: int) -> None:
        """Refuse more sentences than a request may have."""
        most = self.legs[0].settings.max_sentences
        if count > most:
            raise Problem(413, f"{count:,} sentences are too many: send at most {most:,}.")

    async def translate(self, lines: Sequence[str], options: RequestOptions, variants: int = 1) -> list[list[Result]]:
        """Translate lines independently: `variants` translations of each, best first."""
        pipeline = await asyncio.to_thread(self.pipeline, options)
        segments, sentences = await self.run(pipeline.plan(lines, prefixes=options.prefixes))

        def nth(n: int) -> list[Result]:
            chosen = [[nth_best(s, n, pipeline.languages) for s in translated] for translated in sentences]
            return pipeline.results(lines, segments, chosen)

        return await asyncio.to_thread(lambda: [list(best) for best in zip(*map(nth, range(variants)), strict=True)])

    async def translate_segments(self, lines: Sequence[str]) -> Translated:
        return await self.run((await asyncio.to_thread(self.pipeline, RequestOptions())).plan(lines))

    async def translate_html(
        self, documents: Sequence[str], options: RequestOptions, variants: int = 1
    ) -> list[list[Result]]:
        """Translate HTML documents, with the markup around the translated sentences."""
        pipeline = await asyncio.to_thread(self.pipeline, options)
        try:
            return await self.run(html_plan(pipeline, documents, variants))
        except TooMuchMarkup:
            raise Problem(400, "A sentence has hundreds of tags: send plain text, or less markup.") from None

    async def alignments(self, sentences: Sequence[Sentence]) -> list[Aligned]:
        """The alignments of sentences that were translated here."""
        return await self.run(self.pipeline(RequestOptions()).alignment_plan(sentences))


class Service(Translating):
    """One model, with a queue for each of its engines."""

    def __init__(
        self, translator: SentenceTranslator, max_length: int, settings: ServerSettings, metrics: Metrics, name: str
    ) -> None:
        self.translator, self.max_length = translator, max_length
        self.models = (name,)
        self.settings, self.metrics = settings, metrics
        self.source, self.target = translator.source, translator.target
        self.legs = (self,)
        self.state: _State = "starting"
        self.settling = 0
        if translator.fast is not None:
            translator.fast.spread = 1  # type: ignore[attr-defined]

    @classmethod
    def load(cls, path: Path, settings: ServerSettings, metrics: Metrics, **engine: Any) -> "Service":
        """Read a model file; `engine` is as for SentenceTranslator.load."""
        translator = SentenceTranslator.load(path, **engine)
        return cls(translator, max_length_of(path), settings, metrics, short_name(path))

    def pipeline(self, options: RequestOptions) -> ParagraphTranslator:
        """The pipeline of this model. A given prefix decides the casing of a translation."""
        return ParagraphTranslator(
            self.translator,
            max_length=self.max_length,
            options=options.search,
            terms=options.terms,
            keep_capitals=any(options.prefixes),
            model=self.models[0],
        )

    def stream(self, text: str, options: RequestOptions) -> AsyncGenerator[dict[str, Any]]:
        return stream(self, text, options)

    # --- lanes ------------------------------------------------------------------------------------------------

    @cached_property
    def fast(self) -> Lane | None:
        """CTranslate2's lane, with one thread per worker."""
        engine: Any = self.translator.fast
        call = partial(self.call, lambda: engine)
        return None if engine is None else Lane(call, self.settings, self.metrics, threads=engine.workers)

    @cached_property
    def reference(self) -> Lane:
        """Torch's lane for whole batches, with one thread: torch uses all cores by itself."""
        return Lane(partial(self.call, self.torch_engine), self.settings, self.metrics, threads=1)

    @cached_property
    def joining(self) -> Lane:
        """Torch's lane with continuous batching; if its engine does not support that, the lane for batches."""
        # Next to a fast engine, torch runs on the CPU and is loaded later; otherwise it is loaded already.
        if self.translator.fast is None and not self.torch_engine().joins:
            return self.reference

        def begin() -> Any:
            from onehop.decoding.continuous_batching import ContinuousBatch

            return ContinuousBatch(self.torch_engine())

        def read(hypotheses: list[Hypothesis]) -> NBest:
            return [self.translator.translation(h, self.torch_engine()) for h in hypotheses]

        return JoiningLane(partial(self.call, self.torch_engine), begin, read, self.settings, self.metrics)

    def torch_engine(self) -> Any:
        """The torch engine, which the translator loads on first use."""
        return self.translator.reference

    def call(
        self, load: Callable[[], Engine], sources: Sequence[list[int]], options: SearchOptions, indices: Sequence[int]
    ) -> list[NBest]:
        """Translate by an engine, which is loaded on first use. Runs in a lane's thread."""
        engine = load()
        results = engine.translate(sources, options, indices)
        return [[self.translator.translation(h, engine) for h in hypotheses] for hypotheses in results]

    def check_torch(self) -> None:
        """Refuse requests that need torch if it is not installed."""
        if not is_installed("torch"):
            raise Problem(501, "This needs torch, which is not installed on the server: ask for a plain beam.")

    async def n_best(self, sources: Sequence[list[int]], options: SearchOptions, indices: Sequence[int]) -> list[NBest]:
        """The n best translations of each sentence, by the engine that supports the options."""
        options = self.translator.with_defaults(options)
        quick = [i for i, ids in enumerate(sources) if self.translator.supports_fast(ids, options)]
        rest = sorted(set(range(len(sources))) - set(quick))
        shares: list[tuple[Lane, list[int]]] = [(self.fast, quick)] if quick and self.fast else []
        if rest:
            self.check_torch()
            shares.append((self.reference if options.sample else self.joining, rest))
        with self.health_recorded():
            answers = await _gather(
                lane.translate([sources[i] for i in share], options, [indices[i] for i in share])
                for lane, share in shares
            )
        results: list[NBest] = [[] for _ in sources]
        for (_, share), answer in zip(shares, answers, strict=True):
            for i, n_best in zip(share, answer, strict=True):
                results[i] = n_best
        return results

    @contextmanager
    def health_recorded(self) -> Iterator[None]:
        """Record whether the engine works. Errors and cancellations by the client do not count."""
        try:
            yield
        except (Problem, OnehopError):
            raise
        except Exception:
            self.state = "failing"
            raise
        self.state = "ok"

    # --- requests of a plan -----------------------------------------------------------------------------------

    async def answer(self, request: Search | Alignments) -> list[Any]:
        if isinstance(request, Alignments):
            return await self.align(request.sentences)
        if request.prefixes is None:
            return await self.n_best(request.sources, request.options, request.indices)
        searches = zip(request.sources, request.prefixes, request.indices, strict=True)
        return [await self.search(ids, request.options, prefix=prefix, index=index) for ids, prefix, index in searches]

    async def search(
        self,
        source: list[int],
        options: SearchOptions,
        *,
        prefix: Sequence[int] = (),
        index: int = 0,
        on_settled: Settled = lambda ids: None,
    ) -> NBest:
        """Run a search in the thread for one at a time; it stops if the request is cancelled."""
        if prefix or not self.translator.streams_fast(source, options):
            self.check_torch()
        if self.settling >= _MOST_SETTLING:
            raise busy(5)
        cancelled = threading.Event()

        def settled(ids: Sequence[int]) -> None:
            if cancelled.is_set():
                raise SearchCancelled
            on_settled(ids)

        self.settling += 1
        search = partial(self.translator.search, source, options, prefix=prefix, settled=settled, index=index)
        try:
            with self.health_recorded():
                return await self.in_thread(search)
        finally:
            self.settling -= 1
            cancelled.set()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run work in the thread for one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self.reference.executor, work)

    async def align(self, sentences: Sequence[Sentence]) -> list[Aligned]:
        """The alignments of each translation, in groups, so that other work can run between them."""
        alignments: list[Aligned] = []
        for group in groups(sentences, _ALIGNED_TOKENS, lambda s: len(s.tokens)):
            alignments += await self.in_thread(partial(align_sentences, self.translator, group))
        return alignments

    def close(self) -> None:
        for name in ("fast", "reference", "joining"):
            if (lane := self.__dict__.get(name)) is not None:
                lane.close()


def _advance(plan: Plan[T], answers: Sequence[Any] | None = None) -> tuple[Sequence[Any] | None, T | None]:
    """The next requests of a plan, or None and its result."""
    try:
        return (next(plan) if answers is None else plan.send(answers)), None
    except StopIteration as end:
        return None, end.value


async def _gather(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all coroutines; if one fails, the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def groups(items: Sequence[T], most: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Items in order, in groups of at most this size together; a larger item is a group of its own."""
    group: list[T] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group
