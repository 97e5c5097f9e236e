"""Pairs in files of records: CSV, JSONL, Parquet, Arrow and TMX, one record at a time.

A record is (source, target) as UTF-8. With a missing side it is one text, so that it is counted and shown.
"""

import csv
import importlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any
from xml.parsers import expat

from onehop.atomic import json_object
from onehop.data.corpus import LONGEST_LINE, Lines, ParallelFile, RawFile, read_errors, refuse_other_unicode
from onehop.errors import TextError, require
from onehop.text.language_id import code_of

_Record = tuple[bytes] | tuple[bytes, bytes]
# Common names of the two columns, besides the languages.
_USUAL = (("source", "target"), ("src", "tgt"))
_TRANSLATION = "translation"  # the column of Hugging Face's datasets that has both sides
_REGION = re.compile(r"(-(?i:[a-z]{2}|[a-z]{4}|\d{3})|_([A-Z]{2}|[A-Z][a-z]{3}|\d{3}))+$")
_DELIMITERS = ",;\t"
ROWS = 1024
_BLOCK = 1 << 16
_SHOWN_COLUMNS = 8


class Records:
    """The records of a file in order. `consumed` is the number of bytes of it read from disk."""

    def __init__(self, file: ParallelFile) -> None:
        self.file = file
        self.raw = RawFile(file.paths[0])

    @property
    def consumed(self) -> int:
        return self.raw.consumed

    def __iter__(self) -> Iterator[_Record]:
        raise NotImplementedError

    def sides(self, names: Sequence[str]) -> tuple[str, str]:
        """The source and target column: as requested, else named after the languages, else by common names."""
        file = self.file
        candidates = [file.columns] if file.columns else [file.languages, *_USUAL]
        for pair in candidates:
            source, target = (next(_named(names, side), None) for side in pair)
            if source is not None and target is not None:
                return source, target
        shown = ", ".join(names[:_SHOWN_COLUMNS]) + (" …" if len(names) > _SHOWN_COLUMNS else "")
        missing = next(side for side in candidates[0] if next(_named(names, side), None) is None)
        raise TextError(
            f"{file.names} has the columns {shown or '(none)'}, but none named {missing}.",
            f"Rename them to {' and '.join(file.languages)}, or set data.columns to their names.",
        )


def _named(names: Iterable[str], wanted: str) -> Iterator[str]:
    """The names that match a language or column, the exact one first: English, en-US and EN match en."""
    names = list(names)
    yield from (name for name in names if name == wanted)
    yield from (name for name in names if _without_region(name) == _without_region(wanted))


def _without_region(language: str) -> str:
    """The code of a language, given a code or a name: en for English, EN, en-US and en_GB."""
    return code_of(_REGION.sub("", language.strip()))


def _record_of(source: Any, target: Any) -> _Record:
    """Two texts as a record. If one is not a string, the side counts as missing."""
    if isinstance(source, str) and isinstance(target, str):
        return _as_bytes(source), _as_bytes(target)
    return (_as_bytes(next((side for side in (source, target) if isinstance(side, str)), "")),)


def _as_bytes(text: str) -> bytes:
    """UTF-8. Undecodable bytes are restored, and lone surrogates become undecodable bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class _CsvRecords(Records):
    """CSV with a header, or two columns without one, separated by commas, semicolons or tabs."""

    def __iter__(self) -> Iterator[_Record]:
        with self.raw.opened() as stream:
            lines = _decoded_lines(stream, self.raw.path)
            first = next(lines, "")
            delimiter = max(_DELIMITERS, key=first.count)
            rows = self.rows(csv.reader(chain([first], lines), delimiter=delimiter))
            header = next(rows, [])
            try:
                source, target = map(header.index, self.sides(header))
            except TextError:
                if len(header) != 2 or self.file.columns:
                    raise
                source, target = 0, 1
                yield _record_of(*header)
            for row in rows:
                whole = len(row) == len(header)
                yield _record_of(row[source], row[target]) if whole else (_as_bytes(delimiter.join(row)),)

    def rows(self, reader: Any) -> Iterator[list[str]]:
        """The rows that are not empty. A malformed row, such as an unclosed quote, becomes a row of one column."""
        while True:
            try:
                row = next(reader, None)
            except csv.Error as e:
                row = [f"({e})"]
            if row is None:
                return
            if row:
                yield row


def _decoded_lines(stream: io.BufferedReader, path: Path) -> Iterator[str]:
    """Lines with their ends, limited in length. Bytes that are not UTF-8 are kept as surrogates."""
    refuse_other_unicode(stream.peek(4), path)
    mark = "\ufeff"
    while line := stream.readline(LONGEST_LINE):
        yield line.decode("utf-8", "surrogateescape").removeprefix(mark)
        mark = ""


class _JsonRecords(Records):
    """One JSON object per line: {"en": …, "de": …} or {"translation": {"en": …, "de": …}}."""

    def __init__(self, file: ParallelFile) -> None:
        super().__init__(file)
        self.raw = self.lines = Lines(file.paths[0])

    def __iter__(self) -> Iterator[_Record]:
        sides: tuple[str, str] | None = None
        for number, line in enumerate(self.lines, start=1):
            if not line.strip():
                yield b"", b""  # counted as empty, as in a TSV
                continue
            value = self.parsed(line)
            if sides is None:
                if value is None:
                    raise TextError(
                        f"{self.file.names} line {number} is not a JSON object.",
                        'Each line must be an object, such as {"en": "Hello", "de": "Hallo"}.',
                    )
                sides = self.sides(list(value))
            yield (line,) if value is None else _record_of(*map(value.get, sides))

    def parsed(self, line: bytes) -> dict[str, Any] | None:
        """The object of a line, or the nested one that has both sides."""
        value = json_object(line)
        inner = value and value.get(_TRANSLATION)
        return inner if isinstance(inner, dict) else value


class _TableRecords(Records):
    def __init__(self, file: ParallelFile) -> None:
        super().__init__(file)
        self.share = 0.0

    @property
    def consumed(self) -> int:
        """The share of rows read, in bytes on disk."""
        return int(self.file.size * self.share)

    def __iter__(self) -> Iterator[_Record]:
        require("pyarrow", instead=f"write {self.file.names} as CSV or JSONL")
        for path in self.file.paths:
            with read_errors(path):
                for batch in self.batches(path):
                    yield from self.rows(batch)
            self.share = 1.0

    def batches(self, path: Path) -> Iterator[Any]:
        raise NotImplementedError

    def rows(self, batch: Any) -> Iterator[_Record]:
        if _TRANSLATION in batch.schema.names and hasattr(batch.schema.field(_TRANSLATION).type, "get_field_index"):
            column = batch.column(_TRANSLATION)
            source, target = self.sides([field.name for field in column.type])
            yield from (_record_of(*map((row or {}).get, (source, target))) for row in column.to_pylist())
        else:
            source, target = self.sides(batch.schema.names)
            columns = (batch.column(side).to_pylist() for side in (source, target))
            yield from map(_record_of, *columns)


class _ParquetRecords(_TableRecords):
    def batches(self, path: Path) -> Iterator[Any]:
        parquet = importlib.import_module("pyarrow.parquet")
        with parquet.ParquetFile(path) as opened:
            names = opened.schema_arrow.names
            wanted = [_TRANSLATION] if _TRANSLATION in names else list(self.sides(names))
            done = 0
            for batch in opened.iter_batches(ROWS, columns=wanted):
                done += len(batch)
                self.share = done / max(1, opened.metadata.num_rows)
                yield batch


class _ArrowRecords(_TableRecords):
    """Arrow files as Hugging Face's `save_to_disk` writes them: the stream format or the file format."""

    def batches(self, path: Path) -> Iterator[Any]:
        arrow = importlib.import_module("pyarrow")
        before = sum(p.stat().st_size for p in self.file.paths[: self.file.paths.index(path)])
        with arrow.memory_map(str(path)) as mapped:
            is_file = mapped.read(6) == b"ARROW1"
            mapped.seek(0)
            opened = arrow.ipc.open_file(mapped) if is_file else arrow.ipc.open_stream(mapped)
            batches = map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened
            for batch in batches:
                self.share = (before + mapped.tell()) / max(1, self.file.size)
                yield from (batch.slice(first, ROWS) for first in range(0, len(batch), ROWS))


# Inside a segment these contain codes of another format, not text.
_CODES = ("bpt", "ept", "ph", "it", "ut")


class _TmxRecords(Records):
    """Translation memories: the first variant of either language in each unit, without inline codes."""

    def __iter__(self) -> Iterator[_Record]:
        units = _Units(self.file)
        any_pair = False
        with self.raw.opened() as stream:
            try:
                while block := stream.read(_BLOCK):
                    for record in units.feed(block):
                        any_pair = any_pair or len(record) == 2
                        yield record
                yield from units.feed(b"", last=True)
            except expat.ExpatError as e:
                raise TextError(f"{self.file.names} is not well-formed XML: {e}.", "Export it again.") from None
        if not any_pair:
            languages = ", ".join(sorted(units.languages)) or "no language"
            raise TextError(
                f"{self.file.names} has {languages}, but no unit in {' and '.join(self.file.languages)}.",
                "Give the right languages, or another file.",
            )


@dataclass
class _Unit:
    """A translation unit while it is parsed: its texts by language, and the parser's position."""

    texts: dict[str, str] = field(default_factory=dict)
    language: str = ""
    text: list[str] | None = None
    length: int = 0
    codes: int = 0  # number of open elements with codes
    whole: bool = True


class _Units:
    """Parses a TMX file block by block. Entity declarations are refused: entities could grow without bound."""

    def __init__(self, file: ParallelFile) -> None:
        self.file = file
        self.languages: set[str] = set()
        self.unit = _Unit()
        self.done: list[_Record] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.SkippedEntityHandler = self.skipped
        self.parser.EntityDeclHandler = self.refuse

    def feed(self, block: bytes, *, last: bool = False) -> list[_Record]:
        """The units that end in a block."""
        self.done = []
        self.parser.Parse(block, last)
        return self.done

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self.unit = _Unit()
        elif tag == "tuv":
            self.unit.language = attributes.get("xml:lang") or attributes.get("lang") or ""
            if len(self.languages) < _SHOWN_COLUMNS:
                self.languages.add(self.unit.language)
        elif tag == "seg":
            self.unit.text, self.unit.length, self.unit.codes = [], 0, 0
        elif tag in _CODES:
            self.unit.codes += 1

    def characters(self, text: str) -> None:
        if self.unit.text is not None and not self.unit.codes and self.unit.length < LONGEST_LINE:
            self.unit.text.append(text)
            self.unit.length += len(text)

    def skipped(self, name: str, *_: object) -> None:
        """An entity declared only in an external DTD leaves a gap in the text."""
        self.unit.whole = False

    def refuse(self, name: str, *_: object) -> None:
        raise TextError(f"{self.file.names} declares the entity {name}.", "Replace it by its text.")

    def end(self, tag: str) -> None:
        if tag in _CODES:
            self.unit.codes -= 1
        elif tag == "seg" and self.unit.text is not None:
            self.unit.texts.setdefault(self.unit.language, "".join(self.unit.text))
            self.unit.text = None
        elif tag == "tu":
            texts = self.unit.texts
            sides = [next(_named(texts, side), "") for side in self.file.languages]
            source, target = (texts.get(side) if self.unit.whole else None for side in sides)
            shown = next(iter(texts.values()), "")
            self.done.append(_record_of(source, target) if source is not None else _record_of(shown, None))


READERS: dict[str, Callable[[ParallelFile], Records]] = {
    "csv": _CsvRecords,
    "jsonl": _JsonRecords,
    "parquet": _ParquetRecords,
    "arrow": _ArrowRecords,
    "tmx": _TmxRecords,
}
