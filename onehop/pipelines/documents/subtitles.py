"""Subtitles, SRT and WebVTT: a sentence that runs over lines or over cues is translated whole, and parted again."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onehop.pipelines.documents.flow import TAG, Pieces, Unit, as_stood, decoded, flow_of
from onehop.pipelines.html_markup import ENTITY, Flow, Piece, escaped_html

_TIMES = re.compile(r"(?<![\d:])(?:\d+:)?\d+:\d+[.,]\d+[ \t]+-->[ \t]+(?:\d+:)?\d+:\d+[.,]\d+[^\n]*\n")
_BLANK = re.compile(r"\n[ \t\r]*(?=\n)|\Z")
# Tags, times inside a cue, and the positions of another format that players know: {\an8}.
_MARKS = re.compile(rf"(?P<tag>{TAG}|<\d[\d:.]*>|\{{\\[^{{}}\n]*\}})")
_SPEAKER = re.compile(r"\s*(?:[-–—]|\w[\w .]*:\s|>>)")
_SENTENCE_END = re.compile(r"[.!?…。！？:♪\]\)*][\"'”’»]*\s*$")
WORD = re.compile(r"(?:<[^<>\n]+>|\S)+")
_SHOWN = re.compile(rf"{_MARKS.pattern}|\s+")


@dataclass(frozen=True)
class _Cue:
    """What is shown at one time: `before` stands what follows the cue before it, to the end of the line of times."""

    before: str
    text: str


def read(data: bytes, name: str) -> Pieces:
    """An SRT or a WebVTT file."""
    source = decoded(data, name)
    is_vtt = source.text.startswith("WEBVTT")
    cues, rest = _cues_of(source.text)
    pieces: list[Piece] = []
    for group in _groups(cues):
        pieces += _group_pieces(group, escaped_html if is_vtt else str)
    return Pieces(source, [*pieces, rest])


def _cues_of(text: str) -> tuple[list[_Cue], str]:
    """The cues, and what follows the last."""
    cues, at = [], 0
    for times in _TIMES.finditer(text):
        end = _BLANK.search(text, times.end() - 1)
        if times.start() < at or not end:
            continue
        begin = min(times.end(), end.start())
        stop = max(begin, end.start() - text.endswith("\n", begin, end.start()))
        cues.append(_Cue(text[at:begin], text[begin:stop]))
        at = stop
    return cues, text[at:]


def _groups(cues: Sequence[_Cue]) -> Iterator[list[_Cue]]:
    """Cues that one sentence runs over; those with tags and those of several speakers stay alone."""
    group: list[_Cue] = []
    for cue in cues:
        if group and not _goes_on(group[-1], cue):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _goes_on(cue: _Cue, following: _Cue) -> bool:
    """Whether the sentence at the end of a cue has no end there."""
    if any(_MARKS.search(each.text) or _SPEAKER.match(each.text) for each in (cue, following)):
        return False
    begin = following.text.lstrip(" \"'…")[:1]
    return bool(cue.text.strip()) and not _SENTENCE_END.search(cue.text) and begin.islower()


def _group_pieces(group: Sequence[_Cue], escape: Callable[[str], str]) -> Iterator[Piece]:
    """The flow of some cues; where each line is another speaker's, a flow for each."""
    yield group[0].before
    lines = group[0].text.split("\n")
    if len(lines) > 1 and all(map(_SPEAKER.match, lines)):
        for i, line in enumerate(lines):
            dash = _SPEAKER.match(line)
            begin = dash.end() if dash else 0
            yield "\n" * bool(i) + line[:begin]
            yield flow_of(_units(line[begin:]), escape, _MARKS)
        return
    flow = flow_of(_units("\n".join(cue.text for cue in group)), escape, _MARKS)
    flow.finish = _parted_again(flow, group)
    yield flow


def _units(text: str) -> Iterator[Unit]:
    """Characters, some of which are written as entities."""
    at = 0
    for entity in ENTITY.finditer(text):
        yield from ((c, " " if c.isspace() else c) for c in text[at : entity.start()])
        meaning = html.unescape(entity[0])
        yield from [(entity[0], meaning)] if len(meaning) == 1 else [(c, c) for c in entity[0]]
        at = entity.end()
    yield from ((c, " " if c.isspace() else c) for c in text[at:])


def _parted_again(flow: Flow, group: Sequence[_Cue]) -> Callable[[str], str]:
    """What shares a translation out among the cues, and among the lines of each, in the proportions of the source."""
    stood = as_stood(flow)

    def finished(text: str) -> str:
        if text == stood:
            parts = [cue.text for cue in group]
        else:
            parts = shared(WORD.findall(text), [width(cue.text) for cue in group])
            parts = [broken(part, cue.text) for part, cue in zip(parts, group, strict=True)]
        return parts[0] + "".join(cue.before + part for cue, part in zip(group[1:], parts[1:], strict=True))

    return finished


def broken(text: str, source: str) -> str:
    """A cue's text in as many lines as its source has, of the same length as far as words allow."""
    count = len(source.split("\n"))
    return "\n".join(part for part in shared(WORD.findall(text), [1] * count) if part)


def shared(words: Sequence[str], shares: Sequence[int]) -> list[str]:
    """Words in parts of about these shares of their length."""
    rest, total, parts = list(words), sum(shares), list[str]()
    length, done, goal = sum(map(width, rest)) + len(rest), 0.0, 0.0
    for i, share in enumerate(shares):
        goal += length * share / max(total, 1)
        part: list[str] = []
        while rest and (i == len(shares) - 1 or done + (width(rest[0]) + 1) / 2 <= goal):
            done += width(rest[0]) + 1
            part.append(rest.pop(0))
        parts.append(" ".join(part))
    return parts


def width(text: str) -> int:
    return len(_SHOWN.sub("", text)) or 1
