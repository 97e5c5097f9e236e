"""Translates HTML documents with a pipeline."""

from collections.abc import Sequence
from dataclasses import replace

from onehop.pipelines.html import align_flows, check_markup, flows, model_text, render_flow
from onehop.pipelines.html_markup import Flow, parse
from onehop.pipelines.paragraphs import ParagraphTranslator, nth_best
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.plan import Plan
from onehop.pipelines.result import Result


def html_plan(
    pipeline: ParagraphTranslator | PivotTranslator, documents: Sequence[str], variants: int = 1
) -> Plan[list[list[Result]]]:
    """`variants` translations of each document, best first; through a pivot language only one.

    Raises TooMuchMarkup if a sentence has more tags than can be placed.
    """
    if isinstance(pipeline, PivotTranslator):
        return (yield from _pivot_plan(pipeline, documents))
    parsed = [parse(document) for document in documents]
    all_flows = [flow for pieces in parsed for flow in flows(pieces)]
    segments = [pipeline.segments(model_text(flow)) for flow in all_flows]
    for flow, flow_segments in zip(all_flows, segments, strict=True):
        check_markup(flow, flow_segments)
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
