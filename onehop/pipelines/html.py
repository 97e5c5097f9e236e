"""Translates HTML documents, and other flows of text with inline markup."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from onehop.pipelines.alignment import Aligned
from onehop.pipelines.html_markup import Flow, Mark, Piece, escaped, parse
from onehop.pipelines.html_tags import Attention, Span, build_elements, by_words, place_elements, render, words
from onehop.pipelines.paragraphs import nth_best
from onehop.pipelines.pivot import LinePipeline, PivotTranslator
from onehop.pipelines.plan import Plan
from onehop.pipelines.result import Result, Sentence
from onehop.text.sentences import Segment
from onehop.text.tokenizer import WORD_MARK, normalise

_NO_BREAK = "\u00a0"
_SENTENCE_ENDS = frozenset(".!?…。！？")


def html_plan(pipeline: LinePipeline, documents: Sequence[str], variants: int = 1) -> Plan[list[list[Result]]]:
    """`variants` translations of each document, best first; through a pivot language only one.

    Raises TooMuchMarkup if a sentence has more tags than can be placed.
    """
    if isinstance(pipeline, PivotTranslator):
        return (yield from _pivot_plan(pipeline, documents))
    parsed = [parse(document) for document in documents]
    all_flows = [flow for pieces in parsed for flow in flows(pieces)]
    segments = [pipeline.segments(model_text(flow)) for flow in all_flows]
    for _, _, segment, inside in chain.from_iterable(map(_marked_segments, all_flows, segments)):
        if inside and any(map(str.isalpha, segment.text)):
            build_elements(inside, [0] * len(inside), (), {})  # raises TooMuchMarkup before anything is translated
    sentences = yield from pipeline.search_plan(segments)
    results: list[list[Result]] = [[] for _ in documents]
    for n in range(variants):
        chosen = [[nth_best(s, n, pipeline.languages) for s in translated] for translated in sentences]
        aligned = yield from align_flows(pipeline.alignment_plan, all_flows, segments, chosen)
        texts, remaining = map(render_flow, all_flows, segments, aligned), iter(sentences)
        for document, pieces, best in zip(documents, parsed, results, strict=True):
            text = "".join(next(texts) if isinstance(piece, Flow) else piece for piece in pieces)
            own = tuple(s for _ in flows(pieces) for s in next(remaining) if s.source)
            best.append(Result(source=document, text=text, sentences=own, models=pipeline.models))
    return results


def _pivot_plan(pipeline: PivotTranslator, documents: Sequence[str]) -> Plan[list[list[Result]]]:
    """One translation of each document. Its sentences are those of the second model, in the pivot language."""
    first = [best[0] for best in (yield from html_plan(pipeline.first, documents))]
    second = yield from html_plan(pipeline.second, [result.text for result in first])
    route = {"models": pipeline.models, "via": pipeline.second.source}
    return [
        [replace(best[0], source=document, notes=tuple(before.warnings), **route)]  # type: ignore[arg-type]
        for document, before, best in zip(documents, first, second, strict=True)
    ]


def flows(pieces: Sequence[Piece]) -> list[Flow]:
    return [piece for piece in pieces if isinstance(piece, Flow)]


def model_text(flow: Flow) -> str:
    """The flow's text for the model. In kept elements, commas replace what looks like the end of a sentence."""
    characters = list(flow.characters)
    for begin, end in kept_spans(flow.marks).values():
        for i in range(begin, end):
            if characters[i] in _SENTENCE_ENDS and i + 1 < len(characters) and characters[i + 1].isspace():
                characters[i] = ","
    return "".join(characters)


def kept_spans(marks: Sequence[Mark]) -> dict[int, Span]:
    """The span of each kept element in the text, by the index of its opening tag."""
    return {i: (marks[i].position, marks[j].position) for i, j in _closing_tags(marks).items() if marks[i].kept}


def _closing_tags(marks: Sequence[Mark]) -> dict[int, int]:
    """The index of the closing tag of each opening tag that has one."""
    opened: dict[str, list[int]] = {}
    closing: dict[int, int] = {}
    for i, mark in enumerate(marks):
        if mark.kind == "open":
            opened.setdefault(mark.name, []).append(i)
        elif mark.kind == "close" and opened.get(mark.name):
            closing[opened[mark.name].pop()] = i
    return closing


def needs_alignment(flow: Flow, segments: Sequence[Segment]) -> list[bool]:
    """Whether each sentence has a mark that may move in the translation, or a no-break space."""
    needs = []
    for begin, end, segment, inside in _marked_segments(flow, segments):
        at_ends = all(mark.position in (begin, end) for mark in inside)
        kept = any(mark.kept for mark in inside)
        needs.append((bool(inside) and (kept or not at_ends)) or _NO_BREAK in segment.text)
    return needs


def _marked_segments(flow: Flow, segments: Sequence[Segment]) -> Iterator[tuple[int, int, Segment, list[Mark]]]:
    """Begin and end of each segment in the flow, the segment, and its marks."""
    positions = [mark.position for mark in flow.marks]
    for (begin, end), segment in zip(segment_spans(segments), segments, strict=True):
        marks = flow.marks[bisect_left(positions, begin) : bisect_right(positions, end)]
        yield begin, end, segment, _marks_inside(marks, begin, end)


def align_flows(
    alignment_plan: Callable[[Sequence[Sentence]], Plan[list[Aligned]]],
    flows: Sequence[Flow],
    segments: Sequence[Sequence[Segment]],
    translated: Sequence[Sequence[Sentence]],
) -> Plan[list[list[Aligned]]]:
    """The translated sentences of each flow, aligned if that is needed to place their marks."""
    needed = list(map(needs_alignment, flows, segments))
    sentences = [s for s, is_needed in zip(chain(*translated), chain(*needed), strict=True) if is_needed]
    aligned = iter((yield from alignment_plan(sentences)) if sentences else [])
    return [
        [next(aligned) if is_needed else Aligned(s) for s, is_needed in zip(*flow, strict=True)]
        for flow in zip(translated, needed, strict=True)
    ]


def segment_spans(segments: Sequence[Segment]) -> list[Span]:
    """Begin and end of each segment in the text that they were split from."""
    spans, at = [], 0
    for segment in segments:
        begin = at + len(segment.before)
        spans.append((begin, begin + len(segment.text)))
        at = begin + len(segment.text) + len(segment.after)
    return spans


def _marks_inside(marks: Sequence[Mark], begin: int, end: int) -> list[Mark]:
    """The marks that belong to a sentence: tags at its ends only if they open or close it."""
    return [
        mark
        for mark in marks
        if begin < mark.position < end or (begin < end and mark.position == (end if mark.kind == "close" else begin))
    ]


def render_flow(flow: Flow, segments: Sequence[Segment], translated: Sequence[Aligned]) -> str:
    """A translated flow with the marks and spaces of the source."""
    out, at, spelling = [], 0, flow.spelling()
    rest, coming = list[Mark](), deque(flow.marks)
    for (begin, end), segment, aligned in zip(segment_spans(segments), segments, translated, strict=True):
        while coming and coming[0].position <= end:
            rest.append(coming.popleft())
        inside = _marks_inside(rest, begin, end)
        taken = set(map(id, inside))
        before = [mark for mark in rest if mark.position <= begin and id(mark) not in taken]
        taken.update(map(id, before))
        rest = [mark for mark in rest if id(mark) not in taken]
        out.append(verbatim(flow, at, begin, before))
        out.append(_sentence_html(flow, begin, segment, inside, aligned, spelling))
        at = end
    return "".join([*out, verbatim(flow, at, len(flow.characters), [*rest, *coming])])


def verbatim(flow: Flow, begin: int, end: int, marks: Sequence[Mark]) -> str:
    """The source from `begin` to `end` with its marks."""
    out, at = [], begin
    for mark in marks:
        out += [*flow.raw[at : max(at, mark.position)], mark.markup]
        at = max(at, mark.position)
    return "".join([*out, *flow.raw[at:end]])


def _sentence_html(
    flow: Flow, begin: int, segment: Segment, marks: Sequence[Mark], aligned: Aligned, spelling: dict[str, str]
) -> str:
    sentence = aligned.sentence
    end = begin + len(segment.text)
    if not sentence.n_best:
        return verbatim(flow, begin, end, marks)
    source = normalise(segment.text)
    source_words, target_words = words(source), words(sentence.text)
    attention = _word_attention(aligned, source_words, target_words)
    closing = _closing_tags(marks)
    kept = {i: verbatim(flow, *span, marks[i + 1 : closing[i]]) for i, span in kept_spans(marks).items()}
    positions = [_normalised_position(segment.text, mark.position - begin) for mark in marks]
    elements = build_elements([_spaced(mark, flow) for mark in marks], positions, source_words, kept)
    place_elements(elements, attention, (0, len(target_words)))
    text = _with_no_breaks(segment.text, sentence.text, attention, target_words)
    return render(text, target_words, elements, lambda part: escaped(part, spelling, flow.escape))


def _spaced(mark: Mark, flow: Flow) -> Mark:
    """An image between two spaces with a space after it: the text has only one space there."""
    around = flow.characters[max(0, mark.position - 1) : mark.position + 1]
    alone = mark.kind == "point" and mark.name == "img" and len(around) == 2 and all(map(str.isspace, around))
    return replace(mark, markup=mark.markup + " ") if alone else mark


def _word_attention(aligned: Aligned, source_words: Sequence[Span], target_words: Sequence[Span]) -> Attention:
    """Attention between words; uniform for target words without any."""
    uniform = np.full((len(target_words), len(source_words)), 1 / max(len(source_words), 1), dtype=np.float32)
    if aligned.attention is None:
        return uniform
    attention = by_words(aligned.attention, aligned.target_tokens, aligned.source_tokens, target_words, source_words)
    return np.where(attention.sum(axis=1, keepdims=True) > 0, attention, uniform)


def _normalised_position(text: str, position: int) -> int:
    """A position of a text in its normalised form."""
    before = normalise(text[:position])
    space = position < len(text) and before and text[position - 1].isspace()
    return len(before) + bool(space)


def _with_no_breaks(source: str, target: str, attention: Attention, target_words: Sequence[Span]) -> str:
    """The target with no-break spaces between words whose source words have one between them."""
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
    """Indices of neighbouring words with a no-break space between them."""
    source = unicodedata.normalize("NFC", source).replace(WORD_MARK, " ")
    spans = words(source)
    for i in range(1, len(spans)):
        if _NO_BREAK in source[spans[i - 1][1] : spans[i][0]]:
            yield i - 1, i
