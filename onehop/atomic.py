"""Files and folders that are there in full or not at all: written beside their place, synced, then moved there."""

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from onehop.machine import sync

# A temporary file that is older than this was left by a killed process.
ABANDONED_SECONDS = 3600


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Where to write a file that takes its place when the block ends well; of several processes the last one wins."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    _remove_abandoned(path)
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file with `new_file`."""
    with new_file(path) as unfinished:
        unfinished.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with `new_file`."""
    write_whole(path, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode())


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes its place when the block ends well; else nothing is left of it."""
    beside = _beside(folder)
    try:
        beside.mkdir(parents=True)
        yield beside
        for path in (*beside.rglob("*"), beside):
            sync(path)
        beside.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder so that no half of it is ever seen under its name; that it is gone already is as good."""
    gone = _beside(folder)
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed left of a file.

    Age tells, not the process's number: the writer may be on another machine that shares the folder.
    """
    left = re.compile(re.escape(path.name) + r"\.\d+\.unfinished")
    with suppress(OSError):  # tidying is no reason to fail, and another process may be faster
        for file in path.parent.iterdir():
            if left.fullmatch(file.name) and time.time() - file.stat().st_mtime > ABANDONED_SECONDS:
                file.unlink()
