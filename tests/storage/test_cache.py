"""The user's cache: entries are complete or absent, even with concurrent writers."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onehop.storage import cache

FILES = {"a.bin": [b"one", memoryview(b"two")], "b.txt": [b"three"]}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEHOP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_folder_follows_the_environment(monkeypatch, root, tmp_path):
    assert cache.cache_root() == root
    monkeypatch.delenv("ONEHOP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_root() == tmp_path / "onehop"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_root() == tmp_path / ".cache" / "onehop"


def test_an_entry_round_trips(root):
    assert cache.find("kind/x") is None
    folder = cache.put("kind/x", FILES)
    assert cache.find("kind/x") == folder == root / "kind" / "x"
    assert (folder / "a.bin").read_bytes() == b"onetwo"
    assert os.listdir(root / "kind") == ["x"]


def flip(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"onetwO")


def cut(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"onetw")


def lose(folder: Path) -> None:
    (folder / "b.txt").unlink()


def forget(folder: Path) -> None:
    (folder / cache.SUMS).unlink()


def garble(folder: Path) -> None:
    (folder / cache.SUMS).write_text("[1, 2]")


@pytest.mark.parametrize("damage", [flip, cut, lose, forget, garble])
def test_a_damaged_entry_counts_as_missing_and_is_replaced(damage, root):
    damage(cache.put("x", FILES))
    assert cache.find("x") is None
    folder = cache.put("x", FILES)
    assert cache.find("x") == folder
    assert os.listdir(root) == ["x"]


def test_putting_an_existing_entry_keeps_it(root):
    folder = cache.put("x", FILES)
    before = (folder / "a.bin").stat().st_ino
    assert cache.put("x", FILES) == folder
    assert (folder / "a.bin").stat().st_ino == before
    assert os.listdir(root) == ["x"]


def test_concurrent_puts_leave_one_entry(root):
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: cache.put("x", FILES), range(64))) == {root / "x"}
    assert cache.find("x") == root / "x"
    assert os.listdir(root) == ["x"]


def test_only_old_temporary_folders_are_removed(root):
    for name, age in ((".old.aa.tmp", cache.ABANDONED_SECONDS + 9), (".new.bb.tmp", 9)):
        (root / name).mkdir(parents=True)
        os.utime(root / name, times=(time.time() - age,) * 2)
    cache.put("x", FILES)
    assert sorted(os.listdir(root)) == [".new.bb.tmp", "x"]


def test_an_unwritable_cache_raises_an_error(root):
    root.write_text("a file")
    with pytest.raises(OSError, match="directory"):
        cache.put("x", FILES)
