"""CSV and TSV: the cells of all or some columns; quotes, separators and line ends stay."""

import re
from collections.abc import Callable, Collection, Iterator
from functools import partial

from onehop.errors import SettingsError
from onehop.pipelines.documents.flow import Pieces, decoded, flow_of, plain
from onehop.pipelines.html_markup import Piece

_LINE_END = re.compile(r"(\r?\n)")


def read(data: bytes, name: str, *, fields: Collection[str] = ()) -> Pieces:
    """`fields` are columns by their names in the first row, or by their numbers from 1."""
    source = decoded(data, name)
    first = source.text.partition("\n")[0]
    separator = "\t" if name.lower().endswith((".tsv", ".tab")) else max(",;\t", key=first.count)
    cell = re.compile(rf'("(?:[^"]|"")*"|[^{separator}\r\n]*)({separator}|\r?\n|\Z)')
    header = [match[1].strip('"') for match in cell.finditer(first)][: first.count(separator) + 1]
    return Pieces(source, list(_pieces(source.text, cell, separator, _chosen_columns(fields, header, name))))


def _chosen_columns(fields: Collection[str], header: list[str], name: str) -> Callable[[int, int], bool]:
    """A function of row and column: whether the cell is translated. A first row with column names is not."""
    if not fields:
        return lambda row, column: True
    by_number = all(field.isdigit() and field not in header for field in fields)
    for field in fields:
        if field not in header and not (by_number and 1 <= int(field) <= len(header)):
            raise SettingsError(f"{name} has no column {field!r}.", f"It has: {', '.join(header)}.")
    chosen = {int(field) - 1 if by_number else header.index(field) for field in fields}
    return lambda row, column: column in chosen and (by_number or row > 0)


def _pieces(text: str, cell: re.Pattern[str], separator: str, is_chosen: Callable[[int, int], bool]) -> Iterator[Piece]:
    row = column = at = 0
    while at < len(text) and (match := cell.match(text, at)):
        content, end = match[1], match[2]
        if not is_chosen(row, column):
            yield content
        elif content.startswith('"'):
            yield from _quoted_cell(content)
        else:
            flow = flow_of(plain(content))
            flow.finish = partial(_quoted_if_needed, original=content, separator=separator)
            yield flow
        yield end
        at = match.end()
        row, column = (row, column + 1) if end == separator else (row + 1, 0)
    yield text[at:]


def _quoted_cell(cell: str) -> Iterator[Piece]:
    yield '"'
    for part in _LINE_END.split(cell[1:-1]):
        units = ((unit, unit[0]) for unit in re.findall(r'""|.', part))
        yield part if _LINE_END.fullmatch(part) else flow_of(units, lambda c: '""' if c == '"' else c)
    yield '"'


def _quoted_if_needed(text: str, original: str, separator: str) -> str:
    if text == original or not re.search(rf'[{separator}"\r\n]', text):
        return text
    return '"' + text.replace('"', '""') + '"'
