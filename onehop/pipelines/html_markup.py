"""Splits HTML into flows of text and the markup between them.

The parser does not build a document. The pieces joined are the input again, so markup stays unchanged even if the HTML
is broken. A flow is text with inline tags; every other tag ends it.
"""

import html
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

_FORMATTING = {"abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "dfn", "em", "font", "i", "mark", "nobr", "q", "s"}
_FORMATTING |= {"small", "span", "strike", "strong", "sub", "sup", "tt", "u"}
# The model reads the content of these as context, but it is not translated.
_CODE = {"code", "kbd", "samp", "var"}
_INLINE = _FORMATTING | _CODE | {"a", "data", "del", "img", "ins", "label", "time", "wbr"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
# The content of these is not text.
_NO_TEXT = {"iframe", "math", "object", "pre", "script", "style", "svg", "template", "textarea"}
# These end at their first closing tag, whatever is in between.
_RAW = {"iframe", "script", "style", "textarea", "title"}
# Optional line breaks inside a word. They are handled like tags, because the model has never seen them.
_INVISIBLE = ("\u00ad", "\u200b")

# No backtracking: alternatives begin with different characters, groups are atomic, and a < outside of quotes ends it.
_TAG = r"<[!?][^<>]*>|<(?P<close>/)?(?P<name>[a-zA-Z][a-zA-Z0-9:-]*)(?P<rest>(?>[^<>\"']|\"[^\"]*\"|'[^']*')*)>"
MARKUP = re.compile(rf"<!--(?s:.*?)-->|{_TAG}")
# After the last end of a comment: searching for another one at each "<!--" would take quadratic time.
_NO_COMMENT = re.compile(_TAG)
_NOT_TRANSLATED = re.compile(
    r"\stranslate\s*=\s*[\"']?no\b|\sclass\s*=\s*(?:\"[^\"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b)", re.I
)
# In a group, so that `ENTITY.split` gives text and entities in turn.
ENTITY = re.compile(r"(&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});)")
# HTML's white space. A no-break space is not part of it.
_SPACES = re.compile(r"[\t\n\f\r]")
_INVALID_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Kind = Literal["open", "close", "point"]
Unit = tuple[str, str]  # a character as the file writes it, and as the model reads it


@dataclass(frozen=True)
class Mark:
    """Inline markup at a position of a flow's text: a tag, or a point such as an image or a comment."""

    position: int
    markup: str
    kind: Kind
    name: str = ""
    kept: bool = False  # the content of the element is not translated


def tag_kind(markup: str, name: str) -> Kind:
    """The kind of a tag; void elements, and comments, which have no name, are points."""
    if not name or name in _VOID or markup.endswith("/>"):
        return "point"
    return "close" if markup.startswith("</") else "open"


def xml_character(character: str) -> str:
    """The character, or U+FFFD if XML does not allow it: byte fallback lets a model write any character."""
    return "\ufffd" if _INVALID_XML.match(character) else character


def escaped_html(character: str) -> str:
    return html.escape(xml_character(character), quote=False)


@dataclass
class Flow:
    """Continuous text as characters, and the marks in it; `raw` has the source code of each character.

    `escape` encodes a character of the translation. `finish` processes the whole translation for its document.
    """

    raw: list[str] = field(default_factory=list)
    characters: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    escape: Callable[[str], str] = escaped_html
    finish: Callable[[str], str] = str

    @property
    def text(self) -> str:
        return "".join(self.characters)

    def add(self, text: str) -> None:
        """Add text. An entity is one character, unless it is unknown or stands for several characters."""
        for i, part in enumerate(ENTITY.split(text)):
            character = html.unescape(part) if i % 2 else ""
            if character in _INVISIBLE:
                self.marks.append(Mark(len(self.characters), part, "point"))
            elif (len(character) == 1 and character.isprintable()) or character == "\u00a0":
                self.raw.append(part)
                self.characters.append(character)
            else:
                self.raw += part
                self.characters += _SPACES.sub(" ", part)

    def extend(self, units: Iterable[Unit]) -> None:
        for raw, character in units:
            self.raw.append(raw)
            self.characters.append(character)

    def spelling(self) -> dict[str, str]:
        """The entity of each character that was written as one."""
        return {c: raw for c, raw in zip(self.characters, self.raw, strict=True) if len(raw) > 1}


Piece = str | Flow


def parse(text: str) -> list[Piece]:
    """Markup to keep and flows to translate, in order."""
    return list(Parser(text).pieces())


class Parser:
    """Parses HTML, or XML with other names of elements: `inline`, `no_text` and `code`."""

    def __init__(
        self,
        text: str,
        inline: Collection[str] = _INLINE,
        no_text: Collection[str] = _NO_TEXT,
        code: Collection[str] = _CODE,
    ) -> None:
        self.text, self.last_comment = text, text.rfind("-->")
        self.inline, self.no_text, self.code = inline, no_text, code
        self.flow = Flow()

    def pieces(self) -> Iterator[Piece]:
        end = 0
        while tag := self._next_markup(end):
            self.flow.add(self.text[end : tag.start()])
            end = tag.end()
            name = (tag["name"] or "").lower()
            if name in self.no_text or (name and name not in self.inline and self._is_kept(tag)):
                end = self._end_of_element(tag, name)
                yield from self._flush()
                yield self.text[tag.start() : end]
            elif not name or name in self.inline:
                kind: Kind = "close" if tag["close"] else tag_kind(tag[0], name)
                kept = kind == "open" and (name in self.code or self._is_kept(tag))
                self.flow.marks.append(Mark(len(self.flow.characters), tag[0], kind, name, kept))
            else:
                yield from self._flush()
                yield tag[0]
        self.flow.add(self.text[end:])
        yield from self._flush()

    def _next_markup(self, at: int) -> re.Match[str] | None:
        """The next tag, comment or the like; a < that begins none is text."""
        while (at := self.text.find("<", at)) >= 0:
            if match := (MARKUP if at < self.last_comment else _NO_COMMENT).match(self.text, at):
                return match
            at += 1
        return None

    def _flush(self) -> Iterator[Flow]:
        """Yield the current flow unless it is empty, and begin a new one."""
        if self.flow.characters or self.flow.marks:
            yield self.flow
        self.flow = Flow()

    def _is_kept(self, tag: re.Match[str]) -> bool:
        """Whether a tag says that its element is not to be translated."""
        return not tag["close"] and _NOT_TRANSLATED.search(tag["rest"]) is not None

    def _end_of_element(self, tag: re.Match[str], name: str) -> int:
        """The end of an element that is kept whole; without a closing tag, the end of the text."""
        if tag["close"] or name in _VOID or (name not in _RAW and tag[0].endswith("/>")):
            return tag.end()
        depth, end = 1, tag.end()
        slash = "/" if name in _RAW else "/?"
        tags = re.compile(rf"<({slash}){re.escape(name)}(?=[\s/>])[^<>]*>", re.IGNORECASE)
        for inner in tags.finditer(self.text, end):
            depth += -1 if inner[1] else 0 if inner[0].endswith("/>") else 1
            if depth == 0:
                return inner.end()
        return len(self.text)


def escaped(text: str, spelling: dict[str, str], escape: Callable[[str], str] = escaped_html) -> str:
    """Text in the source code of its format. Characters that the source wrote as entities become entities again."""
    return "".join(spelling.get(c) or escape(c) for c in text)
