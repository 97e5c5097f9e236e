"""What the formats share: decoding, inline markup and placeholders in flows, and documents made of pieces."""

import codecs
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from onehop.data.corpus import BYTE_ORDER_MARK, CONVERT, refuse_other_unicode
from onehop.errors import SettingsError, TextError
from onehop.pipelines.html import flows, kept_spans, verbatim
from onehop.pipelines.html_markup import Flow, Mark, Piece, Unit, tag_kind
from onehop.text.sentences import ADDRESS

# {{name}}, ${name}, {0}, %(name)s, %d, %1$s, %@. A per cent sign after a number is not a placeholder.
# No two neighbours match the same character, and no comment contains the start of another: the time stays linear.
_PLACEHOLDER = (
    r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{[\w.:!\[\]-]{0,64}\}|(?<![\d%])%\(\w+\)[-+0#]*(?:[1-9.][\d.]*)?[a-zA-Z]"
    r"|(?<![\d%])%(?:\d+\$)?[-+0#]*(?:[1-9]\d*|\*)?(?:\.\d+)?(?:hh?|ll?|[jztLq])?[diouxXeEfgGcrs@](?![a-zA-Z])"
)
KEPT = re.compile(rf"{_PLACEHOLDER}|{ADDRESS.pattern}")
TAG = r"<(?P<close>/)?(?P<name>[a-zA-Z][\w:.-]*)(?:\s[^<>]*)?/?>|<!--(?:(?!<!--).)*?-->"
TAGGED = re.compile(rf"(?P<tag>{TAG})|{KEPT.pattern}")


@runtime_checkable
class Document(Protocol):
    """A file's content: flows of text to translate, in order, and everything around them."""

    @property
    def flows(self) -> Sequence[Flow]: ...

    def written(self, texts: Sequence[str]) -> bytes:
        """The file with each flow replaced by a text."""


@dataclass(frozen=True)
class Source:
    """A file's text with \\n as line end, and how it was encoded."""

    text: str
    has_bom: bool
    crlf: bool

    def encoded(self, text: str) -> bytes:
        text = text.replace("\n", "\r\n") if self.crlf else text
        return BYTE_ORDER_MARK * self.has_bom + text.encode("utf-8", "replace")


def decoded(data: bytes, name: str) -> Source:
    """Decode UTF-8. Mixed line ends stay as they are."""
    refuse_other_unicode(data[:4], Path(name))
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as e:
        if b"\0" in data:
            raise TextError(f"{name} is not text.", "Save it as text, docx, odt, epub or HTML.") from None
        line = data.count(b"\n", 0, e.start) + 1
        raise TextError(f"Line {line} of {name} is not UTF-8.", CONVERT) from None
    crlf = "\r\n" in text and text.count("\r") == text.count("\n") == text.count("\r\n")
    return Source(text.replace("\r\n", "\n") if crlf else text, data.startswith(codecs.BOM_UTF8), crlf)


def refuse_missing_keys(pieces: Sequence[Piece], fields: Collection[str], name: str) -> None:
    """Refuse keys that choose no text: a file that stays as it is would look translated."""
    if fields and all(isinstance(piece, str) for piece in pieces):
        what = f"{name} has no text below the key {' or '.join(sorted(fields))}."
        raise SettingsError(what, "Give another key, or none to translate all text.")


@dataclass(frozen=True)
class Pieces:
    """A document of text: strings that are kept and flows that are translated, in order."""

    source: Source
    pieces: Sequence[Piece]

    @property
    def flows(self) -> list[Flow]:
        return flows(self.pieces)

    def written(self, texts: Sequence[str]) -> bytes:
        remaining = iter(texts)
        return self.source.encoded("".join(next(remaining) if isinstance(p, Flow) else p for p in self.pieces))


def parse_xml(data: bytes, name: str, remedy: str) -> Any:
    """The root of an XML file, parsed without entities or network access."""
    from lxml import etree

    try:
        return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as e:
        raise TextError(f"{name} is not XML: {e}.", remedy) from None


def plain(text: str) -> Iterator[Unit]:
    """Characters that the file writes as they are; white space is read as a space."""
    return ((c, " " if c in "\t\n\f\r" else c) for c in text)


def flow_of(units: Iterable[Unit], escape: Callable[[str], str] = str, marks: re.Pattern[str] = TAGGED) -> Flow:
    """A flow in which tags are marks. The model reads placeholders and addresses, but they come out unchanged."""
    units, flow, at = list(units), Flow(escape=escape), 0
    text = "".join(character for _, character in units)
    for match in marks.finditer(text):
        flow.extend(units[at : match.start()])
        markup, at = units[match.start() : match.end()], match.end()
        if match["tag"]:
            name = (match["name"] or "").lower()
            raw_tag = "".join(raw for raw, _ in markup)
            flow.marks.append(Mark(len(flow.characters), raw_tag, tag_kind(match[0], name), name))
        else:
            add_kept(flow, markup)
    flow.extend(units[at:])
    return flow


def add_kept(flow: Flow, units: Iterable[Unit], before: str = "", after: str = "") -> None:
    """Append text that the model reads, but that comes out unchanged."""
    flow.marks.append(Mark(len(flow.characters), before, "open", "kept", kept=True))
    flow.extend(units)
    flow.marks.append(Mark(len(flow.characters), after, "close", "kept"))


def keep_placeholders(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of a markup parser, with marks around placeholders and addresses outside of kept elements."""
    pieces = list(pieces)
    for flow in flows(pieces):
        is_taken = bytearray(len(flow.characters) + 1)
        for begin, end in kept_spans(flow.marks).values():
            is_taken[begin:end] = b"\1" * (end - begin)
        marks = [(mark.position, 1, mark) for mark in flow.marks]
        for placeholder in KEPT.finditer(flow.text):
            begin, end = placeholder.span()
            if not any(is_taken[begin:end]):
                marks.append((begin, 2, Mark(begin, "", "open", "kept", kept=True)))
                marks.append((end, 0, Mark(end, "", "close", "kept")))
        # A placeholder opens after the tags at its begin, and closes before those at its end.
        flow.marks = [mark for _, _, mark in sorted(marks, key=lambda entry: entry[:2])]
    return pieces


def original(flow: Flow) -> str:
    """A flow as the document writes it."""
    return verbatim(flow, 0, len(flow.characters), flow.marks)
