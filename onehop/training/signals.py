"""Ctrl-C and SIGTERM in a training: finish the step, save, exit."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Stop:
    """Why a training ends before its last step; None while it goes on."""

    reason: str | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    @property
    def by_signal(self) -> bool:
        """Whether a signal stopped it, so that the run is not finished."""
        return self.reason in ("SIGINT", "SIGTERM")


_received: int | None = None


def stopping_signal() -> int | None:
    """The signal that stopped the last training of this process, if one did."""
    return _received


@contextmanager
def stop_signals_to(handle: Callable[[int, FrameType | None], object]) -> Iterator[dict[int, Any]]:
    """Handle Ctrl-C and SIGTERM within the block, which gets the former handlers."""
    old: dict[int, Any] = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield old
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """The first signal sets `stop`. A second one has its usual effect if it comes more than a second later.

    Within a second it is the same signal, forwarded by a parent and sent to the whole process group.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    global _received
    _received = None
    times: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        global _received
        stop.reason = signal.Signals(number).name
        _received = number
        times.append(time.monotonic())
        if times[-1] - times[0] > 1.0:
            signal.signal(number, old[number])
            signal.raise_signal(number)

    with stop_signals_to(handle) as old:
        yield
