"""Batches across requests: who is decoded with whom, in which order, and what is dropped."""

import asyncio
import threading

import pytest

from onehop.options import SearchOptions
from onehop.server.batching import LONG, Job, Lane, fitting
from onehop.server.metrics import Metrics
from onehop.server.problems import Problem
from onehop.translator import Translation

LOOP = asyncio.new_event_loop()  # for jobs that are only looked at
PLAIN, WIDE = SearchOptions(), SearchOptions(beam=8)


def answer(ids):
    return [Translation(" ".join(map(str, ids)), ("t",), 0.0, 0.0, finished=True, looped=False)]


class Engine:
    """Answers with what it was asked, when it is allowed to; remembers the batches."""

    def __init__(self, held=False):
        self.batches, self.gate = [], threading.Event()
        self.began = threading.Semaphore(0)
        if not held:
            self.gate.set()

    def __call__(self, sources, options, numbers):
        self.batches.append([len(ids) for ids in sources])
        self.began.release()
        assert self.gate.wait(30)
        if any(ids == [666] for ids in sources):
            raise RuntimeError("poison")
        return [answer(ids) for ids in sources]

    async def has_begun(self):
        assert await asyncio.to_thread(self.began.acquire, timeout=30)


def lane(engine, threads=1, budget=64, patience=0.0, most_waiting=10_000, most_seconds=60.0):
    limits = {"most_waiting": most_waiting, "most_seconds": most_seconds}
    return Lane(engine, threads=threads, budget=budget, patience=patience, metrics=Metrics(), **limits)


def ids(length, mark=1):
    return [mark] * length


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def test_requests_that_wait_are_decoded_together_and_get_their_own_answers():
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


def test_patience_gathers_what_comes_at_about_the_same_time():
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
        at = lane(engine, budget=12, patience=600)
        await at.translate([ids(6), ids(6)], PLAIN)

    run(work())
    assert engine.batches == [[6, 6]]


def test_a_long_request_does_not_hold_up_a_short_one():
    engine = Engine(held=True)
    done = []

    async def work():
        at = lane(engine, budget=20)
        many = asyncio.create_task(at.translate([ids(10)] * 40, PLAIN))
        await engine.has_begun()
        few = asyncio.create_task(at.translate([ids(10)], PLAIN))
        few.add_done_callback(lambda _: done.append(len(engine.batches)))
        await asyncio.sleep(0)
        engine.gate.set()
        await asyncio.gather(many, few)

    run(work())
    assert len(engine.batches) >= 20
    assert done[0] <= 4  # of more than twenty batches it was in one of the next


def test_long_sentences_leave_a_thread_for_others():
    engine = Engine(held=True)

    async def work():
        at = lane(engine, threads=2, budget=LONG + 1)
        long = [asyncio.create_task(at.translate([ids(LONG + 1)], PLAIN)) for _ in range(3)]
        await engine.has_begun()
        await asyncio.sleep(0.05)
        assert engine.batches == [[LONG + 1]]
        short = asyncio.create_task(at.translate([ids(2)], PLAIN))
        await engine.has_begun()
        assert engine.batches == [[LONG + 1], [2]]
        engine.gate.set()
        await asyncio.gather(short, *long)

    run(work())


def jobs(*lengths, options=PLAIN, request=0):
    return [Job(ids(n), options, i, asyncio.Future(loop=LOOP), request) for i, n in enumerate(lengths)]


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
def test_a_batch_has_like_lengths_and_keeps_to_its_budget(lengths, budget, most, expected):
    assert [job.length for job in fitting(jobs(*lengths), budget, most)] == expected


def test_a_batch_has_one_kind_of_options_and_wide_beams_small_ones():
    mixed = [*jobs(10), *jobs(10, options=WIDE), *jobs(10)]
    assert len(fitting(mixed, 100, 99)) == 2
    assert len(fitting(jobs(10, 10, 10, options=WIDE), 40, 99)) == 2


def test_idle_threads_share_what_waits():
    engine = Engine()

    async def work():
        await lane(engine, threads=2, budget=1000).translate([ids(10)] * 8, PLAIN)

    run(work())
    assert sorted(map(len, engine.batches)) == [4, 4]


def test_what_nobody_waits_for_is_dropped():
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


def test_a_full_queue_turns_away_and_says_when_to_come_again():
    engine = Engine(held=True)

    async def work():
        at = lane(engine, most_waiting=10)
        running = asyncio.create_task(at.translate([ids(2)], PLAIN))
        await engine.has_begun()
        waiting = asyncio.create_task(at.translate([ids(50)], PLAIN))  # an empty queue takes any
        await asyncio.sleep(0)
        with pytest.raises(Problem) as turned_away:
            await at.translate([ids(1)], PLAIN)
        engine.gate.set()
        await asyncio.gather(running, waiting)
        return turned_away.value

    problem = run(work())
    assert (problem.status, problem.sentence) == (
        503,
        "The server has more to translate than it can hold: try again soon.",
    )
    assert int(problem.headers["Retry-After"]) >= 1


def test_a_request_that_would_wait_too_long_is_turned_away_at_once():
    engine = Engine(held=True)

    async def work():
        at = lane(engine, most_seconds=10)
        at.speed = 1.0
        running = asyncio.create_task(at.translate([ids(2)], PLAIN))
        await engine.has_begun()
        waiting = asyncio.create_task(at.translate([ids(11)], PLAIN))
        await asyncio.sleep(0)
        with pytest.raises(Problem) as turned_away:
            await at.translate([ids(1)], PLAIN)
        engine.gate.set()
        await asyncio.gather(running, waiting)
        assert at.speed > 1.0  # and what it does is measured
        return turned_away.value

    assert run(work()).headers == {"Retry-After": "11"}


def test_one_bad_sentence_does_not_spoil_the_others():
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
        at = lane(Engine(), budget=10)
        at.pump = lambda: None
        at.put(jobs(*[10] * 10))
        for request in range(1, 150):
            at.put(jobs(10, request=request))
            served.extend(job.request for job in at.take())

    run(work())
    large = [turn for turn, request in enumerate(served) if request == 0]
    assert len(large) == 10
    assert large[1] > 1  # but small ones come between
