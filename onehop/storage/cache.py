"""The user's cache folder, for data that can be recomputed.

An entry is a folder of files. It appears by one rename, so it is never seen half-written and two processes can make the
same entry at once. An entry with a wrong checksum counts as missing.
"""

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from onehop.atomic import ABANDONED_SECONDS, new_folder, remove_folder

Pieces: TypeAlias = Sequence[bytes | memoryview]

SUMS = "sums.json"
_CHUNK = 1 << 20


def cache_root() -> Path:
    """ONEHOP_CACHE, else the system's cache folder for onehop: on Linux XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("ONEHOP_CACHE"):
        return Path(chosen)
    from platformdirs import user_cache_path  # only here: a training does not need it

    return user_cache_path("onehop", appauthor=False)


def find(name: str) -> Path | None:
    """The folder of an entry, if it exists and is complete."""
    folder = cache_root() / name
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    """Whether every file has the length and the checksum that it was written with."""
    try:
        sums = json.loads((folder / SUMS).read_bytes())
        return all((folder / name).stat().st_size == size for name, (size, _) in sums.items()) and all(
            _checksum_of(folder / name) == checksum for name, (_, checksum) in sums.items()
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _checksum_of(file: Path) -> int:
    """The CRC-32 of a file. It detects damage, not tampering; every start computes it, so it must be fast."""
    checksum = 0
    with open(file, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def put(name: str, files: Mapping[str, Pieces]) -> Path:
    """Make an entry. If another process was faster, its entry stays. An OSError says why it cannot be written."""
    folder = cache_root() / name
    try:
        with new_folder(folder) as temporary:
            _remove_abandoned(temporary.parent)
            _write(temporary, files)
            if folder.exists() and not _is_whole(folder):
                remove_folder(folder)
    except OSError:
        if not _is_whole(folder):
            raise
    return folder


def _write(folder: Path, files: Mapping[str, Pieces]) -> None:
    sums = {}
    for name, pieces in files.items():
        size = checksum = 0
        with open(folder / name, "xb") as file:
            for piece in pieces:
                file.write(piece)
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        sums[name] = (size, checksum)
    (folder / SUMS).write_text(json.dumps(sums), encoding="utf-8")


def entries() -> dict[Path, int]:
    """Every entry, and leftovers of killed processes, with their sizes on disk."""
    root = cache_root()
    candidates = {*(file.parent for file in root.rglob(SUMS)), *root.rglob(".*.tmp")}
    folders = sorted(folder for folder in candidates if folder.is_dir() and folder != root)
    return {folder: sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) for folder in folders}


def clear() -> int:
    """Remove every entry and nothing else, and return the number of freed bytes."""
    sizes = entries()
    for folder in sizes:
        shutil.rmtree(folder, ignore_errors=True)
    return sum(size for folder, size in sizes.items() if not folder.exists())


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
