"""Trainings side by side, a process each: a model far smaller than the GPU leaves room for others.

Ctrl-C or SIGTERM is passed on once to each of them, so that each saves and the same command goes on later. Should their
parent be killed, they do the same by themselves.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from onehop.errors import OnehopError, RunError

_LOOK_UP = 0.2  # seconds after which a signal is heard, though no process has ended


@dataclass(frozen=True)
class ParallelTask:
    """A function of a module with its arguments, and the file that takes what it says."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path


def side_by_side(
    tasks: Sequence[ParallelTask], at_once: int, ended: Callable[[ParallelTask], None] = lambda task: None
) -> bool:
    """Run all, so many at a time; whether none was stopped. One that fails is told of when the others are done."""
    # They inherit it; torch reads it when it is imported, which is before a task's function is called.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, (os.cpu_count() or 1) // at_once)))
    context = multiprocessing.get_context("spawn")
    waiting, running, failures = list(tasks), dict[int, tuple[SpawnProcess, ParallelTask]](), list[RunError]()
    try:
        with _noting_signals() as told:
            while (waiting or running) and not told:
                while waiting and len(running) < at_once and not told:
                    task = waiting.pop(0)
                    process = context.Process(target=_in_its_own_log, args=(task,))
                    process.start()
                    running[process.sentinel] = process, task
                for sentinel in connection.wait(running, _LOOK_UP):
                    process, task = running.pop(sentinel)  # type: ignore[arg-type]
                    process.join()
                    if process.exitcode:
                        failures.append(failure(process.exitcode, task.log))
                    else:
                        ended(task)
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join()
    if waiting or running:
        return False
    if failures:
        raise failures[0]
    return True


def _in_its_own_log(task: ParallelTask) -> None:
    """In the new process: out of the terminal's reach, and not without a parent."""
    os.setpgid(0, 0)
    threading.Thread(target=_stop_without_parent, daemon=True).start()
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("a", encoding="utf-8", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            task.work(*task.arguments)
        except OnehopError as error:
            print(error, file=sys.stderr, flush=True)
            sys.exit(2)


def _stop_without_parent() -> None:
    """A parent that was killed, or whose terminal was closed, tells nobody to stop."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def failure(exitcode: int, log: Path) -> RunError:
    """Its own last words, unless a signal left it no time for any."""
    if exitcode == -signal.SIGKILL:
        return RunError("A training was killed.", f"If memory ran out, train fewer at once. Its log: {log}.")
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""  # none, if it never got so far
    said = text.strip().splitlines()
    return RunError(said[-1] if said else "A training ended without a word.", f"All it said is in {log}.")


@contextlib.contextmanager
def _noting_signals() -> Iterator[list[int]]:
    """The signals to stop that came meanwhile. An exception could come while a process is started, and lose it."""
    told: list[int] = []
    old = {number: signal.signal(number, lambda n, _: told.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
