"""Sentences of many requests decoded together.

A lane is an engine, the threads that call it, and a queue of sentences. A batch is filled up to a budget of tokens with
sentences of similar length and equal options. Their order is start-time fair queuing: each request has its own clock,
which advances with its scheduled tokens, so a long request does not delay short ones. Sentences cannot join a running
batch. So a batch takes at most about `batch_seconds`, and half of that while there are other requests. This time is
estimated from batches that ran at the same time as others: a batch that has memory and caches to itself is up to twice
as fast. Everything except the engine's call runs on the event loop.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from onehop.decoding.options import SearchOptions, allowing
from onehop.pipelines.sentence_translator import Translation
from onehop.server.metrics import Metrics
from onehop.server.problems import Problem, busy
from onehop.server.settings import ServerSettings

# Lengths below this count as similar.
_SHORT = 16
# Maximum length of an ordinary sentence, which never waits for a thread that long ones may not use.
_ORDINARY = 32
# With continuous batching, sentences longer than this leave a place free for others.
LONG = 64
# The budget counts source tokens for this beam; wider beams get smaller batches.
USUAL_BEAM = 4
# The fixed cost of a decoder step, in sentences: the weights are read once for all of them.
_STEP_COST = 5
# Cost (`_cost_of`) per second of one thread before the first measurement: a small model on a slow core.
_FIRST_PACE = 500.0
# One request may use 1/_SHARE of the queue. Requests above 1/_SMALL of it may use half of it together, so that they do
# not keep small requests out.
_SHARE, _SMALL = 4, 100
# Seconds after a concurrent request in which another one is expected.
_RECENT_SECONDS = 2.0

NBest = list[Translation]
Call = Callable[[Sequence[list[int]], SearchOptions, Sequence[int]], list[NBest]]


@dataclass
class QueuedSentence:
    """One sentence in the queue. `index` seeds its sampling; `start` orders the queue."""

    ids: list[int]
    options: SearchOptions
    index: int
    answer: "asyncio.Future[Any]"
    request: int = 0
    start: float = 0.0
    arrived: float = field(default_factory=time.monotonic)

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def is_long(self) -> bool:
        """Whether it could delay others."""
        return self.length > LONG


class Lane:
    """An engine with its queue."""

    def __init__(self, call: Call, settings: ServerSettings, metrics: Metrics, *, threads: int) -> None:
        self.call, self.settings, self.metrics, self.threads = call, settings, metrics, threads
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="onehop")
        self.waiting: list[QueuedSentence] = []
        self.running: list[QueuedSentence] = []
        self.last_overlap = -math.inf  # time of the last request that arrived during another
        self.free, self.slow_running, self.clock = threads, 0, 0.0
        self.requests = count()
        self.pace = _FIRST_PACE
        self.speed = 1000.0  # tokens per second, a moving average
        self.has_timer = self.closed = False

    # --- queue ------------------------------------------------------------------------------------------------

    async def translate(
        self, sources: Sequence[list[int]], options: SearchOptions, indices: Sequence[int] | None = None
    ) -> list[NBest]:
        """The engine's results for the sentences of one request. If it is cancelled, waiting sentences are dropped."""
        loop = asyncio.get_running_loop()
        request = next(self.requests)
        jobs = [
            QueuedSentence(ids, allowing(options, ids), index, loop.create_future(), request)
            for index, ids in zip(indices or range(len(sources)), sources, strict=True)
        ]
        self.put(jobs)
        try:
            return list(await asyncio.gather(*(job.answer for job in jobs)))
        finally:
            for job in jobs:
                job.answer.cancel()

    def put(self, jobs: Sequence[QueuedSentence]) -> None:
        """Queue the sentences of one request, or refuse it if it would wait in vain."""
        self.drop_cancelled()
        self.admit(tokens(jobs))
        if any(job.request != new.request for new in jobs[:1] for job in (*self.waiting, *self.running)):
            self.last_overlap = time.monotonic()
        start = self.clock
        for job in jobs:
            job.start = start
            start += job.length
        self.waiting += jobs
        self.pump()

    def admit(self, own: int) -> None:
        """Refuse a request that is too large, finds the queue full, or would be answered too late.

        In fair queuing, only sentences of requests with fewer scheduled tokens than its own come before it.
        """
        max_queue, max_seconds = self.settings.max_queue, self.settings.answer_seconds
        most = max(1, min(max_queue // _SHARE, int(max_seconds * self.speed)))
        if own > most:
            what = f"The request has {own:,} tokens; the maximum is {most:,}: send it in {-(-own // most)} parts."
            raise Problem(413, what)
        waiting = tokens(self.waiting)
        before = tokens([job for job in self.waiting if job.start < self.clock + own])
        room = max_queue if own * _SMALL <= max_queue else max_queue // 2
        if waiting + own > room or (before + own) / self.speed > max_seconds:
            raise busy(waiting / self.speed)

    def drop_cancelled(self) -> None:
        kept = [job for job in self.waiting if not job.answer.done()]
        self.metrics.dropped.inc(len(self.waiting) - len(kept))
        self.waiting = kept

    # --- batches ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Start batches while there is a free thread and a batch is due."""
        self.drop_cancelled()
        while self.free and self.waiting and not self.closed and self.is_time():
            batch = self.take()
            if not batch:
                break
            self.start(batch)
        self.metrics.waiting.set(len(self.waiting))
        self.metrics.waiting_tokens.set(tokens(self.waiting))

    def is_time(self) -> bool:
        """Whether a batch is due: it is full, or the first sentence has waited long enough. Otherwise set a timer."""
        oldest = min(job.arrived for job in self.waiting)
        rest = oldest + self.settings.patience - time.monotonic()
        if rest <= 0 or tokens(self.waiting) >= self.settings.batch_tokens:
            return True
        if not self.has_timer:
            self.has_timer = True
            asyncio.get_running_loop().call_later(rest, self.on_time)
        return False

    def on_time(self) -> None:
        """Called when the patience of the first sentence is over."""
        self.has_timer = False
        self.pump()

    def take(self) -> list[QueuedSentence]:
        """The next batch: the first sentence and those that fit with it. Idle threads share the queue."""
        ready = self.in_order()
        if self.threads > 1 and self.slow_running >= self.threads - 1:
            ready = [job for job in ready if not self.is_slow(job)]
        if not ready:
            return []
        most = math.ceil(len(ready) / self.free)
        return self.remove(fitting(ready, self.settings.batch_tokens, most, self.max_cost()))

    def is_slow(self, job: QueuedSentence) -> bool:
        """Whether a sentence longer than ordinary ones exceeds the time of a batch on its own."""
        return job.length > _ORDINARY and _cost_of([job]) > self.max_cost()

    def max_cost(self) -> float:
        """The maximum cost of a batch that delays nobody: half as much while there are other requests.

        The next request should not find every thread busy with a long sentence, so recent requests count too.
        """
        is_recent = time.monotonic() - self.last_overlap < _RECENT_SECONDS
        is_shared = is_recent or len({job.request for job in self.waiting}) > 1
        return self.pace * self.settings.batch_seconds / (2 if is_shared else 1)

    def in_order(self) -> list[QueuedSentence]:
        return sorted(self.waiting, key=lambda job: (job.start, job.arrived))

    def remove(self, batch: list[QueuedSentence]) -> list[QueuedSentence]:
        """Remove a batch from the queue and charge it to its requests."""
        # The virtual time is the service that each waiting request could have received by now.
        self.clock = max(self.clock, batch[0].start) + tokens(batch) / len({job.request for job in self.waiting})
        chosen = set(map(id, batch))
        self.waiting = [job for job in self.waiting if id(job) not in chosen]
        return batch

    def start(self, batch: list[QueuedSentence]) -> None:
        now = time.monotonic()
        self.record(batch, now)
        is_slow = any(map(self.is_slow, batch))
        self.free -= 1
        self.running += batch
        self.slow_running += is_slow
        was_full = self.free == 0
        running = asyncio.get_running_loop().run_in_executor(self.executor, self.run, batch)
        running.add_done_callback(lambda done: self.finish(batch, is_slow, was_full, now, done))

    def record(self, batch: list[QueuedSentence], now: float) -> None:
        """Record the sizes of a batch, and how long its sentences have waited."""
        for job in batch:
            self.metrics.queue_seconds.observe(now - job.arrived)
        self.metrics.batch_sentences.observe(len(batch))
        self.metrics.batch_tokens.observe(tokens(batch))

    def run(self, batch: list[QueuedSentence]) -> list[NBest | BaseException]:
        """Call the engine once; if it fails, call it for each sentence alone, so that one does not fail the others."""
        began = time.perf_counter()
        indices = [job.index for job in batch]
        try:
            results: list[NBest | BaseException] = list(
                self.call([job.ids for job in batch], batch[0].options, indices)
            )
        except Exception as e:
            results = [e] if len(batch) == 1 else [self.run([job])[0] for job in batch]
        self.metrics.batch_seconds.observe(time.perf_counter() - began)
        return results

    def finish(
        self,
        batch: list[QueuedSentence],
        was_slow: bool,
        was_full: bool,
        began: float,
        done: "asyncio.Future[list[NBest | BaseException]]",
    ) -> None:
        """Answer a batch and start the next. `was_full` is whether every thread was busy when the batch began."""
        self.free += 1
        finished = set(map(id, batch))
        self.running = [job for job in self.running if id(job) not in finished]
        self.slow_running -= was_slow
        for job, result in zip(batch, done.result(), strict=True):
            self.resolve(job, result)
        seconds = time.monotonic() - began
        self.update_speed(tokens(batch) * self.threads, seconds)
        pace = _cost_of(batch) / max(seconds, 1e-3)
        if was_full or pace < self.pace:
            self.pace = 0.9 * self.pace + 0.1 * pace
        self.pump()

    def resolve(self, job: QueuedSentence, result: NBest | BaseException) -> None:
        """Answer a sentence unless it was cancelled."""
        if job.answer.done():
            return
        if isinstance(result, BaseException):
            job.answer.set_exception(result)
        else:
            job.answer.set_result(result)
            self.metrics.tokens.labels("source").inc(job.length)
            self.metrics.tokens.labels("target").inc(len(result[0].tokens))

    def update_speed(self, done: int, seconds: float) -> None:
        """Update the speed. A small batch is slow per token, so it counts only if the queue is not empty."""
        speed = done / max(seconds, 1e-3)
        if self.waiting or speed > self.speed:
            self.speed = 0.9 * self.speed + 0.1 * speed

    def close(self) -> None:
        """Refuse new sentences, and stop the threads after their current batches."""
        self.closed = True
        for job in self.waiting:
            job.answer.cancel()
        self.executor.shutdown(wait=False, cancel_futures=True)


def tokens(jobs: Sequence[QueuedSentence]) -> int:
    return sum(job.length for job in jobs)


def _cost_of(jobs: Sequence[QueuedSentence]) -> float:
    """The cost of a batch: its longest length times the cost of a step, which is fixed plus one per hypothesis."""
    longest = max(job.length for job in jobs)
    return longest * (_STEP_COST + sum(job.options.beam for job in jobs) / USUAL_BEAM)


def fitting(
    ready: Sequence[QueuedSentence], max_tokens: int, max_sentences: int, max_cost: float = math.inf
) -> list[QueuedSentence]:
    """The first sentence and the later ones that may be translated with it.

    Beyond `max_cost`, each request adds only one sentence. So batches grow with the number of requests, and a large
    request does not make them long.
    """
    first = ready[0]
    max_tokens = min(max_tokens, max_tokens * USUAL_BEAM // first.options.beam)
    batch, shortest, longest, requests = [first], first.length, first.length, {first.request}
    for job in ready[1:]:
        low, high = min(shortest, job.length), max(longest, job.length)
        is_similar = max(high, _SHORT) <= 2 * max(low, _SHORT) and job.options == first.options
        fits = (len(batch) + 1) * high <= max_tokens and len(batch) < max_sentences
        if is_similar and fits and (job.request not in requests or _cost_of([*batch, job]) <= max_cost):
            batch.append(job)
            requests.add(job.request)
            shortest, longest = low, high
    return batch
