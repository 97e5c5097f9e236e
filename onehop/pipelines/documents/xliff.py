"""XLIFF 1.2 and 2: segments without a target get one; inline codes go with the words around them."""

import re
from collections.abc import Iterator

from onehop.pipelines.documents.flow import Pieces, decoded, keep_placeholders, parse_xml
from onehop.pipelines.html_markup import Parser, Piece

# Comments, CDATA, units with translate="no" and proposals (<alt-trans>, which has sources too) come before segments, so
# that no source inside them matches. An empty element has no end to search for, and white space matches only from its
# beginning: the time stays linear.
_SEGMENT = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<alt-trans\b[^>]*(?<!/)>.*?</alt-trans>"
    r"|<(?P<unit>trans-unit|unit|group)\b[^>]*\stranslate=\"no\"[^>]*(?<!/)>.*?</(?P=unit)>"
    r"|(?<![ \t])(?P<indent>[ \t]*)<source\b[^>]*(?<!/)>(?P<source>.*?)</source>"
    r"(?:\s*<seg-source\b(?:[^>]*/>|[^>]*>.*?</seg-source>))?"
    r"(?P<target>(?P<open>\s*<target\b[^>]*?)\s*(?:/>|>(?P<content>.*?)</target>))?",
    re.DOTALL,
)
# States of a target that may be a copy of its source.
_UNTRANSLATED = re.compile(r"\sstate=[\"'](?:new|needs-translation)[\"']")
# Codes whose content belongs to another format.
_CODE = {"ph", "bpt", "ept", "it", "x", "bx", "ex", "sc", "ec", "cp"}
_INLINE = _CODE | {"g", "mrk", "pc", "sub", "sm", "em"}


def read(data: bytes, name: str) -> Pieces:
    source = decoded(data, name)
    parse_xml(data, name, "Save it again.")
    return Pieces(source, list(_pieces(source.text)))


def _pieces(text: str) -> Iterator[Piece]:
    at = 0
    for segment in _SEGMENT.finditer(text):
        if segment["source"] is None or _is_translated(segment):
            continue
        yield text[at : segment.start("target") if segment["target"] else segment.end()]
        yield (segment["open"] or f"\n{segment['indent']}<target") + ">"
        yield from keep_placeholders(Parser(segment["source"], inline=_INLINE, no_text=(), code=_CODE).pieces())
        yield "</target>"
        at = segment.end()
    yield text[at:]


def _is_translated(segment: re.Match[str]) -> bool:
    if segment["content"] == segment["source"] and _UNTRANSLATED.search(segment["open"]):
        return False
    return bool((segment["content"] or "").strip())
