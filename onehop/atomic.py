"""Atomic writes: a file or folder is written under a temporary name, synced to disk, then renamed."""

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

# A temporary file older than this was left by a killed process.
ABANDONED_SECONDS = 3600


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path, renamed to `path` if the block succeeds. If several processes write it, the last one wins."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    _remove_abandoned(path)
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    with new_file(path) as unfinished:
        unfinished.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode())


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object of a text; None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder, renamed to `folder` if the block succeeds, and removed otherwise."""
    temporary = _temporary(folder)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder, if it exists. It is renamed first, so that no reader finds a half-deleted folder."""
    temporary = _temporary(folder)
    with suppress(OSError):
        folder.rename(temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def _temporary(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of killed processes.

    They are known by their age, not their process id: the writer may run on another machine that shares the folder.
    """
    abandoned = re.compile(re.escape(path.name) + r"\.\d+\.unfinished")
    with suppress(OSError):  # a failed clean-up does no harm, and another process may be faster
        for file in path.parent.iterdir():
            if abandoned.fullmatch(file.name) and time.time() - file.stat().st_mtime > ABANDONED_SECONDS:
                file.unlink()
