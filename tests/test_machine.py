"""Available cores and memory, also on systems that do not report them."""

import os
import platform
import subprocess
import sys

import pytest

from onehop.machine import MEMORY_IF_UNKNOWN, available_cores, available_memory, page_cache_bytes, sync


def test_available_cores_are_between_one_and_all():
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


def test_without_sched_getaffinity_all_cores_are_available(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7


def test_without_sysconf_memory_has_a_default(monkeypatch):
    monkeypatch.delattr(os, "sysconf", raising=False)
    monkeypatch.setattr("onehop.machine.Path.exists", lambda path: False)
    assert available_memory() == MEMORY_IF_UNKNOWN


def test_the_page_cache_of_a_cgroup_counts_as_free(tmp_path):
    statistics = tmp_path / "memory.stat"
    assert page_cache_bytes(statistics) == 0
    statistics.write_text("anon 5\nactive_file 6\ninactive_file 7000\n")
    assert page_cache_bytes(statistics) == 7000


def test_available_memory_is_plausible():
    assert 10**6 < available_memory() < 10**14


def test_sync_does_not_open_folders_on_windows(monkeypatch, tmp_path):
    sync(tmp_path)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.delattr(os, "open")
    sync(tmp_path)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
@pytest.mark.parametrize(
    ("megabytes", "keep"),
    [(8, "nullcontext(keep_freed_memory())"), (100, "all_freed_memory_kept()"), (8, "after_a_training()")],
)
def test_freed_memory_is_allocated_again_without_page_faults(megabytes, keep):
    rounds = f"""
import resource, sys
from contextlib import nullcontext
from onehop.machine import all_freed_memory_kept, keep_freed_memory
def after_a_training():
    with all_freed_memory_kept():
        return nullcontext()
with {keep} if sys.argv[1] == "keep" else nullcontext():
    for _ in range(11):
        blocks = [bytearray({megabytes} << 20) for _ in range(3)]
        del blocks
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    faults = {}
    for name in ("keep", "default"):
        command = [sys.executable, "-c", rounds, name]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        after = list(map(int, printed.split()))
        faults[name] = after[-1] - after[0]
    assert faults["keep"] < faults["default"] / 4


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_kept_memory_is_returned_at_the_end():
    rounds = """
from pathlib import Path
from onehop.machine import all_freed_memory_kept
def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20
with all_freed_memory_kept():
    block = b"x" * (200 << 20)
    del block
    print(megabytes())
print(megabytes())
"""
    during, after = map(int, subprocess.check_output([sys.executable, "-c", rounds], text=True).split())
    assert during > 200 > 100 > after
