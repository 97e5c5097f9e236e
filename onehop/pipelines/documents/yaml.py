"""YAML: string values; keys, comments, anchors and layout come out as they were."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Pieces, Unit, decoded, flow_of
from onehop.pipelines.documents.json import escaping
from onehop.pipelines.html_markup import Flow, Piece

_STRING = "tag:yaml.org,2002:str"
_FOLD = r"[ \t]*\n[ \t]*"
_UNITS = {
    '"': re.compile(rf"{_FOLD}|\\\n[ \t]*|\\x[0-9a-fA-F]{{2}}|\\u[0-9a-fA-F]{{4}}|\\U[0-9a-fA-F]{{8}}|\\.|."),
    "'": re.compile(rf"{_FOLD}|''|."),
    "": re.compile(rf"{_FOLD}|."),
}
# An anchor and a tag.
_PREFIX = re.compile(r"(?:[&!]\S*\s+)*")
_LINE_END = re.compile(r"(\n[ \t]*)")
_DOUBLE_QUOTED_END = re.compile(r"(\\n|\\t|\n[ \t]*\n[ \t]*)")


def read(data: bytes, name: str, *, fields: Collection[str] = ()) -> Pieces:
    """A YAML file; `fields` are the keys whose values are translated, everything below them too."""
    import yaml

    source = decoded(data, name)
    try:
        nodes = list(yaml.compose_all(source.text, yaml.SafeLoader))
    except yaml.YAMLError as e:
        reason = " ".join(str(e).split())
        raise TextError(f"{name} is not YAML: {reason}.", "Correct it, or give another --format.") from None
    seen = set[tuple[int, bool]]()
    found = (each for node in nodes for each in scalars(node, not fields, fields, seen))
    strings = {node.start_mark.index: (node, in_list) for node, in_list in found}
    pieces: list[Piece] = []
    at = 0
    for begin, (node, in_list) in sorted(strings.items()):
        prefix = _PREFIX.match(source.text, begin)
        begin, end = prefix.end() if prefix else begin, node.end_mark.index
        pieces += [source.text[at:begin], *scalar(source.text[begin:end], node.style or "", in_list)]
        at = end
    return Pieces(source, [*pieces, source.text[at:]])


def scalars(
    node: Any, chosen: bool, fields: Collection[str], seen: set[tuple[int, bool]], in_list: bool = False
) -> Iterator[tuple[Any, bool]]:
    """The strings among the values below a node, and whether they stand in brackets, where a comma parts them.

    Aliases lead to nodes that were `seen` before: a few lines of them can make billions of values, or a circle.
    """
    if node is None or (id(node), chosen) in seen:
        return
    seen.add((id(node), chosen))
    if node.id == "scalar":
        if chosen and node.tag == _STRING:
            yield node, in_list
        return
    pairs = node.value if node.id == "mapping" else [(None, child) for child in node.value]
    for key, child in pairs:
        is_field = key is not None and key.value in fields
        yield from scalars(child, chosen or is_field, fields, seen, in_list or node.flow_style)


def scalar(raw: str, style: str, in_list: bool) -> Iterator[Piece]:
    """A string in one of YAML's five styles."""
    if style in ("|", ">"):
        yield from block(raw, folded=style == ">")
        return
    mark = style
    yield mark
    body = raw[len(mark) : len(raw) - len(mark)]
    escape: Callable[[str], str] = {'"': escaping(False), "'": lambda c: "''" if c == "'" else c}.get(style, str)
    for part in _DOUBLE_QUOTED_END.split(body) if style == '"' else [body]:
        if _DOUBLE_QUOTED_END.fullmatch(part):
            yield part
        else:
            flow = flow_of(_units(part, _UNITS[style]), escape)
            flow.finish = str if style else _plain_again(part, in_list)
            yield flow
    yield mark


def _units(text: str, pattern: re.Pattern[str]) -> Iterator[Unit]:
    """Characters, some of which are written as escapes; a fold of a line is read as a space."""
    import yaml

    for unit in pattern.findall(text):
        if unit.strip(" \t").startswith("\n") or unit == "''":
            yield unit, " " if unit != "''" else "'"
        elif unit[0] == "\\" and len(unit) > 1:
            character = yaml.safe_load(f'"{unit}"')
            yield from [(unit, character)] if len(character) == 1 else [(c, c) for c in unit]
        else:
            yield unit, " " if unit == "\t" else unit


def _plain_again(stood: str, in_list: bool) -> Callable[[str], str]:
    """What writes a string without quotes, or with them if it would mean something else without."""
    import yaml

    def finished(text: str) -> str:
        line = " ".join(text.split())
        try:
            read = yaml.safe_load(f"[{line}]" if in_list else f"a: {line}")
        except yaml.YAMLError:
            read = None
        is_plain = read == ([line] if in_list else {"a": line})
        return text if text == stood or is_plain else json.dumps(line, ensure_ascii=False)

    return finished


def block(raw: str, *, folded: bool) -> Iterator[Piece]:
    """The lines below a `|` or a `>`; of the latter those between two empty lines are one flow."""
    head, end, body = raw.partition("\n")
    yield head + end
    parts = re.split(r"(\n[ \t]*(?:\n[ \t]*)+)", body) if folded else _LINE_END.split(body)
    for part in parts:
        if not part.strip():
            yield part
            continue
        text = part.strip(" \t\n")
        begin = part.index(text)
        yield part[:begin]
        flow: Flow = flow_of(_units(text, _UNITS[""]))
        yield flow
        yield part[begin + len(text) :]
