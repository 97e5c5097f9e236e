"""Input files of a translation on a cluster, local or at a URL, and their windows of lines and records."""

import io
import json
import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from onehop.atomic import json_object
from onehop.data.corpus import GLOB_MARKS, PACKED, Lines, read_errors, unpacked
from onehop.errors import SettingsError, TextError, require
from onehop.pipelines.bulk import Window, windows
from onehop.pipelines.documents import format_of

Format = Literal["text", "tsv", "jsonl", "parquet"]
_FORMATS: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_TEXT = ("text", None)  # formats of files that are read line by line; None is an unknown extension
_ROWS = 1024  # rows of a Parquet file per window


@dataclass(frozen=True)
class InputFile:
    """A file to translate, and the name of its output in the output folder."""

    url: str
    name: str
    format: Format
    size: int | None
    modified: str

    @property
    def version(self) -> list[Any]:
        """The URL, size and date, which identify the content."""
        return [self.url, self.size, self.modified]


@dataclass(frozen=True)
class Piece:
    """A window of a file, or the file's end. `table` has the rows of a Parquet file."""

    file: int
    number: int
    consumed: int
    window: Window | None = None
    table: bytes | None = None
    error: TextError | None = None


def is_url(word: str) -> bool:
    return "://" in word


def find_inputs(words: Sequence[str], out: Path) -> list[InputFile]:
    """The files for names, folders, patterns and URLs; output names are unique."""
    require("fsspec")
    inputs: dict[str, InputFile] = {}
    for word in words:
        for input_ in _inputs_of(word, out):
            if input_.name in inputs:
                what = f"{inputs[input_.name].url} and {input_.url} would both become {out / input_.name}."
                raise SettingsError(what, "Translate them one after the other, into two folders.")
            inputs[input_.name] = input_
    if not inputs:
        raise TextError(f"{' '.join(words)} has no file to translate.", "Check the path.")
    return list(inputs.values())


def _inputs_of(word: str, out: Path) -> Iterator[InputFile]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(word if is_url(word) else os.path.abspath(word))
        has_marks = any(mark in word for mark in GLOB_MARKS) and not system.exists(path)
        base = path
        if has_marks:
            base = posixpath.dirname(path[: min(path.index(m) for m in GLOB_MARKS if m in path)])
            paths = sorted(p for p in system.glob(path) if not system.isdir(p))
            if not paths:
                raise TextError(f"No file matches {word}.", "Correct the pattern.")
        elif system.isdir(path):
            paths = sorted(system.find(path))
        else:
            base, paths = posixpath.dirname(path), [path]
        for file in paths:
            relative = posixpath.relpath(file, base)
            hidden = any(part.startswith(".") for part in relative.split("/"))
            if (hidden and len(paths) > 1) or (not is_url(word) and Path(file).is_relative_to(out.absolute())):
                continue
            yield _input(system.unstrip_protocol(file) if is_url(word) else file, relative, system.info(file))
    except (ImportError, ValueError, OSError) as e:
        raise TextError(f"{word} cannot be read: {_reason(e)}.", "Check the path.") from None


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


def _input(url: str, relative: str, info: dict[str, Any]) -> InputFile:
    packed = next((ending for ending in PACKED if relative.lower().endswith(ending)), "")
    name = relative[: len(relative) - len(packed)]
    format = _FORMATS.get(Path(name.lower()).suffix, "text")
    if format == "text" and format_of(name, None) not in _TEXT:
        remedy = "Give documents without --ray, or only files of lines: text, TSV, JSONL, Parquet."
        raise SettingsError(f"{url} is a document, but --ray translates lines.", remedy)
    if format == "parquet":
        require("pyarrow")
    modified = info.get("mtime") or info.get("LastModified") or info.get("ETag") or info.get("etag") or ""
    return InputFile(url, name, format, info.get("size"), str(modified))


# --- reading --------------------------------------------------------------------------------------------------


class _RemoteLines(Lines):
    """Lines of a file that may be at a URL."""

    def __init__(self, url: str) -> None:
        super().__init__(Path(url))
        self.url = url
        self._last = 0

    @property
    def consumed(self) -> int:
        if self._raw is not None and not self._raw.closed:
            self._last = self._raw.tell()
        return self._last

    @contextmanager
    def opened(self) -> Iterator[io.BufferedReader]:
        with read_errors(self.url), _opened(self.url) as raw, unpacked(raw, self.path) as stream:
            self._raw = raw
            yield io.BufferedReader(stream, 1 << 18)
            self._last = raw.tell()


def _opened(url: str) -> IO[bytes]:
    if not is_url(url):
        return open(url, "rb")
    import fsspec

    stream: IO[bytes] = fsspec.open(url, "rb").open()
    return stream


def pieces(number: int, input_: InputFile, skip: int = 0, *, gpu: bool = False) -> Iterator[Piece]:
    """The windows of a file after the first `skip`, then its end, which has the error if there was one."""
    count, consumed = 0, 0
    try:
        parts = _tables(number, input_) if input_.format == "parquet" else _line_pieces(number, input_, gpu)
        for piece in parts:
            if piece.window is not None and piece.window.cut and not piece.window.lines:
                continue
            count, consumed = count + 1, piece.consumed
            if count > skip:
                yield piece
        yield Piece(number, count, input_.size or consumed)
    except TextError as e:
        yield Piece(number, count, consumed, error=e)
    except Exception as e:  # a file system at a URL may raise any exception
        error = TextError(f"{input_.url} cannot be read: {_reason(e)}.", "Check the file and its permissions.")
        yield Piece(number, count, consumed, error=error)


def _line_pieces(number: int, input_: InputFile, gpu: bool) -> Iterator[Piece]:
    lines = _RemoteLines(input_.url)
    for i, window in enumerate(windows(input_.url, ([line] for line in lines), gpu=gpu)):
        # Line numbers are those of the file, so that its output does not depend on other files.
        numbered = Window(window.name, window.first, window.lines, offset=window.first - 1, cut=window.cut)
        yield Piece(number, i, lines.consumed, window=numbered)


def _tables(number: int, input_: InputFile) -> Iterator[Piece]:
    """Rows of a Parquet file in Arrow's stream format; the first piece has only the schema."""
    require("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with read_errors(input_.url), _opened(input_.url) as raw:
        file = pq.ParquetFile(raw)
        done, rows = 0, max(1, file.metadata.num_rows)
        yield Piece(number, 0, 0, table=_ipc_bytes(pa.Table.from_batches([], file.schema_arrow)))
        for i, batch in enumerate(file.iter_batches(_ROWS), start=1):
            done += batch.num_rows
            consumed = (input_.size or 0) * done // rows
            yield Piece(number, i, consumed, table=_ipc_bytes(pa.Table.from_batches([batch])))


def _ipc_bytes(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def ipc_table(data: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()


# --- records --------------------------------------------------------------------------------------------------


class Cells:
    """The texts to translate in a window's records, and the records with these texts replaced."""

    def __init__(self, piece: Piece, format: Format, fields: Sequence[str], columns: Sequence[str] = ()) -> None:
        self.piece, self.format, self.fields = piece, format, fields
        self.columns = columns
        self.records: list[Any] = []
        self.keys: list[tuple[int, Any]] = []  # the record and key of each text
        self.texts: list[str] = []
        {"tsv": self._read_tsv, "jsonl": self._read_jsonl, "parquet": self._read_parquet}[format]()

    def _add(self, record: int, key: Any, text: Any) -> None:
        if isinstance(text, str) and text.strip():
            self.keys.append((record, key))
            self.texts.append(text)

    def _read_tsv(self) -> None:
        assert self.piece.window is not None
        self.records = [line.split("\t") for line in self.piece.window.lines]
        by_name = bool(self.columns)
        chosen = {self.columns.index(f) for f in self.fields} if by_name else {int(f) - 1 for f in self.fields}
        header = by_name and self.piece.window.first == 1
        for i, cells in enumerate(self.records):
            for column, cell in enumerate(cells):
                if not (header and i == 0) and (not chosen or column in chosen):
                    self._add(i, column, cell)

    def _read_jsonl(self) -> None:
        window = self.piece.window
        assert window is not None
        for i, line in enumerate(window.lines):
            record = json_object(line)
            if record is None and line.strip():
                what = f"Line {window.first + i} of {window.name} is not a JSON object."
                raise TextError(what, "Correct it, or rename the file to .txt.")
            self.records.append(record)
            for key, value in (record or {}).items():
                if not self.fields or key in self.fields:
                    self._add(i, key, value)

    def _read_parquet(self) -> None:
        import pyarrow as pa

        assert self.piece.table is not None
        self.table = ipc_table(self.piece.table)
        texts = [f.name for f in self.table.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        for name in self.fields or texts:
            if name not in texts:
                raise SettingsError(f"There is no column of text {name!r}.", f"There are: {', '.join(texts)}.")
            for i, value in enumerate(self.table.column(name).to_pylist()):
                self._add(i, name, value)

    @property
    def count(self) -> int:
        return len(self.records) if self.format != "parquet" else int(self.table.num_rows)

    def with_translations(self, translations: Sequence[str]) -> bytes:
        """The records with their translations, in their format."""
        if self.format == "parquet":
            return self._table_with_translations(translations)
        is_tsv = self.format == "tsv"
        for (record, key), text in zip(self.keys, translations, strict=True):
            self.records[record][key] = " ".join(text.split("\t")) if is_tsv else text
        lines = (
            "\t".join(record) if is_tsv else "" if record is None else json.dumps(record, ensure_ascii=False)
            for record in self.records
        )
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

    def _table_with_translations(self, translations: Sequence[str]) -> bytes:
        import pyarrow as pa

        table = self.table
        columns = {name: table.column(name).to_pylist() for name in dict.fromkeys(key for _, key in self.keys)}
        for (row, name), text in zip(self.keys, translations, strict=True):
            columns[name][row] = text
        for name, values in columns.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
        return _ipc_bytes(table)


def header_of(input_: InputFile, fields: Sequence[str]) -> list[str]:
    """The column names in the first line of a TSV, if the fields are names instead of numbers; else none."""
    if input_.format != "tsv" or not fields or all(field.isdigit() for field in fields):
        return []
    with _RemoteLines(input_.url).opened() as stream:
        names = stream.readline().decode("utf-8", "replace").rstrip("\r\n").split("\t")
    for field in fields:
        if field not in names:
            raise SettingsError(f"{input_.url} has no column {field!r}.", f"It has: {', '.join(names)}.")
    return names


def first_lines(input_: InputFile) -> list[str]:
    """The texts of the first window of a file."""
    for piece in pieces(0, input_):
        if piece.error is not None:
            raise piece.error
        if piece.window and input_.format == "text":
            return piece.window.lines
        if piece.window or (piece.table and ipc_table(piece.table).num_rows):
            return Cells(piece, input_.format, ()).texts
    return []
