"""Windows of lines through several processes that share a device, each with models of its own, in order.

The parent reads, deals out windows and hands out results. A worker tokenizes, searches and detokenizes.
"""

import multiprocessing
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait

from onehop.data.worker_pool import exit_with_parent
from onehop.errors import OnehopError
from onehop.pipelines.bulk import BulkJob, Pipeline, TranslatedWindow, Window

_TRIES = 2  # a window in which a worker has died so often ends the job
AHEAD = 5  # windows a worker that may be read before the first of them is done
_END_SECONDS = 5.0  # a worker that was told to end is killed after this time

_Answer = TranslatedWindow | OnehopError


def translated_by_workers(
    job: BulkJob,
    windows: Iterable[Window],
    workers: int,
    start: "Callable[[BulkJob, Connection], None] | None" = None,
) -> Generator[TranslatedWindow, None, None]:
    """The windows in their order, translated by so many processes, which run `start`; `close` ends those.

    A window whose worker dies is given to another. An error, of reading or in a worker, is raised when everything
    before it was handed out.
    """
    coming, done, taken, following = _Windows(windows), dict[int, _Answer](), 0, 0
    with closing(_Pool(job, start or work)) as pool:
        while True:
            while len(pool.busy) < workers and taken - following < workers * AHEAD and (window := coming.take()):
                pool.give(taken, window)
                taken += 1
            if taken == following:
                break
            done.update(pool.answers())
            while following in done:
                answer = done.pop(following)
                if isinstance(answer, OnehopError):
                    raise answer
                yield answer
                following += 1
    if coming.error is not None:
        raise coming.error


class _Windows:
    """Windows that are taken one by one; an error of reading them is kept for later."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self.windows = iter(windows)
        self.error: OnehopError | None = None

    def take(self) -> Window | None:
        """The next one; None: there are no more."""
        try:
            return next(self.windows, None) if self.error is None else None
        except OnehopError as e:
            self.error = e
            return None


class _Worker:
    """A process, and the window that it works on."""

    def __init__(self, job: BulkJob, start: Callable[[BulkJob, Connection], None]) -> None:
        context = multiprocessing.get_context("spawn")  # the caller may hold threads or a GPU
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=start, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that its end is seen here

    def give(self, window: Window) -> None:
        """Let it work on a window."""
        with suppress(OSError):  # it has died, which is seen when its answer is waited for
            self.connection.send(window)

    def answer(self) -> _Answer | None:
        """What became of its window; None: the process has died."""
        try:
            found: _Answer = self.connection.recv()
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> None:
        """End the process, whatever it does."""
        self.connection.close()
        self.process.terminate()
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Pool:
    """Workers that are started as they are needed."""

    def __init__(self, job: BulkJob, start: Callable[[BulkJob, Connection], None]) -> None:
        self.job, self.start = job, start
        self.idle: list[_Worker] = []
        self.busy: dict[int, tuple[_Worker, Window]] = {}
        self.deaths: Counter[int] = Counter()

    def give(self, number: int, window: Window) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.job, self.start)
        self.busy[number] = worker, window
        worker.give(window)

    def answers(self) -> dict[int, _Answer]:
        """What has come, by the number of the window; it waits until a worker answers or dies."""
        ready = wait([worker.connection for worker, _ in self.busy.values()])
        found: dict[int, _Answer] = {}
        for number, (worker, window) in list(self.busy.items()):
            if worker.connection not in ready:
                continue
            answer = worker.answer()
            if answer is not None:
                self.idle.append(worker)
                found[number] = answer
                del self.busy[number]
                continue
            worker.end()
            del self.busy[number]
            self.deaths[number] += 1
            if self.deaths[number] < _TRIES:
                self.give(number, window)
            else:
                found[number] = _died(window, worker.process.exitcode)
        return found

    def close(self) -> None:
        for worker in (*self.idle, *(worker for worker, _ in self.busy.values())):
            worker.end()


def work(job: BulkJob, connection: Connection) -> None:
    """What a worker does: translate windows until there are no more. Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
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


def _died(window: Window, code: int | None) -> OnehopError:
    last = window.first + len(window.lines) - 1
    why = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    return OnehopError(
        f"A worker process died {_TRIES} times at the lines {window.first} to {last} of {window.name} ({why}).",
        "If memory ran out, give fewer --workers or a smaller --batch-size.",
    )
