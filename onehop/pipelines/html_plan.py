"""HTML through a pipeline: its markup around the translations of its sentences."""

from collections.abc import Sequence
from dataclasses import replace

from onehop.pipelines.html import align_flows, check_markup, flows, put_together, reading
from onehop.pipelines.html_markup import Flow, parse
from onehop.pipelines.paragraphs import ParagraphTranslator, nth_best
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.plan import Plan
from onehop.pipelines.result import Result


def html_plan(
    pipeline: ParagraphTranslator | PivotTranslator, documents: Sequence[str], variants: int = 1
) -> Plan[list[list[Result]]]:
    """So many translations of each document, best first; through another language there is one.

    Raises TooMuchMarkup where a sentence has more tags than can be placed.
    """
    if isinstance(pipeline, PivotTranslator):
        return (yield from _through_both(pipeline, documents))
    parsed = [parse(document) for document in documents]
    every = [flow for pieces in parsed for flow in flows(pieces)]
    parted = [pipeline.segments(reading(flow)) for flow in every]
    for flow, segments in zip(every, parted, strict=True):
        check_markup(flow, segments)
    sentences = yield from pipeline.searched(parted)
    found: list[list[Result]] = [[] for _ in documents]
    for n in range(variants):
        chosen = [[nth_best(s, n, pipeline.languages) for s in translated] for translated in sentences]
        aligned = yield from align_flows(pipeline.aligning, every, parted, chosen)
        texts, own = map(put_together, every, parted, aligned), iter(sentences)
        for document, pieces, best in zip(documents, parsed, found, strict=True):
            text = "".join(next(texts) if isinstance(piece, Flow) else piece for piece in pieces)
            mine = tuple(s for _ in flows(pieces) for s in next(own) if s.source)
            best.append(Result(source=document, text=text, sentences=mine, models=pipeline.models))
    return found


def _through_both(pipeline: PivotTranslator, documents: Sequence[str]) -> Plan[list[list[Result]]]:
    """Sentences are those of the second model, whose source is in the language between."""
    first = [best[0] for best in (yield from html_plan(pipeline.first, documents))]
    second = yield from html_plan(pipeline.second, [result.text for result in first])
    return [
        [
            replace(
                best[0],
                source=document,
                models=pipeline.models,
                via=pipeline.second.source,
                notes=tuple(before.warnings),
            )
        ]
        for document, before, best in zip(documents, first, second, strict=True)
    ]
