"""Terms that a translation must have, words to keep, and a check that addresses came through."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from onehop.data.corpus import Lines
from onehop.errors import TextError
from onehop.text.formality import Formality
from onehop.text.inflection import folded, inflected
from onehop.text.sentences import ADDRESS, EMOJI, UNSPACED
from onehop.text.tokenizer import normalise

NO_WORD_BEFORE, NO_WORD_AFTER = rf"(?<![^\W{UNSPACED}])", rf"(?![^\W{UNSPACED}])"


@dataclass(frozen=True)
class Term:
    """Words of the source and the words that the translation must have for them; `exact`: case counts."""

    source: str
    target: str
    exact: bool = False

    def met(self, translation: str) -> bool:
        """Whether a translation has the words, as whole words; those of a glossary may be inflected."""
        return self.count(translation) > 0

    def count(self, translation: str) -> int:
        """How often a translation has the words."""
        text = normalise(translation)
        exact = NO_WORD_BEFORE + re.escape(self.target) + NO_WORD_AFTER
        found = len(re.findall(exact, text, 0 if self.exact else re.IGNORECASE))
        if found or self.exact:
            return found
        return len(re.findall(NO_WORD_BEFORE + inflected(self.target) + NO_WORD_AFTER, folded(text)))

    def __str__(self) -> str:
        return self.source if self.source == self.target else f"{self.source} → {self.target}"


class Terms:
    """What is asked of translations: a glossary, words to keep, and how they address the reader.

    Of terms within one another the longest counts.
    """

    def __init__(
        self, glossary: Sequence[Term] = (), keep: Sequence[str] = (), formality: Formality | None = None
    ) -> None:
        self.formality = formality
        kept = [normalise(word) for word in keep]
        self.kept = {word: Term(word, word, exact=True) for word in kept if word}
        self.glossary = {term.source.casefold(): term for term in glossary}
        sources = [*self.kept, *(term.source for term in glossary)]
        self._pattern = _any_of(sources, self.kept) if sources else None
        self._kept_pattern = _any_of(list(self.kept), self.kept) if self.kept else None

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self._pattern is not None or self.formality is not None

    def wanted(self, text: str) -> list[Term]:
        """What a translation of the text must have: its terms, addresses and emoji."""
        text = normalise(text)
        copies = dict.fromkeys([*ADDRESS.findall(text), *re.findall(EMOJI, text)])
        found = (term for _, _, term in self.places(text))
        return list(dict.fromkeys([*found, *(Term(c, c, exact=True) for c in copies)]))

    def places(self, text: str) -> list[tuple[int, int, Term]]:
        """Begin and end of each term of the glossary and each kept word in a normalised text."""
        found = self._pattern.finditer(text) if self._pattern else ()
        return [(*m.span(), term) for m in found if (term := self._term(m[0]))]

    def _term(self, source: str) -> Term | None:
        return self.kept.get(source) or self.glossary.get(source.casefold())

    def keeping(self, words: Sequence[str]) -> "Terms":
        """The same with more words to keep."""
        return Terms(list(self.glossary.values()), [*self.kept, *words], self.formality)

    def of_legs(self) -> tuple["Terms", "Terms"]:
        """What is asked of each of two models; a glossary is in the first and the last language, so of neither."""
        return Terms(keep=list(self.kept)), Terms(keep=list(self.kept), formality=self.formality)

    def identity(self) -> list[list[str]]:
        """Everything that is asked, as JSON holds it."""
        terms = [[t.source, t.target] for t in (*self.kept.values(), *self.glossary.values())]
        return [*terms, [self.formality]] if self.formality else terms

    def untouched(self, text: str) -> list[tuple[int, int]]:
        """Where addresses and kept words stand, in order."""
        kept = self._kept_pattern.finditer(text) if self._kept_pattern else ()
        return sorted(m.span() for m in chain(ADDRESS.finditer(text), kept))

    def decided(self, text: str) -> int:
        """Up to where whatever follows makes no other words, addresses or kept words of the beginning of a text."""
        undecided = max((len(word.split()) for word in self.kept), default=1)
        ends = [m.end() for m in re.finditer(r"\s+", text)]
        return ends[-undecided] if len(ends) >= undecided else 0

    def has_words(self, text: str) -> bool:
        """Whether anything is left to translate beside addresses and kept words."""
        text = ADDRESS.sub(" ", normalise(text))
        return any(map(str.isalnum, self._kept_pattern.sub(" ", text) if self._kept_pattern else text))


def _any_of(sources: Sequence[str], exact: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all terms, the longest first: a glossary of thousands is searched in one go."""
    exact = set(exact)
    ordered = sorted(dict.fromkeys(sources), key=len, reverse=True)
    words = [re.escape(s) if s in exact else f"(?i:{re.escape(s)})" for s in ordered]
    return re.compile(f"{NO_WORD_BEFORE}(?:{'|'.join(words)}){NO_WORD_AFTER}")


def read_glossary(path: Path) -> list[Term]:
    """Terms of a TSV file: source TAB target, one a line; empty lines are passed over."""
    terms: dict[str, Term] = {}
    for number, line in enumerate(Lines(path), start=1):
        place = f"Line {number} of {path}"
        try:
            columns = [normalise(column) for column in line.decode("utf-8").split("\t")]
        except UnicodeDecodeError:
            raise TextError(f"{place} is not UTF-8.", "Convert it, e.g. with iconv.") from None
        if columns == [""]:
            continue
        if len(columns) != 2 or not all(columns):
            raise TextError(f"{place} is not a term.", "Write: source TAB target.")
        source, target = columns
        term = Term(source, target)
        if terms.setdefault(term.source.casefold(), term) != term:
            raise TextError(f"{place} gives {term.source!r} a second translation.", "Keep one of them.")
    return list(terms.values())


def restored(source: str, translation: str) -> str:
    """A translation with the source's addresses in place of its own, if it has as many: a model may garble them."""
    wanted, found = ADDRESS.findall(source), ADDRESS.findall(translation)
    if wanted == found or len(wanted) != len(found):
        return translation
    originals = iter(wanted)
    return ADDRESS.sub(lambda _: next(originals), translation)
