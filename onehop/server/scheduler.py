"""Sentences of many requests decoded together.

A lane is an engine, some threads that call it, and the sentences that wait for one. A batch is filled up to a budget of
tokens with sentences of like length and equal options. Which come first is decided by start-time fair queuing: each
request has its own clock, which advances with the tokens it has been given, so that a long request does not keep short
ones waiting. A batch that runs is not joined, so it is made no larger than what takes `batch_seconds`, and half of that
while requests come beside others. How long a batch takes is learnt from batches that ran beside others: cores share
memory and caches, and a batch that has them to itself is up to twice as fast. Everything but the engine's call happens
on the event loop.
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

# Lengths under this are alike, whatever they are.
_SHORT = 16
# What is no longer is an ordinary sentence: it never waits for a thread that long ones may not have.
_ORDINARY = 32
# Where sentences join between two steps, longer ones leave a place free for others.
LONG = 64
# The budget counts source tokens under this beam; wider ones get smaller batches.
USUAL_BEAM = 4
# A step of the decoder costs what so many sentences add to it: weights are read once, however many there are.
_STEP_COST = 5
# Cells a second of one thread, before any batch was timed: of a small model on a slow core.
_FIRST_PACE = 500.0
# One request may have this part of the queue, and requests of more than the smaller part only half of it together, so
# that no large request keeps small ones out.
_SHARE, _SMALL = 4, 100

# Seconds after which a request that came beside another says nothing about the next one.
_LATELY = 2.0

Found = list[Translation]
Call = Callable[[Sequence[list[int]], SearchOptions, Sequence[int]], list[Found]]


@dataclass
class QueuedSentence:
    """One sentence that waits; `number` names it for the sampling, `start` orders it among all that wait."""

    ids: list[int]
    options: SearchOptions
    number: int
    answer: "asyncio.Future[Any]"
    request: int = 0
    start: float = 0.0
    arrived: float = field(default_factory=time.monotonic)

    @property
    def length(self) -> int:
        """In tokens."""
        return len(self.ids)

    @property
    def is_long(self) -> bool:
        """Whether it could hold others up."""
        return self.length > LONG


class Lane:
    """An engine with its queue."""

    def __init__(
        self,
        call: Call,
        *,
        threads: int,
        budget: int,
        patience: float,
        most_waiting: int,
        most_seconds: float,
        batch_seconds: float,
        metrics: Metrics,
    ) -> None:
        self.call, self.threads, self.budget, self.patience = call, threads, budget, patience
        self.batch_seconds, self.pace = batch_seconds, _FIRST_PACE
        self.most_waiting, self.most_seconds, self.metrics = most_waiting, most_seconds, metrics
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="onehop")
        self.waiting: list[QueuedSentence] = []
        self.running: list[QueuedSentence] = []
        self.came_beside = -math.inf  # when a request last came while another one was here
        self.free, self.slow_running, self.clock = threads, 0, 0.0
        self.requests = count()
        self.speed = 1000.0  # tokens a second, as measured by and by
        self.timer: asyncio.TimerHandle | None = None
        self.closed = False

    # --- in ---------------------------------------------------------------------------------------------------

    async def translate(
        self, sources: Sequence[list[int]], options: SearchOptions, numbers: Sequence[int] | None = None
    ) -> list[Found]:
        """What the engine finds for some sentences of one request. Cancelled, those that wait are dropped."""
        loop = asyncio.get_running_loop()
        request = next(self.requests)
        jobs = [
            QueuedSentence(ids, allowing(options, ids), number, loop.create_future(), request)
            for number, ids in zip(numbers or range(len(sources)), sources, strict=True)
        ]
        self.put(jobs)
        try:
            return list(await asyncio.gather(*(job.answer for job in jobs)))
        finally:
            for job in jobs:
                job.answer.cancel()

    def put(self, jobs: Sequence[QueuedSentence]) -> None:
        """Queue the sentences of one request, or turn it away before it waits in vain."""
        self.drop_cancelled()
        self.admit(tokens(jobs))
        if any(job.request != new.request for new in jobs[:1] for job in (*self.waiting, *self.running)):
            self.came_beside = time.monotonic()
        start = self.clock
        for job in jobs:
            job.start = start
            start += job.length
        self.waiting += jobs
        self.pump()

    def admit(self, own: int) -> None:
        """Refuse a request that is too large, finds the queue full, or would be answered too late.

        Fair queuing puts before it only those sentences whose requests have been given less than it asks for.
        """
        most = max(1, min(self.most_waiting // _SHARE, int(self.most_seconds * self.speed)))
        if own > most:
            what = f"The request has {own:,} tokens, and one may have {most:,}: send it in {-(-own // most)} parts."
            raise Problem(413, what)
        waiting = self.tokens_waiting()
        before = tokens([job for job in self.waiting if job.start < self.clock + own])
        room = self.most_waiting if own * _SMALL <= self.most_waiting else self.most_waiting // 2
        if waiting + own > room or (before + own) / self.speed > self.most_seconds:
            raise busy(waiting / self.speed)

    def tokens_waiting(self) -> int:
        """Tokens of all sentences in the queue."""
        return tokens(self.waiting)

    def drop_cancelled(self) -> None:
        """Forget sentences that nobody waits for."""
        kept = [job for job in self.waiting if not job.answer.done()]
        self.metrics.dropped.inc(len(self.waiting) - len(kept))
        self.waiting = kept

    # --- out --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Start batches as long as there is a thread for one and it is time."""
        self.drop_cancelled()
        while self.free and self.waiting and not self.closed and self.is_time():
            batch = self.take()
            if not batch:
                break
            self.start(batch)
        self.metrics.waiting.set(len(self.waiting))
        self.metrics.waiting_tokens.set(self.tokens_waiting())

    def is_time(self) -> bool:
        """Whether a batch should begin: it is full, or somebody has waited long enough; else look again then."""
        oldest = min(job.arrived for job in self.waiting)
        rest = oldest + self.patience - time.monotonic()
        if rest <= 0 or self.tokens_waiting() >= self.budget:
            return True
        if self.timer is None or self.timer.cancelled():
            self.timer = asyncio.get_running_loop().call_later(rest, self.on_time)
        return False

    def on_time(self) -> None:
        """Patience is over."""
        self.timer = None
        self.pump()

    def take(self) -> list[QueuedSentence]:
        """The next batch: whoever is first, and what fits to it. Idle threads share what waits."""
        ready = self.in_order()
        if self.threads > 1 and self.slow_running >= self.threads - 1:
            ready = [job for job in ready if not self.is_slow(job)]
        if not ready:
            return []
        return self.taken(fitting(ready, self.budget, math.ceil(len(ready) / self.free), self.most_cells()))

    def is_slow(self, job: QueuedSentence) -> bool:
        """Whether a sentence that is no ordinary one takes longer by itself than a batch should."""
        return job.length > _ORDINARY and cells([job]) > self.most_cells()

    def most_cells(self) -> float:
        """How large a batch may be that holds nobody up: half as large while requests come beside others.

        Who comes next shall not find every thread at work on a long sentence, so those who came lately count as well.
        """
        is_shared = time.monotonic() - self.came_beside < _LATELY or len({job.request for job in self.waiting}) > 1
        return self.pace * self.batch_seconds / (2 if is_shared else 1)

    def in_order(self) -> list[QueuedSentence]:
        """All that wait, the first first."""
        return sorted(self.waiting, key=lambda job: (job.start, job.arrived))

    def taken(self, batch: list[QueuedSentence]) -> list[QueuedSentence]:
        """A batch, no longer in the queue and charged to its requests."""
        # The clock shows how much each of those that wait could have had by now.
        self.clock = max(self.clock, batch[0].start) + tokens(batch) / len({job.request for job in self.waiting})
        chosen = set(map(id, batch))
        self.waiting = [job for job in self.waiting if id(job) not in chosen]
        return batch

    def start(self, batch: list[QueuedSentence]) -> None:
        """Hand a batch to a thread."""
        now = time.monotonic()
        self.note(batch, now)
        is_slow = any(map(self.is_slow, batch))
        self.free -= 1
        self.running += batch
        self.slow_running += is_slow
        beside = self.free == 0
        running = asyncio.get_running_loop().run_in_executor(self.executor, self.run, batch)
        running.add_done_callback(lambda done: self.finish(batch, is_slow, beside, now, done))

    def note(self, batch: list[QueuedSentence], now: float) -> None:
        """Count sentences that have waited until now."""
        for job in batch:
            self.metrics.queue_seconds.observe(now - job.arrived)
        self.metrics.batch_sentences.observe(len(batch))
        self.metrics.batch_tokens.observe(tokens(batch))

    def run(self, batch: list[QueuedSentence]) -> list[Found | BaseException]:
        """In a thread: one call; if it fails, each sentence alone, so that one does not spoil the others."""
        began = time.perf_counter()
        numbers = [job.number for job in batch]
        try:
            found: list[Found | BaseException] = list(self.call([job.ids for job in batch], batch[0].options, numbers))
        except Exception as e:
            found = [e] if len(batch) == 1 else [self.run([job])[0] for job in batch]
        self.metrics.batch_seconds.observe(time.perf_counter() - began)
        return found

    def finish(
        self,
        batch: list[QueuedSentence],
        was_slow: bool,
        beside: bool,
        began: float,
        done: "asyncio.Future[list[Found | BaseException]]",
    ) -> None:
        """Give the answers out and go on. `beside`: whether every thread was busy when the batch began."""
        self.free += 1
        ended = set(map(id, batch))
        self.running = [job for job in self.running if id(job) not in ended]
        self.slow_running -= was_slow
        for job, found in zip(batch, done.result(), strict=True):
            self.give(job, found)
        seconds = time.monotonic() - began
        self.learn(tokens(batch) * self.threads, seconds)
        pace = cells(batch) / max(seconds, 1e-3)
        if beside or pace < self.pace:
            self.pace = 0.9 * self.pace + 0.1 * pace
        self.pump()

    def give(self, job: QueuedSentence, found: Found | BaseException) -> None:
        """Answer a sentence, if somebody still waits for it."""
        if job.answer.done():
            return
        if isinstance(found, BaseException):
            job.answer.set_exception(found)
        else:
            job.answer.set_result(found)
            self.metrics.tokens.labels("source").inc(job.length)
            self.metrics.tokens.labels("target").inc(len(found[0].tokens))

    def learn(self, done: int, seconds: float) -> None:
        """How fast it goes. A small batch is slow for each of its tokens, and says nothing where nobody waits."""
        speed = done / max(seconds, 1e-3)
        if self.waiting or speed > self.speed:
            self.speed = 0.9 * self.speed + 0.1 * speed

    def close(self) -> None:
        """End the threads when they are done; nobody comes in any more."""
        self.closed = True
        for job in self.waiting:
            job.answer.cancel()
        self.executor.shutdown(wait=False, cancel_futures=True)


def tokens(jobs: Sequence[QueuedSentence]) -> int:
    return sum(job.length for job in jobs)


def cells(jobs: Sequence[QueuedSentence]) -> float:
    """What a batch costs: for each token of its longest sentence a step, of fixed costs and one for each hypothesis."""
    longest = max(job.length for job in jobs)
    return longest * (_STEP_COST + sum(job.options.beam for job in jobs) / USUAL_BEAM)


def fitting(
    ready: Sequence[QueuedSentence], budget: int, most: int, most_cells: float = math.inf
) -> list[QueuedSentence]:
    """The first sentence and those after it that may be translated with it.

    What goes beyond `most_cells` is one sentence of each request: batches grow with the number of requests, and no
    large one makes them long.
    """
    first = ready[0]
    budget = min(budget, budget * USUAL_BEAM // first.options.beam)
    batch, shortest, longest, requests = [first], first.length, first.length, {first.request}
    for job in ready[1:]:
        low, high = min(shortest, job.length), max(longest, job.length)
        alike = max(high, _SHORT) <= 2 * max(low, _SHORT) and job.options == first.options
        fits = (len(batch) + 1) * high <= budget and len(batch) < most
        if alike and fits and (job.request not in requests or cells([*batch, job]) <= most_cells):
            batch.append(job)
            requests.add(job.request)
            shortest, longest = low, high
    return batch
