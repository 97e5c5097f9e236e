"""Batches across requests: which sentences share a batch, in which order, and which are dropped."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

import pytest

from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.pipelines.sentence_translator import Translation
from onehop.server.joining_lane import LEAST_PLACES, JoiningLane, has_room
from onehop.server.metrics import Metrics
from onehop.server.problems import Problem
from onehop.server.scheduler import LONG, Lane, QueuedSentence, fitting
from onehop.server.settings import ServerSettings

LOOP = asyncio.new_event_loop()  # for jobs that never run
# Sources here repeat themselves, which would change the options of the loop detector.
PLAIN, WIDE = SearchOptions(loop_repeats=0), SearchOptions(beam=8, loop_repeats=0)


def answer(ids):
    return [Translation(" ".join(map(str, ids)), ("t",), 0.0, 0.0, finished=True, looped=False)]


class Engine:
    """Returns the sources while its gate is open, and records the batches."""

    def __init__(self, held=False):
        self.batches, self.gate = [], threading.Event()
        self.began = threading.Semaphore(0)
        if not held:
            self.gate.set()

    def __call__(self, sources, options, indices):
        self.batches.append([len(ids) for ids in sources])
        self.began.release()
        assert self.gate.wait(30)
        if any(ids == [666] for ids in sources):
            raise RuntimeError("poison")
        return [answer(ids) for ids in sources]

    async def has_begun(self):
        assert await asyncio.to_thread(self.began.acquire, timeout=30)


LIMITS = {"batch_tokens": 64, "patience": 0.0, "max_queue": 10_000, "answer_seconds": 60.0, "batch_seconds": 1e9}


def lane(engine, threads=1, **limits):
    return Lane(engine, ServerSettings(**{**LIMITS, **limits}), Metrics(), threads=threads)


def ids(length, mark=1):
    return [mark] * length


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def test_waiting_requests_share_a_batch_and_get_their_own_answers():
    engine = Engine(held=True)

    async def work():
        at = lane(engine)
        first = asyncio.create_task(at.translate([ids(3, 0)], PLAIN))
        await engine.has_begun()
        others = [asyncio.create_task(at.translate([ids(4, n), ids(5, n)], PLAIN)) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        engine.gate.set()
        return [[best[0].text for best in found] for found in await asyncio.gather(first, *others)]

    found = run(work())
    assert found[0] == ["0 0 0"]
    assert found[1:] == [[f"{n} {n} {n} {n}", f"{n} {n} {n} {n} {n}"] for n in (1, 2, 3)]
    assert [len(batch) for batch in engine.batches] == [1, 6]


def test_a_repetitive_source_may_have_a_repetitive_translation():
    submit = []

    def engine(sources, options, indices):
        submit.append((len(sources[0]), options.loop_repeats))
        return [answer(ids) for ids in sources]

    async def work():
        await lane(engine, patience=0.05).translate([ids(24), [1, 2, 3]], SearchOptions(loop_repeats=4))

    run(work())
    assert sorted(submit) == [(3, 4), (24, 48)]


def test_patience_collects_nearly_simultaneous_requests():
    engine = Engine()

    async def work():
        at = lane(engine, patience=0.2)

        async def later(delay):
            await asyncio.sleep(delay)
            return await at.translate([ids(3)], PLAIN)

        await asyncio.gather(*(later(delay) for delay in (0, 0.01, 0.02)))

    run(work())
    assert engine.batches == [[3, 3, 3]]


def test_a_full_batch_does_not_wait():
    engine = Engine()

    async def work():
        at = lane(engine, batch_tokens=12, patience=600)
        await at.translate([ids(6), ids(6)], PLAIN)

    run(work())
    assert engine.batches == [[6, 6]]


def test_a_long_request_does_not_hold_up_a_short_one():
    engine = Engine(held=True)
    done = []

    async def work():
        at = lane(engine, batch_tokens=20)
        many = asyncio.create_task(at.translate([ids(10)] * 40, PLAIN))
        await engine.has_begun()
        few = asyncio.create_task(at.translate([ids(10)], PLAIN))
        few.add_done_callback(lambda _: done.append(len(engine.batches)))
        await asyncio.sleep(0)
        engine.gate.set()
        await asyncio.gather(many, few)

    run(work())
    assert len(engine.batches) >= 20
    assert done[0] <= 4  # in one of the next of more than twenty batches


def test_long_sentences_leave_a_thread_free():
    """At 200 cells a second a sentence of 40 tokens takes 1.2 seconds. One of 20 never counts as long."""
    engine = Engine(held=True)

    async def work():
        at = lane(engine, threads=2, batch_tokens=42, batch_seconds=1.0)
        at.pace = 200.0
        long = [asyncio.create_task(at.translate([ids(40)], PLAIN)) for _ in range(3)]
        await engine.has_begun()
        await asyncio.sleep(0.05)
        assert engine.batches == [[40]]
        at.pace = 20.0  # a busy machine: even short sentences take long
        short = asyncio.create_task(at.translate([ids(20)], PLAIN))
        await engine.has_begun()
        assert engine.batches == [[40], [20]]
        engine.gate.set()
        await asyncio.gather(short, *long)

    run(work())


def test_a_batch_of_one_request_has_a_time_limit_halved_under_overlap():
    """Sentences of 10 tokens cost 10 × (5 + their number) cells: at 100 a second 15 take 2 seconds, and 5 take one."""

    async def work():
        at = lane(Engine(), batch_tokens=1000, batch_seconds=2.0)
        at.pump, at.pace = lambda: None, 100.0
        at.put(jobs(*[10] * 40))
        assert len(at.take()) == 15
        at.put(jobs(40, 40, request=1))  # of another length, so in another batch
        assert [job.request for job in at.take()] == [0] * 5
        assert [job.request for job in at.take()] == [1]  # two of them would take longer

    run(work())


def test_a_large_request_leaves_a_thread_free_while_others_arrive(monkeypatch):
    """At 400 cells a second a sentence of 40 tokens takes 0.6 s, between half the limit of a batch and the limit."""
    now = [1e9]
    monkeypatch.setattr("onehop.server.scheduler.time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=float))
    engine = Engine(held=True)

    async def work():
        at = lane(engine, threads=2, batch_tokens=42, batch_seconds=1.0)
        at.pace = 400.0
        giant = asyncio.create_task(at.translate([ids(40)] * 4, PLAIN))
        await engine.has_begun()
        await engine.has_begun()  # without other requests it has both threads
        short = asyncio.create_task(at.translate([ids(10)], PLAIN))
        await asyncio.sleep(0)
        assert at.is_slow(jobs(40)[0])
        at.waiting, gone = [job for job in at.waiting if job.length == 40], at.waiting
        at.free, at.slow_running = 1, 1  # as if one of them had ended
        assert at.take() == []  # the short sentence has been taken, but another one may come
        now[0] += 3  # no other one has come
        at.waiting = [job for job in gone if job.length == 40]
        assert [job.length for job in at.take()] == [40]
        giant.cancel()
        short.cancel()
        engine.gate.set()
        await asyncio.gather(giant, short, return_exceptions=True)

    run(work())


def test_batches_grow_with_the_number_of_requests():
    """Even if the engine seems slow. Otherwise many small requests would be translated one by one."""

    async def work():
        at = lane(Engine(), batch_tokens=1000, batch_seconds=1.0)
        at.pump, at.pace = lambda: None, 1.0
        for request in range(50):
            at.put(jobs(10, 10, request=request))
        return [job.request for job in at.take()]

    assert run(work()) == list(range(50))


def test_the_speed_is_estimated_from_batch_times(monkeypatch):
    now = [1e9]  # later than any sentence arrived, so that none waits for others
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr("onehop.server.scheduler.time", clock)

    def engine(sources, options, indices):
        now[0] += 0.5
        return [answer(ids) for ids in sources]

    async def work():
        at = lane(engine, batch_seconds=1.0)
        for _ in range(100):
            await at.translate([ids(10)], PLAIN)
        return at.pace

    assert run(work()) == pytest.approx(60 / 0.5, rel=0.01)


def test_batches_that_run_alone_do_not_change_the_speed_estimate(monkeypatch):
    """Otherwise a long sentence would seem quick, take the last thread and delay others twice as long."""
    now = [1e9]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr("onehop.server.scheduler.time", clock)
    quick = Engine(held=True)

    async def submit_together(at, number):
        """This many requests of 60 cells each are answered after 0.05 seconds: 1,200 cells a second for each."""
        quick.gate.clear()
        tasks = [asyncio.create_task(at.translate([ids(10, n)], PLAIN)) for n in range(number)]
        for _ in tasks:
            await quick.has_begun()
        now[0] += 0.05
        quick.gate.set()
        await asyncio.gather(*tasks)

    async def work():
        at = lane(quick, threads=2, batch_seconds=0.4)
        first = at.pace
        for _ in range(50):
            await submit_together(at, 1)
        assert at.pace == first
        assert at.is_slow(jobs(40)[0])  # 240 cells at 500 a second
        for _ in range(50):
            await submit_together(at, 2)
        assert at.pace == pytest.approx(1200, rel=0.01)
        now[0] += 10  # requests no longer overlap
        assert not at.is_slow(jobs(40)[0])
        # A slower batch lowers the estimate even if it runs alone.
        quick.gate.clear()
        one = asyncio.create_task(at.translate([ids(10)], PLAIN))
        await quick.has_begun()
        now[0] += 10
        quick.gate.set()
        await one
        assert at.pace < 1100

    run(work())


def jobs(*lengths, options=PLAIN, request=0):
    return [QueuedSentence(ids(n), options, i, asyncio.Future(loop=LOOP), request) for i, n in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "budget", "most", "expected"),
    [
        ((10, 10, 10), 100, 99, [10, 10, 10]),
        ((10, 10, 10), 20, 99, [10, 10]),
        ((10, 10, 10), 100, 2, [10, 10]),
        ((3, 16, 30), 1000, 99, [3, 16, 30]),
        ((3, 16, 33), 1000, 99, [3, 16]),
        ((40, 19, 20, 80), 1000, 99, [40, 20]),
        ((40, 80, 20), 1000, 99, [40, 80]),
        ((500,), 10, 99, [500]),
    ],
)
def test_a_batch_has_similar_lengths_and_keeps_its_budget(lengths, budget, most, expected):
    assert [job.length for job in fitting(jobs(*lengths), budget, most)] == expected


def test_a_batch_has_equal_options_and_wide_beams_make_small_batches():
    mixed = [*jobs(10), *jobs(10, options=WIDE), *jobs(10)]
    assert len(fitting(mixed, 100, 99)) == 2
    assert len(fitting(jobs(10, 10, 10, options=WIDE), 40, 99)) == 2


def test_idle_threads_share_waiting_sentences():
    engine = Engine()

    async def work():
        await lane(engine, threads=2, batch_tokens=1000).translate([ids(10)] * 8, PLAIN)

    run(work())
    assert sorted(map(len, engine.batches)) == [4, 4]


def test_sentences_of_disconnected_clients_are_dropped():
    engine = Engine(held=True)

    async def work():
        at = lane(engine)
        first = asyncio.create_task(at.translate([ids(1)], PLAIN))
        await engine.has_begun()
        gone, stays = (asyncio.create_task(at.translate([ids(n)], PLAIN)) for n in (7, 8))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        engine.gate.set()
        await asyncio.gather(first, stays)
        return at.metrics.registry.get_sample_value("onehop_dropped_sentences_total")

    assert run(work()) == 1
    assert engine.batches == [[1], [8]]


@contextlib.asynccontextmanager
async def busy_with(*requests, speed=1000.0, **limits):
    """A lane whose engine is held while these requests wait, each with sentences of 10 tokens."""
    engine = Engine(held=True)
    at = lane(engine, **limits)
    at.speed = speed
    running = [asyncio.create_task(at.translate([ids(1)], PLAIN))]
    await engine.has_begun()
    for sentences in requests:
        running.append(asyncio.create_task(at.translate([ids(10)] * sentences, PLAIN)))
        await asyncio.sleep(0)
    try:
        yield at
    finally:
        engine.gate.set()
        await asyncio.gather(*running)


async def refusal(at, *lengths):
    with pytest.raises(Problem) as turned_away:
        await at.translate([ids(n) for n in lengths], PLAIN)
    return turned_away.value


def test_a_full_queue_refuses_with_retry_after():
    async def work():
        async with busy_with(*[1] * 100, max_queue=1000) as at:
            return await refusal(at, 1)

    problem = run(work())
    assert (problem.status, problem.sentence) == (
        503,
        "The queue of the server is full: try again soon.",
    )
    assert int(problem.headers["Retry-After"]) >= 1


def test_a_request_that_would_wait_too_long_is_refused_at_once():
    async def work():
        async with busy_with(4, speed=5.0, answer_seconds=10) as at:
            problem = await refusal(at, 10, 10, 10)
        assert at.speed > 5.0  # the speed is measured
        return problem

    problem = run(work())
    assert (problem.status, problem.headers) == (503, {"Retry-After": "8"})


def test_an_oversized_request_is_refused_with_the_number_of_parts():
    async def work():
        async with busy_with(max_queue=100) as at:
            problems = [await refusal(at, 50, 1)]
        async with busy_with(speed=2.0, answer_seconds=10) as at:
            return [*problems, await refusal(at, 21)]

    for_the_queue, in_time = run(work())
    assert (for_the_queue.status, in_time.status) == (413, 413)
    assert str(for_the_queue) == "The request has 51 tokens; the maximum is 25: send it in 3 parts."
    assert str(in_time) == "The request has 21 tokens; the maximum is 20: send it in 2 parts."


def test_large_waiting_requests_do_not_block_small_ones():
    """Two requests of 250 tokens take 50 seconds. A small one passes them and takes two."""

    async def work():
        async with busy_with(25, speed=10.0, answer_seconds=30, max_queue=1000) as at:
            assert (await refusal(at, *[10] * 25)).status == 503  # it would be done in 50 seconds
            at.put(jobs(10))
        async with busy_with(25, 25, max_queue=1000) as at:
            assert (await refusal(at, 11)).status == 503  # requests that are not small share half of the queue
            at.put(jobs(10))

    run(work())


def test_one_bad_sentence_does_not_affect_the_others():
    engine = Engine()

    async def work():
        at = lane(engine, patience=0.1)
        return await asyncio.gather(
            at.translate([ids(2)], PLAIN),
            at.translate([[666]], PLAIN),
            at.translate([ids(3)], PLAIN),
            return_exceptions=True,
        )

    good, bad, also_good = run(work())
    assert (good[0][0].text, also_good[0][0].text) == ("1 1", "1 1 1")
    assert str(bad) == "poison"


def test_a_large_request_gets_its_share_of_an_endless_stream_of_small_ones():
    served = []

    async def work():
        at = lane(Engine(), batch_tokens=10)
        at.pump = lambda: None
        at.put(jobs(*[10] * 10))
        for request in range(1, 150):
            at.put(jobs(10, request=request))
            served.extend(job.request for job in at.take())

    run(work())
    large = [turn for turn, request in enumerate(served) if request == 0]
    assert len(large) == 10
    assert large[1] > 1  # with small requests in between


# --- continuous batching --------------------------------------------------------------------------------------


class StepwiseSearch:
    """A search in which a sentence takes as many steps as it has tokens. Each step waits until it is allowed."""

    def __init__(self, fails_at=None):
        self.live, self.log, self.fails_at = {}, [], fails_at
        self.allowance, self.began = threading.Semaphore(0), threading.Semaphore(0)
        self.tickets = 0

    def join(self, sources, options):
        if [666] in sources:
            raise RuntimeError("poison")
        new = list(range(self.tickets, self.tickets + len(sources)))
        self.tickets += len(sources)
        self.live.update(zip(new, [[ids, len(ids)] for ids in sources], strict=True))
        return new

    def leave(self, tickets):
        for ticket in tickets:
            del self.live[ticket]

    def step(self):
        self.log.append(sorted(len(ids) for ids, _ in self.live.values()))
        self.began.release()
        assert self.allowance.acquire(timeout=30)
        if len(self.log) == self.fails_at:
            raise RuntimeError("a step failed")
        for sentence in self.live.values():
            sentence[1] -= 1
        done = {ticket: ids for ticket, (ids, rest) in self.live.items() if rest == 0}
        self.leave(done)
        return {ticket: [Hypothesis(tuple(ids), 0.0, 0.0, finished=True)] for ticket, ids in done.items()}

    async def allow(self, steps):
        """Allow these steps, and wait until the next has begun."""
        for _ in range(steps):
            self.allowance.release()
            assert await asyncio.to_thread(self.began.acquire, timeout=30)

    async def has_begun(self):
        assert await asyncio.to_thread(self.began.acquire, timeout=30)


def joining_lane(search, engine=None, **limits):
    def read(found):
        return answer(found[0].ids)

    settings = ServerSettings(**{**LIMITS, **limits})
    return JoiningLane(engine or Engine(), lambda: search, read, settings, Metrics())


def submit(lane, length, mark=1, options=PLAIN):
    return asyncio.create_task(lane.translate([ids(length, mark)], options))


def text(task):
    return task.result()[0][0].text


def test_a_short_sentence_joins_a_running_search_and_is_answered_first():
    search = StepwiseSearch()

    async def work():
        at = joining_lane(search)
        long = submit(at, 20)
        await search.has_begun()
        await search.allow(5)
        short = submit(at, 2, mark=7)
        await asyncio.sleep(0)
        await search.allow(4)
        assert short.done()
        assert not long.done()
        assert text(short) == "7 7"
        for _ in range(30):
            search.allowance.release()
        await long
        return at

    at = run(work())
    assert search.log == [[20]] * 6 + [[2, 20]] * 2 + [[20]] * 12
    assert at.metrics.registry.get_sample_value("onehop_step_sentences_sum") == 22
    assert at.metrics.registry.get_sample_value("onehop_batch_sentences_sum") == 2


def test_a_disconnected_request_leaves_at_the_next_step():
    search = StepwiseSearch()

    async def work():
        at = joining_lane(search, patience=0.05)
        gone, stays = submit(at, 9), submit(at, 5)
        await search.has_begun()
        gone.cancel()
        await asyncio.sleep(0)
        for _ in range(30):
            search.allowance.release()
        await stays
        return at.metrics.registry.get_sample_value("onehop_dropped_sentences_total")

    assert run(work()) == 1
    assert search.log[0] == [5, 9]
    assert search.log[1:] == [[5]] * 4


def test_a_sentence_that_fails_to_join_does_not_affect_the_others():
    search = StepwiseSearch()

    async def work():
        at = joining_lane(search)
        first = submit(at, 6)
        await search.has_begun()
        bad, good = asyncio.create_task(at.translate([[666]], WIDE)), submit(at, 2)
        for _ in range(30):
            search.allowance.release()
        return await asyncio.gather(first, bad, good, return_exceptions=True)

    first, bad, good = run(work())
    assert (first[0][0].text, good[0][0].text, str(bad)) == ("1 1 1 1 1 1", "1 1", "poison")


def test_after_a_failed_step_sentences_are_translated_separately():
    spoilt, fresh, engine = StepwiseSearch(fails_at=2), StepwiseSearch(), Engine()
    searches = iter([spoilt, fresh])

    async def work():
        at = joining_lane(None, engine, patience=0.05)
        at.begin = lambda: next(searches)
        for search in (spoilt, fresh):
            for _ in range(30):
                search.allowance.release()
        both = await asyncio.gather(submit(at, 5), submit(at, 4, mark=3))
        later = await at.translate([ids(3, 8)], PLAIN)
        return [found[0][0].text for found in (*both, later)]

    assert run(work()) == ["1 1 1 1 1", "3 3 3 3", "8 8 8"]
    assert sorted(engine.batches) == [[4], [5]]
    assert fresh.log == [[3]] * 3


def test_after_a_failed_step_disconnected_requests_are_skipped():
    search, engine = StepwiseSearch(fails_at=1), Engine()

    async def work():
        at = joining_lane(search, engine, patience=0.05)
        gone, stays = submit(at, 5), submit(at, 4)
        await search.has_begun()
        gone.cancel()
        await asyncio.sleep(0)  # let the task be cancelled
        search.allowance.release()
        return (await stays)[0][0].text

    assert run(work()) == "1 1 1 1"
    assert engine.batches == [[4]]


@pytest.mark.parametrize("joins", [True, False])
def test_a_closed_scheduler_drops_waiting_requests(joins):
    search, engine = StepwiseSearch(), Engine(held=True)

    async def work():
        at = joining_lane(search) if joins else lane(engine)
        live = submit(at, 5)
        await (search if joins else engine).has_begun()
        waiting = submit(at, 500)
        await asyncio.sleep(0)
        at.close()
        search.allowance.release()
        engine.gate.set()
        return await asyncio.gather(live, waiting, return_exceptions=True)

    found, left = run(work())
    assert isinstance(left, asyncio.CancelledError)
    assert isinstance(found, asyncio.CancelledError) if joins else found[0][0].text == "1 1 1 1 1"


def test_requests_with_different_options_run_together():
    search = StepwiseSearch()

    async def work():
        at = joining_lane(search, patience=0.05)
        tasks = submit(at, 3), submit(at, 3, options=WIDE)
        for _ in range(30):
            search.allowance.release()
        await asyncio.gather(*tasks)

    run(work())
    assert search.log == [[3, 3]] * 3


def test_live_sentences_keep_the_budget_and_long_ones_leave_a_slot():
    short, long = jobs(10)[0], jobs(LONG + 1)[0]
    assert has_room(short, [short] * 9, budget=100)
    assert not has_room(short, [short] * 10, budget=100)
    assert not has_room(jobs(10, options=WIDE)[0], [short] * 9, budget=100)
    assert has_room(long, [], budget=1)
    assert has_room(long, [long] * (LEAST_PLACES - 2), budget=1)
    assert not has_room(long, [long] * (LEAST_PLACES - 1), budget=1)
    assert has_room(short, [long] * (LEAST_PLACES - 1), budget=1)
    assert not has_room(short, [long] * LEAST_PLACES, budget=1)


def test_short_sentences_pass_long_ones_without_starving_them():
    async def work():
        at = joining_lane(StepwiseSearch(), batch_tokens=1)
        at.pump = lambda: None
        at.put([*jobs(*[LONG + 1] * 5), *jobs(2, request=1)])
        assert [job.length for job in at.take()] == [LONG + 1] * (LEAST_PLACES - 1) + [2]
        # A long sentence that is first in the queue holds back the others until it has room.
        crowd = joining_lane(StepwiseSearch(), batch_tokens=100)
        crowd.pump = lambda: None
        crowd.live = dict(enumerate(jobs(*[5] * 20)))
        crowd.put([*jobs(LONG + 1), *jobs(2, request=1)])
        crowd.waiting[0].start = -1.0
        assert crowd.take() == []
        crowd.live = dict(enumerate(jobs(5, 5)))
        assert [job.length for job in crowd.take()] == [LONG + 1, 2]

    run(work())


def test_small_batches_without_waiting_requests_do_not_lower_the_speed_estimate():
    async def work():
        at = lane(Engine())
        at.update_speed(1, 1.0)
        assert at.speed == 1000.0
        at.waiting = jobs(1)
        at.update_speed(1, 1.0)
        assert at.speed < 1000.0
        at.waiting = []
        at.update_speed(10_000, 1.0)
        assert at.speed > 1000.0

    run(work())
