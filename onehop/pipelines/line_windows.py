"""Groups lines into windows that fill the batches of a CPU or a GPU."""

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
    """Windows of text from groups of lines. Without `wait`, a window ends with its group.

    Before an error, such as a line that is not UTF-8, the lines before it are yielded.
    """
    size, max_size, max_bytes = (
        (_GPU_WINDOW, _GPU_WINDOW, _GPU_WINDOW_BYTES) if gpu else (FIRST_WINDOW, LAST_WINDOW, WINDOW_BYTES)
    )
    first, window_bytes, window = 1, 0, list[str]()
    try:
        for group in groups:
            for i, line in enumerate(group, start=1):
                number = first + len(window)
                window.append(_decode(line, name, number))
                window_bytes += len(line)
                is_group_end = not wait and i == len(group)
                if is_group_end or len(window) >= size or window_bytes >= max_bytes:
                    yield Window(name, first, window)
                    first, size, window_bytes, window = number + 1, min(2 * size, max_size), 0, []
    except TextError:
        yield Window(name, first, window, cut=True)
        raise
    if window:
        yield Window(name, first, window)


def _decode(line: bytes, name: str, number: int) -> str:
    if number == 1:
        refuse_other_unicode(line, Path(name))
        line = line.removeprefix(BYTE_ORDER_MARK)
    # The file reader truncates longer lines.
    if len(line) + len(BYTE_ORDER_MARK) >= LONGEST_LINE:
        raise TextError(f"Line {number} of {name} is longer than {LONGEST_LINE:,} bytes.", "Break it into lines.")
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError:
        raise TextError(f"Line {number} of {name} is not UTF-8.", "Convert it, e.g. with iconv.") from None
