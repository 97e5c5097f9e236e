"""HTML as runs of text between markup that is never touched.

The parser does not build a document: it cuts the input into pieces that give, put together, the input again, so that
whatever is no text comes out letter for letter, however broken the HTML is. Text that flows through inline tags is one
flow; every other tag ends it.
"""

import html
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

_FORMATTING = {"abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "dfn", "em", "font", "i", "mark", "nobr", "q", "s"}
_FORMATTING |= {"small", "span", "strike", "strong", "sub", "sup", "tt", "u"}
# The model reads what these hold, but their content stays.
_CODE = {"code", "kbd", "samp", "var"}
_INLINE = _FORMATTING | _CODE | {"a", "data", "del", "img", "ins", "label", "time", "wbr"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
# What these hold is no text of the language.
_NO_TEXT = {"iframe", "math", "object", "pre", "script", "style", "svg", "template", "textarea"}
# Of those and others, what is read up to the first closing tag, whatever stands in between.
_RAW = {"iframe", "script", "style", "textarea", "title"}
# Where a line may break inside a word: they go with the tags, for the model has never seen them.
_INVISIBLE = ("\u00ad", "\u200b")

# Each alternative begins with another character, groups are atomic, and a < ends it outside of quotes: nothing is slow.
_TAG = r"<[!?][^<>]*>|<(?P<close>/)?(?P<name>[a-zA-Z][a-zA-Z0-9:-]*)(?P<rest>(?>[^<>\"']|\"[^\"]*\"|'[^']*')*)>"
MARKUP = re.compile(rf"<!--(?s:.*?)-->|{_TAG}")
# Where no comment ends any more, looking for its end at each beginning would take for ever.
_NO_COMMENT = re.compile(_TAG)
_NOT_TRANSLATED = re.compile(
    r"\stranslate\s*=\s*[\"']?no\b|\sclass\s*=\s*(?:\"[^\"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b)", re.I
)
ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
# HTML's own white space, which means a space; a no-break space is another matter.
_SPACES = re.compile(r"[\t\n\f\r]")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Kind = Literal["open", "close", "point"]


@dataclass(frozen=True)
class Mark:
    """Inline markup at a place of a flow's text: a tag, or what stands at one point, such as an image or a comment."""

    place: int
    markup: str
    kind: Kind
    name: str = ""
    kept: bool = False  # what the element holds is not to be translated


def xml_character(character: str) -> str:
    """A character that XML may hold: byte fallback lets a model write any other, which becomes U+FFFD."""
    return "\ufffd" if _NO_XML.match(character) else character


def escaped_html(character: str) -> str:
    """A character of text as HTML writes it."""
    return html.escape(xml_character(character), quote=False)


@dataclass
class Flow:
    """Text that is read in one go, as characters, and the marks in it; `raw` has each character as it was written.

    `escape` writes a character of the translation. `finish` is given the translation when it is put into its document.
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
        end = 0
        for entity in ENTITY.finditer(text):
            self._add_plain(text[end : entity.start()])
            self._add_entity(entity[0])
            end = entity.end()
        self._add_plain(text[end:])

    def _add_plain(self, text: str) -> None:
        self.raw += text
        self.characters += _SPACES.sub(" ", text)

    def _add_entity(self, entity: str) -> None:
        """One character for an entity; what is none, or means several, stays what it is."""
        meaning = html.unescape(entity)
        if meaning in _INVISIBLE:
            self.marks.append(Mark(len(self.characters), entity, "point"))
        elif (len(meaning) == 1 and meaning.isprintable()) or meaning == "\u00a0":
            self.raw.append(entity)
            self.characters.append(meaning)
        else:
            self._add_plain(entity)

    def spelling(self) -> dict[str, str]:
        """How each character was written where that was as an entity."""
        return {c: raw for c, raw in zip(self.characters, self.raw, strict=True) if len(raw) > 1}


Piece = str | Flow


def parse(text: str) -> list[Piece]:
    """Markup to keep and flows to translate, in order."""
    return list(Parser(text).pieces())


class Parser:
    """One pass over the text. `inline`, `no_text` and `code` are names of elements, for XML other ones than HTML's."""

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
        """Flows, and what lies between them."""
        end = 0
        while found := self.markup_after(end):
            self.flow.add(self.text[end : found.start()])
            end = found.end()
            name = (found["name"] or "").lower()
            if name in self.no_text or (name and name not in self.inline and self.is_kept(found)):
                end = self.end_of_element(found, name)
                yield from self.flushed()
                yield self.text[found.start() : end]
            elif not name or name in self.inline:
                self.flow.marks.append(self.mark(found, name))
            else:
                yield from self.flushed()
                yield found[0]
        self.flow.add(self.text[end:])
        yield from self.flushed()

    def markup_after(self, place: int) -> re.Match[str] | None:
        """The next tag, comment or the like; a < that begins none is text."""
        while (place := self.text.find("<", place)) >= 0:
            if found := (MARKUP if place < self.last_comment else _NO_COMMENT).match(self.text, place):
                return found
            place += 1
        return None

    def flushed(self) -> Iterator[Flow]:
        """The flow so far, if there is any."""
        if self.flow.characters or self.flow.marks:
            yield self.flow
        self.flow = Flow()

    def mark(self, found: re.Match[str], name: str) -> Mark:
        """An inline tag, or a comment."""
        kind: Kind = "close" if found["close"] else "open"
        if not name or (kind == "open" and (name in VOID or found[0].endswith("/>"))):
            kind = "point"
        kept = kind == "open" and (name in self.code or self.is_kept(found))
        return Mark(len(self.flow.characters), found[0], kind, name, kept)

    def is_kept(self, found: re.Match[str]) -> bool:
        """Whether the author asks for an element not to be translated."""
        return not found["close"] and _NOT_TRANSLATED.search(found["rest"]) is not None

    def end_of_element(self, found: re.Match[str], name: str) -> int:
        """Where an element ends that is kept as it is; one that never ends goes to the end of the text."""
        if found["close"] or name in VOID or (name not in _RAW and found[0].endswith("/>")):
            return found.end()
        depth, end = 1, found.end()
        slash = "/" if name in _RAW else "/?"
        tags = re.compile(rf"<({slash}){re.escape(name)}(?=[\s/>])[^<>]*>", re.IGNORECASE)
        for tag in tags.finditer(self.text, end):
            depth += -1 if tag[1] else 0 if tag[0].endswith("/>") else 1
            if depth == 0:
                return tag.end()
        return len(self.text)


def escaped(text: str, spelling: dict[str, str], escape: Callable[[str], str] = escaped_html) -> str:
    """Text as its format writes it: characters that the source wrote as entities are written so again."""
    return "".join(spelling.get(c) or escape(c) for c in text)
