"""Translates through English with two models, for language pairs that no single model has."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from onehop.pipelines.glossary import Terms
from onehop.pipelines.numbers import missing_numbers
from onehop.pipelines.paragraphs import ParagraphTranslator, paragraph
from onehop.pipelines.plan import Alignments, Plan, Translated, run
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import Translation
from onehop.text.sentences import Segment

if TYPE_CHECKING:
    from onehop.pipelines.alignment import Aligned


class PivotTranslator:
    """Translates lines like a `ParagraphTranslator`, sentence by sentence through a pivot language.

    A glossary has no terms in the pivot language, so the models cannot use it. It is only checked at the end.
    """

    def __init__(self, first: ParagraphTranslator, second: ParagraphTranslator, terms: Terms) -> None:
        self.first, self.second, self.terms = first, second, terms
        self.source = first.source
        self.languages = first.source, second.translator.target
        self.models = (*first.models, *second.models)

    def translate(self, lines: Sequence[str], first: int = 0) -> list[Result]:
        """Translate lines together; `first` is as for `ParagraphTranslator`."""
        return self.results(lines, *run(self.plan(lines, first)))

    def plan(self, lines: Sequence[str], first: int = 0, prefixes: Sequence[str] = ()) -> Plan[Translated]:
        segments, translated = yield from self.first.plan(lines, first)
        pairs = zip_longest(translated, prefixes, fillvalue="")
        starts = [prefix if i == 0 else "" for sentences, prefix in pairs for i in range(len(sentences))]
        pivot = [sentence.text for sentences in translated for sentence in sentences]
        last = self.second.results(pivot, *(yield from self.second.plan(pivot, first, starts)))
        return segments, self.join(translated, last)

    def alignment_plan(self, sentences: Sequence[Sentence]) -> "Plan[list[Aligned]]":
        """The alignments of translated sentences through the words of the pivot language."""
        from onehop.pipelines.alignment import chain_alignments  # imports NumPy

        legs = [sentence.legs for sentence in sentences if sentence.legs and sentence.n_best]
        requests = [
            Alignments(self.first.translator, [first for first, *_ in legs]),
            Alignments(self.second.translator, [second for _, *rest in legs for second in rest]),
        ]
        return chain_alignments(sentences, *(yield requests))

    def join(self, translated: Sequence[Sequence[Sentence]], last: Sequence[Result]) -> list[list[Sentence]]:
        """Sentences of lines, `translated` into the pivot language, with their `last` translations."""
        results = iter(last)
        return [[self.join_legs(s, next(results)) for s in sentences] for sentences in translated]

    def results(
        self, lines: Sequence[str], segments: Sequence[Sequence[Segment]], sentences: Sequence[Sequence[Sentence]]
    ) -> list[Result]:
        via = self.second.source
        return [paragraph(*line, self.models, via) for line in zip(lines, segments, sentences, strict=True)]

    def join_legs(self, first: Sentence, second: Result) -> Sentence:
        """A sentence with its final translation, and with the problems of both legs."""
        if not first.n_best:
            return first
        legs = (first, *second.sentences)
        translations = [leg.n_best[0] for leg in legs if leg.n_best]
        required = self.terms.required(first.source)
        return Sentence(
            source=first.source,
            text=second.text,
            n_best=(_chained(second.text, translations),),
            recased=first.recased,
            split=any(leg.split for leg in legs),
            restored=any(leg.restored for leg in legs),
            unmet=tuple(term for term in required if not term.met(second.text)),
            missing_numbers=tuple(missing_numbers(first.source, second.text, self.languages)),
            missing_names=first.missing_names,
            confidence=min((leg.confidence for leg in legs if leg.confidence is not None), default=None),
            address=next((leg.address for leg in legs if leg.address), None),
            legs=legs,
        )


LinePipeline = ParagraphTranslator | PivotTranslator


def _chained(text: str, legs: Sequence[Translation]) -> Translation:
    """The translations of all legs as one: scores add up, and tokens are those of the last language."""
    return replace(
        legs[-1],
        text=text,
        tokens=tuple(token for t in legs[1:] for token in t.tokens),
        score=sum(t.score for t in legs),
        log_prob=sum(t.log_prob for t in legs),
        finished=all(t.finished for t in legs),
        looped=any(t.looped for t in legs),
    )
