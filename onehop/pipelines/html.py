"""HTML through a translator: flows of text out of the markup, sentences out of the flows, and all back to its place."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from onehop.pipelines.alignment import Aligned
from onehop.pipelines.html_markup import Flow, Mark, Piece, escaped
from onehop.pipelines.html_tags import Span, by_words, elements, place, rendered, words
from onehop.pipelines.plan import Plan
from onehop.pipelines.result import Sentence
from onehop.shapes import Float
from onehop.text.sentences import Segment
from onehop.text.tokenizer import WORD_MARK, normalise

_NO_BREAK = "\u00a0"
_ENDS = frozenset(".!?…。！？")


def flows(pieces: Sequence[Piece]) -> list[Flow]:
    return [piece for piece in pieces if isinstance(piece, Flow)]


def reading(flow: Flow) -> str:
    """The flow's text as the model reads it: what is kept anyway shall not look like the end of a sentence."""
    characters = list(flow.characters)
    for begin, end in kept_spans(flow.marks).values():
        for i in range(begin, end):
            if characters[i] in _ENDS and i + 1 < len(characters) and characters[i + 1].isspace():
                characters[i] = ","
    return "".join(characters)


def kept_spans(marks: Sequence[Mark]) -> dict[int, Span]:
    """Of each element that is kept, by the number of its opening tag, begin and end in the text."""
    return {i: (marks[i].place, marks[j].place) for i, j in _closings(marks).items() if marks[i].kept}


def _closings(marks: Sequence[Mark]) -> dict[int, int]:
    """For each opening tag the one that closes it."""
    opened: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for i, mark in enumerate(marks):
        if mark.kind == "open":
            opened.setdefault(mark.name, []).append(i)
        elif mark.kind == "close" and opened.get(mark.name):
            found[opened[mark.name].pop()] = i
    return found


def needs_alignment(flow: Flow, segments: Sequence[Segment]) -> list[bool]:
    """Whether a sentence holds a mark that could stand elsewhere in the translation, or a space that joins words."""
    found, at = [], [mark.place for mark in flow.marks]
    for (begin, end), segment in zip(places(segments), segments, strict=True):
        inside = _marks_inside(flow.marks[bisect_left(at, begin) : bisect_right(at, end)], begin, end)
        at_ends = all(mark.place in (begin, end) for mark in inside)
        kept = any(mark.kept for mark in inside)
        found.append((bool(inside) and (kept or not at_ends)) or _NO_BREAK in segment.text)
    return found


def align_flows(
    aligning: Callable[[Sequence[Sentence]], Plan[list[Aligned]]],
    flows: Sequence[Flow],
    parted: Sequence[Sequence[Segment]],
    translated: Sequence[Sequence[Sentence]],
) -> Plan[list[list[Aligned]]]:
    """The sentences of each flow, aligned where that is needed to place their marks."""
    needed = list(map(needs_alignment, flows, parted))
    wanted = [s for s, need in zip(chain(*translated), chain(*needed), strict=True) if need]
    made = iter((yield from aligning(wanted)) if wanted else [])
    return [
        [next(made) if need else Aligned(s) for s, need in zip(sentences, needs, strict=True)]
        for sentences, needs in zip(translated, needed, strict=True)
    ]


def check_markup(flow: Flow, segments: Sequence[Segment]) -> None:
    """Raise TooMuchMarkup where a sentence with words holds more than `put_together` takes, before it is translated."""
    at = [mark.place for mark in flow.marks]
    for (begin, end), segment in zip(places(segments), segments, strict=True):
        inside = _marks_inside(flow.marks[bisect_left(at, begin) : bisect_right(at, end)], begin, end)
        if inside and any(map(str.isalpha, segment.text)):
            elements(inside, [0] * len(inside), (), {})


def places(segments: Sequence[Segment]) -> list[Span]:
    """Begin and end of each sentence in the text that they were cut from."""
    found, at = [], 0
    for segment in segments:
        begin = at + len(segment.before)
        found.append((begin, begin + len(segment.text)))
        at = begin + len(segment.text) + len(segment.after)
    return found


def _marks_inside(marks: Sequence[Mark], begin: int, end: int) -> list[Mark]:
    """The marks that belong to a sentence: tags at its ends only if they open or close it."""
    return [
        mark
        for mark in marks
        if begin < mark.place < end
        or (begin < end and mark.place == begin and mark.kind != "close")
        or (begin < end and mark.place == end and mark.kind == "close")
    ]


def put_together(flow: Flow, segments: Sequence[Segment], translated: Sequence[Aligned]) -> str:
    """A flow in the other language: spaces between sentences and the marks in them as they stood."""
    out, at, spelling = [], 0, flow.spelling()
    rest, coming = list[Mark](), deque(flow.marks)
    for (begin, end), segment, aligned in zip(places(segments), segments, translated, strict=True):
        while coming and coming[0].place <= end:
            rest.append(coming.popleft())
        inside = _marks_inside(rest, begin, end)
        taken = set(map(id, inside))
        before = [mark for mark in rest if mark.place <= begin and id(mark) not in taken]
        taken.update(map(id, before))
        rest = [mark for mark in rest if id(mark) not in taken]
        out.append(verbatim(flow, at, begin, before))
        out.append(_sentence_html(flow, begin, segment, inside, aligned, spelling))
        at = end
    return "".join([*out, verbatim(flow, at, len(flow.characters), [*rest, *coming])])


def verbatim(flow: Flow, begin: int, end: int, marks: Sequence[Mark]) -> str:
    """The source's own characters and marks."""
    out, at = [], begin
    for mark in marks:
        out += [*flow.raw[at : max(at, mark.place)], mark.markup]
        at = max(at, mark.place)
    return "".join([*out, *flow.raw[at:end]])


def _sentence_html(
    flow: Flow, begin: int, segment: Segment, marks: Sequence[Mark], aligned: Aligned, spelling: dict[str, str]
) -> str:
    sentence = aligned.sentence
    end = begin + len(segment.text)
    if not sentence.found:
        return verbatim(flow, begin, end, marks)
    source = normalise(segment.text)
    source_words, target_words = words(source), words(sentence.text)
    attention = _word_attention(aligned, source_words, target_words)
    ends = _closings(marks)
    kept = {i: verbatim(flow, *span, marks[i + 1 : ends[i]]) for i, span in kept_spans(marks).items()}
    positions = [_normalised_place(segment.text, mark.place - begin) for mark in marks]
    forest = elements([_spaced(mark, flow) for mark in marks], positions, source_words, kept)
    place(forest, attention, (0, len(target_words)))
    text = _with_no_breaks(segment.text, sentence.text, attention, target_words)
    return rendered(text, target_words, forest, lambda part: escaped(part, spelling, flow.escape))


def _spaced(mark: Mark, flow: Flow) -> Mark:
    """A picture between spaces needs one on its other side too, for words keep only their own."""
    around = flow.characters[max(0, mark.place - 1) : mark.place + 1]
    alone = mark.kind == "point" and mark.name == "img" and len(around) == 2 and all(map(str.isspace, around))
    return replace(mark, markup=mark.markup + " ") if alone else mark


def _word_attention(
    aligned: Aligned, source_words: Sequence[Span], target_words: Sequence[Span]
) -> Float[np.ndarray, "target source"]:
    """Attention between words; where there is none, all words come from all alike."""
    uniform = np.full((len(target_words), len(source_words)), 1 / max(len(source_words), 1), dtype=np.float32)
    if aligned.attention is None:
        return uniform
    found = by_words(aligned.attention, aligned.target_tokens, aligned.source_tokens, target_words, source_words)
    return np.where(found.sum(axis=1, keepdims=True) > 0, found, uniform)


def _normalised_place(text: str, place: int) -> int:
    """Where a place of a text is in its normalised form."""
    before = normalise(text[:place])
    space = place < len(text) and before and text[place - 1].isspace()
    return len(before) + bool(space)


def _with_no_breaks(
    source: str, target: str, attention: Float[np.ndarray, "target source"], target_words: Sequence[Span]
) -> str:
    """No-break spaces again between target words that come from source words which one joined."""
    if _NO_BREAK not in source or not len(target_words):
        return target
    characters = list(target)
    for left, right in _joined_words(source):
        a, b = sorted((int(attention[:, left].argmax()), int(attention[:, right].argmax())))
        gap = target_words[a][1]
        if b == a + 1 and gap + 1 == target_words[b][0] and characters[gap] == " ":
            characters[gap] = _NO_BREAK
    return "".join(characters)


def _joined_words(source: str) -> Iterator[tuple[int, int]]:
    """Neighbours with a no-break space between them, by their numbers."""
    source = unicodedata.normalize("NFC", source).replace(WORD_MARK, " ")
    spans = words(source)
    for i in range(1, len(spans)):
        if _NO_BREAK in source[spans[i - 1][1] : spans[i][0]]:
            yield i - 1, i
