"""Translated files until they are downloaded: in a folder that all processes of a server share, for a while."""

import hashlib
import os
import re
import secrets
import shutil
import time
import unicodedata
from contextlib import suppress
from pathlib import Path, PurePath

from onehop.server.temporary import own_folder

_TOKEN = re.compile(r"([0-9a-f]{32})\.(.+)", re.DOTALL)
_LONGEST_STEM = 100


class FileStore:
    """Files by a name that nobody can guess. Of more than `most` the oldest go, as do those older than `seconds`.

    A client's name for a file is part of its address, and never of a path.
    """

    def __init__(self, folder: Path | None, *, most: int, seconds: float) -> None:
        """`folder`: that of several processes, else one of its own is made for the first file."""
        self.folder, self.shared = folder, folder is not None
        self.most, self.seconds = most, seconds

    def save(self, name: str, data: bytes) -> str:
        """Keep a file; the name that gets it."""
        if self.folder is None:
            self.folder = own_folder("files")
        token = secrets.token_hex(16)
        with open(os.open(self.path(token, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        self.sweep()
        return f"{token}.{name}"

    def path(self, token: str, name: str) -> Path:
        """Where a file lies: the name goes in as a hash, so that another name does not get it."""
        assert self.folder is not None
        return self.folder / f"{token}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def load(self, public: str) -> tuple[str, bytes] | None:
        """The name and the content of a file; nothing where it is gone, or never was."""
        found = _TOKEN.fullmatch(public)
        if found is None or self.folder is None:
            return None
        path = self.path(found[1], found[2])
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= self.seconds:
                return found[2], path.read_bytes()
        return None

    def sweep(self) -> None:
        """Remove what is too old or too much."""
        if self.folder is None:
            return
        ages = []
        for path in self.folder.iterdir():
            with suppress(OSError):  # another process was faster
                ages.append((path.stat().st_mtime, path))
        newest = sorted(ages, reverse=True)
        for place, (made, path) in enumerate(newest):
            if place >= self.most or time.time() - made > self.seconds:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all files, unless other processes have theirs there."""
        if self.folder is not None and not self.shared:
            shutil.rmtree(self.folder, ignore_errors=True)


def download_name(given: str, target: str) -> str:
    """What a translated file is called, as LibreTranslate does it: report.docx becomes report_de.docx."""
    name = PurePath(unicodedata.normalize("NFC", re.split(r"[/\\]", given)[-1]))
    stem = "".join(c if c.isprintable() and c not in '"*:<>?|' else "_" for c in name.stem)[:_LONGEST_STEM]
    return f"{stem.strip('. ') or 'file'}_{target}{name.suffix.lower()}"
