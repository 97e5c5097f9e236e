"""Markdown: markdown-it finds the blocks and what is inline in them; everything else comes out letter for letter."""

import re
from collections.abc import Iterator, Sequence
from functools import cache, wraps
from itertools import pairwise
from typing import Any, cast

from onehop.pipelines.documents.flow import (
    KEPT,
    Pieces,
    Unit,
    add,
    add_kept,
    as_stood,
    decoded,
    keep_placeholders,
    plain,
)
from onehop.pipelines.documents.text import rewrapped
from onehop.pipelines.html_markup import VOID, Flow, Kind, Mark, Piece, parse

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n.*?^\1[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_SPECIAL = frozenset("*_`[]<\\~|")
_BREAK = re.compile(r"[ \t]*\\?\n[ \t]*")
# What an item of a list, a heading or a quotation would begin with.
_BLOCK_START = re.compile(r"(\d+)?([-+*#>=~.)])(?=\s|[=#~]|$)")
# Footnotes and mathematics, which markdown-it takes for text.
_FOREIGN = re.compile(rf"\[\^[^\[\]\s]+\]|\$[^$\s](?:[^$\n]*[^$\s])?\$(?!\d)|{KEPT.pattern}")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


class _Unlike(Exception):  # noqa: N818
    """The tokens are not found in the text that they came from."""


def read(data: bytes, name: str) -> Pieces:
    source = decoded(data, name)
    front = _FRONT_MATTER.match(source.text)
    begin = front.end() if front else 0
    return Pieces(source, [source.text[:begin], *_blocks(source.text[begin:])])


@cache
def _parser() -> Any:
    """A parser whose links know where they end, and which leaves text in the pieces that it was written in."""
    from markdown_it import MarkdownIt

    md = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["text_join", "fragments_join"])
    for name in ("link", "image", "autolink"):
        place = md.inline.ruler.__find__(name)
        md.inline.ruler.at(name, _knowing_its_end(md.inline.ruler.__rules__[place].fn))
    return md


def _knowing_its_end(rule: Any) -> Any:
    """A rule whose first and last token have the place where it has ended."""

    @wraps(rule)
    def marked(state: Any, silent: bool) -> Any:
        count = len(state.tokens) + bool(state.pending)
        matched = rule(state, silent)
        if matched and not silent:
            for token in (state.tokens[count], state.tokens[-1]):
                token.meta["end"] = state.pos
        return matched

    return marked


def _blocks(text: str) -> Iterator[Piece]:
    """What is kept and what is translated."""
    lines = [0]
    for line in re.finditer(r"\r\n|\n|\r", text):
        lines.append(line.end())
    lines.append(len(text))
    at = 0
    for token in _parser().parse(text):
        if token.type not in ("inline", "html_block") or not token.map:
            continue
        begin, end = max(at, lines[token.map[0]]), lines[min(token.map[1], len(lines) - 1)]
        if token.type == "html_block":
            yield text[at:begin]
            yield from keep_placeholders(parse(text[begin:end]))
            at = end
        elif found := _located(text, token.content, begin, end):
            yield text[at : found[0][0]]
            yield from inline(token, [text[a:b] for (_, a), (b, _) in pairwise(found)])
            at = found[-1][1]
    yield text[at:]


def _located(text: str, content: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Begin and end of each line of a block's content, which has lost what stands before it; nothing if not found."""
    spans, at = [], begin
    for line in content.split("\n"):
        place = text.find(line, at, end)
        if place < 0 or not content.strip():
            return []
        spans.append((place, place + len(line)))
        # The next line of content is in the next line of the text.
        at = min(text.find("\n", place + len(line), end) % (end + 1) + 1, end) if "\n" in content else place
    return spans


def inline(token: Any, between: Sequence[str]) -> Iterator[Piece]:
    """The content of a block as flows, parted where the author breaks a line; `between` its lines stand these."""
    try:
        pieces = list(_Walk(token, between).pieces())
    except _Unlike:
        pieces = [_with_breaks(token.content, iter(between))]
    yield from pieces


def _with_breaks(content: str, between: Iterator[str]) -> str:
    """Content as it stands in the text."""
    first, *rest = content.split("\n")
    return first + "".join(next(between) + line for line in rest)


class _Walk:
    """Goes along the content and its tokens."""

    def __init__(self, token: Any, between: Sequence[str]) -> None:
        self.content, self.tokens = token.content, token.children
        self.between = iter(between)
        self.at = 0
        self.new_flow()

    def new_flow(self) -> None:
        self.flow = Flow(escape=self.escape)
        self.breaks: list[str] = []

    def escape(self, character: str) -> str:
        """A character that the source writes as it is may stand so in the translation; others may mean something."""
        return f"\\{character}" if character in _SPECIAL and character not in self.content else character

    def pieces(self) -> Iterator[Piece]:
        inside_autolink = False
        for token in self.tokens:
            if inside_autolink:
                inside_autolink = token.type != "link_close"
            elif token.type == "hardbreak":
                yield from self.ended()
                yield _with_breaks(self.take_break(), self.between)
                self.new_flow()
            else:
                inside_autolink = token.type == "link_open" and token.markup == "autolink"
                self.add(token)
        if self.content[self.at :].strip():
            raise _Unlike
        yield from self.ended()
        yield self.content[self.at :]

    def ended(self) -> Iterator[Flow]:
        self.flow.finish = self.finish()
        if self.flow.characters or self.flow.marks:
            yield self.flow

    def finish(self) -> Any:
        """What breaks the translation into lines as the source was, and keeps it from becoming another block."""
        stood = as_stood(self.flow)
        following = self.breaks[0][1:] if self.breaks else ""
        breaks, width = set(self.breaks), max(map(len, self.content.split("\n")))

        def finished(text: str) -> str:
            if text == stood:
                return text
            if not _BLOCK_START.match(stood) and (found := _BLOCK_START.match(text)):
                text = f"{text[: found.start(2)]}\\{text[found.start(2) :]}"
            if len(breaks) != 1:
                return text
            return rewrapped(stood, width + len(following), len(following), following)(text)

        return finished

    def add(self, token: Any) -> None:
        kind = token.type
        if kind == "text":
            self.add_text(self.take(token.content))
        elif kind == "text_special":
            add(self.flow, [(self.take(token.markup), token.content)] if len(token.content) == 1 else [])
        elif kind == "softbreak":
            self.breaks.append(_with_breaks(self.take_break(), self.between))
            add(self.flow, [(self.breaks[-1], " ")])
        elif kind == "code_inline":
            found = _CODE.match(self.content, self.at)
            if not found:
                raise _Unlike
            self.at = found.end()
            add_kept(self.flow, self.units(found[2]), found[1], found[1])
        elif token.markup == "autolink":
            add_kept(self.flow, plain(self.take(self.content[self.at : token.meta["end"]])[1:-1]), "<", ">")
        elif kind in ("image", "link_close"):
            self.mark(self.content[self.at : token.meta["end"]], kind)
        elif kind == "html_inline":
            self.mark(token.content, kind)
        else:
            self.mark("[" if kind == "link_open" else token.markup, kind)

    def add_text(self, text: str) -> None:
        """Text with its footnotes, addresses and placeholders."""
        at = 0
        for found in _FOREIGN.finditer(text):
            add(self.flow, plain(text[at : found.start()]))
            add_kept(self.flow, plain(found[0]))
            at = found.end()
        add(self.flow, plain(text[at:]))

    def units(self, text: str) -> Iterator[Unit]:
        """Characters of code, which may run over lines."""
        return ((next(self.between), " ") if c == "\n" else (c, c) for c in text)

    def take(self, text: str) -> str:
        """Go over some text, which must be there."""
        if not self.content.startswith(text, self.at):
            raise _Unlike
        self.at += len(text)
        return text

    def take_break(self) -> str:
        """Go over the end of a line."""
        found = _BREAK.match(self.content, self.at)
        if not found:
            raise _Unlike
        self.at = found.end()
        return found[0]

    def mark(self, markup: str, kind: str) -> None:
        self.take(markup)
        name, _, which = kind.rpartition("_")
        if kind == "html_inline":
            name, which = _html_tag(markup)
        elif kind == "image":
            name, which = "img", "point"
        markup = _with_breaks(markup, self.between)
        self.flow.marks.append(Mark(len(self.flow.characters), markup, cast("Kind", which), name))


def _html_tag(markup: str) -> tuple[str, Kind]:
    """Name and kind of a tag."""
    name = re.sub(r"\W.*", "", markup.strip("</>"), flags=re.DOTALL).lower()
    if markup.endswith("/>") or markup[1] in "!?" or name in VOID:
        return name, "point"
    return name, "close" if markup[1] == "/" else "open"
