"""Where inline markup goes in a translation: an element goes around the words that come from the words it was around.

Words are runs of letters and digits, or single other characters. For each target word the attention says which share of
it comes from an element's words. The element gets the run of target words with the most of that; elements within one
another stay so, those beside one another do not overlap, and every tag comes out exactly once.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onehop.pipelines.html_markup import Mark
from onehop.shapes import Bool, Float

WORD = re.compile(r"\w+|[^\w\s]")
Span = tuple[int, int]
Escape = Callable[[str], str]
Attention = Float[np.ndarray, "target source"]

# More than this in one sentence is no text, and a call each would go too deep.
MOST_MARKS, MOST_DEPTH = 200, 40


class TooMuchMarkup(Exception):  # noqa: N818
    """A sentence has more tags than anybody writes."""


@dataclass
class Element:
    """Tags around some source words, first to last (exclusive). One whose other tag lies elsewhere is open there."""

    first: int
    last: int
    before: str
    after: str
    order: int
    open_left: bool = False
    open_right: bool = False
    kept: str | None = None  # HTML that stands for the content, whatever its translation
    inside: "list[Element]" = field(default_factory=list)
    where: Span = (0, 0)

    @property
    def is_point(self) -> bool:
        """Whether it holds no words."""
        return self.first == self.last


def words(text: str) -> list[Span]:
    """Begin and end of each word."""
    return [m.span() for m in WORD.finditer(text)]


def by_words(
    attention: Float[np.ndarray, "target source"],
    target_tokens: Sequence[Span],
    source_tokens: Sequence[Span],
    target_words: Sequence[Span],
    source_words: Sequence[Span],
) -> Float[np.ndarray, "target_words source_words"]:
    """Attention between words: summed over the source's tokens, the mean over the target's; each row sums to one."""
    found = _shares(target_tokens, target_words) @ attention @ _shares(source_tokens, source_words).T
    return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-9), dtype=np.float32)


def _shares(tokens: Sequence[Span], within: Sequence[Span]) -> Float[np.ndarray, "words tokens"]:
    """Which tokens belong to which word: those that overlap with it. Bytes before a character's last have no width."""
    found = np.zeros((len(within), len(tokens)), dtype=np.float32)
    for w, (begin, end) in enumerate(within):
        for t, (first, last) in enumerate(tokens):
            if first < end and max(last, first + 1) > begin:
                found[w, t] = 1
    return found


# --- elements of the source -----------------------------------------------------------------------------------


def elements(
    marks: Sequence[Mark], places: Sequence[int], source_words: Sequence[Span], kept: Mapping[int, str]
) -> list[Element]:
    """The marks of a sentence as a forest. `places` are theirs in the sentence, `kept` the contents to be kept."""
    if len(marks) > MOST_MARKS:
        raise TooMuchMarkup
    forest = _Forest(source_words, kept)
    for order, (mark, place) in enumerate(zip(marks, places, strict=True)):
        forest.add(order, mark, place)
    return forest.top


class _Forest:
    """Elements as their tags come."""

    def __init__(self, source_words: Sequence[Span], kept: Mapping[int, str]) -> None:
        self.begins, self.ends = [b for b, _ in source_words], [e for _, e in source_words]
        self.kept = kept
        self.top: list[Element] = []
        self.stack: list[tuple[str, Element]] = []

    def add(self, order: int, mark: Mark, place: int) -> None:
        """One mark. A tag within a word counts as around the whole word."""
        if mark.kind == "open":
            first = bisect_right(self.ends, place)
            element = Element(first, len(self.ends), mark.markup, "", order, open_right=True, kept=self.kept.get(order))
            self.append(element)
            self.stack.append((mark.name, element))
            if len(self.stack) > MOST_DEPTH:
                raise TooMuchMarkup
        elif mark.kind == "close":
            self.close(order, mark, bisect_left(self.begins, place))
        else:
            at = bisect_right(self.ends, place)
            self.append(Element(at, at, mark.markup, "", order))

    def append(self, element: Element) -> None:
        """Into the innermost element that is open."""
        (self.stack[-1][1].inside if self.stack else self.top).append(element)

    def close(self, order: int, mark: Mark, last: int) -> None:
        """A closing tag: of an element here, of one that began before the sentence, or of none."""
        if any(name == mark.name for name, _ in self.stack):
            while True:
                # Elements that end with this one for want of a tag of their own have none.
                name, element = self.stack.pop()
                element.last, element.open_right = max(element.first, last), False
                if name == mark.name:
                    element.after = mark.markup
                    return
        if self.stack:
            self.append(Element(last, last, mark.markup, "", order))
        else:
            self.top[:] = [Element(0, last, "", mark.markup, order, open_left=True, inside=[*self.top])]


# --- places in the target -------------------------------------------------------------------------------------


def place(forest: Sequence[Element], attention: Attention, within: Span) -> None:
    """Give every element its place among the target words of a span, the largest first, then those inside them."""
    free: Bool[np.ndarray, " target"] = np.zeros(len(attention), dtype=bool)
    free[within[0] : within[1]] = True
    for element in sorted(forest, key=lambda e: (e.is_point, e.first - e.last, e.order)):
        element.where = _best_run(element, attention, free, within)
        free[element.where[0] : element.where[1]] = False
    for element in forest:
        _step_aside(element, forest)
        _place_inside(element, attention)


def _place_inside(outer: Element, attention: Attention) -> None:
    """What an element holds; one that holds all of its words gets all of its place, and the others the ends."""
    whole = next((e for e in outer.inside if not e.is_point and (e.first, e.last) == (outer.first, outer.last)), None)
    if whole is None:
        place(outer.inside, attention, outer.where)
        return
    for element in outer.inside:
        at = outer.where[0] if element.order < whole.order else outer.where[1]
        element.where = outer.where if element is whole else (at, at)
        _place_inside(element, attention)


def _best_run(element: Element, attention: Attention, free: Bool[np.ndarray, " target"], within: Span) -> Span:
    """The run of free words that has most of the element's words and least of others'; a point has none."""
    begin, end = within
    gain = attention[:, element.first : element.last].sum(axis=1) - 0.5
    runs = [] if element.is_point else list(_free_runs(free, begin, end))
    if element.open_left:
        runs = [run for run in runs if run[0] == begin]
    if element.open_right:
        runs = [run for run in runs if run[1] == end]
    if not runs:
        point = end if element.open_right else begin if element.open_left else _best_point(element, attention, within)
        return point, point
    return max((_best_part(gain, run, element) for run in runs), key=lambda part: part[0])[1]


def _free_runs(free: Bool[np.ndarray, " target"], begin: int, end: int) -> Iterator[Span]:
    """Where words are free, as runs that are as long as they can be."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free[begin:end], [False]]).astype(np.int8)))
    yield from ((begin + int(a), begin + int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def _best_part(gain: Float[np.ndarray, " target"], run: Span, element: Element) -> tuple[float, Span]:
    """The part of a run, one word at least, with the greatest sum; an open end is the run's own."""
    best, total, first = (-np.inf, run), 0.0, run[0]
    for word in range(*run):
        if total < 0 and not element.open_left:
            total, first = 0.0, word
        total += float(gain[word])
        if total > best[0] and not element.open_right:
            best = (total, (first, word + 1))
    if element.open_right:
        sums = np.cumsum(gain[run[0] : run[1]][::-1])[::-1]
        first = run[0] if element.open_left else run[0] + int(sums.argmax())
        best = (float(sums[first - run[0]]), (first, run[1]))
    return best


def _best_point(element: Element, attention: Attention, within: Span) -> int:
    """Before the word that comes from the source word after the point; at an end where the point was at one."""
    begin, end = within
    if begin == end or element.first == 0:
        return begin
    if element.first >= attention.shape[1]:
        return end
    return begin + int(attention[begin:end, element.first].argmax())


def _step_aside(point: Element, forest: Sequence[Element]) -> None:
    """What stood beside an element does not come to stand inside it."""
    if point.where[0] < point.where[1]:
        return
    for other in forest:
        if other.where[0] < point.where[0] < other.where[1]:
            at = other.where[0] if point.order < other.order else other.where[1]
            point.where = (at, at)


# --- the text with its tags -----------------------------------------------------------------------------------


def rendered(text: str, target_words: Sequence[Span], forest: Sequence[Element], escape: Escape) -> str:
    """The target with all tags at their places."""
    return _part_rendered(text, target_words, forest, escape, (0, len(text)))


def _part_rendered(
    text: str, target_words: Sequence[Span], forest: Sequence[Element], escape: Escape, part: Span
) -> str:
    """A part of the target, from one character to another."""
    out, at = [], part[0]
    for element in sorted(forest, key=lambda e: (*e.where, e.order)):
        begin, end = (min(max(x, at), part[1]) for x in characters(element, target_words, part))
        inner = _part_rendered(text, target_words, element.inside, escape, (begin, end))
        out += [escape(text[at:begin]), element.before, inner if element.kept is None else element.kept, element.after]
        at = end
    return "".join([*out, escape(text[at : part[1]])])


def characters(element: Element, target_words: Sequence[Span], part: Span) -> Span:
    """An element's place in characters: from the beginning of its first word to the end of its last."""
    first, last = element.where
    if first == last:
        at = target_words[first][0] if first < len(target_words) else part[1]
        return at, at
    begin = part[0] if element.open_left else target_words[first][0]
    return begin, part[1] if element.open_right else target_words[last - 1][1]
