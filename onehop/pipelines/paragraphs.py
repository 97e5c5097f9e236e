"""Lines of any length through a translator: taken apart into sentences, translated, put together as they stood.

What a `SentenceTranslator` does not do is here: sentences that are too long, terms to be met, things to leave alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from onehop.config import settings_from_dict
from onehop.decoding.options import SearchOptions
from onehop.errors import SettingsError
from onehop.pipelines.confidence import confidence
from onehop.pipelines.glossary import Term, Terms, restored
from onehop.pipelines.insist import agreeing, insisted
from onehop.pipelines.names import missing_names
from onehop.pipelines.numbers import missing_numbers
from onehop.pipelines.plan import Alignments, Plan, Search, run
from onehop.pipelines.result import Result, Scorer, Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.pipelines.tags import check_formality, with_tags
from onehop.storage.model_label import describe
from onehop.storage.registry import named_model
from onehop.text.casing import capitals, in_capitals, in_sentence_case, in_title_case, ordinary, spelling
from onehop.text.formality import formality
from onehop.text.sentences import Segment, as_stood, segment, sentences, shortened
from onehop.text.tokenizer import normalise

if TYPE_CHECKING:
    from onehop.pipelines.alignment import Aligned

# A model may know longer sentences, but has met few of them, and drops parts: the shipped one lost 15 numbers of 46 in
# a sentence of 500 words that was cut into parts of 250 tokens, and one in parts of this size.
_WHOLE = 128
# So many words in capitals are looked up in the vocabulary once, and not again.
_KNOWN_SPELLINGS = 1 << 16
_WORD = re.compile(r"(?<!\S)[a-zA-Z0-9]")
_MOST_SEGMENTS = 1 << 20  # of a line, which has fewer bytes
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
        scorer: Scorer | None = None,
    ) -> None:
        """`max_length`: tokens of the longest sentence, end mark counted. `whole_lines`: each is one sentence.

        `keep_capitals`: a sentence in capitals or Title Case is given to the model as it is. Results name the `model`,
        and their sentences ask the `scorer` about themselves.
        """
        self.translator = translator
        self.source = translator.source
        self.languages = translator.source, translator.target
        self.models = () if model is None else (model,)
        self.scorer = scorer
        self.longest = min(max_length, _WHOLE) - 1
        self.options = options or SearchOptions()
        self.terms = terms or Terms()
        if self.terms.formality is not None:
            check_formality(self.terms.formality, translator.tokenizer, translator.target)
        self.whole_lines = whole_lines
        self.batch_size = batch_size
        self.keep_capitals = keep_capitals
        spelled = partial(spelling, encode=translator.tokenizer.encode, language=translator.source)
        self.spelled = lru_cache(_KNOWN_SPELLINGS)(spelled)

    def translate(self, lines: Sequence[str], first: int = 0) -> list[Result]:
        """The translations of some lines, worked on together.

        `first` is the number of the first line in the whole text: what is sampled for a line depends on its number
        and not on the lines around it.
        """
        if isinstance(lines, str):  # its letters would be taken for lines
            raise SettingsError("One string is given where several lines are translated.", "Give a list of lines.")
        return self.results(lines, *run(self.plan(lines, first)))

    def plan(
        self, lines: Sequence[str], first: int = 0, prefixes: Sequence[str] = ()
    ) -> Plan[tuple[list[list[Segment]], list[list[Sentence]]]]:
        """The segments of each line, and their translations; `prefixes` are what those of some lines begin with."""
        parted = [self.segments(line) for line in lines]
        return parted, (yield from self.searched(parted, first, prefixes))

    def searched(
        self, parted: Sequence[Sequence[Segment]], first: int = 0, prefixes: Sequence[str] = ()
    ) -> Plan[list[list[Sentence]]]:
        """The translations of each line's segments.

        Where terms are to be met the whole beam is looked at, which costs no further search.
        """
        flat = [s for segments in parted for s in segments]
        numbers = [self.number(line, i) for line, each in enumerate(parted, first) for i in range(len(each))]
        wanted = [self.terms.wanted(s.text) for s in flat]
        sources, forced = self._sources(flat), self._forced(parted, prefixes)
        shares = [
            (places, options, choosy is None)
            for choosy, options in ((False, self.options), (True, self.wide), (None, self.options))
            for places in self.batches(
                [i for i in sources if (None if i in forced else self.chooses(wanted[i])) is choosy], flat
            )
        ]
        requests = [
            Search(
                self.translator,
                [sources[i] for i in places],
                options,
                [numbers[i] for i in places],
                [forced[i] for i in places] if is_forced else None,
            )
            for places, options, is_forced in shares
        ]
        found: list[list[Translation]] = [[] for _ in flat]
        for (places, *_), answer in zip(shares, (yield requests), strict=True):
            for i, best in zip(places, answer, strict=True):
                found[i] = best
        done = iter((yield from self.checked(flat, found, wanted, numbers)))
        return [[next(done) for _ in segments] for segments in parted]

    def checked(
        self,
        segments: Sequence[Segment],
        found: Sequence[Sequence[Translation]],
        wanted: Sequence[Sequence[Term]],
        numbers: Sequence[int],
    ) -> Plan[list[Sentence]]:
        """The sentence of each segment, from what the search found for it; terms and names get a second try."""
        each = zip(segments, found, wanted, strict=True)
        chosen = [self.met(s.text, self.most_met(best, terms), terms) if best else None for s, best, terms in each]
        yield from self._keep_names(segments, chosen, wanted, numbers)
        return list(map(self.sentence, segments, found, chosen, wanted))

    def _keep_names(
        self,
        segments: Sequence[Segment],
        chosen: list[Translation | None],
        wanted: Sequence[Sequence[Term]],
        numbers: Sequence[int],
    ) -> Plan[None]:
        """Search again where a translation has changed a name, with the name as a term; the better one is chosen."""
        lost: dict[int, list[str]] = {}
        sources = []
        for i, (source, first) in enumerate(zip(segments, chosen, strict=True)):
            names = [] if first is None or source.stood is not None else self.missing_names(source.text, first.text)
            tagged = with_tags(source.text, self.terms.keeping(names), self.translator.tokenizer) if names else None
            if tagged is not None:
                lost[i] = names
                sources.append(self.translator.tokenizer.encode(tagged, tags=True))
        if not lost:
            return
        (answers,) = yield [Search(self.translator, sources, self.wide, [numbers[i] for i in lost])]
        for (i, names), answer in zip(lost.items(), answers, strict=True):
            text, first = segments[i].text, chosen[i]
            assert first is not None
            sound = [t for t in answer if t.finished and not t.looped] or [first]
            best = self.most_met(sound, self.terms.keeping(names).wanted(text))
            is_kept = len(self.missing_names(text, best.text)) < len(names)
            if is_kept and all(term.met(best.text) for term in wanted[i] if term.met(first.text)):
                chosen[i] = best

    def most_met(self, found: Sequence[Translation], wanted: Sequence[Term]) -> Translation:
        """The translation with the most terms, then the right address; of several the best."""
        return max(found, key=lambda t: (sum(term.met(t.text) for term in wanted), self.addresses(t.text)))

    def number(self, line: int, segment: int) -> int:
        """What names a segment for the sampling."""
        return line * _MOST_SEGMENTS + segment

    def _sources(self, segments: Sequence[Segment]) -> dict[int, list[int]]:
        """The ids of each segment that has words to translate, by its place."""
        places = [i for i, s in enumerate(segments) if self.terms.has_words(s.text)]
        if self.terms.any:
            encoded = [self.ids(segments[i].text) for i in places]
        else:
            encoded = self.translator.tokenizer.encode_batch([segments[i].text for i in places], 1)
        return {i: ids for i, ids in zip(places, encoded, strict=True) if ids}

    def _forced(self, parted: Sequence[Sequence[Segment]], prefixes: Sequence[str]) -> dict[int, list[int]]:
        """The ids that a line's first segment must begin with, by its place, where the line has a prefix."""
        begins = accumulate(map(len, parted), initial=0)
        encode = self.translator.tokenizer.target.encode
        return {begin: encode(prefix) for begin, prefix in zip(begins, prefixes, strict=False) if prefix}

    def results(
        self, lines: Sequence[str], parted: Sequence[Sequence[Segment]], sentences: Sequence[Sequence[Sentence]]
    ) -> list[Result]:
        """Lines put together again from the translations of their segments."""
        return [paragraph(*each, self.models) for each in zip(lines, parted, sentences, strict=True)]

    def aligning(self, sentences: Sequence[Sentence]) -> "Plan[list[Aligned]]":
        """Which words of translated sentences come from which."""
        [found] = yield [Alignments(self.translator, sentences)]
        return list(found)

    def segments(self, line: str) -> list[Segment]:
        """The sentences of a line, none too long to be translated whole."""
        whole = [segment(line)] if self.whole_lines else sentences(line, self.translator.source)
        return [part for s in whole for part in self.parts(s)]

    def parts(self, whole: Segment) -> list[Segment]:
        """A sentence as the model is given it: in ordinary letters, in parts if it is too long."""
        untouched = self.terms.untouched(whole.text)
        plain = whole.text
        if not self.keep_capitals and in_capitals(plain, untouched):
            plain = ordinary(plain, self.spelled, untouched)
        elif not self.keep_capitals and in_title_case(plain, self.source, untouched):
            plain = in_sentence_case(plain, self.translator.tokenizer.encode, untouched)
        parts = shortened(replace(whole, text=plain), self.longest, self.length)
        return parts if plain == whole.text else as_stood(whole, parts)

    def length(self, text: str) -> int:
        """In tokens; bytes where there are few, and words where there are too many: no token has less, or spans two.

        A text of 48,000 characters is halved seven times, and would be encoded as often.
        """
        if (words := sum(1 for _ in _WORD.finditer(text))) > self.longest:
            return words
        short = text if text.isascii() else normalise(text)
        most = len(short.encode()) + 1  # the mark of the first word may be a token of its own
        return most if most <= self.longest else len(self.translator.tokenizer.encode(text))

    @property
    def wide(self) -> SearchOptions:
        """The options with the whole beam, to choose from."""
        return replace(self.options, n_best=max(self.options.n_best, self.options.beam))

    def chooses(self, wanted: Sequence[Term]) -> bool:
        """Whether a sentence's translation is chosen from the whole beam."""
        return bool(wanted) or self.terms.formality is not None

    def tagged(self, text: str) -> str | None:
        """What the model reads in place of a text: the same with tags; None: it gets none."""
        return with_tags(text, self.terms, self.translator.tokenizer) if self.terms.any else None

    def ids(self, text: str) -> list[int]:
        """The ids that the model reads for a text."""
        tagged, tokenizer = self.tagged(text), self.translator.tokenizer
        return tokenizer.encode(text) if tagged is None else tokenizer.encode(tagged, tags=True)

    def batches(self, places: list[int], segments: Sequence[Segment]) -> Iterator[list[int]]:
        """All together, for the translator to sort and batch, or the asked number at a time, sorted by length."""
        if self.batch_size is None:
            if places:
                yield places
            return
        ordered = sorted(places, key=lambda i: len(segments[i].text))
        for begin in range(0, len(ordered), self.batch_size):
            yield ordered[begin : begin + self.batch_size]

    def sentence(
        self, source: Segment, found: Sequence[Translation], chosen: Translation | None, wanted: Sequence[Term]
    ) -> Sentence:
        """A segment with the chosen translation first, and what the checks say of it."""
        if chosen is None:
            return Sentence(source=source.source, text=source.source, split=source.split)
        found = [chosen, *(t for t in found if t is not chosen)]
        if source.stood is not None:
            found = [replace(t, text=self.in_its_letters(source, t.text)) for t in found]
        written = LINE_BREAKS.sub(" ", found[0].text)
        text = restored(source.text, written)
        met_in = (text, chosen.text)  # capitals hide some inflected forms
        return Sentence(
            source=source.source,
            text=text,
            found=tuple(found),
            given=None if source.stood is None else source.text,
            tagged=self.tagged(source.text),
            split=source.split,
            restored=text != written,
            unmet=tuple(term for term in wanted if not any(map(term.met, met_in))),
            missing_numbers=tuple(missing_numbers(source.text, text, self.languages)),
            missing_names=() if source.stood is not None else tuple(self.missing_names(source.text, text)),
            address=None if self.addresses(chosen.text) else self.terms.formality,
            confidence=self.confidence(chosen),
            scorer=self.scorer,
        )

    def met(self, text: str, chosen: Translation, wanted: Sequence[Term]) -> Translation:
        """A translation that has the terms, if there is one."""
        if not wanted:
            return chosen
        written, ids = restored(text, chosen.text), self.ids(text)
        if not all(term.met(written) for term in wanted):
            chosen = insisted(self.translator, text, ids, chosen, wanted, self.options)
        for term in wanted:
            chosen = agreeing(self.translator, text, chosen, term)
        return chosen

    def confidence(self, chosen: Translation) -> float | None:
        """How likely a translation is good; None: that is not known of this model."""
        name, tokens = next(iter(self.models), None), len(chosen.tokens) + chosen.finished
        return confidence(name, chosen.log_prob, tokens, finished=chosen.finished and not chosen.looped)

    def missing_names(self, text: str, translation: str) -> list[str]:
        """The names of a text that its translation has changed."""
        return missing_names(text, translation, self.languages, self.translator.tokenizer.encode)

    def addresses(self, text: str) -> bool:
        """Whether a translation does not address the reader in the other way than the asked one."""
        return formality(text, self.translator.target) in (None, self.terms.formality) or not self.terms.formality

    def in_its_letters(self, source: Segment, text: str) -> str:
        """A translation in capitals where its source is. Only English writes titles in Title Case."""
        if source.stood is None or not in_capitals(source.stood, self.terms.untouched(source.stood)):
            return text
        return capitals(text, source.stood, self.terms.untouched(text), self.translator.target)


def paragraph(
    line: str, segments: Sequence[Segment], translated: Sequence[Sentence], models: tuple[str, ...] = ()
) -> Result:
    text = "".join(s.around(t.text) for s, t in zip(segments, translated, strict=True))
    return Result(source=line, text=text, sentences=tuple(t for t in translated if t.source), models=models)


def max_length_of(path: str | Path) -> int:
    """Tokens of the longest sentence that a model, given by its file or name, translates whole."""
    return settings_from_dict(describe(named_model(str(path))).content["settings"]).model.max_length


def nth_best(sentence: Sentence, n: int, languages: tuple[str, str]) -> Sentence:
    """A sentence with its n-th best translation in the first place; the best where it has not so many."""
    if n == 0 or n >= len(sentence.found):
        return sentence
    best: Translation = sentence.found[n]
    text = LINE_BREAKS.sub(" ", best.text)
    missing = tuple(missing_numbers(sentence.read, text, languages))
    return replace(sentence, text=text, found=(best,), restored=False, unmet=(), missing_numbers=missing)
