"""Splits a line into sentences and joins them again; splits sentences that are too long.

Joining unchanged segments gives the same text again, including spaces.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain

_EMOJI_RANGES = "\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b05-\u2b55\U0001f000-\U0001faff"
# Joiners, variation selectors and tags belong to the emoji before them.
EMOJI = f"[{_EMOJI_RANGES}][{_EMOJI_RANGES}\u200d\ufe0f\U000e0020-\U000e007f]*"
_AROUND = re.compile(rf"(?:\s|{EMOJI})+")
# Quantifiers are bounded or anchored: a line may be a million characters long.
ADDRESS = re.compile(
    r"(?<!\w)(?i:https?://|ftp://|www\.)[^\s<>\"“”„«»。！？，、；：]*[\w/=&#%~+$-]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
    r"|\{\w[\w.]{0,63}\}|%\(\w{1,64}\)[sd]"  # placeholders: {name}, %(name)s
)
# The splitter assumes that a space before a full stop is one byte, and fails on others: "Vitamin A\u202f."
_SPACE_BEFORE_STOP = re.compile(r"(?<!\s)\s+(?=\.)")
# The splitter's time grows with the square of the length, and it holds the GIL: 800 kB of "<!--" took over a minute.
_WINDOW = 10_000
# A list number, which the splitter takes for a sentence.
_LABEL = re.compile(r"\s*\(?\d{1,3}[.)]\s*")

# Scripts that put no spaces between words.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"

# Where a sentence may be split, best first: after a clause, after a comma, after a space.
_CLOSING = r"[\"'”’»)\]]*"
_PLACES = (
    re.compile(rf"[.;:!?…—–]{_CLOSING}\s+|[。；：！？]"),
    re.compile(rf",{_CLOSING}\s+|[，、]"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True)
class Segment:
    """A sentence, or a part of a long one, with the surrounding spaces and emoji.

    If it was in capitals, `text` is in ordinary case and `stood` is the original, of the same length.
    """

    before: str
    text: str
    after: str
    split: bool = False
    stood: str | None = None

    @property
    def source(self) -> str:
        return self.text if self.stood is None else self.stood

    def around(self, text: str) -> str:
        """Another text with this segment's surroundings."""
        return self.before + text + self.after


def joined(segments: Iterable[Segment]) -> str:
    """The text that segments came from."""
    return "".join(s.around(s.source) for s in segments)


def segment(text: str, *, split: bool = False) -> Segment:
    """A segment, with the surrounding spaces and emoji stored apart."""
    first = _AROUND.match(text)
    begin = first.end() if first else 0
    end = len(text)
    for run in _AROUND.finditer(text, begin):
        end = run.start() if run.end() == len(text) else len(text)
    return Segment(text[:begin], text[begin:end], text[end:], split)


def sentences(line: str, language: str) -> list[Segment]:
    return [segment(piece) for piece in _sentence_pieces(line, language)]


def _sentence_pieces(line: str, language: str) -> list[str]:
    """A line split into sentences, but not within an address or after a list number."""
    import sentencex  # imported here: single sentences do not need it

    plain = _SPACE_BEFORE_STOP.sub(lambda space: " " * len(space[0]), line)
    try:
        found = _in_windows(plain, partial(sentencex.segment, re.split("[-_]", language.lower())[0]))
    except UnicodeEncodeError:  # a lone surrogate
        return [line]
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # the splitter's panic, which is not an Exception
            raise
        return [line]
    if "".join(found) != plain:  # a bug of the splitter: keep the line whole
        return [line]
    ends = list(accumulate(map(len, found)))
    addresses = (m.span() for m in ADDRESS.finditer(line))
    within = {end for a, b in addresses for end in ends[bisect_right(ends, a) : bisect_left(ends, b)]}
    pieces, begin = [], 0
    for end in ends:
        if end == len(line) or not (end in within or _LABEL.fullmatch(line, begin, end)):
            pieces.append(line[begin:end])
            begin = end
    return pieces


def _in_windows(text: str, split: Callable[[str], list[str]]) -> list[str]:
    """The sentences of a text, split a window at a time; the last one of a window begins the next window."""
    found: list[str] = []
    begin = 0
    while len(text) - begin > _WINDOW:
        window = text[begin : begin + _WINDOW]
        pieces = split(window)
        if "".join(pieces) != window:  # a bug of the splitter: keep the line whole
            return [text]
        pieces = pieces[:-1] or pieces
        found += pieces
        begin += sum(map(len, pieces))
    return found + split(text[begin:])


def shortened(whole: Segment, longest: int, length: Callable[[str], int]) -> list[Segment]:
    """The parts of a segment, each at most `longest` and marked as split, or the segment itself."""
    if length(whole.text) <= longest:
        return [whole]
    parts = [segment(part, split=True) for part in _halves(whole.text, longest, length)]
    parts[0] = replace(parts[0], before=whole.before + parts[0].before)
    parts[-1] = replace(parts[-1], after=parts[-1].after + whole.after)
    return parts


def as_stood(whole: Segment, parts: Sequence[Segment]) -> list[Segment]:
    """The parts of a segment whose case was changed, each with its original text."""
    line, at, marked = joined([whole]), 0, []
    for part in parts:
        begin = at + len(part.before)
        at = begin + len(part.text)
        marked.append(replace(part, stood=line[begin:at]))
        at += len(part.after)
    return marked


def _halves(text: str, longest: int, length: Callable[[str], int]) -> list[str]:
    """Halve repeatedly: parts of similar length translate better than a long and a short one."""
    if length(text) <= longest or len(text) < 2:
        return [text]
    place = _best_place(text)
    return [*_halves(text[:place], longest, length), *_halves(text[place:], longest, length)]


def _best_place(text: str) -> int:
    """Where to split: the best kind of place in the middle half, nearest to the middle; else any place."""
    middle = len(text) // 2
    places = [[m.end() for m in kind.finditer(text) if m.end() < len(text)] for kind in _PLACES]
    central = [[p for p in kind if middle <= 2 * p <= 3 * middle] for kind in places]
    for found in (*central, list(chain(*places))):
        if found:
            return min(found, key=lambda p: abs(p - middle))
    # One long word: between grapheme clusters, if possible.
    return next((p for p in range(middle, len(text)) if not _belongs_to_the_one_before(text, p)), middle)


def _belongs_to_the_one_before(text: str, place: int) -> bool:
    """Whether a character belongs to the grapheme cluster before it."""
    character = text[place]
    joins = character in "\u200d\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff"
    return joins or text[place - 1] == "\u200d" or unicodedata.combining(character) > 0
