"""Parallel trainings, one process each: a model far smaller than the GPU leaves room for others.

Ctrl-C or SIGTERM is forwarded once to each of them, so that each saves a checkpoint and the same command resumes. If
the parent is killed, they stop in the same way.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from onehop.data.worker_pool import when_parent_ends
from onehop.errors import OnehopError, RunError
from onehop.training.signals import stop_signals_to

_POLL_SECONDS = 0.2  # between checks for a signal


@dataclass(frozen=True)
class ParallelTask:
    """A function of a module with its arguments, and its log file."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path


def run_parallel(
    tasks: Sequence[ParallelTask], at_once: int, ended: Callable[[ParallelTask], None] = lambda task: None
) -> bool:
    """Run all tasks, `at_once` at a time; returns whether none was stopped. Failures are raised at the end."""
    # Inherited by the processes; torch reads it on import, before a task's function is called.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, (os.cpu_count() or 1) // at_once)))
    context = multiprocessing.get_context("spawn")
    waiting, running = list(tasks), dict[int, tuple[SpawnProcess, ParallelTask]]()
    failures, signals = list[RunError](), list[int]()
    try:
        # An exception could interrupt the start of a process, and lose it.
        with stop_signals_to(lambda number, frame: signals.append(number)):
            while (waiting or running) and not signals:
                while waiting and len(running) < at_once and not signals:
                    task = waiting.pop(0)
                    process = context.Process(target=_run_with_log, args=(task,))
                    process.start()
                    running[process.sentinel] = process, task
                for sentinel in connection.wait(running, _POLL_SECONDS):
                    process, task = running.pop(sentinel)  # type: ignore[arg-type]
                    process.join()
                    if process.exitcode:
                        failures.append(task_error(process.exitcode, task.log))
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


def _run_with_log(task: ParallelTask) -> None:
    """Run a task in the new process: log to a file, ignore the terminal, and stop if the parent ends."""
    os.setpgid(0, 0)
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("a", encoding="utf-8", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            task.work(*task.arguments)
        except OnehopError as error:
            print(error, file=sys.stderr, flush=True)
            sys.exit(2)


def task_error(exitcode: int, log: Path) -> RunError:
    """The last line of its log, unless a signal killed it."""
    if exitcode == -signal.SIGKILL:
        return RunError("A training was killed.", f"If memory ran out, train fewer at once. Its log: {log}.")
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""  # missing if it failed before
    lines = text.strip().splitlines()
    return RunError(lines[-1] if lines else "A training ended without a message.", f"Its log: {log}.")
