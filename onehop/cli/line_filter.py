"""`onehop translate` as a filter: lines of a text, files or a pipe are translated in order.

It works on one window of lines at a time, so memory is bounded. Lines before an error are translated and written
before the error is reported.
"""

import contextlib
import os
import select
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from onehop.cli.app import say_waiting
from onehop.cli.resume import ResumableFile
from onehop.data.corpus import LONGEST_LINE, Lines
from onehop.errors import OnehopError, SettingsError, TextError
from onehop.pipelines.bulk import BulkJob, Pipeline, TranslatedWindow, Window, translated_here
from onehop.pipelines.line_windows import LAST_WINDOW, windows
from onehop.storage.model_label import describe
from onehop.text.language_id import LanguageWatch

CHUNK = 1 << 16

# Warnings of a kind that are shown; more are only counted.
_WARNINGS_SHOWN = 10


class Windows:
    """An iterator of windows whose first can be peeked at."""

    def __init__(self, windows: Iterator[Window]) -> None:
        self.windows = windows

    def __iter__(self) -> Iterator[Window]:
        return self.windows

    def sample(self) -> str:
        """The lines of the first window."""
        first = list(islice(self.windows, 1))
        self.windows = chain(first, self.windows)
        return "\n".join(line for window in first for line in window.lines)


# --- in -------------------------------------------------------------------------------------------------------


def windows_of(text: str | None, files: Sequence[Path], *, gpu: bool = False) -> Windows:
    """The lines of a text, else of files, else of standard input."""
    if text is not None:
        lines = os.fsencode(text).removesuffix(b"\n").split(b"\n")  # its bytes may be anything
        return Windows(_numbered(windows("the text", iter([line] for line in lines))))
    return Windows(_numbered(file_windows(files, gpu=gpu) if files else stdin_windows()))


def _numbered(found: Iterable[Window]) -> Iterator[Window]:
    """The windows, _numbered by the lines before them in all files."""
    offset = 0
    for window in found:
        yield replace(window, offset=offset)
        offset += len(window.lines)


def file_windows(files: Sequence[Path], *, gpu: bool = False) -> Iterator[Window]:
    """The lines of files, one after the other."""
    for file in files:
        yield from windows(str(file), ([line] for line in Lines(file)), gpu=gpu)


def stdin_windows() -> Iterator[Window]:
    """The lines of standard input: as many as are there, without waiting for more."""
    if sys.stdin is None:
        raise TextError("Standard input is closed.", "Give a text, or --input FILE.")
    say_waiting()
    return windows("standard input", arriving(sys.stdin.buffer), wait=False)


def check_readable(files: Sequence[Path]) -> None:
    """Refuse a missing or unreadable file before the first one is translated."""
    for file in files:
        if not file.exists():
            raise TextError(f"{file} does not exist.", "Check the path.")
        if file.is_dir() or not os.access(file, os.R_OK):
            raise TextError(f"{file} cannot be read.", "Give a text file that you may read.")


def check_workers(workers: int, files: Sequence[Path]) -> None:
    """Refuse several workers without files."""
    if workers > 1 and not files:
        raise SettingsError(f"--workers {workers} share the lines of files.", "Give them with --input.")


def check_not_overwritten(files: Sequence[Path], out: Path | None) -> None:
    """Refuse to overwrite an input with its translation."""
    if out is not None and out.is_file() and any(out.samefile(file) for file in files):
        raise TextError(f"{out} is also an input.", "Give another -o.")


def _lines_in(files: Sequence[Path]) -> int | None:
    """The number of lines of all files, or None if there are none or one can be read only once."""
    if not files or not all(file.is_file() for file in files):
        return None
    with contextlib.suppress(OnehopError):  # it is reported when the translation comes to it
        return sum(1 for file in files for _ in Lines(file))
    return None


def arriving(stream: Any) -> Iterator[list[bytes]]:
    """The whole lines of a pipe, a file or a terminal, in groups of those that have arrived."""
    rest, ended = b"", False
    while not ended:
        group: list[bytes] = []
        while not ended and (not group or (len(group) < LAST_WINDOW and _is_ready(stream))):
            chunk = stream.read1(CHUNK)
            ended = not chunk
            *whole, rest = (rest + chunk).split(b"\n")
            group += whole
            if len(rest) >= LONGEST_LINE:  # no newline is in sight, and what holds it must not grow for ever
                group, rest, ended = [*group, rest], b"", True
        if ended and rest:
            group.append(rest)
        if group:
            yield group


def _is_ready(stream: Any) -> bool:
    """Whether reading would not block. A stream without a file descriptor never blocks."""
    try:
        return bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return True


# --- between --------------------------------------------------------------------------------------------------


def translate(
    job: BulkJob,
    pipeline: Pipeline | None,
    incoming: Iterable[Window],
    path: Path | None,
    *,
    files: Sequence[Path] = (),
    workers: int = 1,
) -> None:
    """Translate to a file, with a progress bar on stderr, or to stdout, without one.

    Several `workers` translate in processes of their own; one translates here, with the `pipeline`.
    """

    def results(windows: Iterable[Window]) -> Generator[TranslatedWindow, None, None]:
        if pipeline:
            return translated_here(job, pipeline, windows)
        from onehop.pipelines.bulk_workers import translated_by_workers  # with it comes multiprocessing

        return translated_by_workers(job, windows, workers)

    language = LanguageWatch(describe(job.route[0]).content["source"] if job.route else "")
    if path is None:
        with contextlib.closing(results(incoming)) as found:
            run(
                found,
                _to_stream(sys.stdout.buffer),
                language,
                say=lambda text: print(f"onehop: {text}", file=sys.stderr),
            )
        return
    # Only here: a bar takes time to import, and a text on the command line shall come soon.
    from onehop.console import PrepareDisplay

    is_direct = path.exists() and not path.is_file()  # a pipe or a device
    with (
        _opened(path) if is_direct else ResumableFile(path, job.identity() if files else None) as out,
        PrepareDisplay() as bar,
    ):
        bar.stage("translating", _lines_in(files), "lines")
        coming = out.skip_done(incoming, bar.resume) if isinstance(out, ResumableFile) else incoming
        write = out.write if isinstance(out, ResumableFile) else _to_stream(out)
        with contextlib.closing(results(coming)) as found:
            run(found, write, language, say=lambda text: bar.note(f"onehop: {text}"), advance=bar.advance)
        bar.note(f"{path}: {bar.done:,} lines")


def run(
    results: Iterable[TranslatedWindow],
    write: Callable[[TranslatedWindow], None],
    language: LanguageWatch,
    *,
    say: Callable[[str], None],
    advance: Callable[[int], None] = lambda lines: None,
) -> None:
    """Write window after window; `say` takes warnings, `advance` the number of lines that are done."""
    warnings = LineWarnings(say)
    try:
        for done in results:
            write(done)
            advance(len(done.window.lines))
            for number, warned in done.warnings:
                warnings.add(f"line {number} of {done.window.name}", warned)
            # Only now, so that the first translation does not wait for the identifier to load.
            if doubt := language.look_at(done.window.lines):
                say(doubt)
    finally:
        warnings.close()


def _to_stream(stream: IO[bytes]) -> Callable[[TranslatedWindow], None]:
    """What writes windows to a stream, each at once."""

    def write(done: TranslatedWindow) -> None:
        stream.write(done.data)
        stream.flush()

    return write


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A pipe or a device to write to."""
    try:
        with open(path, "wb") as stream:
            yield stream
    except OSError as e:
        raise TextError(f"{path} cannot be written: {e.strerror}.", "Check the folder and its free space.") from None


class LineWarnings:
    """Prints the first warnings of each kind and counts the others."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.counts: Counter[str] = Counter()

    def add(self, place: str, warnings: Iterable[str]) -> None:
        """Add a warning about a line. Its kind is the text before the colon."""
        for warning in warnings:
            kind = warning.partition(":")[0]
            self.counts[kind] += 1
            if self.counts[kind] <= _WARNINGS_SHOWN:
                self.say(f"{place}: {warning}")

    def close(self) -> None:
        """Print how many were not shown."""
        for kind, count in self.counts.items():
            if count > _WARNINGS_SHOWN:
                self.say(f"and {count - _WARNINGS_SHOWN:,} more: {kind} (--json has them all)")
