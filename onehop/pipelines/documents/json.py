"""JSON: string values are translated; keys, numbers and layout stay."""

import json
import re
from collections.abc import Callable, Collection, Iterator

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Pieces, decoded, flow_of, refuse_missing_keys
from onehop.pipelines.html_markup import Piece, Unit

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')
_UNIT = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_LINE_END = re.compile(r"((?:\\r)?\\n|\\t)")
# A choice by number or gender in an ICU message, which is a small program and stays.
_CHOICE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def read(data: bytes, name: str, *, fields: Collection[str] = ()) -> Pieces:
    """`fields` are the keys whose values are translated, with everything below them; without any, all are."""
    source = decoded(data, name)
    try:
        json.loads(source.text)
    except ValueError as e:
        raise TextError(f"{name} is not JSON: {e}.", "Correct it, or give another --format.") from None
    ascii_only = source.text.isascii() and re.search(r"\\u[0-9a-fA-F]{4}", source.text) is not None
    pieces = list(_pieces(source.text, fields, ascii_only))
    refuse_missing_keys(pieces, fields, name)
    return Pieces(source, pieces)


def _pieces(text: str, fields: Collection[str], ascii_only: bool) -> Iterator[Piece]:
    at, path = 0, [""]  # the current key of each open object or list
    tokens = list(_TOKEN.finditer(text))
    for token, following in zip(tokens, [*(t[0] for t in tokens[1:]), ""], strict=True):
        if token[0] in "{[":
            path.append("")
        elif token[0] in "}]":
            path.pop()
        elif token[0][0] == '"' and following == ":":
            path[-1] = json.loads(token[0])
        elif token[0][0] == '"' and (not fields or not set(path).isdisjoint(fields)):
            yield text[at : token.start() + 1]
            yield from _string_pieces(token[0][1:-1], escaper(ascii_only))
            at = token.end() - 1
    yield text[at:]


def _string_pieces(raw: str, escape: Callable[[str], str]) -> Iterator[Piece]:
    if _CHOICE.search(raw):
        yield raw
        return
    for part in _LINE_END.split(raw):
        yield part if _LINE_END.fullmatch(part) else flow_of(_units(part), escape)


def _units(raw: str) -> Iterator[Unit]:
    """Characters, some of which are written as escapes."""
    for unit in _UNIT.findall(raw):
        character = json.loads(f'"{unit}"') if unit[0] == "\\" else unit
        yield unit, " " if character.isspace() and character != "\u00a0" else character


def escaper(ascii_only: bool) -> Callable[[str], str]:
    """A function that writes a character inside a JSON string."""
    return lambda character: json.dumps(character, ensure_ascii=ascii_only)[1:-1]
