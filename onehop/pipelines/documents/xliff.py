"""XLIFF 1.2 and 2: segments without a target get one; codes stay, and go with the words around them."""

import re
from collections.abc import Iterator

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Pieces, decoded
from onehop.pipelines.html_markup import Parser, Piece

# What is not to be translated, and proposals, which have sources too; else a segment. An element that is empty has no
# end to look for, and white space is looked at from its beginning alone: nothing is slow.
_SEGMENT = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<alt-trans\b[^>]*(?<!/)>.*?</alt-trans>"
    r"|<(?P<unit>trans-unit|unit|group)\b[^>]*\stranslate=\"no\"[^>]*(?<!/)>.*?</(?P=unit)>"
    r"|(?<![ \t])(?P<indent>[ \t]*)<source\b[^>]*(?<!/)>(?P<source>.*?)</source>"
    r"(?:\s*<seg-source\b(?:[^>]*/>|[^>]*>.*?</seg-source>))?"
    r"(?P<target>\s*<target\b(?:[^>]*/>|[^>]*>(?P<done>.*?)</target>))?",
    re.DOTALL,
)
# Codes whose content belongs to another format.
_CODE = {"ph", "bpt", "ept", "it", "x", "bx", "ex", "sc", "ec", "cp"}
_INLINE = _CODE | {"g", "mrk", "pc", "sub", "sm", "em"}


def read(data: bytes, name: str) -> Pieces:
    from lxml import etree

    source = decoded(data, name)
    try:
        etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as e:
        raise TextError(f"{name} is not XML: {e}.", "Save it again.") from None
    return Pieces(source, list(pieces(source.text)))


def pieces(text: str) -> Iterator[Piece]:
    """What is kept and what is translated."""
    at = 0
    for found in _SEGMENT.finditer(text):
        if found["source"] is None or (found["done"] or "").strip():
            continue
        yield text[at : found.start("target") if found["target"] else found.end()]
        opening = re.match(r"(\s*<target\b[^>]*?)\s*/?>", found["target"] or f"\n{found['indent']}<target>")
        yield f"{opening[1] if opening else '<target'}>"
        yield from Parser(found["source"], inline=_INLINE, no_text=(), code=_CODE).pieces()
        yield "</target>"
        at = found.end()
    yield text[at:]
