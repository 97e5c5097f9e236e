"""Map a function over spawned processes, in order and with bounded memory."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from onehop.errors import OnehopError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

AHEAD = 4


def in_order(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    processes: int,
    setup: Callable[..., None] | None = None,
    setup_args: tuple[Any, ...] = (),
) -> Generator[_Result, None, None]:
    """The results of `work` for each item, in order, whatever the number of processes. Closing the iterator stops them.

    `setup(*setup_args)` runs once in each process before its first item. With one process nothing is spawned. Items are
    drawn only as fast as the processes need them, so memory stays bounded.
    """
    if processes <= 1:
        if setup is not None:
            setup(*setup_args)
        yield from map(work, items)
        return
    pool = spawned_pool(processes, setup, setup_args)
    try:
        yield from _drain(pool, work, items, processes * AHEAD)
    except BrokenProcessPool:
        # Spawned workers import the caller's script, and would run everything outside of that condition.
        remedy = 'Call it under `if __name__ == "__main__":` in a script. If memory ran out, use fewer processes.'
        raise OnehopError("A worker process ended unexpectedly.", remedy) from None
    finally:
        pool.shutdown(cancel_futures=True)


def spawned_pool(processes: int, setup: Callable[..., None] | None, setup_args: tuple[Any, ...]) -> ProcessPoolExecutor:
    """A pool of spawned processes. Forking would copy the caller's threads, GPU context and memory."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, context, _end_with_parent, (setup, setup_args))


def _drain(
    pool: ProcessPoolExecutor, work: Callable[[_Item], _Result], items: Iterable[_Item], in_flight: int
) -> Iterator[_Result]:
    """Submit items and yield results, with at most `in_flight` of them pending."""
    pending: deque[Future[_Result]] = deque()
    for item in items:
        pending.append(pool.submit(work, item))
        if len(pending) >= in_flight:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _end_with_parent(setup: Callable[..., None] | None, setup_args: tuple[Any, ...]) -> None:
    """Set up a worker so that it ends with its parent and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker has the parent's handler
    when_parent_ends()
    if setup is not None:
        setup(*setup_args)


def when_parent_ends(act: Callable[[], object] = lambda: os._exit(1)) -> None:
    """Act, by default exit at once, when the parent process has ended. A killed parent sends no signal."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            act()

    threading.Thread(target=watch, name="onehop-parent", daemon=True).start()
