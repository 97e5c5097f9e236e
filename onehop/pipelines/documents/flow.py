"""What every format is made of: bytes as text, inline markup and placeholders in a flow, and pieces as a document."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from onehop.data.corpus import BYTE_ORDER_MARK, refuse_other_unicode
from onehop.errors import TextError
from onehop.pipelines.html import kept_spans, verbatim
from onehop.pipelines.html_markup import VOID, Flow, Kind, Mark, Piece
from onehop.text.sentences import ADDRESS

# What programs fill in: {{name}}, ${name}, {0}, %(name)s, %d, %1$s, %@. A per cent sign after a number is none.
# No two neighbours match the same character, and no comment holds the beginning of another: a text may be long.
_PLACEHOLDER = (
    r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{[\w.:!\[\]-]{0,64}\}|(?<![\d%])%\(\w+\)[-+0#]*(?:[1-9.][\d.]*)?[a-zA-Z]"
    r"|(?<![\d%])%(?:\d+\$)?[-+0#]*(?:[1-9]\d*|\*)?(?:\.\d+)?(?:hh?|ll?|[jztLq])?[diouxXeEfgGcrs@](?![a-zA-Z])"
)
KEPT = re.compile(rf"{_PLACEHOLDER}|{ADDRESS.pattern}")
TAG = r"<(?P<close>/)?(?P<name>[a-zA-Z][\w:.-]*)(?:\s[^<>]*)?/?>|<!--(?:(?!<!--).)*?-->"
TAGGED = re.compile(rf"(?P<tag>{TAG})|{KEPT.pattern}")

Unit = tuple[str, str]  # a character as it is written, and as it is read


@runtime_checkable
class Document(Protocol):
    """A file's content: flows of text to be translated, in order, and everything around them."""

    @property
    def flows(self) -> Sequence[Flow]:
        """What is to be translated."""

    def written(self, texts: Sequence[str]) -> bytes:
        """The file with a text in the place of each flow."""


@dataclass(frozen=True)
class Source:
    """A file as text with the line ends of Python, and how its bytes are made of text again."""

    text: str
    marked: bool  # with a byte order mark
    crlf: bool

    def encoded(self, text: str) -> bytes:
        """Text as the bytes of such a file."""
        text = text.replace("\n", "\r\n") if self.crlf else text
        return BYTE_ORDER_MARK * self.marked + text.encode("utf-8", "replace")


def decoded(data: bytes, name: str) -> Source:
    """The text of a file in UTF-8. Line ends are taken as they are where they are of two kinds."""
    refuse_other_unicode(data[:4], Path(name))
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise TextError(f"Line {line} of {name} is not UTF-8.", "Convert it, e.g. with iconv.") from None
    crlf = "\r\n" in text and text.count("\r") == text.count("\n") == text.count("\r\n")
    return Source(text.replace("\r\n", "\n") if crlf else text, data.startswith(codecs.BOM_UTF8), crlf)


@dataclass(frozen=True)
class Pieces:
    """A document of text: what is kept and what is translated, in order."""

    source: Source
    pieces: Sequence[Piece]

    @property
    def flows(self) -> list[Flow]:
        return [piece for piece in self.pieces if isinstance(piece, Flow)]

    def written(self, texts: Sequence[str]) -> bytes:
        """The file with a text in the place of each flow."""
        each = iter(texts)
        return self.source.encoded("".join(next(each) if isinstance(p, Flow) else p for p in self.pieces))


def plain(text: str) -> Iterator[Unit]:
    """Characters that are written as they are read; white space is read as a space."""
    return ((c, " " if c in "\t\n\f\r" else c) for c in text)


def flow_of(units: Iterable[Unit], escape: Callable[[str], str] = str, marks: re.Pattern[str] = TAGGED) -> Flow:
    """A flow with tags as marks; placeholders and addresses are read by the model and come out as they were."""
    units, flow, at = list(units), Flow(escape=escape), 0
    text = "".join(character for _, character in units)
    for found in marks.finditer(text):
        add(flow, units[at : found.start()])
        markup, at = units[found.start() : found.end()], found.end()
        if "tag" in marks.groupindex and found["tag"]:
            flow.marks.append(tag(found, len(flow.characters), "".join(raw for raw, _ in markup)))
        else:
            add_kept(flow, markup)
    add(flow, units[at:])
    return flow


def add(flow: Flow, units: Iterable[Unit]) -> None:
    for raw, character in units:
        flow.raw.append(raw)
        flow.characters.append(character)


def add_kept(flow: Flow, units: Iterable[Unit], before: str = "", after: str = "") -> None:
    """Append what the model reads, but does not change."""
    flow.marks.append(Mark(len(flow.characters), before, "open", "kept", kept=True))
    add(flow, units)
    flow.marks.append(Mark(len(flow.characters), after, "close", "kept"))


def keep_placeholders(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of a markup parser, with placeholders and addresses kept in their flows."""
    pieces = list(pieces)
    for piece in pieces:
        if isinstance(piece, Flow):
            _keep_placeholders(piece)
    return pieces


def _keep_placeholders(flow: Flow) -> None:
    """Add marks around placeholders, except inside kept elements."""
    is_taken = bytearray(len(flow.characters) + 1)
    for begin, end in kept_spans(flow.marks).values():
        is_taken[begin:end] = b"\1" * (end - begin)
    marks = [(mark.place, 1, mark) for mark in flow.marks]
    for placeholder in KEPT.finditer(flow.text):
        begin, end = placeholder.span()
        if not any(is_taken[begin:end]):
            marks.append((begin, 2, Mark(begin, "", "open", "kept", kept=True)))
            marks.append((end, 0, Mark(end, "", "close", "kept")))
    # A placeholder opens after the tags at its begin, and closes before those at its end.
    flow.marks = [mark for _, _, mark in sorted(marks, key=lambda entry: entry[:2])]


def tag(found: re.Match[str], place: int, markup: str) -> Mark:
    name = (found["name"] or "").lower()
    kind: Kind = "close" if found["close"] else "open"
    if not name or name in VOID or found[0].endswith("/>"):
        kind = "point"
    return Mark(place, markup, kind, name)


def as_stood(flow: Flow) -> str:
    """A flow as the document has it."""
    return verbatim(flow, 0, len(flow.characters), flow.marks)
