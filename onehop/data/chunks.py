"""Parallel text of any format in chunks of raw pairs.

Only one chunk is in memory at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Literal

from onehop.data.corpus import ENDINGS, Lines, ParallelFile, unequal_lines_error
from onehop.data.records import READERS
from onehop.errors import TextError

CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class RawChunk:
    """Some lines or records of a parallel file, as bytes. `tgt` is None for TSV, whose `src` has both columns.

    A target of None is missing in its record. `consumed` is the number of bytes of the file read from disk so far.
    """

    file: str
    first_line: int
    src: list[bytes]
    tgt: Sequence[bytes | None] | None
    consumed: int


Plain = Literal["lines", "paragraphs"] | None


def read_chunks(file: ParallelFile, size: int = CHUNK, plain: Plain = None) -> Iterator[RawChunk]:
    """The lines of a parallel file in chunks, in order. Plain text becomes pairs without a source."""
    if file.format is not None and plain is not None:
        raise TextError(f"{file.names} has pairs, but data.plain needs plain text.", "Give text files.")
    if len(file.paths) > 1 and file.format is None and plain is None:
        yield from _aligned_chunks(file, size)
        return
    reader: Any = Lines(file.paths[0]) if file.format is None else READERS[file.format](file)
    items, number = _paragraphs(reader) if plain == "paragraphs" else iter(reader), 1
    while chunk := list(islice(items, size)):
        src, tgt = chunk, None
        if plain is not None:
            src, tgt = [b""] * len(chunk), chunk
        elif file.format is not None:
            src, tgt = [record[0] for record in chunk], [record[1] if len(record) == 2 else None for record in chunk]
        elif number == 1:
            _refuse_other_columns(chunk[0], file)
        yield RawChunk(file=file.name, first_line=number, src=src, tgt=tgt, consumed=reader.consumed)
        number += len(chunk)


def _paragraphs(lines: Iterable[bytes]) -> Iterator[bytes]:
    for empty, group in groupby(lines, lambda line: not line.strip()):
        if not empty:
            yield b" ".join(group)


def _refuse_other_columns(first_line: bytes, file: ParallelFile) -> None:
    """Refuse a TSV whose first line has not two columns: it may have another format."""
    columns = first_line.count(b"\t") + 1
    if columns != 2:
        count = "1 column" if columns == 1 else f"{columns} columns"
        remedy = f"It must be source TAB target; other formats are known by their endings ({ENDINGS})."
        raise TextError(f"{file.names} line 1 has {count}.", remedy)


def _aligned_chunks(file: ParallelFile, size: int) -> Iterator[RawChunk]:
    """Chunks of two aligned files, which must have the same number of lines."""
    readers = [Lines(path) for path in file.paths]
    src_lines, tgt_lines = map(iter, readers)
    number = 1
    while True:
        src, tgt = list(islice(src_lines, size)), list(islice(tgt_lines, size))
        if len(src) != len(tgt):
            raise unequal_lines_error(file)
        if not src:
            return
        consumed = sum(reader.consumed for reader in readers)
        yield RawChunk(file=file.name, first_line=number, src=src, tgt=tgt, consumed=consumed)
        number += len(src)
