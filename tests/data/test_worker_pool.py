"""Work spread over processes, with results in order."""

import os
import signal
import subprocess
import sys
import time

import pytest

from onehop.data.worker_pool import AHEAD, in_order
from onehop.errors import OnehopError

_offset = 0


def set_offset(offset: int) -> None:
    global _offset
    _offset = offset


def shifted(i: int) -> int:
    time.sleep(0.02 if i % 3 == 0 else 0)
    return i + _offset


def die(i: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return i


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order_after_setup(processes):
    assert list(in_order(shifted, range(20), processes, set_offset, (100,))) == list(range(100, 120))


@pytest.mark.parametrize("processes", [1, 2])
def test_items_are_read_only_a_little_ahead(processes):
    drawn = 0

    def items():
        nonlocal drawn
        for i in range(1000):
            drawn += 1
            yield i

    results = in_order(shifted, items(), processes, set_offset, (0,))
    assert next(results) == 0
    assert drawn <= processes * AHEAD
    results.close()


def test_a_killed_worker_is_an_error():
    with pytest.raises(OnehopError, match=r"A worker process ended unexpectedly\. .* If memory ran out, use fewer"):
        list(in_order(die, range(4), 2, set_offset, (0,)))


def test_a_script_without_a_main_guard_is_a_clear_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from onehop.data.worker_pool import in_order\nprint(list(in_order(abs, range(4), 2, print)))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'Call it under `if __name__ == "__main__":` in a script.' in done.stderr


ORPHANS = """
import os, sys, time
from onehop.data.worker_pool import in_order
results = in_order(abs, range(10**9), 2, print)
next(results)
import multiprocessing
print(*[p.pid for p in multiprocessing.active_children()], flush=True)
time.sleep(60)
"""


def test_workers_do_not_outlive_a_killed_parent():
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids: list[int] = []
    while not pids:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(running(pid) for pid in pids)


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
