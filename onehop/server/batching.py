"""Sentences of many requests decoded together.

A lane is an engine, some threads that call it, and the sentences that wait for one. A batch is filled up to a budget of
tokens with sentences of like length and equal options. Which come first is decided by start-time fair queuing: each
request has its own clock, which advances with the tokens it has been given, so that a long request does not keep short
ones waiting. Everything but the engine's call happens on the event loop.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from onehop.options import SearchOptions
from onehop.server.metrics import Metrics
from onehop.server.problems import busy
from onehop.translator import Translation

# Lengths under this are alike, whatever they are.
SHORT = 16
# Sentences longer than this never take a lane's last free thread, where it has several.
LONG = 64
# The budget counts source tokens under this beam; wider ones get smaller batches.
USUAL_BEAM = 4

Found = list[Translation]
Call = Callable[[Sequence[list[int]], SearchOptions, Sequence[int]], list[Found]]


@dataclass
class Job:
    """One sentence that waits; `number` is its place in the request, `start` orders it among all that wait."""

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
        metrics: Metrics,
    ) -> None:
        self.call, self.threads, self.budget, self.patience = call, threads, budget, patience
        self.most_waiting, self.most_seconds, self.metrics = most_waiting, most_seconds, metrics
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="onehop")
        self.waiting: list[Job] = []
        self.free, self.long_running, self.clock = threads, 0, 0.0
        self.requests = count()
        self.speed = 1000.0  # tokens a second, as measured by and by
        self.timer: asyncio.TimerHandle | None = None

    # --- in ---------------------------------------------------------------------------------------------------

    async def translate(self, sources: Sequence[list[int]], options: SearchOptions) -> list[Found]:
        """What the engine finds for some sentences of one request. Cancelled, those that wait are dropped."""
        loop = asyncio.get_running_loop()
        request = next(self.requests)
        jobs = [Job(ids, options, number, loop.create_future(), request) for number, ids in enumerate(sources)]
        self.put(jobs)
        try:
            return list(await asyncio.gather(*(job.answer for job in jobs)))
        finally:
            for job in jobs:
                job.answer.cancel()

    def put(self, jobs: Sequence[Job]) -> None:
        """Queue the sentences of one request, or turn it away: before it waits in vain. An empty queue takes any."""
        self.drop_cancelled()
        waiting = self.tokens_waiting()
        seconds = waiting / self.speed
        if waiting and (waiting + tokens(jobs) > self.most_waiting or seconds > self.most_seconds):
            raise busy(seconds)
        start = self.clock
        for job in jobs:
            job.start = start
            start += job.length
        self.waiting += jobs
        self.pump()

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
        while self.free and self.waiting and self.is_time():
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

    def take(self) -> list[Job]:
        """The next batch: whoever is first, and what fits to it. Idle threads share what waits."""
        ready = sorted(self.waiting, key=lambda job: (job.start, job.arrived))
        if self.threads > 1 and self.long_running >= self.threads - 1:
            ready = [job for job in ready if job.length <= LONG]
        if not ready:
            return []
        batch = fitting(ready, self.budget, math.ceil(len(ready) / self.free))
        # The clock shows how much each of those that wait could have had by now.
        self.clock = max(self.clock, batch[0].start) + tokens(batch) / len({job.request for job in self.waiting})
        chosen = set(map(id, batch))
        self.waiting = [job for job in self.waiting if id(job) not in chosen]
        return batch

    def start(self, batch: list[Job]) -> None:
        """Hand a batch to a thread."""
        now = time.monotonic()
        for job in batch:
            self.metrics.queue_seconds.observe(now - job.arrived)
        self.metrics.batch_sentences.observe(len(batch))
        self.metrics.batch_tokens.observe(tokens(batch))
        is_long = max(job.length for job in batch) > LONG
        self.free -= 1
        self.long_running += is_long
        running = asyncio.get_running_loop().run_in_executor(self.executor, self.run, batch)
        running.add_done_callback(lambda done: self.finish(batch, is_long, now, done))

    def run(self, batch: list[Job]) -> list[Found | BaseException]:
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
        self, batch: list[Job], was_long: bool, began: float, done: "asyncio.Future[list[Found | BaseException]]"
    ) -> None:
        """Give the answers out and go on."""
        self.free += 1
        self.long_running -= was_long
        for job, found in zip(batch, done.result(), strict=True):
            if job.answer.done():
                continue
            if isinstance(found, BaseException):
                job.answer.set_exception(found)
            else:
                job.answer.set_result(found)
                self.metrics.tokens.labels("source").inc(job.length)
                self.metrics.tokens.labels("target").inc(len(found[0].tokens))
        speed = tokens(batch) * self.threads / max(time.monotonic() - began, 1e-3)
        self.speed = 0.9 * self.speed + 0.1 * speed
        self.pump()

    def close(self) -> None:
        """End the threads when they are done."""
        self.executor.shutdown(wait=False, cancel_futures=True)


def tokens(jobs: Sequence[Job]) -> int:
    """Of all sentences together."""
    return sum(job.length for job in jobs)


def fitting(ready: Sequence[Job], budget: int, most: int) -> list[Job]:
    """The first sentence and those after it that may be translated with it."""
    first = ready[0]
    budget = min(budget, budget * USUAL_BEAM // first.options.beam)
    batch, shortest, longest = [first], first.length, first.length
    for job in ready[1:]:
        low, high = min(shortest, job.length), max(longest, job.length)
        alike = max(high, SHORT) <= 2 * max(low, SHORT)
        if job.options == first.options and alike and (len(batch) + 1) * high <= budget and len(batch) < most:
            batch.append(job)
            shortest, longest = low, high
    return batch
