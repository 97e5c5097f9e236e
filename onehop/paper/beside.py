"""Trainings side by side, a process each: a model far smaller than the GPU leaves room for others.

Ctrl-C or SIGTERM is passed on once to each of them, so that each saves and the same command goes on later.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any

from onehop.errors import OnehopError, RunError


@dataclass(frozen=True)
class Task:
    """A function of a module with its arguments, and the file that takes what it says."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path


def side_by_side(tasks: Sequence[Task], at_once: int) -> bool:
    """Run all, so many at a time; whether none was stopped. The first that fails stops the others."""
    context = multiprocessing.get_context("spawn")
    waiting, running = list(tasks), dict[int, tuple[SpawnProcess, Task]]()
    try:
        with interrupted_by_sigterm():
            while waiting or running:
                while waiting and len(running) < at_once:
                    task = waiting.pop(0)
                    process = context.Process(target=in_its_own_log, args=(task, at_once))
                    process.start()
                    running[process.sentinel] = process, task
                for ended in connection.wait(running):
                    process, task = running.pop(ended)  # type: ignore[arg-type]
                    process.join()
                    if process.exitcode:
                        raise RunError(last_line(task.log), f"All it said is in {task.log}.")
    except KeyboardInterrupt:
        return False
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join()
    return True


def in_its_own_log(task: Task, at_once: int) -> None:
    """In the new process: out of the terminal's reach, compiling with its share of the cores."""
    os.setpgid(0, 0)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, (os.cpu_count() or 1) // at_once)))
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("w", encoding="utf-8", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            task.work(*task.arguments)
        except OnehopError as error:
            print(error, file=sys.stderr, flush=True)
            sys.exit(2)


def last_line(log: Path) -> str:
    """The last thing that a training said: its error."""
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return said[-1] if said else "A training ended without a word."


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM counts as Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
