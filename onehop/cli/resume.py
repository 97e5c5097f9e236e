"""The output file of `onehop translate -i FILE -o FILE`, which a stopped job resumes.

The output is FILE.partial until it is complete, and FILE.progress describes its content. It grows window by window.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from onehop.errors import CHECK_FOLDER, OnehopError, TextError, write_errors
from onehop.pipelines.bulk import TranslatedWindow, Window


class ResumableFile:
    """A file of translations, written window by window.

    `identity` is everything that a translation depends on except the text; the finished part of the text is hashed.
    It is None if the text cannot be read again: then the job cannot be resumed.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any] | None) -> None:
        self.path = Path(os.path.realpath(path))
        self.partial = self.path.with_name(f"{self.path.name}.partial")
        self.progress = self.path.with_name(f"{self.path.name}.progress")
        self.identity = json.loads(json.dumps(identity))
        self.windows = self.lines = self.bytes = 0
        self.text = hashlib.sha256()
        self._hash = self.text.hexdigest()
        self._file: IO[bytes] | None = None
        self._is_other_text = False
        if identity is not None:
            self._read()

    def _read(self) -> None:
        if not self.progress.exists():
            return
        try:
            state = json.loads(self.progress.read_bytes())
            is_same = state["identity"] == self.identity
            self.windows, self.lines, self.bytes = (int(state[name]) for name in ("windows", "lines", "bytes"))
            self._hash = str(state["hash"])
        except (ValueError, KeyError, TypeError):
            raise self._unusable(f"{self.progress} is damaged.") from None
        if not is_same:
            raise self._unusable(f"{self.partial} was started with another model or other options.")
        if not self.partial.exists() or self.partial.stat().st_size < self.bytes:
            raise self._unusable(f"{self.partial} is shorter than {self.progress} says.")

    def _unusable(self, what: str) -> TextError:
        return TextError(what, f"Remove {self.progress} to start over, or give another -o.")

    def skip_done(self, windows: Iterable[Window], skipped: Callable[[int], None]) -> Iterator[Window]:
        """The windows that are not done yet; `skipped` gets the number of lines that are."""
        number = 0
        for number, window in enumerate(windows, start=1):
            if number > self.windows:
                yield window
                continue
            self._add(window)
            if number == self.windows:
                self._check(self.text.hexdigest() == self._hash)
                skipped(self.lines)
        self._check(number >= self.windows)

    def _check(self, is_same: bool) -> None:
        if not is_same:
            self._is_other_text = True
            raise self._unusable(f"{self.partial} was started with another text.")

    def _add(self, window: Window) -> None:
        self.text.update("\n".join([*window.lines, ""]).encode("utf-8", "surrogatepass"))

    def __enter__(self) -> "ResumableFile":
        with write_errors(self.path, CHECK_FOLDER):
            self._file = open(self.partial, "r+b" if self.bytes else "wb")
            self._file.truncate(self.bytes)
            self._file.seek(self.bytes)
        return self

    def write(self, done: TranslatedWindow) -> None:
        """Add a window. One that an error cut short is written too, but repeated on resume."""
        from onehop.atomic import write_whole  # imported late, so that a text on the command line is fast

        assert self._file is not None
        with write_errors(self.path, CHECK_FOLDER):
            self._file.write(done.data)
            self._file.flush()
            if done.window.cut or self.identity is None:
                return
            self._add(done.window)
            self.windows, self.lines = self.windows + 1, self.lines + len(done.window.lines)
            self.bytes += len(done.data)
            self._hash = self.text.hexdigest()
            state = {"windows": self.windows, "lines": self.lines, "bytes": self.bytes, "hash": self._hash}
            write_whole(self.progress, json.dumps({**state, "identity": self.identity}).encode())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._file is not None:
            self._file.close()
        if kind is None:
            with write_errors(self.path, CHECK_FOLDER):
                os.replace(self.partial, self.path)
                self.progress.unlink(missing_ok=True)
        elif isinstance(error, OnehopError) and not self._is_other_text:
            if not self.partial.stat().st_size:  # nothing to keep
                self.partial.unlink()
                self.progress.unlink(missing_ok=True)
                return
            raise type(error)(error.what, f"{error.remedy} {self._kept()}") from None
        elif isinstance(error, KeyboardInterrupt):
            print(f"onehop: Stopped. {self._kept()}", file=sys.stderr)

    def _kept(self) -> str:
        kept = f"What was translated before is in {self.partial}"
        return f"{kept}." if self.identity is None else f"{kept}; the same command resumes."
