"""Translates lines of any length: splits them into sentences, translates these, and joins the translations.

A `SentenceTranslator` takes single sentences. This module handles long sentences, required terms, names and case.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from onehop.config import settings_from_dict
from onehop.decoding.options import SearchOptions
from onehop.errors import SettingsError
from onehop.pipelines.confidence import confidence
from onehop.pipelines.forced_terms import fix_article, force_missing_terms
from onehop.pipelines.glossary import Term, Terms, check_formality, restore_addresses
from onehop.pipelines.numbers import missing_numbers
from onehop.pipelines.plan import Alignments, Plan, Search, Translated, run
from onehop.pipelines.result import Result, Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.storage.model_label import describe
from onehop.storage.registry import named_model
from onehop.text.casing import in_capitals, in_title_case, spelling, to_capitals, to_ordinary_case, to_sentence_case
from onehop.text.formality import formality
from onehop.text.names import missing_names
from onehop.text.sentences import Segment, segment, split_long, split_sentences, with_originals
from onehop.text.tokenizer import normalise

if TYPE_CHECKING:
    from onehop.pipelines.alignment import Aligned
    from onehop.pipelines.lazy_model import LazyModel

# A model has seen few longer sentences in training, and drops parts of them. In a sentence of 500 words the shipped
# model lost 15 of 46 numbers when it was split at 250 tokens, and one when it was split at this length.
_MAX_TOKENS = 128
_SPELLING_CACHE = 1 << 16  # words in capitals
_WORD = re.compile(r"(?<!\S)[a-zA-Z0-9]")
_MAX_SEGMENTS = 1 << 20  # of a line, which has fewer bytes
# Byte fallback lets a model write any byte, and a line must stay one line.
LINE_BREAKS = re.compile(r"[\r\n\v\f\x85\u2028\u2029]+")


class ParagraphTranslator:
    """Translates lines, each on its own, in order."""

    def __init__(
        self,
        translator: SentenceTranslator,
        *,
        max_length: int,
        options: SearchOptions | None = None,
        terms: Terms | None = None,
        whole_lines: bool = False,
        batch_size: int | None = None,
        keep_capitals: bool = False,
        model: str | None = None,
        scorer: "LazyModel | None" = None,
    ) -> None:
        """`max_length` is the maximum number of tokens of a sentence, EOS included; longer sentences are split.

        With `whole_lines`, each line is one sentence. With `keep_capitals`, the model gets sentences in capitals or
        Title Case unchanged. Results contain the name `model`, and their sentences compute details with the `scorer`.
        """
        self.translator = translator
        self.source = translator.source
        self.languages = translator.source, translator.target
        self.models = () if model is None else (model,)
        self.scorer = scorer
        self.max_tokens = min(max_length, _MAX_TOKENS) - 1
        self.options = options or SearchOptions()
        self.terms = terms or Terms()
        if self.terms.formality is not None:
            check_formality(self.terms.formality, translator.tokenizer, translator.target)
        self.whole_lines = whole_lines
        self.batch_size = batch_size
        self.keep_capitals = keep_capitals
        spell = partial(spelling, encode=translator.tokenizer.encode, language=translator.source)
        self._spell = lru_cache(_SPELLING_CACHE)(spell)

    def translate(self, lines: Sequence[str], first: int = 0) -> list[Result]:
        """Translate lines together.

        `first` is the number of the first line in the whole text. The sampling of a line depends on its number and not
        on other lines.
        """
        if isinstance(lines, str):  # a string is a sequence of letters
            raise SettingsError("One string is given where several lines are translated.", "Give a list of lines.")
        return self.results(lines, *run(self.plan(lines, first)))

    def plan(self, lines: Sequence[str], first: int = 0, prefixes: Sequence[str] = ()) -> Plan[Translated]:
        """The segments of each line, and their translations; the translations of lines begin with the `prefixes`."""
        segments = [self.segments(line) for line in lines]
        return segments, (yield from self.search_plan(segments, first, prefixes))

    def search_plan(
        self, lines: Sequence[Sequence[Segment]], first: int = 0, prefixes: Sequence[str] = ()
    ) -> Plan[list[list[Sentence]]]:
        """The translations of each line's segments.

        With required terms, a translation is chosen from the whole beam, which costs no further search.
        """
        segments = [s for line in lines for s in line]
        indices = [self.index(n, i) for n, line in enumerate(lines, first) for i in range(len(line))]
        required = [self.terms.required(s.text) for s in segments]
        sources = self._sources(segments)
        encode, starts = self.translator.tokenizer.target.encode, accumulate(map(len, lines), initial=0)
        forced = {start: encode(prefix) for start, prefix in zip(starts, prefixes, strict=False) if prefix}
        plain = [i for i in sources if i not in forced and not (required[i] or self.terms.formality)]
        with_terms = [i for i in sources if i not in forced and (required[i] or self.terms.formality)]
        with_prefix = [i for i in sources if i in forced]
        groups = (plain, self.options), (with_terms, self._beam_options), (with_prefix, self.options)
        batches = [(batch, options) for group, options in groups for batch in self._batches(group, segments)]
        requests = [
            Search(
                self.translator,
                [sources[i] for i in batch],
                options,
                [indices[i] for i in batch],
                [forced[i] for i in batch] if batch[0] in forced else None,
            )
            for batch, options in batches
        ]
        n_best: list[list[Translation]] = [[] for _ in segments]
        for (batch, _), answer in zip(batches, (yield requests), strict=True):
            for i, translations in zip(batch, answer, strict=True):
                n_best[i] = translations
        sentences = iter((yield from self.selection_plan(segments, n_best, required, indices)))
        return [[next(sentences) for _ in line] for line in lines]

    def selection_plan(
        self,
        segments: Sequence[Segment],
        n_best: Sequence[Sequence[Translation]],
        required: Sequence[Sequence[Term]],
        indices: Sequence[int],
    ) -> Plan[list[Sentence]]:
        """The sentence of each segment with the best of its translations; missing terms and names get a second try."""
        chosen = [
            self._with_terms(s.text, self._best(translations, terms), terms) if translations else None
            for s, translations, terms in zip(segments, n_best, required, strict=True)
        ]
        missing_names = yield from self._keep_names(segments, chosen, required, indices)
        return list(map(self._sentence, segments, n_best, chosen, required, missing_names))

    def _keep_names(
        self,
        segments: Sequence[Segment],
        chosen: list[Translation | None],
        required: Sequence[Sequence[Term]],
        indices: Sequence[int],
    ) -> Plan[list[list[str]]]:
        """Search again with missing names as kept words, and choose the new translation if it is better.

        The result are the names that each chosen translation still lacks.
        """
        tokenizer = self.translator.tokenizer
        missing = [self._missing_names(s, t.text) if t else [] for s, t in zip(segments, chosen, strict=True)]
        sources: dict[int, list[int]] = {}
        for i, names in enumerate(missing):
            tagged = self.terms.with_kept(names).tagged(segments[i].text, tokenizer) if names else None
            if tagged is not None:
                sources[i] = tokenizer.encode(tagged, tags=True)
        if not sources:
            return missing
        searched = [indices[i] for i in sources]
        (answers,) = yield [Search(self.translator, list(sources.values()), self._beam_options, searched)]
        for i, answer in zip(sources, answers, strict=True):
            source, before = segments[i], chosen[i]
            assert before is not None
            complete = [t for t in answer if t.finished and not t.looped] or [before]
            best = self._best(complete, self.terms.with_kept(missing[i]).required(source.text))
            names = self._missing_names(source, best.text)
            is_better = len(names) < len(missing[i])
            if is_better and all(term.met(best.text) for term in required[i] if term.met(before.text)):
                chosen[i], missing[i] = best, names
        return missing

    def _best(self, translations: Sequence[Translation], terms: Sequence[Term]) -> Translation:
        """The first translation with the most terms, preferably in the right formality."""
        return max(translations, key=lambda t: (sum(term.met(t.text) for term in terms), self._is_right_formality(t)))

    def index(self, line: int, segment: int) -> int:
        """The index that seeds the sampling of a segment."""
        return line * _MAX_SEGMENTS + segment

    def _sources(self, segments: Sequence[Segment]) -> dict[int, list[int]]:
        """The ids of each segment that has words to translate, by its index."""
        indices = [i for i, s in enumerate(segments) if self.terms.has_words(s.text)]
        if self.terms.any:
            encoded = [self.ids(segments[i].text) for i in indices]
        else:
            encoded = self.translator.tokenizer.encode_batch([segments[i].text for i in indices], 1)
        return {i: ids for i, ids in zip(indices, encoded, strict=True) if ids}

    def results(
        self, lines: Sequence[str], segments: Sequence[Sequence[Segment]], sentences: Sequence[Sequence[Sentence]]
    ) -> list[Result]:
        """The results of lines from the translations of their segments."""
        return [paragraph(*line, self.models) for line in zip(lines, segments, sentences, strict=True)]

    def alignment_plan(self, sentences: Sequence[Sentence]) -> "Plan[list[Aligned]]":
        [alignments] = yield [Alignments(self.translator, sentences)]
        return list(alignments)

    def segments(self, line: str) -> list[Segment]:
        """The sentences of a line as the model gets them: in ordinary case, and split if they are too long."""
        whole = [segment(line)] if self.whole_lines else split_sentences(line, self.source)
        return [part for s in whole for part in self._parts(s)]

    def _parts(self, whole: Segment) -> list[Segment]:
        protected = self.terms.protected_spans(whole.text)
        text = whole.text
        if not self.keep_capitals and in_capitals(text, protected):
            text = to_ordinary_case(text, self._spell, protected)
        elif not self.keep_capitals and in_title_case(text, self.source, protected):
            text = to_sentence_case(text, self.translator.tokenizer.encode, protected)
        parts = split_long(replace(whole, text=text), self.max_tokens, self._length)
        return parts if text == whole.text else with_originals(whole, parts)

    def _length(self, text: str) -> int:
        """The number of tokens, or a bound on it if that already decides about splitting.

        A text of 48,000 characters is halved seven times, and would be encoded as often.
        """
        normalised = text if text.isascii() else normalise(text)
        upper_bound = len(normalised.encode()) + 1  # the mark of the first word may be a token of its own
        if upper_bound <= self.max_tokens:
            return upper_bound
        words = sum(1 for _ in _WORD.finditer(text))  # no token spans two words
        return words if words > self.max_tokens else len(self.translator.tokenizer.encode(text))

    @property
    def _beam_options(self) -> SearchOptions:
        """The options with the whole beam as result."""
        return replace(self.options, n_best=max(self.options.n_best, self.options.beam))

    def ids(self, text: str) -> list[int]:
        """The ids of a text, with tags for its terms and the formality."""
        tokenizer = self.translator.tokenizer
        tagged = self.terms.tagged(text, tokenizer) if self.terms.any else None
        return tokenizer.encode(text) if tagged is None else tokenizer.encode(tagged, tags=True)

    def _batches(self, indices: list[int], segments: Sequence[Segment]) -> list[list[int]]:
        """Batches of `batch_size` sorted by length; without a size one batch, which the translator sorts and splits."""
        if self.batch_size is None:
            return [indices] if indices else []
        by_length = sorted(indices, key=lambda i: len(segments[i].text))
        return [by_length[i : i + self.batch_size] for i in range(0, len(by_length), self.batch_size)]

    def _sentence(
        self,
        source: Segment,
        n_best: Sequence[Translation],
        chosen: Translation | None,
        required: Sequence[Term],
        missing_names: Sequence[str],
    ) -> Sentence:
        """A segment with the chosen translation first, and the results of all checks."""
        if chosen is None:
            return Sentence(source=source.source, text=source.source, split=source.split)
        found = [chosen, *(t for t in n_best if t is not chosen)]
        if source.original is not None:
            found = [replace(t, text=self.restore_case(source, t.text)) for t in found]
        written = LINE_BREAKS.sub(" ", found[0].text)
        text = restore_addresses(source.text, written)
        # Capitals hide some inflected forms, so terms are looked for in the translation before them too.
        unmet = tuple(term for term in required if not (term.met(text) or term.met(chosen.text)))
        tokens, finished = len(chosen.tokens) + chosen.finished, chosen.finished and not chosen.looped
        return Sentence(
            source=source.source,
            text=text,
            n_best=tuple(found),
            recased=None if source.original is None else source.text,
            tagged=self.terms.tagged(source.text, self.translator.tokenizer) if self.terms.any else None,
            split=source.split,
            restored=text != written,
            unmet=unmet,
            missing_numbers=tuple(missing_numbers(source.text, text, self.languages)),
            missing_names=tuple(missing_names if text == chosen.text else self._missing_names(source, text)),
            address=None if self._is_right_formality(chosen) else self.terms.formality,
            confidence=confidence(next(iter(self.models), None), chosen.log_prob, tokens, finished=finished),
            scorer=self.scorer,
        )

    def _with_terms(self, text: str, translation: Translation, terms: Sequence[Term]) -> Translation:
        """A translation with the terms, as far as the model can be made to write them."""
        if not terms:
            return translation
        restored = restore_addresses(text, translation.text)
        if not all(term.met(restored) for term in terms):
            translation = force_missing_terms(self.translator, text, self.ids(text), translation, terms, self.options)
        for term in terms:
            translation = fix_article(self.translator, text, translation, term)
        return translation

    def _missing_names(self, source: Segment, translation: str) -> list[str]:
        """The names that a translation has changed; none where the case of the source was changed."""
        if source.original is not None:
            return []
        return missing_names(source.text, translation, self.languages, self.translator.tokenizer.encode)

    def _is_right_formality(self, translation: Translation) -> bool:
        """Whether a translation does not address the reader in the other formality."""
        required = self.terms.formality
        return not required or formality(translation.text, self.translator.target) in (None, required)

    def restore_case(self, source: Segment, text: str) -> str:
        """A translation in capitals if its source is. Title Case is not restored: only English uses it."""
        if source.original is None or not in_capitals(source.original, self.terms.protected_spans(source.original)):
            return text
        return to_capitals(text, source.original, self.terms.protected_spans(text), self.translator.target)


def paragraph(
    line: str,
    segments: Sequence[Segment],
    translated: Sequence[Sentence],
    models: tuple[str, ...],
    via: str | None = None,
) -> Result:
    text = "".join(s.around(t.text) for s, t in zip(segments, translated, strict=True))
    return Result(source=line, text=text, sentences=tuple(t for t in translated if t.source), models=models, via=via)


def max_length_of(path: str | Path) -> int:
    """The maximum number of tokens of a sentence that a model translates whole."""
    return settings_from_dict(describe(named_model(str(path))).content["settings"]).model.max_length


def nth_best(sentence: Sentence, n: int, languages: tuple[str, str]) -> Sentence:
    """A sentence with its n-th best translation, counted from 0; the best one if there are fewer."""
    if n == 0 or n >= len(sentence.n_best):
        return sentence
    best: Translation = sentence.n_best[n]
    text = LINE_BREAKS.sub(" ", best.text)
    missing = tuple(missing_numbers(sentence.model_input, text, languages))
    return replace(sentence, text=text, n_best=(best,), restored=False, unmet=(), missing_numbers=missing)
