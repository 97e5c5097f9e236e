"""Lines through two models, into English and out of it, for languages that no single model has."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from onehop.pipelines.glossary import Terms
from onehop.pipelines.numbers import missing_numbers
from onehop.pipelines.paragraphs import ParagraphTranslator, paragraph
from onehop.pipelines.plan import Alignments, Plan, run
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import Translation
from onehop.text.sentences import Segment

if TYPE_CHECKING:
    from onehop.pipelines.alignment import Aligned


class PivotTranslator:
    """Translates lines as a `ParagraphTranslator` does, sentence by sentence through another language.

    Terms of a glossary are in the first and the last language, so that they are looked for in the end only.
    """

    def __init__(self, first: ParagraphTranslator, second: ParagraphTranslator, terms: Terms) -> None:
        self.first, self.second, self.terms = first, second, terms
        self.source = first.source
        self.languages = first.source, second.translator.target
        self.models = (*first.models, *second.models)

    def translate(self, lines: Sequence[str], first: int = 0) -> list[Result]:
        """The translations of some lines, worked on together; `first` numbers them as for `ParagraphTranslator`."""
        return self.results(lines, *run(self.plan(lines, first)))

    def plan(
        self, lines: Sequence[str], first: int = 0, prefixes: Sequence[str] = ()
    ) -> Plan[tuple[list[list[Segment]], list[list[Sentence]]]]:
        """The segments of each line, and their translations; `prefixes` are what those of some lines begin with."""
        parted, translated = yield from self.first.plan(lines, first)
        each = zip_longest(translated, prefixes, fillvalue="")
        starts = [prefix if i == 0 else "" for sentences, prefix in each for i in range(len(sentences))]
        between = [sentence.text for sentences in translated for sentence in sentences]
        last = self.second.results(between, *(yield from self.second.plan(between, first, starts)))
        return parted, self.joined(translated, last)

    def aligning(self, sentences: Sequence[Sentence]) -> "Plan[list[Aligned]]":
        """Which words of translated sentences come from which, through those of the language between."""
        from onehop.pipelines.alignment import legs_of, through_both  # NumPy

        first, second = legs_of(sentences)
        requests = [Alignments(self.first.translator, first), Alignments(self.second.translator, second)]
        return through_both(sentences, *(yield requests))

    def joined(self, translated: Sequence[Sequence[Sentence]], last: Sequence[Result]) -> list[list[Sentence]]:
        """Sentences of lines, `translated` into the language between, with their translations out of it."""
        results = iter(last)
        return [[self.through(s, next(results)) for s in sentences] for sentences in translated]

    def results(
        self, lines: Sequence[str], parted: Sequence[Sequence[Segment]], sentences: Sequence[Sequence[Sentence]]
    ) -> list[Result]:
        """Lines put together again from the translations of their segments."""
        paragraphs = [paragraph(*each) for each in zip(lines, parted, sentences, strict=True)]
        return [replace(result, models=self.models, via=self.second.source) for result in paragraphs]

    def through(self, first: Sentence, second: Result) -> Sentence:
        """A sentence with its final translation; what went wrong on either leg is said of it."""
        if not first.found:
            return first
        legs = (first, *second.sentences)
        found = [leg.found[0] for leg in legs if leg.found]
        wanted = self.terms.wanted(first.source)
        return Sentence(
            source=first.source,
            text=second.text,
            found=(_chained(second.text, found),),
            given=first.given,
            split=any(leg.split for leg in legs),
            restored=any(leg.restored for leg in legs),
            unmet=tuple(term for term in wanted if not term.met(second.text)),
            missing_numbers=tuple(missing_numbers(first.source, second.text, self.languages)),
            missing_names=first.missing_names,
            confidence=min((leg.confidence for leg in legs if leg.confidence is not None), default=None),
            address=next((leg.address for leg in legs if leg.address), None),
            legs=legs,
        )


def _chained(text: str, found: Sequence[Translation]) -> Translation:
    """The translations of all legs as one: scores add up, and tokens are those of the last language."""
    return replace(
        found[-1],
        text=text,
        tokens=tuple(token for t in found[1:] for token in t.tokens),
        score=sum(t.score for t in found),
        log_prob=sum(t.log_prob for t in found),
        finished=all(t.finished for t in found),
        looped=any(t.looped for t in found),
    )
