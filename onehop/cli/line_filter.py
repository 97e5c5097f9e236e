"""`onehop translate` as a filter: lines of a text, files or a pipe are translated in order.

It works on one window of lines at a time, so that memory is bounded. Lines before an error are translated and written
before the error is reported.
"""

import contextlib
import gc
import os
import select
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from onehop.cli.app import print_message, say_waiting
from onehop.cli.resume import ResumableFile
from onehop.data.corpus import LONGEST_LINE, Lines
from onehop.errors import CHECK_FOLDER, OnehopError, TextError, write_errors
from onehop.pipelines.bulk import LAST_WINDOW, BulkJob, SameText, TranslatedWindow, Window, windows
from onehop.pipelines.route import AlreadyTranslatedError
from onehop.storage.model_label import describe
from onehop.text.language_id import LanguageWatch

CHUNK = 1 << 16
_Results = Generator[TranslatedWindow, None, None]

# Warnings of one kind that are shown; more are only counted.
_WARNINGS_SHOWN = 10


def file_windows(files: Sequence[Path], *, gpu: bool = False) -> Iterator[Window]:
    for file in files:
        yield from windows(str(file), ([line] for line in Lines(file)), gpu=gpu)


def stdin_windows() -> Iterator[Window]:
    """The lines of standard input: as many as are there, without waiting for more."""
    if sys.stdin is None:
        raise TextError("Standard input is closed.", "Give a text, or --input FILE.")
    say_waiting()
    return windows("standard input", arriving(sys.stdin.buffer), wait=False)


def _check_readable(files: Sequence[Path]) -> None:
    """Refuse a missing or unreadable file before the first one is translated."""
    for file in files:
        if not file.exists():
            raise TextError(f"{file} does not exist.", "Check the path.")
        if file.is_dir():
            raise TextError(f"{file} is a folder.", "Give its files, or leave out --input to translate the folder.")
        if not os.access(file, os.R_OK):
            raise TextError(f"{file} cannot be read.", "Give a text file that you may read.")


def _lines_in(files: Sequence[Path]) -> int | None:
    """The number of lines of all files, or None if there are none or one can be read only once."""
    if not files or not all(file.is_file() for file in files):
        return None
    with contextlib.suppress(OnehopError):  # it is reported when the translation gets there
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
            if len(rest) >= LONGEST_LINE:  # without a newline, the buffer must not grow for ever
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


class LineInputs:
    """The lines of a text, else of files, else of standard input."""

    def __init__(self, text: str | None, files: Sequence[Path], out: Path | None, *, workers: int, gpu: bool) -> None:
        _check_readable(files)
        if out is not None and out.is_dir():
            raise TextError(f"{out} is a folder.", "Give a file with -o.")
        if out is not None and out.is_file() and any(out.samefile(file) for file in files):
            raise TextError(f"{out} is also an input.", "Give another -o.")
        self.text, self.files, self.out, self.workers, self.gpu = text, files, out, workers, gpu

    @cached_property
    def windows(self) -> Iterator[Window]:
        if self.text is not None:
            lines = os.fsencode(self.text).removesuffix(b"\n").split(b"\n")  # arbitrary bytes
            return _with_offsets(windows("the text", iter([line] for line in lines)))
        return _with_offsets(file_windows(self.files, gpu=self.gpu) if self.files else stdin_windows())

    def sample(self) -> str:
        """The lines of the first window, for language identification."""
        first = list(islice(self.windows, 1))
        self.windows = chain(first, self.windows)
        return "\n".join(line for window in first for line in window.lines)

    def give_back(self, error: AlreadyTranslatedError, job: BulkJob) -> None:
        """Write the lines unchanged."""
        print_message(error.warning())
        self._translate(job, lambda windows: (job.translate(SameText(), window) for window in windows))

    def translate(self, job: BulkJob) -> None:
        """Translate in this process, or in several `workers`."""
        if self.workers > 1:
            from onehop.pipelines.bulk_workers import translate_with_workers  # imports multiprocessing

            self._translate(job, lambda windows: translate_with_workers(job, windows, self.workers))
        else:
            pipeline = job.pipeline(job.translator())
            gc.freeze()  # the collector does not look at modules and the model again and again
            self._translate(job, lambda windows: (job.translate(pipeline, window) for window in windows))

    def _translate(self, job: BulkJob, translated: Callable[[Iterable[Window]], _Results]) -> None:
        """Write to a file, with a progress bar on stderr, or to stdout, without one."""
        language = LanguageWatch(describe(job.route[0]).content["source"] if job.route else "")
        if self.out is None:
            with contextlib.closing(translated(self.windows)) as results:
                _write_all(results, _to_stream(sys.stdout.buffer), language, say=print_message)
            return
        from onehop.console import PrepareDisplay  # imported late, so that a text on the command line is fast

        is_direct = self.out.exists() and not self.out.is_file()  # a pipe or a device
        identity = job.identity() if self.files else None
        with (
            write_errors(self.out, CHECK_FOLDER) if is_direct else contextlib.nullcontext(),
            open(self.out, "wb") if is_direct else ResumableFile(self.out, identity) as out,
            PrepareDisplay() as bar,
        ):
            bar.stage("translating", _lines_in(self.files), "lines")
            incoming = out.skip_done(self.windows, bar.resume) if isinstance(out, ResumableFile) else self.windows
            write = out.write if isinstance(out, ResumableFile) else _to_stream(out)
            with contextlib.closing(translated(incoming)) as results:
                _write_all(results, write, language, say=lambda text: bar.note(f"onehop: {text}"), advance=bar.advance)
            bar.note(f"{self.out}: {bar.done:,} lines")


def _with_offsets(windows: Iterable[Window]) -> Iterator[Window]:
    """The windows, each with the number of lines before it in all files."""
    offset = 0
    for window in windows:
        yield replace(window, offset=offset)
        offset += len(window.lines)


def _write_all(
    results: Iterable[TranslatedWindow],
    write: Callable[[TranslatedWindow], None],
    language: LanguageWatch,
    *,
    say: Callable[[str], None],
    advance: Callable[[int], None] = lambda lines: None,
) -> None:
    """Write all windows; `say` gets warnings, `advance` the number of lines that are done."""
    warnings = LineWarnings(say)
    try:
        for done in results:
            write(done)
            advance(len(done.window.lines))
            for number, warned in done.warnings:
                warnings.add(f"line {number} of {done.window.name}", warned)
            # After writing, so that the first translation does not wait for the identifier to load.
            if doubt := language.check(done.window.lines):
                say(doubt)
    finally:
        warnings.close()


def _to_stream(stream: IO[bytes]) -> Callable[[TranslatedWindow], None]:
    """A function that writes windows to a stream and flushes it."""

    def write(done: TranslatedWindow) -> None:
        stream.write(done.data)
        stream.flush()

    return write


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
