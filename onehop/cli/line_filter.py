"""`onehop translate` as a filter: lines from a text, files or a pipe, through a translator, out in the same order.

A window of lines is worked on at a time, so that memory is bounded. What is read before an error is translated and
written before the error is reported.
"""

import contextlib
import json
import os
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from onehop.data.corpus import BYTE_ORDER_MARK, LONGEST_LINE, Lines, refuse_utf16
from onehop.errors import OnehopError, TextError
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.result import Result
from onehop.text.language_id import LanguageWatch

# The first windows are small, so that the first lines come soon; the later ones let the translator fill its batches.
FIRST_WINDOW, LAST_WINDOW = 64, 4096
WINDOW_BYTES = 1 << 20
CHUNK = 1 << 16

# A kind of warning is shown for so many lines; then it is only counted.
WARNINGS_SHOWN = 10


@dataclass(frozen=True)
class Window:
    """Some lines that follow one another; the first has the number `first` in what is called `name`."""

    name: str
    first: int
    lines: list[str]


class Peekable:
    """Windows of which the first can be looked at before they are worked on."""

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


def windows_of(text: str | None, files: Sequence[Path]) -> Peekable:
    """The lines of a text, else of files, else of standard input."""
    if text is not None:
        return Peekable(text_windows(text))
    return Peekable(file_windows(files) if files else stdin_windows())


def text_windows(text: str) -> Iterator[Window]:
    """The lines of an argument, whose bytes may be anything."""
    lines = os.fsencode(text).removesuffix(b"\n").split(b"\n")
    return windows("the text", iter([line] for line in lines))


def file_windows(files: Sequence[Path]) -> Iterator[Window]:
    """The lines of files, one after the other."""
    for file in files:
        yield from windows(str(file), ([line] for line in Lines(file)))


def stdin_windows() -> Iterator[Window]:
    """The lines of standard input: as many as are there, without waiting for more."""
    if sys.stdin is None:
        raise TextError("Standard input is closed.", "Give a text, or --input FILE.")
    return windows("standard input", arriving(sys.stdin.buffer), wait=False)


def check_readable(files: Sequence[Path]) -> None:
    """Find out about a missing file before hours are spent on the one before it."""
    for file in files:
        if not file.exists():
            raise TextError(f"{file} does not exist.", "Check the path.")
        if file.is_dir() or not os.access(file, os.R_OK):
            raise TextError(f"{file} cannot be read.", "Give a text file that you may read.")


def check_not_overwritten(files: Sequence[Path], out: Path | None) -> None:
    """A text is not replaced by its own translation."""
    if out is not None and out.is_file() and any(out.samefile(file) for file in files):
        raise TextError(f"{out} is what is to be translated.", "Give another -o.")


def lines_in(files: Sequence[Path]) -> int | None:
    """Lines of all files; not known where there are none or one of them can be read only once."""
    if not files or not all(file.is_file() for file in files):
        return None
    with contextlib.suppress(OnehopError):  # it is reported when the translation comes to it
        return sum(1 for file in files for _ in Lines(file))
    return None


def windows(name: str, groups: Iterable[list[bytes]], *, wait: bool = True) -> Iterator[Window]:
    """Lines, which come in groups, as windows of text. Without `wait` a group is not held back for the next one.

    Before an error, such as a line that is not UTF-8, the lines before it are given out.
    """
    first, size, held, window = 1, FIRST_WINDOW, 0, list[str]()
    try:
        for line, more in flattened(groups, wait):
            number = first + len(window)
            window.append(decoded(line, name, number))
            held += len(line)
            if not more or len(window) >= size or held >= WINDOW_BYTES:
                yield Window(name, first, window)
                first, size, held, window = number + 1, min(2 * size, LAST_WINDOW), 0, []
    except TextError:
        yield Window(name, first, window)
        raise
    if window:
        yield Window(name, first, window)


def flattened(groups: Iterable[list[bytes]], wait: bool) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether the next one may be waited for."""
    for group in groups:
        for i, line in enumerate(group, start=1):
            yield line, wait or i < len(group)


def decoded(line: bytes, name: str, number: int) -> str:
    """A line as text."""
    if number == 1:
        refuse_utf16(line, Path(name))
        line = line.removeprefix(BYTE_ORDER_MARK)
    # The reader of files gives no more than the beginning of such a line.
    if len(line) + len(BYTE_ORDER_MARK) >= LONGEST_LINE:
        raise TextError(f"Line {number} of {name} is longer than {LONGEST_LINE:,} bytes.", "Break it into lines.")
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError:
        raise TextError(f"Line {number} of {name} is not UTF-8.", "Convert it, e.g. with iconv.") from None


def arriving(stream: Any) -> Iterator[list[bytes]]:
    """The whole lines of a pipe, a file or a terminal, in groups of those that have arrived."""
    rest, ended = b"", False
    while not ended:
        group: list[bytes] = []
        while not ended and (not group or (len(group) < LAST_WINDOW and is_ready(stream))):
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


def is_ready(stream: Any) -> bool:
    """Whether reading would not wait; what is not a file of the system, such as a buffer, never waits."""
    try:
        return bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return True


# --- out ------------------------------------------------------------------------------------------------------


@runtime_checkable
class Sink(Protocol):
    """What takes bytes: a file, or standard output, whatever stands in its place."""

    def write(self, data: bytes, /) -> Any:
        """Take some."""

    def flush(self) -> Any:
        """Hand on what was taken."""


@contextlib.contextmanager
def output(path: Path | None) -> Iterator[Sink]:
    """Standard output, or a file that appears when it is complete.

    Until then it is called FILE.partial, which stays if an error ends the work. What is no plain file, such as a pipe
    or /dev/null, is written to directly.
    """
    if path is None:
        yield sys.stdout.buffer
        return
    path = Path(os.path.realpath(path))
    direct = path.exists() and not path.is_file()
    partial = path if direct else path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            yield file
        if not direct:
            os.replace(partial, path)
    except OnehopError as e:
        raise type(e)(e.what, f"{e.remedy} What was translated before is in {partial}.") from None
    except KeyboardInterrupt:
        if not direct:
            print(f"onehop: Stopped. What was translated before is in {partial}.", file=sys.stderr)
        raise
    except OSError as e:
        raise TextError(f"{path} cannot be written: {e.strerror}.", "Check the folder and the room on it.") from None


def as_json(result: Result, n_best: int, alignments: bool = False) -> str:
    """Everything that is known, as one JSON object."""
    return json.dumps(result.details(n_best, alignments=alignments), ensure_ascii=False)


# --- between --------------------------------------------------------------------------------------------------


class SameText:
    """Gives lines back as they are, for a text that is in the target language already."""

    source = ""

    def translate(self, lines: Sequence[str]) -> list[Result]:
        """The lines."""
        return [Result(source=line, text=line, sentences=()) for line in lines]


LineTranslator = ParagraphTranslator | PivotTranslator | SameText


def translate(
    translator: LineTranslator,
    incoming: Iterable[Window],
    path: Path | None,
    *,
    lines: int | None = None,
    shown: Callable[[Result], str] = str,
) -> None:
    """Translate to a file, with a bar of so many lines on standard error, or to standard output, with none."""
    if path is None:
        with output(None) as out:
            run(translator, incoming, out, say=lambda text: print(f"onehop: {text}", file=sys.stderr), shown=shown)
        return
    # Only here: a bar takes time to import, and a text on the command line shall come soon.
    from onehop.console import PrepareDisplay

    with output(path) as out, PrepareDisplay() as bar:
        bar.stage("translating", lines, "lines")
        run(translator, incoming, out, say=lambda text: bar.note(f"onehop: {text}"), shown=shown, advance=bar.advance)
        bar.note(f"{path}: {bar.done:,} lines")


def run(
    translator: LineTranslator,
    incoming: Iterable[Window],
    out: Sink,
    *,
    say: Callable[[str], None],
    shown: Callable[[Result], str] = str,
    advance: Callable[[int], None] = lambda lines: None,
) -> None:
    """Translate window after window; `say` takes warnings, `advance` the number of lines that are done."""
    warnings, language = Warnings(say), LanguageWatch(translator.source)
    try:
        for window in incoming:
            paragraphs = translator.translate(window.lines)
            out.write("".join(f"{shown(p)}\n" for p in paragraphs).encode("utf-8", "replace"))
            out.flush()
            advance(len(paragraphs))
            for number, paragraph in enumerate(paragraphs, start=window.first):
                warnings.add(f"line {number} of {window.name}", paragraph.warnings)
            # Only now: a person who waits for the translation need not wait for the identifier to load.
            if doubt := language.look_at(window.lines):
                say(doubt)
    finally:
        warnings.close()


class Warnings:
    """Says the first warnings of a kind and counts the others."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.counts: Counter[str] = Counter()

    def add(self, place: str, warnings: Iterable[str]) -> None:
        """Take what is to be said about a line; what stands before a colon is its kind."""
        for warning in warnings:
            kind = warning.partition(":")[0]
            self.counts[kind] += 1
            if self.counts[kind] <= WARNINGS_SHOWN:
                self.say(f"{place}: {warning}")

    def close(self) -> None:
        """Say how many were not shown."""
        for kind, count in self.counts.items():
            if count > WARNINGS_SHOWN:
                self.say(f"and {count - WARNINGS_SHOWN:,} more: {kind} (--json has them all)")
