"""What a process may use, on this system and on one that tells less."""

import os

from onehop.machine import MEMORY_IF_UNKNOWN, available_cores, available_memory, page_cache_bytes, sync


def test_cores():
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


def test_a_system_that_does_not_tell_which_cores_has_all_of_them(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7


def test_a_system_that_does_not_tell_its_memory_is_taken_for_a_small_one(monkeypatch):
    monkeypatch.delattr(os, "sysconf", raising=False)
    monkeypatch.setattr("onehop.machine.Path.exists", lambda path: False)
    assert available_memory() == MEMORY_IF_UNKNOWN


def test_files_that_a_group_keeps_in_memory_count_as_free(tmp_path):
    statistics = tmp_path / "memory.stat"
    assert page_cache_bytes(statistics) == 0
    statistics.write_text("anon 5\nactive_file 6\ninactive_file 7000\n")
    assert page_cache_bytes(statistics) == 7000


def test_some_memory_is_free():
    assert 10**6 < available_memory() < 10**14


def test_where_folders_cannot_be_opened_they_are_not(monkeypatch, tmp_path):
    sync(tmp_path)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.delattr(os, "open")
    sync(tmp_path)
