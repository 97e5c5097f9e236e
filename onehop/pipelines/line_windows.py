"""Lines of bytes as windows of text, in the sizes that fill the batches of a CPU or a GPU."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from onehop.data.corpus import BYTE_ORDER_MARK, LONGEST_LINE, refuse_other_unicode
from onehop.errors import TextError
from onehop.pipelines.bulk import Window

# The first windows are small for low latency; later ones are large, to fill the batches.
FIRST_WINDOW, LAST_WINDOW = 64, 4096
WINDOW_BYTES = 1 << 20

# On a GPU all windows are large: their sentences, sorted by length, fill batches of few shapes.
_GPU_WINDOW, _GPU_WINDOW_BYTES = 8192, 1 << 23


def windows(name: str, groups: Iterable[list[bytes]], *, wait: bool = True, gpu: bool = False) -> Iterator[Window]:
    """Windows of text from groups of lines. Without `wait`, a group is not held back for the next one.

    Before an error, such as a line that is not UTF-8, the lines before it are yielded.
    """
    size, last, most = (
        (_GPU_WINDOW, _GPU_WINDOW, _GPU_WINDOW_BYTES) if gpu else (FIRST_WINDOW, LAST_WINDOW, WINDOW_BYTES)
    )
    first, held, window = 1, 0, list[str]()
    try:
        for line, more in _flattened(groups, wait):
            number = first + len(window)
            window.append(_decoded(line, name, number))
            held += len(line)
            if not more or len(window) >= size or held >= most:
                yield Window(name, first, window)
                first, size, held, window = number + 1, min(2 * size, last), 0, []
    except TextError:
        yield Window(name, first, window, cut=True)
        raise
    if window:
        yield Window(name, first, window)


def _flattened(groups: Iterable[list[bytes]], wait: bool) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether the next one may be waited for."""
    for group in groups:
        for i, line in enumerate(group, start=1):
            yield line, wait or i < len(group)


def _decoded(line: bytes, name: str, number: int) -> str:
    if number == 1:
        refuse_other_unicode(line, Path(name))
        line = line.removeprefix(BYTE_ORDER_MARK)
    # The reader of files gives no more than the beginning of such a line.
    if len(line) + len(BYTE_ORDER_MARK) >= LONGEST_LINE:
        raise TextError(f"Line {number} of {name} is longer than {LONGEST_LINE:,} bytes.", "Break it into lines.")
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError:
        raise TextError(f"Line {number} of {name} is not UTF-8.", "Convert it, e.g. with iconv.") from None
