"""Plain text: each line, or with `join_lines` each paragraph of a text that was broken into lines by hand."""

import re
from collections.abc import Callable, Iterator
from itertools import chain

from onehop.pipelines.documents.flow import Pieces, Unit, add, decoded, plain
from onehop.pipelines.html_markup import Flow, Piece

# Tabs part columns, and the ends of lines part lines.
_SEPARATORS = re.compile(r"(\t+|\r?\n)")
# What stands before the text of a line: spaces, and the marks of a quotation.
_PREFIX = re.compile(r"[ \t]*(?:>[> \t]*)?")
# A word that would mean something else at the beginning of a line.
_NO_LINE = re.compile(r"[-*+>|#=~`:]|\d+[.)]")
# Lines are not broken in code and in tags.
WORD = re.compile(r"(?:`[^`\n]+`|<[^<>\n]+>|\S)+")
_ITEM = re.compile(r"(?:[-*+•–]|\(?\w{1,3}[.)])\s+")


def read(data: bytes, name: str, *, join_lines: bool = False) -> Pieces:
    source = decoded(data, name)
    return Pieces(source, list(_paragraphs(source.text) if join_lines else lines(source.text)))


def lines(text: str) -> Iterator[Piece]:
    for part in _SEPARATORS.split(text):
        if not part.strip():
            yield part
        else:
            yield _flow_of_lines([part])


def _flow_of_lines(parts: list[str], between: str = "\n") -> Flow:
    """Lines as one flow; the break between two of them is read as a space."""
    flow = Flow(escape=str)
    for i, part in enumerate(parts):
        breaks: list[Unit] = [(between, " ")] if i else []
        add(flow, chain(breaks, plain(part)))
    return flow


def _paragraphs(text: str) -> Iterator[Piece]:
    """The lines, where those that belong together are one flow, which is broken into lines of the same width."""
    paragraph: list[str] = []
    for line in text.splitlines(keepends=True):
        if paragraph and _begins_anew(paragraph, line):
            yield from joined(paragraph)
            paragraph = []
        if line.strip(" \t\r\n>"):
            paragraph.append(line)
        else:
            yield from joined(paragraph)
            paragraph = []
            yield line
    yield from joined(paragraph)


def _begins_anew(paragraph: list[str], line: str) -> bool:
    """Whether a line is not the continuation of those before it."""
    prefix = _prefix_of(line)
    other_end = not re.search(r"[^\r]\n\Z", paragraph[-1])  # which must come out as it was
    if other_end or _ITEM.match(line, len(prefix)):
        return True
    if len(paragraph) == 1:  # its indentation may be another one: after the mark of an item, or of a first line
        return prefix.count(">") != _prefix_of(paragraph[0]).count(">")
    return prefix != _prefix_of(paragraph[-1])


def _prefix_of(line: str) -> str:
    """The spaces and quotation marks before a line's text."""
    found = _PREFIX.match(line)
    return found[0] if found else ""


def joined(paragraph: list[str]) -> Iterator[Piece]:
    """A paragraph with what stands before and after it."""
    if not paragraph:
        return
    first, last = _prefix_of(paragraph[0]), paragraph[-1].rstrip("\r\n")
    if item := _ITEM.match(paragraph[0], len(first)):
        first = paragraph[0][: item.end()]
    following = _prefix_of(paragraph[1]) if len(paragraph) > 1 else ""
    bodies = [paragraph[0][len(first) :], *(line[len(following) :] for line in paragraph[1:])]
    bodies = [body.rstrip("\r\n") for body in bodies]
    flow = _flow_of_lines(bodies, "\n" + following)
    if len(bodies) > 1:
        flow.finish = rewrapped("".join(flow.raw), max(len(line.rstrip()) for line in paragraph), len(first), following)
    yield first
    yield flow
    yield paragraph[-1][len(last) :]


def rewrapped(stood: str, width: int, first: int, following: str) -> Callable[[str], str]:
    """What breaks a text into lines; one that is as it stood has them already."""
    return lambda text: (
        text if text == stood else _wrapped(text.replace(f"\n{following}", " "), width, first, following)
    )


def _wrapped(text: str, width: int, first: int, following: str) -> str:
    """Text in lines of a width, the first of which has less room; the others begin with `following`."""
    out, room = "", width - first
    for i, word in enumerate(WORD.findall(text)):
        if i and len(word) + 1 > room and not _NO_LINE.match(word):
            out, room = f"{out}\n{following}{word}", width - len(following) - len(word)
        else:
            out, room = f"{out}{' ' * bool(i)}{word}", room - len(word) - bool(i)
    return out
