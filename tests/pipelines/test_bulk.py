"""Windows of lines give the same output in one process and in several, even if a worker dies."""

import multiprocessing
import os
import signal
import time

import pytest

from onehop.decoding.options import SearchOptions
from onehop.errors import OnehopError, TextError
from onehop.pipelines import bulk_workers
from onehop.pipelines.bulk import BulkJob, TranslatedWindow, Window, moses_lines, threads_of
from onehop.pipelines.bulk_workers import translate_with_workers
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import Translation


def windows_of(*texts):
    offset = 0
    for text in texts:
        lines = text.split()
        yield Window("x", offset + 1, lines, offset)
        offset += len(lines)


# --- processes with a translator that writes capitals -----------------------------------------------------------


def upper(job: BulkJob, connection) -> None:
    """The words wrong, late, deadly and once are commands. The job's first path is a file that marks a first death."""
    died = job.route[0]
    while True:
        try:
            window = connection.recv()
        except EOFError:
            return
        if "wrong" in window.lines:
            connection.send(TextError("A line is wrong.", "Correct it."))
            continue
        if "late" in window.lines:
            time.sleep(1.0)
        if "deadly" in window.lines or ("once" in window.lines and not died.exists()):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        data = "".join(f"{line.upper()}\n" for line in window.lines).encode()
        connection.send(TranslatedWindow(window, data, []))


@pytest.fixture
def job(tmp_path):
    return BulkJob(route=(tmp_path / "died",))


def text_of(results):
    return b"".join(done.data for done in results).decode().split()


def children():
    return [process.pid for process in multiprocessing.active_children()]


def test_results_are_ordered_when_a_window_takes_longer(job):
    found = translate_with_workers(job, windows_of("a late", "b", "c", "d e", "f"), 2, upper)
    assert text_of(found) == ["A", "LATE", "B", "C", "D", "E", "F"]
    assert not children()


def test_a_window_is_retried_after_its_worker_died(job):
    assert text_of(translate_with_workers(job, windows_of("a", "b once", "c"), 2, upper)) == ["A", "B", "ONCE", "C"]
    assert job.route[0].exists()


def test_a_second_death_of_a_worker_raises_after_all_earlier_windows(job):
    found = translate_with_workers(job, windows_of("a", "b c", "deadly d", "e"), 2, upper)
    assert text_of([next(found), next(found)]) == ["A", "B", "C"]
    message = r"^A worker process died 2 times at the lines 4 to 5 of x \(signal 9\)\. If memory ran out, give fewer"
    with pytest.raises(OnehopError, match=message):
        next(found)
    assert not children()


def test_worker_and_read_errors_are_raised_in_order(job):
    found = translate_with_workers(job, windows_of("a", "wrong"), 1, upper)
    assert text_of([next(found)]) == ["A"]
    with pytest.raises(TextError, match=r"^A line is wrong\. Correct it\.$"):
        next(found)

    def broken():
        yield from windows_of("a", "b")
        raise TextError("It ends.", "Go on.")

    found, seen = translate_with_workers(job, broken(), 2, upper), []
    with pytest.raises(TextError, match=r"^It ends\. Go on\.$"):
        seen.extend(found)
    assert text_of(seen) == ["A", "B"]


def test_a_closed_job_leaves_no_process(job):
    found = translate_with_workers(job, windows_of("a", "b", "late"), 2, upper)
    next(found)
    assert children()
    found.close()
    assert not children()


def test_read_ahead_is_bounded(job):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield Window("x", taken, ["a"], taken - 1)

    found = translate_with_workers(job, endless(), 1, upper)
    for _ in range(3):
        next(found)
    assert taken <= 3 + bulk_workers.AHEAD
    found.close()


def test_workers_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert (threads_of(1, None), threads_of(5, None), threads_of(32, None), threads_of(5, 2)) == (None, 3, 1, 2)


# --- a model ----------------------------------------------------------------------------------------------------

TEXTS = ["the old house", "a new tree", "the bird", "a house", "the old old tree", "new bird"]


def output(job: BulkJob, size: int) -> bytes:
    cut = [TEXTS[i : i + size] for i in range(0, len(TEXTS), size)]
    windows = [Window("x", i * size + 1, lines, i * size) for i, lines in enumerate(cut)]
    pipeline = job.pipeline(job.translator())
    return b"".join(job.translate(pipeline, window).data for window in windows)


@pytest.mark.parametrize("name", ["text", "moses"])  # scores in --json depend on the batch in their last bits
def test_samples_depend_only_on_line_and_seed(model_file, name):
    def job(seed, batch_size=None):
        options = SearchOptions(sample=True, seed=seed, n_best=2)
        more = {"engine": "torch", "device": "cpu", "whole_lines": True}
        return BulkJob(route=(model_file,), options=options, output=name, batch_size=batch_size, **more)

    whole = output(job(1), 6)
    assert whole == output(job(1), 2) == output(job(1, batch_size=4), 6)
    assert whole != output(job(2), 6)


def test_two_processes_translate_like_one(model_file):
    job = BulkJob(route=(model_file,), engine="torch", device="cpu", compute="bfloat16", output="json")
    windows = [Window("x", 1, TEXTS[:4], 0), Window("x", 5, TEXTS[4:], 4)]
    pipeline = job.pipeline(job.translator())
    here = [job.translate(pipeline, window) for window in windows]
    assert list(translate_with_workers(job, windows, 2)) == here
    assert b'"compute": "bfloat16"' in here[0].data


def test_the_identity_of_a_job_contains_everything_a_translation_depends_on(model_file, tmp_path):
    job = BulkJob(route=(model_file,))
    changes = [
        {"options": SearchOptions(beam=2)},
        {"compute": "float32"},
        {"whole_lines": True},
        {"batch_size": 3},
        {"output": "json"},
        {"device": "cpu"},
    ]
    identities = [str(BulkJob(route=(model_file,), **change).identity()) for change in changes]
    assert len({str(job.identity()), *identities}) == len(changes) + 1
    assert BulkJob(route=(model_file,), threads=3).identity() == job.identity()


def test_moses_writes_one_line_per_translation():
    def translation(text, score):
        return Translation(text, ("t",), score, score, finished=True, looped=False)

    first = Sentence(source="a", text="A!", n_best=(translation("A", -1.0), translation("B", -2.0)))
    second = Sentence(source="b", text="C", n_best=(translation("C\nD", -0.5),))
    copied = Sentence(source="1", text="1")
    result = Result(source="a b 1", text="A! C 1", sentences=(first, second, copied))
    assert list(moses_lines(result, 7, 3)) == ["7 ||| A! C 1 ||| -1.5000", "7 ||| B C D 1 ||| -2.5000"]
    assert list(moses_lines(Result(source="", text="", sentences=()), 0, 3)) == ["0 |||  ||| 0.0000"]
    assert list(moses_lines(result, 7, 1)) == ["7 ||| A! C 1 ||| -1.5000"]
