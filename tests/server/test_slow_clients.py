"""Clients that do not read their answers, with an event loop and a transport that record calls."""

import pytest

from onehop.server.slow_clients import TimeoutProtocol


class Timer:
    def __init__(self, seconds, work):
        self.seconds, self.work, self.cancelled = seconds, work, False

    def cancel(self):
        self.cancelled = True


class Loop:
    def __init__(self):
        self.timers = []

    def call_later(self, seconds, work, *args):
        self.timers.append(Timer(seconds, lambda: work(*args)))
        return self.timers[-1]


class Transport:
    aborted = False

    def abort(self):
        self.aborted = True


class Flow:
    paused = False

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False


@pytest.fixture
def protocol():
    """A connection in the middle of an answer."""
    made = TimeoutProtocol.__new__(TimeoutProtocol)
    made.loop, made.transport, made.flow = Loop(), Transport(), Flow()
    return made


def test_a_client_that_reads_nothing_is_disconnected(protocol):
    protocol.pause_writing()
    (timer,) = protocol.loop.timers
    assert timer.seconds == TimeoutProtocol.response_seconds
    assert protocol.flow.paused
    timer.work()
    assert protocol.transport.aborted


def test_a_client_that_catches_up_stays_connected(protocol):
    protocol.pause_writing()
    protocol.resume_writing()
    assert [timer.cancelled for timer in protocol.loop.timers] == [True]
    assert not protocol.flow.paused
    protocol.pause_writing()
    assert [timer.cancelled for timer in protocol.loop.timers] == [True, False]
