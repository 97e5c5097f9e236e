"""Splits a line into sentences and joins them again; splits sentences that are too long.

Joining unchanged segments gives the same text again, including spaces.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain

from onehop.text.language_id import base_language

_EMOJI_RANGES = "\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b05-\u2b55\U0001f000-\U0001faff"
# Joiners, variation selectors and tags belong to the emoji before them.
EMOJI = f"[{_EMOJI_RANGES}][{_EMOJI_RANGES}\u200d\ufe0f\U000e0020-\U000e007f]*"
_AROUND = re.compile(rf"(?:\s|{EMOJI})+")
_MAY_END = re.compile(rf"[\s{_EMOJI_RANGES}\u200d\ufe0f\U000e0020-\U000e007f]")  # the last character of such a run
# Quantifiers are bounded or anchored: a line may be a million characters long.
ADDRESS = re.compile(
    r"(?<!\w)(?i:https?://|ftp://|www\.)[^\s<>\"“”„«»。！？，、；：]*[\w/=&#%~+$-]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
    r"|\{\w[\w.]{0,63}\}|%\(\w{1,64}\)[sd]"  # placeholders: {name}, %(name)s
)
# Nearly every text has none of these marks, and so no address. `ADDRESS` itself tries every word.
_ADDRESS_MARKS = ("://", "www.", "@", "{", "%(")
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
_SPLIT_PATTERNS = (
    re.compile(rf"[.;:!?…—–]{_CLOSING}\s+|[。；：！？]"),
    re.compile(rf",{_CLOSING}\s+|[，、]"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True)
class Segment:
    """A sentence, or a part of a long one, with the surrounding spaces and emoji.

    If its case was changed for the model, `original` is the source text; it has the same length as `text`.
    """

    before: str
    text: str
    after: str
    split: bool = False
    original: str | None = None

    @property
    def source(self) -> str:
        return self.text if self.original is None else self.original

    def around(self, text: str) -> str:
        """Another text with this segment's surroundings."""
        return self.before + text + self.after


def addresses(text: str) -> Iterator[re.Match[str]]:
    lower = text.lower()
    return ADDRESS.finditer(text if any(mark in lower for mark in _ADDRESS_MARKS) else "")


def segment(text: str, *, split: bool = False) -> Segment:
    """A segment, with the surrounding spaces and emoji stored apart."""
    first = _AROUND.match(text)
    begin = first.end() if first else 0
    end = len(text)
    for run in _AROUND.finditer(text, begin) if _MAY_END.match(text[-1:]) else ():
        end = run.start() if run.end() == len(text) else len(text)
    return Segment(text[:begin], text[begin:end], text[end:], split)


def split_sentences(line: str, language: str) -> list[Segment]:
    return list(map(segment, _sentence_pieces(line, language)))


def _sentence_pieces(line: str, language: str) -> list[str]:
    """A line split into sentences, but not within an address or after a list number."""
    import sentencex  # imported here: single sentences do not need it

    plain = _SPACE_BEFORE_STOP.sub(lambda space: " " * len(space[0]), line)
    try:
        pieces = _split_in_windows(plain, partial(sentencex.segment, base_language(language)))
    except UnicodeEncodeError:  # a lone surrogate
        return [line]
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # the splitter's panic, which is not an Exception
            raise
        return [line]
    if "".join(pieces) != plain:  # a bug of the splitter: keep the line whole
        return [line]
    ends = list(accumulate(map(len, pieces)))
    spans = (m.span() for m in addresses(line))
    within_address = {end for a, b in spans for end in ends[bisect_right(ends, a) : bisect_left(ends, b)]}
    sentences, begin = [], 0
    for end in ends:
        if end == len(line) or not (end in within_address or _LABEL.fullmatch(line, begin, end)):
            sentences.append(line[begin:end])
            begin = end
    return sentences


def _split_in_windows(text: str, split: Callable[[str], list[str]]) -> list[str]:
    """The sentences of a text, split a window at a time; the last one of a window begins the next window."""
    sentences: list[str] = []
    begin = 0
    while len(text) - begin > _WINDOW:
        window = text[begin : begin + _WINDOW]
        pieces = split(window)
        if "".join(pieces) != window:  # a bug of the splitter: keep the line whole
            return [text]
        pieces = pieces[:-1] or pieces
        sentences += pieces
        begin += sum(map(len, pieces))
    return sentences + split(text[begin:])


def split_long(whole: Segment, max_length: int, length: Callable[[str], int]) -> list[Segment]:
    """The parts of a segment, each at most `max_length` long and marked as split, or the segment itself."""
    if length(whole.text) <= max_length:
        return [whole]
    parts = [segment(part, split=True) for part in _halves(whole.text, max_length, length)]
    parts[0] = replace(parts[0], before=whole.before + parts[0].before)
    parts[-1] = replace(parts[-1], after=parts[-1].after + whole.after)
    return parts


def with_originals(whole: Segment, parts: Sequence[Segment]) -> list[Segment]:
    """The parts of a segment whose case was changed, each with its original text."""
    line, end, result = whole.around(whole.source), 0, []
    for part in parts:
        begin = end + len(part.before)
        end = begin + len(part.text)
        result.append(replace(part, original=line[begin:end]))
        end += len(part.after)
    return result


def _halves(text: str, max_length: int, length: Callable[[str], int]) -> list[str]:
    """Halve repeatedly: parts of similar length translate better than a long and a short one."""
    if length(text) <= max_length or len(text) < 2:
        return [text]
    at = _split_point(text)
    return [*_halves(text[:at], max_length, length), *_halves(text[at:], max_length, length)]


def _split_point(text: str) -> int:
    """The end of the best pattern in the middle half, nearest to the middle; else of any pattern."""
    middle = len(text) // 2
    points = [[m.end() for m in pattern.finditer(text) if m.end() < len(text)] for pattern in _SPLIT_PATTERNS]
    central = [[p for p in kind if middle <= 2 * p <= 3 * middle] for kind in points]
    for candidates in (*central, list(chain(*points))):
        if candidates:
            return min(candidates, key=lambda p: abs(p - middle))
    # One long word: between grapheme clusters, if possible.
    return next((p for p in range(middle, len(text)) if not _is_within_grapheme(text, p)), middle)


def _is_within_grapheme(text: str, at: int) -> bool:
    """Whether a character belongs to the grapheme cluster before it."""
    character = text[at]
    joins = character in "\u200d\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff"
    return joins or text[at - 1] == "\u200d" or unicodedata.combining(character) > 0
