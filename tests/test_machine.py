"""Available cores and memory, also on systems that do not report them."""

import os

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
