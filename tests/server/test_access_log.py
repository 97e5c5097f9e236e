"""The access log never delays a request, even if its reader is slow or gone."""

import os
import time

from prometheus_client import CollectorRegistry, Counter

from onehop.server.access_log import LogWriter


def counter():
    return Counter("dropped", "lines", registry=CollectorRegistry())


def count_of(dropped):
    return dropped._value.get()


def read_lines(descriptor):
    with open(descriptor, encoding="utf-8") as file:
        return file.read().splitlines()


def test_lines_come_whole_and_in_order():
    reading, writing = os.pipe()
    dropped = counter()
    log = LogWriter(dropped, writing)
    for i in range(100):
        log(f"line {i} ü \ud800")
    log.close()
    os.close(writing)
    assert read_lines(reading) == [f"line {i} ü \\ud800" for i in range(100)]
    assert count_of(dropped) == 0


def test_a_paused_reader_loses_lines_but_blocks_nothing():
    reading, writing = os.pipe()
    dropped = counter()
    log = LogWriter(dropped, writing, most_bytes=10_000)
    began = time.monotonic()
    for i in range(3000):
        log(f"{i:099d}")  # 300 kB, where the pipe holds 64
    log.close(0.1)
    assert time.monotonic() - began < 5
    lost = count_of(dropped)
    assert lost > 1000
    os.set_blocking(reading, False)
    seen = b""
    while len(seen) < 100 * (3000 - lost):  # the reader continues and gets every line that was kept
        seen += os.read(reading, 1 << 20)
        time.sleep(0.01)
    assert [int(line) for line in seen.split()] == sorted(int(line) for line in seen.split())
    log.thread.join(10)
    os.close(reading)
    os.close(writing)


def test_lines_lost_to_a_full_disk_or_closed_reader_are_counted():
    full = os.open("/dev/full", os.O_WRONLY)
    reading, gone = os.pipe()
    os.close(reading)
    for descriptor in (full, gone):
        dropped = counter()
        log = LogWriter(dropped, descriptor)
        for _ in range(3):
            log("a line")
        log.close()
        assert count_of(dropped) == 3
        os.close(descriptor)


def test_a_nonblocking_descriptor_is_waited_for():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    log = LogWriter(counter(), writing)
    for i in range(2000):
        log(f"{i:099d}")
    seen = b""
    while len(seen) < 200_000:
        seen += os.read(reading, 1 << 16)
    log.close()
    assert seen.split() == [b"%099d" % i for i in range(2000)]
    os.close(reading)
    os.close(writing)
