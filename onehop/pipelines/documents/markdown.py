"""Markdown: markdown-it finds blocks and inline markup; everything that is not text comes out unchanged."""

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial, wraps
from itertools import pairwise
from typing import Any, cast

from onehop.pipelines.documents.flow import KEPT, Pieces, add_kept, decoded, keep_placeholders, original, plain
from onehop.pipelines.documents.text import rewrap
from onehop.pipelines.html_markup import Flow, Kind, Mark, Piece, parse, tag_kind

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n.*?^\1[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_SPECIAL = frozenset("*_`[]<\\~|")
_BREAK = re.compile(r"[ \t]*\\?\n[ \t]*")
# The start of a list item, a heading or a quotation.
_BLOCK_START = re.compile(r"(\d+)?([-+*#>=~.)])(?=\s|[=#~]|$)")
# Footnotes and mathematics, which markdown-it treats as text.
_FOREIGN = re.compile(rf"\[\^[^\[\]\s]+\]|\$[^$\s](?:[^$\n]*[^$\s])?\$(?!\d)|{KEPT.pattern}")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


class _TokenMismatch(Exception):  # noqa: N818
    """A token was not found in the text that it came from."""


def read(data: bytes, name: str) -> Pieces:
    source = decoded(data, name)
    front = _FRONT_MATTER.match(source.text)
    begin = front.end() if front else 0
    return Pieces(source, [source.text[:begin], *_blocks(source.text[begin:])])


@cache
def _parser() -> Any:
    """A parser that records where links end, and does not join pieces of text."""
    from markdown_it import MarkdownIt

    md = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["text_join", "fragments_join"])
    for name in ("link", "image", "autolink"):
        index = md.inline.ruler.__find__(name)
        md.inline.ruler.at(name, _record_end(md.inline.ruler.__rules__[index].fn))
    return md


def _record_end(rule: Any) -> Any:
    """Wrap a rule so that its first and last token have the position of its end."""

    @wraps(rule)
    def wrapped(state: Any, silent: bool) -> Any:
        count = len(state.tokens) + bool(state.pending)
        matched = rule(state, silent)
        if matched and not silent:
            for token in (state.tokens[count], state.tokens[-1]):
                token.meta["end"] = state.pos
        return matched

    return wrapped


def _blocks(text: str) -> Iterator[Piece]:
    lines = [0, *(line.end() for line in re.finditer(r"\r\n|\n|\r", text)), len(text)]
    at = 0
    for token in _parser().parse(text):
        if token.type not in ("inline", "html_block") or not token.map:
            continue
        begin, end = max(at, lines[token.map[0]]), lines[min(token.map[1], len(lines) - 1)]
        if token.type == "html_block":
            yield text[at:begin]
            yield from keep_placeholders(parse(text[begin:end]))
            at = end
        elif spans := _line_spans(text, token.content, begin, end):
            yield text[at : spans[0][0]]
            yield from _inline_pieces(token, [text[a:b] for (_, a), (b, _) in pairwise(spans)])
            at = spans[-1][1]
    yield text[at:]


def _line_spans(text: str, content: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Where the lines of a block's content are in the text, without indents and quotation marks; empty if not found."""
    spans, at = [], begin
    for line in content.split("\n"):
        start = text.find(line, at, end)
        if start < 0 or not content.strip():
            return []
        spans.append((start, start + len(line)))
        # The next line of content is in the next line of the text.
        at = min(text.find("\n", start + len(line), end) % (end + 1) + 1, end) if "\n" in content else start
    return spans


def _inline_pieces(token: Any, separators: Sequence[str]) -> Sequence[Piece]:
    """A block's content as flows, one per hard line break. `separators` are the texts between its lines."""
    try:
        return list(_Walk(token, separators).pieces())
    except _TokenMismatch:
        return [_with_separators(token.content, iter(separators))]


def _with_separators(content: str, separators: Iterator[str]) -> str:
    """Content as the text writes it."""
    first, *rest = content.split("\n")
    return first + "".join(next(separators) + line for line in rest)


class _Walk:
    def __init__(self, token: Any, separators: Sequence[str]) -> None:
        self.content, self.tokens = token.content, token.children
        self.separators = iter(separators)
        self.at = 0
        self.new_flow()

    def new_flow(self) -> None:
        self.flow = Flow(escape=self.escape)
        self.breaks: list[str] = []

    def escape(self, character: str) -> str:
        """Escape a special character, unless the source uses it without an escape."""
        return f"\\{character}" if character in _SPECIAL and character not in self.content else character

    def pieces(self) -> Iterator[Piece]:
        inside_autolink = False
        for token in self.tokens:
            if inside_autolink:
                inside_autolink = token.type != "link_close"
            elif token.type == "hardbreak":
                yield from self.end_flow()
                yield _with_separators(self.take_match(_BREAK)[0], self.separators)
                self.new_flow()
            else:
                inside_autolink = token.type == "link_open" and token.markup == "autolink"
                self.add(token)
        if self.content[self.at :].strip():
            raise _TokenMismatch
        yield from self.end_flow()
        yield self.content[self.at :]

    def end_flow(self) -> Iterator[Flow]:
        self.flow.finish = partial(
            _finish,
            source=original(self.flow),
            breaks=self.breaks,
            width=max(map(len, self.content.split("\n"))),
        )
        if self.flow.characters or self.flow.marks:
            yield self.flow

    def add(self, token: Any) -> None:
        kind = token.type
        if kind == "text":
            self.add_text(self.take(token.content))
        elif kind == "text_special":
            self.flow.extend([(self.take(token.markup), token.content)] if len(token.content) == 1 else [])
        elif kind == "softbreak":
            self.breaks.append(_with_separators(self.take_match(_BREAK)[0], self.separators))
            self.flow.extend([(self.breaks[-1], " ")])
        elif kind == "code_inline":
            code = self.take_match(_CODE)
            units = ((next(self.separators), " ") if c == "\n" else (c, c) for c in code[2])
            add_kept(self.flow, units, code[1], code[1])
        elif token.markup == "autolink":
            add_kept(self.flow, plain(self.take(self.content[self.at : token.meta["end"]])[1:-1]), "<", ">")
        elif kind in ("image", "link_close"):
            self.mark(self.content[self.at : token.meta["end"]], kind)
        elif kind == "html_inline":
            self.mark(token.content, kind)
        else:
            self.mark("[" if kind == "link_open" else token.markup, kind)

    def add_text(self, text: str) -> None:
        """Add text with its footnotes, addresses and placeholders."""
        at = 0
        for match in _FOREIGN.finditer(text):
            self.flow.extend(plain(text[at : match.start()]))
            add_kept(self.flow, plain(match[0]))
            at = match.end()
        self.flow.extend(plain(text[at:]))

    def take(self, text: str) -> str:
        """Advance over a text, which must come next."""
        if not self.content.startswith(text, self.at):
            raise _TokenMismatch
        self.at += len(text)
        return text

    def take_match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Advance over a match of the pattern, which must come next."""
        match = pattern.match(self.content, self.at)
        if not match:
            raise _TokenMismatch
        self.at = match.end()
        return match

    def mark(self, markup: str, kind: str) -> None:
        self.take(markup)
        name, _, which = kind.rpartition("_")
        if kind == "html_inline":
            name = re.sub(r"\W.*", "", markup.strip("</>"), flags=re.DOTALL).lower()
            which = tag_kind(markup, name)
        elif kind == "image":
            name, which = "img", "point"
        markup = _with_separators(markup, self.separators)
        self.flow.marks.append(Mark(len(self.flow.characters), markup, cast("Kind", which), name))


def _finish(text: str, source: str, breaks: Sequence[str], width: int) -> str:
    """Wrap a translation like its source, and escape what would start another block."""
    if text == source:
        return text
    if not _BLOCK_START.match(source) and (start := _BLOCK_START.match(text)):
        text = f"{text[: start.start(2)]}\\{text[start.start(2) :]}"
    if len(set(breaks)) != 1:
        return text
    following = breaks[0][1:]
    return rewrap(text, source, width + len(following), len(following), following)
