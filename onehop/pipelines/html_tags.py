"""Places inline markup in a translation: an element surrounds the translations of the words that it surrounded.

Words are runs of letters and digits, or single other characters. Attention tells which share of a target word comes
from an element's words. The element gets the run of target words with the largest shares. Nesting is preserved,
siblings do not overlap, and every tag is written exactly once.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onehop.pipelines.html_markup import Mark
from onehop.shapes import Bool, Float

_WORD = re.compile(r"\w+|[^\w\s]")
Span = tuple[int, int]
_Escape = Callable[[str], str]
Attention = Float[np.ndarray, "target source"]

# A sentence with more is not text. The depth also limits recursion.
MAX_MARKS, MAX_DEPTH = 200, 40


class TooMuchMarkup(Exception):  # noqa: N818
    """A sentence has more tags than can be placed."""


@dataclass
class Element:
    """Tags around the source words from `first` to `last` (exclusive), and the span of its target words.

    An element without an opening tag in the sentence is open on the left, one without a closing tag on the right.
    """

    first: int
    last: int
    before: str
    after: str
    order: int
    open_left: bool = False
    open_right: bool = False
    kept: str | None = None  # HTML of the content if it is not translated
    children: "list[Element]" = field(default_factory=list)
    target: Span = (0, 0)

    @property
    def is_point(self) -> bool:
        """Whether it has no words."""
        return self.first == self.last


def words(text: str) -> list[Span]:
    """Begin and end of each word."""
    return [m.span() for m in _WORD.finditer(text)]


def by_words(
    attention: Attention,
    target_tokens: Sequence[Span],
    source_tokens: Sequence[Span],
    target_words: Sequence[Span],
    source_words: Sequence[Span],
) -> Float[np.ndarray, "target_words source_words"]:
    """Attention between words: the sum over source tokens and the mean over target tokens; each row sums to one."""
    summed = _overlaps(target_tokens, target_words) @ attention @ _overlaps(source_tokens, source_words).T
    return np.asarray(summed / np.maximum(summed.sum(axis=1, keepdims=True), 1e-9), dtype=np.float32)


def _overlaps(tokens: Sequence[Span], word_spans: Sequence[Span]) -> Float[np.ndarray, "words tokens"]:
    """1 where a token overlaps a word, else 0."""
    overlaps = np.zeros((len(word_spans), len(tokens)), dtype=np.float32)
    for w, span in enumerate(word_spans):
        overlaps[w, overlapping(tokens, span)] = 1
    return overlaps


def overlapping(tokens: Sequence[Span], span: Span) -> list[int]:
    """The indices of the tokens that overlap a span. Bytes before the last one of a character have an empty span."""
    return [i for i, (begin, end) in enumerate(tokens) if begin < span[1] and max(end, begin + 1) > span[0]]


# --- elements of the source -----------------------------------------------------------------------------------


def build_elements(
    marks: Sequence[Mark], positions: Sequence[int], source_words: Sequence[Span], kept: Mapping[int, str]
) -> list[Element]:
    """The tree of a sentence's marks: its outermost elements. `positions` are those of the marks in the sentence.

    `kept` maps the index of an opening tag to the HTML of a content that is not translated.
    """
    if len(marks) > MAX_MARKS:
        raise TooMuchMarkup
    begins, ends = [begin for begin, _ in source_words], [end for _, end in source_words]
    top: list[Element] = []
    stack: list[tuple[str, Element]] = []  # open elements
    for order, (mark, position) in enumerate(zip(marks, positions, strict=True)):
        siblings = stack[-1][1].children if stack else top
        # A tag within a word is moved around the whole word.
        first, last = bisect_right(ends, position), bisect_left(begins, position)
        if mark.kind == "point":
            siblings.append(Element(first, first, mark.markup, "", order))
        elif mark.kind == "open":
            element = Element(first, len(ends), mark.markup, "", order, open_right=True, kept=kept.get(order))
            siblings.append(element)
            stack.append((mark.name, element))
            if len(stack) > MAX_DEPTH:
                raise TooMuchMarkup
        elif any(name == mark.name for name, _ in stack):
            name = None
            while name != mark.name:  # unclosed elements inside this one end with it
                name, element = stack.pop()
                element.last, element.open_right = max(element.first, last), False
            element.after = mark.markup
        elif stack:
            siblings.append(Element(last, last, mark.markup, "", order))
        else:  # the element was opened before the sentence
            top = [Element(0, last, "", mark.markup, order, open_left=True, children=top)]
    return top


# --- elements in the target -----------------------------------------------------------------------------------


def place_elements(elements: Sequence[Element], attention: Attention, within: Span) -> None:
    """Give every element a span of the target words `within`, the largest first, then their children."""
    free: Bool[np.ndarray, " target"] = np.zeros(len(attention), dtype=bool)
    free[within[0] : within[1]] = True
    for element in sorted(elements, key=lambda e: (e.is_point, e.first - e.last, e.order)):
        element.target = _best_span(element, attention, free, within)
        free[element.target[0] : element.target[1]] = False
    for element in elements:
        _move_out(element, elements)
        _place_children(element, attention)


def _place_children(parent: Element, attention: Attention) -> None:
    """Place the children. One with all words of its parent gets the parent's span, and its siblings the ends of it."""
    whole = next(
        (e for e in parent.children if not e.is_point and (e.first, e.last) == (parent.first, parent.last)), None
    )
    if whole is None:
        place_elements(parent.children, attention, parent.target)
        return
    for element in parent.children:
        at = parent.target[0] if element.order < whole.order else parent.target[1]
        element.target = parent.target if element is whole else (at, at)
        _place_children(element, attention)


def _best_span(element: Element, attention: Attention, free: Bool[np.ndarray, " target"], within: Span) -> Span:
    """The run of free words with the most attention to the element's words; a point gets an empty span."""
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
    """The maximal runs of free words."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free[begin:end], [False]]).astype(np.int8)))
    yield from ((begin + int(a), begin + int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def _best_part(gain: Float[np.ndarray, " target"], run: Span, element: Element) -> tuple[float, Span]:
    """The part of a run with the greatest sum, at least one word. On an open side it reaches the end of the run."""
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
    """Before the translation of the source word after the point. A point at an end of the source stays there."""
    begin, end = within
    if begin == end or element.first == 0:
        return begin
    if element.first >= attention.shape[1]:
        return end
    return begin + int(attention[begin:end, element.first].argmax())


def _move_out(point: Element, siblings: Sequence[Element]) -> None:
    """Move a point that came to be inside a sibling to the end of that."""
    if point.target[0] < point.target[1]:
        return
    for other in siblings:
        if other.target[0] < point.target[0] < other.target[1]:
            at = other.target[0] if point.order < other.order else other.target[1]
            point.target = (at, at)


# --- the text with its tags -----------------------------------------------------------------------------------


def render(
    text: str, target_words: Sequence[Span], elements: Sequence[Element], escape: _Escape, part: Span | None = None
) -> str:
    """The target text, or a part of it, with its tags."""
    part = part or (0, len(text))
    out, at = [], part[0]
    for element in sorted(elements, key=lambda e: (*e.target, e.order)):
        begin, end = (min(max(x, at), part[1]) for x in _characters(element, target_words, part))
        inner = element.kept
        if inner is None:
            inner = render(text, target_words, element.children, escape, (begin, end))
        out += [escape(text[at:begin]), element.before, inner, element.after]
        at = end
    return "".join([*out, escape(text[at : part[1]])])


def _characters(element: Element, target_words: Sequence[Span], part: Span) -> Span:
    """The span of an element in characters: from the beginning of its first word to the end of its last."""
    first, last = element.target
    if first == last:
        at = target_words[first][0] if first < len(target_words) else part[1]
        return at, at
    begin = part[0] if element.open_left else target_words[first][0]
    return begin, part[1] if element.open_right else target_words[last - 1][1]
