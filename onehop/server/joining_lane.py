"""A lane with continuous batching: sentences join the search between two steps.

After each step, finished sentences are answered, cancelled ones leave, and waiting ones join.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from onehop.decoding.options import Hypothesis
from onehop.server.metrics import Metrics
from onehop.server.scheduler import USUAL_BEAM, Call, Lane, NBest, QueuedSentence, tokens
from onehop.server.settings import ServerSettings

if TYPE_CHECKING:  # it imports torch
    from onehop.decoding.continuous_batching import ContinuousBatch

# This many sentences may run together, however long the longest is.
LEAST_PLACES = 4

_Results = list[tuple[QueuedSentence, NBest | BaseException]]


class JoiningLane(Lane):
    """A lane of one thread whose engine is called for one step at a time.

    `begin` makes a search, in the thread, and `read` turns its results into translations. If a step fails, each of its
    sentences is translated alone, by `call`.
    """

    def __init__(
        self,
        call: Call,
        begin: "Callable[[], ContinuousBatch]",
        read: Callable[[list[Hypothesis]], NBest],
        settings: ServerSettings,
        metrics: Metrics,
    ) -> None:
        super().__init__(call, settings, metrics, threads=1)
        self.begin, self.read = begin, read
        self.search: ContinuousBatch | None = None
        # Used by the thread during a step, and by the event loop between steps.
        self.live: dict[int, QueuedSentence] = {}

    def pump(self) -> None:
        """Start a step, unless one is running or there is nothing to do."""
        self.drop_cancelled()
        if self.closed:
            for job in self.live.values():
                job.answer.cancel()
        elif self.free and (self.live or (self.waiting and self.is_time())):
            self.run_step()
        self.metrics.waiting.set(len(self.waiting))
        self.metrics.waiting_tokens.set(tokens(self.waiting))

    def run_step(self) -> None:
        """Choose the sentences that leave and join, and run the step in the thread."""
        now = time.monotonic()
        cancelled = [ticket for ticket, job in self.live.items() if job.answer.done()]
        self.metrics.dropped.inc(len(cancelled))
        for ticket in cancelled:
            del self.live[ticket]
        if new := self.take():
            self.record(new, now)
        self.free -= 1
        running = asyncio.get_running_loop().run_in_executor(self.executor, self.step, cancelled, new)
        running.add_done_callback(partial(self.finish_step, now))

    def take(self) -> list[QueuedSentence]:
        """The sentences that join: the first in the queue, as far as there is room.

        A sentence without room blocks those behind it, or it might wait forever. A long sentence that waits for other
        long ones does not block short ones, since it may wait for a long time.
        """
        new: list[QueuedSentence] = []
        beside = list(self.live.values())
        long_ones_wait = False
        for job in self.in_order():
            if job.is_long and long_ones_wait:
                continue
            if has_room(job, beside, self.settings.batch_tokens):
                new.append(job)
                beside.append(job)
            elif job.is_long and any(other.is_long for other in beside):
                long_ones_wait = True
            else:
                break
        return self.remove(new) if new else []

    def step(self, cancelled: list[int], new: list[QueuedSentence]) -> _Results:
        """Run a step and return the finished sentences with their results. Called in the thread."""
        done: _Results = []
        jobs = [*self.live.values(), *new]
        try:
            self.search = self.search or self.begin()
            self.search.leave(cancelled)
            done += self.join(self.search, new)
            self.metrics.step_sentences.observe(len(self.live))
            finished = self.search.step()
            done += [(self.live.pop(ticket), self.read(hypotheses)) for ticket, hypotheses in finished.items()]
        except Exception:
            self.search, self.live = None, {}
            answered = {id(job) for job, _ in done}
            done += self.run_alone([job for job in jobs if id(job) not in answered])
        return done

    def run_alone(self, jobs: Sequence[QueuedSentence]) -> _Results:
        """Translate sentences one by one, except cancelled ones."""
        return [(job, self.run([job])[0]) for job in jobs if not job.answer.done()]

    def join(self, search: "ContinuousBatch", new: list[QueuedSentence]) -> _Results:
        """Add sentences to the search, grouped by options; refused ones are translated alone."""
        done: _Results = []
        for options in dict.fromkeys(job.options for job in new):
            group = [job for job in new if job.options == options]
            try:
                tickets = search.join([job.ids for job in group], options)
                self.live.update(zip(tickets, group, strict=True))
            except Exception:
                done += self.run_alone(group)
        return done

    def finish_step(self, began: float, done: "asyncio.Future[_Results]") -> None:
        """Answer the finished sentences and start the next step."""
        self.free += 1
        answers = done.result()
        for job, result in answers:
            self.resolve(job, result)
        # Every sentence is one token further, and its translation is about as long as its source.
        self.update_speed(len(self.live) + len(answers), time.monotonic() - began)
        self.pump()


def has_room(job: QueuedSentence, beside: Sequence[QueuedSentence], budget: int) -> bool:
    """Whether a sentence may join the running ones, all padded to the longest. A long one leaves one place free."""
    spare = int(job.is_long)
    if len(beside) + spare < LEAST_PLACES:
        return True
    longest = max(other.length for other in (job, *beside))
    places = sum(max(1, other.options.beam / USUAL_BEAM) for other in (job, *beside))
    return (places + spare) * longest <= budget
