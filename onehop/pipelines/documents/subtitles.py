"""SRT and WebVTT: a sentence over several lines or cues is translated whole, and divided among them again."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onehop.pipelines.documents.flow import TAG, Pieces, decoded, flow_of, original
from onehop.pipelines.html_markup import ENTITY, Piece, Unit, escaped_html

_TIMES = re.compile(r"(?<![\d:])(?:\d+:)?\d+:\d+[.,]\d+[ \t]+-->[ \t]+(?:\d+:)?\d+:\d+[.,]\d+[^\n]*\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*(?=\n)|\Z")
# Tags, times inside a cue, and the positions that players know from SubStation Alpha: {\an8}.
_MARKS = re.compile(rf"(?P<tag>{TAG}|<\d[\d:.]*>|\{{\\[^{{}}\n]*\}})")
_SPEAKER = re.compile(r"\s*(?:[-–—]|\w[\w .]*:\s|>>)")
_SENTENCE_END = re.compile(r"[.!?…。！？:♪\]\)*][\"'”’»]*\s*$")
_WORD = re.compile(r"(?:<[^<>\n]+>|\S)+")
_INVISIBLE = re.compile(rf"{_MARKS.pattern}|\s+")


@dataclass(frozen=True)
class _Cue:
    """The text shown at one time. `before` is everything from the previous cue's text to the end of the times."""

    before: str
    text: str


def read(data: bytes, name: str) -> Pieces:
    source = decoded(data, name)
    escape = escaped_html if source.text.startswith("WEBVTT") else str
    cues, rest = _cues_of(source.text)
    pieces = [piece for group in _sentence_groups(cues) for piece in _group_pieces(group, escape)]
    return Pieces(source, [*pieces, rest])


def _cues_of(text: str) -> tuple[list[_Cue], str]:
    """The cues, and the text after the last one."""
    cues, at = [], 0
    starts = list(_TIMES.finditer(text))
    # A cue ends at a blank line, or else where the line of the next cue's times begins.
    limits = [*(text.rfind("\n", 0, times.start()) + 1 for times in starts[1:]), len(text)]
    for times, limit in zip(starts, limits, strict=False):
        blank = _BLANK_LINE.search(text, times.end() - 1, limit)
        end = blank.start() if blank else limit
        begin = min(times.end(), end)
        end = max(begin, end - text.endswith("\n", begin, end))
        last_line = max(begin, text.rfind("\n", begin, end))
        if limit - end == 1 and text[last_line:end].strip().isdigit():  # the next cue's number
            end = last_line
        cues.append(_Cue(text[at:begin], text[begin:end]))
        at = end
    return cues, text[at:]


def _sentence_groups(cues: Sequence[_Cue]) -> Iterator[list[_Cue]]:
    """Runs of cues that share a sentence."""
    group: list[_Cue] = []
    for cue in cues:
        if group and not _continues(group[-1], cue):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _continues(cue: _Cue, following: _Cue) -> bool:
    """Whether a sentence goes on in the following cue. Cues with tags or speakers stay separate."""
    if any(_MARKS.search(text) or _SPEAKER.match(text) for text in (cue.text, following.text)):
        return False
    first = following.text.lstrip(" \"'…")[:1]
    return bool(cue.text.strip()) and not _SENTENCE_END.search(cue.text) and first.islower()


def _group_pieces(group: Sequence[_Cue], escape: Callable[[str], str]) -> Iterator[Piece]:
    """One flow for all cues of a group, or one for each line where every line has a speaker of its own."""
    yield group[0].before
    lines = group[0].text.split("\n")
    speakers = [_SPEAKER.match(line) for line in lines]
    if len(lines) > 1 and all(speakers):
        for i, (line, speaker) in enumerate(zip(lines, speakers, strict=True)):
            begin = speaker.end() if speaker else 0
            yield "\n" * bool(i) + line[:begin]
            yield flow_of(_units(line[begin:]), escape, _MARKS)
        return
    flow = flow_of(_units("\n".join(cue.text for cue in group)), escape, _MARKS)
    flow.finish = lambda text: _divided(text, original(flow), group)
    yield flow


def _units(text: str) -> Iterator[Unit]:
    """Characters, some of which are written as entities."""
    for i, part in enumerate(ENTITY.split(text)):
        meaning = html.unescape(part) if i % 2 else ""
        yield from [(part, meaning)] if len(meaning) == 1 else [(c, " " if c.isspace() else c) for c in part]


def _divided(text: str, source: str, group: Sequence[_Cue]) -> str:
    """A translation divided among the cues in the proportions of the source, and among the lines of each cue."""
    parts = [cue.text for cue in group]
    if text != source:
        shares = _split(text, [_width(cue.text) for cue in group])
        lines = [_split(share, [1] * len(cue.text.split("\n"))) for share, cue in zip(shares, group, strict=True)]
        parts = ["\n".join(filter(None, cue_lines)) for cue_lines in lines]
    return parts[0] + "".join(cue.before + part for cue, part in zip(group[1:], parts[1:], strict=True))


def _split(text: str, proportions: Sequence[int]) -> list[str]:
    """Split a text between words into parts whose lengths have about these proportions."""
    words, parts = _WORD.findall(text), list[str]()
    length, done, goal = sum(map(_width, words)) + len(words), 0.0, 0.0
    for i, proportion in enumerate(proportions):
        goal += length * proportion / max(sum(proportions), 1)
        part: list[str] = []
        while words and (i == len(proportions) - 1 or done + (_width(words[0]) + 1) / 2 <= goal):
            done += _width(words[0]) + 1
            part.append(words.pop(0))
        parts.append(" ".join(part))
    return parts


def _width(text: str) -> int:
    return len(_INVISIBLE.sub("", text)) or 1
