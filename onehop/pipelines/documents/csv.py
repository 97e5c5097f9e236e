"""CSV and TSV: the cells of all columns or of some; quotes, separators and line ends stay."""

import re
from collections.abc import Callable, Collection, Iterator

from onehop.errors import SettingsError
from onehop.pipelines.documents.flow import Pieces, Unit, decoded, flow_of, plain
from onehop.pipelines.html_markup import Piece

_LINE_END = re.compile(r"(\r?\n)")


def read(data: bytes, name: str, *, fields: Collection[str] = ()) -> Pieces:
    """A table; `fields` are columns by the names in the first row, or by their numbers from 1."""
    source = decoded(data, name)
    first = source.text.partition("\n")[0]
    separator = "\t" if name.lower().endswith((".tsv", ".tab")) else max(",;\t", key=first.count)
    cell = re.compile(rf'("(?:[^"]|"")*"|[^{separator}\r\n]*)({separator}|\r?\n|\Z)')
    header = [found[1].strip('"') for found in cell.finditer(first)][: first.count(separator) + 1]
    return Pieces(source, list(pieces(source.text, cell, separator, columns(fields, header, name))))


def columns(fields: Collection[str], header: list[str], name: str) -> Callable[[int, int], bool]:
    """Whether the cell of a row and a column is translated; a first row that names columns is not."""
    if not fields:
        return lambda row, column: True
    by_number = all(field.isdigit() and field not in header for field in fields)
    for field in fields:
        if field not in header and not (by_number and 1 <= int(field) <= len(header)):
            raise SettingsError(f"{name} has no column {field!r}.", f"It has: {', '.join(header)}.")
    chosen = {int(field) - 1 if by_number else header.index(field) for field in fields}
    return lambda row, column: column in chosen and (by_number or row > 0)


def pieces(text: str, cell: re.Pattern[str], separator: str, is_chosen: Callable[[int, int], bool]) -> Iterator[Piece]:
    """What is kept and what is translated."""
    row = column = at = 0
    while at < len(text) and (found := cell.match(text, at)):
        if not is_chosen(row, column):
            yield found[1]
        elif found[1].startswith('"'):
            yield from quoted(found[1])
        else:
            flow = flow_of(plain(found[1]))
            flow.finish = _quoting(found[1], separator)
            yield flow
        yield found[2]
        at = found.end()
        row, column = (row, column + 1) if found[2] == separator else (row + 1, 0)
    yield text[at:]


def quoted(cell: str) -> Iterator[Piece]:
    yield '"'
    for part in _LINE_END.split(cell[1:-1]):
        yield part if _LINE_END.fullmatch(part) else flow_of(_units(part), lambda c: '""' if c == '"' else c)
    yield '"'


def _units(text: str) -> Iterator[Unit]:
    """Characters, of which a quote is written twice."""
    return ((unit, unit[0]) for unit in re.findall(r'""|.', text))


def _quoting(stood: str, separator: str) -> Callable[[str], str]:
    """What puts a cell in quotes if its translation needs them."""

    def finished(text: str) -> str:
        if text == stood or not re.search(rf'[{separator}"\r\n]', text):
            return text
        return '"' + text.replace('"', '""') + '"'

    return finished
