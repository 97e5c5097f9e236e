"""Translated files until they are downloaded, in a folder that all processes of a server share."""

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
    """Files by unguessable names. Files older than `seconds` are deleted, as are the oldest of more than `most`.

    The client's file name is part of the URL, but never of a path.
    """

    def __init__(self, folder: Path | None, *, most: int, seconds: float) -> None:
        """`folder` is shared by several processes; without it, a folder is made for the first file."""
        self.folder, self.shared = folder, folder is not None
        self.most, self.seconds = most, seconds

    def save(self, name: str, data: bytes) -> str:
        """Store a file and return its name in the URL."""
        if self.folder is None:
            self.folder = own_folder("files")
        token = secrets.token_hex(16)
        with open(os.open(self.path(token, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        self.sweep()
        return f"{token}.{name}"

    def path(self, token: str, name: str) -> Path:
        """The path of a file. The name is part of the hash, so that another name does not open it."""
        assert self.folder is not None
        return self.folder / f"{token}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def load(self, public: str) -> tuple[str, bytes] | None:
        """The name and the content of a file; None if it has expired or never existed."""
        match = _TOKEN.fullmatch(public)
        if match is None or self.folder is None:
            return None
        path = self.path(match[1], match[2])
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= self.seconds:
                return match[2], path.read_bytes()
        return None

    def sweep(self) -> None:
        """Remove expired files and those beyond the limit."""
        if self.folder is None:
            return
        ages = []
        for path in self.folder.iterdir():
            with suppress(OSError):  # another process has deleted it
                ages.append((path.stat().st_mtime, path))
        for i, (modified, path) in enumerate(sorted(ages, reverse=True)):
            if i >= self.most or time.time() - modified > self.seconds:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all files, unless the folder is shared."""
        if self.folder is not None and not self.shared:
            shutil.rmtree(self.folder, ignore_errors=True)


def download_name(uploaded: str, target: str) -> str:
    """The name of a translated file, as LibreTranslate has it: report.docx becomes report_de.docx."""
    name = PurePath(unicodedata.normalize("NFC", re.split(r"[/\\]", uploaded)[-1]))
    stem = "".join(c if c.isprintable() and c not in '"*:<>?|' else "_" for c in name.stem)[:_LONGEST_STEM]
    return f"{stem.strip('. ') or 'file'}_{target}{name.suffix.lower()}"
