"""YAML: string values are translated; keys, comments, anchors and layout stay."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Pieces, decoded, flow_of, refuse_missing_keys
from onehop.pipelines.documents.json import escaper
from onehop.pipelines.html_markup import Piece, Unit

_STRING = "tag:yaml.org,2002:str"
_FOLD = r"[ \t]*\n[ \t]*"
_UNITS = {
    '"': re.compile(rf"{_FOLD}|\\\n[ \t]*|\\x[0-9a-fA-F]{{2}}|\\u[0-9a-fA-F]{{4}}|\\U[0-9a-fA-F]{{8}}|\\.|."),
    "'": re.compile(rf"{_FOLD}|''|."),
    "": re.compile(rf"{_FOLD}|."),
}
# Anchors and tags.
_PREFIX = re.compile(r"(?:[&!]\S*\s+)*")
_LINE_END = re.compile(r"(\n[ \t]*)")
_DOUBLE_QUOTED_END = re.compile(r"(\\n|\\t|\n[ \t]*\n[ \t]*)")


def read(data: bytes, name: str, *, fields: Collection[str] = ()) -> Pieces:
    """`fields` are the keys whose values are translated, with everything below them; without any, all are."""
    import yaml

    source = decoded(data, name)
    try:
        nodes = list(yaml.compose_all(source.text, yaml.SafeLoader))
    except yaml.YAMLError as e:
        reason = " ".join(str(e).split())
        raise TextError(f"{name} is not YAML: {reason}.", "Correct it, or give another --format.") from None
    seen = set[tuple[int, bool]]()
    scalars = (scalar for node in nodes for scalar in _string_scalars(node, not fields, fields, seen))
    strings = {node.start_mark.index: (node, in_list) for node, in_list in scalars}
    pieces: list[Piece] = []
    at = 0
    for begin, (node, in_list) in sorted(strings.items()):
        prefix = _PREFIX.match(source.text, begin)
        begin, end = prefix.end() if prefix else begin, node.end_mark.index
        pieces += [source.text[at:begin], *_scalar_pieces(source.text[begin:end], node.style or "", in_list)]
        at = end
    refuse_missing_keys(pieces, fields, name)
    return Pieces(source, [*pieces, source.text[at:]])


def _string_scalars(
    node: Any, chosen: bool, fields: Collection[str], seen: set[tuple[int, bool]], in_list: bool = False
) -> Iterator[tuple[Any, bool]]:
    """The string values below a node, each with whether it is in a flow list, where a comma separates items.

    Nodes that were `seen` are skipped: a few lines of aliases can stand for billions of values, or form a cycle.
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
        yield from _string_scalars(child, chosen or is_field, fields, seen, in_list or node.flow_style)


def _scalar_pieces(raw: str, style: str, in_list: bool) -> Iterator[Piece]:
    """A string in one of YAML's five styles; `style` is its quote, "|", ">" or nothing."""
    if style in ("|", ">"):
        yield from _block_pieces(raw, folded=style == ">")
        return
    yield style
    body = raw[len(style) : len(raw) - len(style)]
    escape: Callable[[str], str] = {'"': escaper(False), "'": lambda c: "''" if c == "'" else c}.get(style, str)
    for part in _DOUBLE_QUOTED_END.split(body) if style == '"' else [body]:
        if _DOUBLE_QUOTED_END.fullmatch(part):
            yield part
        else:
            flow = flow_of(_units(part, _UNITS[style]), escape)
            flow.finish = str if style else partial(_quoted_if_needed, original=part, in_list=in_list)
            yield flow
    yield style


def _units(text: str, pattern: re.Pattern[str]) -> Iterator[Unit]:
    """Characters, some of which are written as escapes; a folded line break is read as a space."""
    import yaml

    for unit in pattern.findall(text):
        if unit.strip(" \t").startswith("\n") or unit == "''":
            yield unit, " " if unit != "''" else "'"
        elif unit[0] == "\\" and len(unit) > 1:
            character = yaml.safe_load(f'"{unit}"')
            yield from [(unit, character)] if len(character) == 1 else [(c, c) for c in unit]
        else:
            yield unit, " " if unit == "\t" else unit


def _quoted_if_needed(text: str, original: str, in_list: bool) -> str:
    """A string without quotes, or with them if it would mean something else without."""
    import yaml

    line = " ".join(text.split())
    try:
        read = yaml.safe_load(f"[{line}]" if in_list else f"a: {line}")
    except yaml.YAMLError:
        read = None
    is_plain = read == ([line] if in_list else {"a": line})
    return text if text == original or is_plain else json.dumps(line, ensure_ascii=False)


def _block_pieces(raw: str, *, folded: bool) -> Iterator[Piece]:
    """A block scalar. Each line after `|` is a flow; after `>`, the lines between two empty lines are one."""
    head, end, body = raw.partition("\n")
    yield head + end
    for part in re.split(r"(\n[ \t]*(?:\n[ \t]*)+)", body) if folded else _LINE_END.split(body):
        if not part.strip():
            yield part
            continue
        text = part.strip(" \t\n")
        begin = part.index(text)
        yield part[:begin]
        yield flow_of(_units(text, _UNITS[""]))
        yield part[begin + len(text) :]
