"""Plain text: each line is translated, or with `join_lines` each paragraph of hard-wrapped text."""

import re
from collections.abc import Iterator
from functools import partial

from onehop.pipelines.documents.flow import Pieces, decoded, plain
from onehop.pipelines.html_markup import Flow, Piece

# Tabs separate columns, line ends separate lines.
_SEPARATORS = re.compile(r"(\t+|\r?\n)")
# Spaces and quotation marks before the text of a line.
_PREFIX = re.compile(r"[ \t]*(?:>[> \t]*)?")
# A word that would mean something else at the start of a line.
_NO_LINE = re.compile(r"[-*+>|#=~`:]|\d+[.)]")
# Lines are not broken inside code and tags.
_WORD = re.compile(r"(?:`[^`\n]+`|<[^<>\n]+>|\S)+")
_ITEM = re.compile(r"(?:[-*+•–]|\(?\w{1,3}[.)])[ \t]+(?=\S)")


def read(data: bytes, name: str, *, join_lines: bool = False) -> Pieces:
    source = decoded(data, name)
    return Pieces(source, list(_paragraphs(source.text) if join_lines else _lines(source.text)))


def _lines(text: str) -> Iterator[Piece]:
    for part in _SEPARATORS.split(text):
        yield _flow_of_lines([part]) if part.strip() else part


def _flow_of_lines(lines: list[str], separator: str = "\n") -> Flow:
    """Lines as one flow; the break between two of them is read as a space."""
    flow = Flow(escape=str)
    for i, line in enumerate(lines):
        flow.extend([(separator, " ")] if i else [])
        flow.extend(plain(line))
    return flow


def _paragraphs(text: str) -> Iterator[Piece]:
    paragraph: list[str] = []
    for line in text.splitlines(keepends=True):
        is_empty = not line.strip(" \t\r\n>")
        if paragraph and (is_empty or _begins_paragraph(paragraph, line)):
            yield from _paragraph_pieces(paragraph)
            paragraph = []
        if is_empty:
            yield line
        else:
            paragraph.append(line)
    if paragraph:
        yield from _paragraph_pieces(paragraph)


def _begins_paragraph(paragraph: list[str], line: str) -> bool:
    prefix = _prefix_of(line)
    is_other_line_end = not re.search(r"[^\r]\n\Z", paragraph[-1])  # which must come out as it was
    if is_other_line_end or _ITEM.match(line, len(prefix)):
        return True
    if len(paragraph) == 1:  # the first line may be indented differently, and a list item has a bullet
        return prefix.count(">") != _prefix_of(paragraph[0]).count(">")
    return prefix != _prefix_of(paragraph[-1])


def _prefix_of(line: str) -> str:
    match = _PREFIX.match(line)
    return match[0] if match else ""


def _paragraph_pieces(paragraph: list[str]) -> Iterator[Piece]:
    """A paragraph as one flow, with its first prefix and its last line end."""
    first, last = _prefix_of(paragraph[0]), paragraph[-1].rstrip("\r\n")
    if item := _ITEM.match(paragraph[0], len(first)):
        first = paragraph[0][: item.end()]
    following = _prefix_of(paragraph[1]) if len(paragraph) > 1 else ""
    bodies = [paragraph[0][len(first) :], *(line[len(following) :] for line in paragraph[1:])]
    bodies = [body.rstrip("\r\n") for body in bodies]
    flow = _flow_of_lines(bodies, "\n" + following)
    if len(bodies) > 1:
        width = max(len(line.rstrip()) for line in paragraph)
        flow.finish = partial(rewrap, original="".join(flow.raw), width=width, first=len(first), following=following)
    yield first
    yield flow
    yield paragraph[-1][len(last) :]


def rewrap(text: str, original: str, width: int, first: int, following: str) -> str:
    """Wrap a changed text. `first` is the indent of the first line, `following` the prefix of the others."""
    if text == original:
        return text
    out, room = "", width - first
    for i, word in enumerate(_WORD.findall(text.replace(f"\n{following}", " "))):
        if i and len(word) + 1 > room and not _NO_LINE.match(word):
            out, room = f"{out}\n{following}{word}", width - len(following) - len(word)
        else:
            out, room = f"{out}{' ' * bool(i)}{word}", room - len(word) - bool(i)
    return out
