"""Translates windows of lines in several processes that share a device, and yields the results in order.

The parent reads windows and yields results. Each worker has its own models, and tokenizes, searches and detokenizes.
"""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait

from onehop.data.worker_pool import when_parent_ends
from onehop.errors import OnehopError
from onehop.pipelines.bulk import BulkJob, Pipeline, TranslatedWindow, Window

_MAX_TRIES = 2  # workers that may die over one window before the job fails
AHEAD = 5  # windows per worker that are read before the first of them is done
_STOP_SECONDS = 5.0  # a worker that does not stop within this time is killed

_Answer = TranslatedWindow | OnehopError
_WorkerMain = Callable[[BulkJob, Connection], None]


def translate_with_workers(
    job: BulkJob, windows: Iterable[Window], workers: int, worker_main: _WorkerMain | None = None
) -> Generator[TranslatedWindow, None, None]:
    """The translated windows in order. Closing the generator stops the worker processes, which run `worker_main`.

    The window of a worker that dies is given to another worker. An error, of reading or in a worker, is raised after
    everything before it was yielded.
    """
    error: OnehopError | None = None

    def read() -> Iterator[Window]:
        nonlocal error
        try:
            yield from windows
        except OnehopError as e:
            error = e

    reader, done, taken, following = read(), dict[int, _Answer](), 0, 0
    with closing(_Pool(job, worker_main or work)) as pool:
        while True:
            while len(pool.busy) < workers and taken - following < workers * AHEAD and (window := next(reader, None)):
                pool.submit(taken, window)
                taken += 1
            if taken == following:
                break
            done.update(pool.wait())
            while following in done:
                answer = done.pop(following)
                if isinstance(answer, OnehopError):
                    raise answer
                yield answer
                following += 1
    if error is not None:
        raise error


class _Worker:
    def __init__(self, job: BulkJob, main: _WorkerMain) -> None:
        context = multiprocessing.get_context("spawn")  # the caller may have threads or a GPU context
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=main, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()  # otherwise the death of the process would not close the connection

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join(_STOP_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Pool:
    """Workers, each started when it is first needed."""

    def __init__(self, job: BulkJob, main: _WorkerMain) -> None:
        self.job, self.main = job, main
        self.idle: list[_Worker] = []
        self.busy: dict[int, tuple[_Worker, Window]] = {}
        self.deaths: Counter[int] = Counter()

    def submit(self, number: int, window: Window) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.job, self.main)
        self.busy[number] = worker, window
        with suppress(OSError):  # it has died, which `wait` notices
            worker.connection.send(window)

    def wait(self) -> dict[int, _Answer]:
        """The answers by the number of the window, as soon as a worker answers or dies."""
        ready = wait([worker.connection for worker, _ in self.busy.values()])
        answers: dict[int, _Answer] = {}
        for number, (worker, window) in list(self.busy.items()):
            if worker.connection not in ready:
                continue
            answer: _Answer | None = None
            with suppress(EOFError, OSError):  # the process has died
                answer = worker.connection.recv()
            del self.busy[number]
            if answer is not None:
                self.idle.append(worker)
                answers[number] = answer
                continue
            worker.stop()
            self.deaths[number] += 1
            if self.deaths[number] < _MAX_TRIES:
                self.submit(number, window)
            else:
                answers[number] = _death_error(window, worker.process.exitcode)
        return answers

    def close(self) -> None:
        for worker in (*self.idle, *(worker for worker, _ in self.busy.values())):
            worker.stop()


def work(job: BulkJob, connection: Connection) -> None:
    """The main function of a worker: translate windows until there are no more. Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    when_parent_ends()
    pipeline: Pipeline | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            window = connection.recv()
            answer: _Answer
            try:
                pipeline = pipeline or job.pipeline(job.translator())
                answer = job.translate(pipeline, window)
            except OnehopError as e:
                answer = e
            connection.send(answer)


def _death_error(window: Window, code: int | None) -> OnehopError:
    last = window.first + len(window.lines) - 1
    why = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    return OnehopError(
        f"A worker process died {_MAX_TRIES} times at the lines {window.first} to {last} of {window.name} ({why}).",
        "If memory ran out, give fewer --workers or a smaller --batch-size.",
    )
