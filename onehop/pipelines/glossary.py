"""Terms, kept words and formality that a translation must have, the model's tags for them, and copied addresses."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from onehop.data.corpus import Lines, decode_line
from onehop.errors import SettingsError, TextError
from onehop.text.formality import FORMAL, Formality
from onehop.text.inflection import inflected_pattern, without_umlauts
from onehop.text.language_id import name_of
from onehop.text.sentences import ADDRESS, EMOJI, UNSPACED, addresses
from onehop.text.tokenizer import Tokenizer, normalise

# Word boundaries that also hold inside scripts without spaces.
_WORD_START, _WORD_END = rf"(?<![^\W{UNSPACED}])", rf"(?![^\W{UNSPACED}])"
# A statement without "you" has no form of address. Models saw no tag on it in training, and would insert a "Sie".
_YOU = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.IGNORECASE)
_STATEMENT = re.compile(
    r"(?:I|we|he|she|it|they|the|an?|this|that|these|those|there|my|our|his|her|their|its|who|what|when|where|why|how)\b",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?\w+>")


@dataclass(frozen=True)
class Term:
    """Words of the source and their required translation. An `exact` term is case-sensitive and not inflected."""

    source: str
    target: str
    exact: bool = False

    def met(self, translation: str) -> bool:
        """Whether a translation has the term as whole words, possibly inflected."""
        return self.count(translation) > 0

    def count(self, translation: str) -> int:
        text = normalise(translation)
        exact = _WORD_START + re.escape(self.target) + _WORD_END
        count = len(re.findall(exact, text, 0 if self.exact else re.IGNORECASE))
        if count or self.exact:
            return count
        return len(re.findall(_WORD_START + inflected_pattern(self.target) + _WORD_END, without_umlauts(text)))

    def __str__(self) -> str:
        return self.source if self.source == self.target else f"{self.source} → {self.target}"


class Terms:
    """Requirements for translations: a glossary, words to keep, and the formality.

    If terms overlap, the longest counts.
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
        """Whether there is any requirement."""
        return self._pattern is not None or self.formality is not None

    def required(self, text: str) -> list[Term]:
        """What a translation of the text must have: its terms, addresses and emoji."""
        text = normalise(text)
        terms = [term for _, _, term in self.occurrences(text)]
        emoji = () if text.isascii() else re.findall(EMOJI, text)
        copies = [Term(c, c, exact=True) for c in (*(m[0] for m in addresses(text)), *emoji)]
        return list(dict.fromkeys([*terms, *copies]))

    def occurrences(self, text: str) -> list[tuple[int, int, Term]]:
        """Begin and end of each term of the glossary and each kept word in a normalised text."""
        matches = self._pattern.finditer(text) if self._pattern else ()
        return [
            (*m.span(), term) for m in matches if (term := self.kept.get(m[0]) or self.glossary.get(m[0].casefold()))
        ]

    def tagged(self, text: str, tokenizer: Tokenizer) -> str | None:
        """A text with the model's tags for its terms and for the formality, or None if it gets no tags.

        A text that contains something like a tag gets none, because that must stay ordinary text.
        """
        text = normalise(text)
        if not text or _TAG.search(text):
            return None
        tagged = text
        if tokenizer.knows_tag("<term>"):
            for begin, end, term in reversed(self.occurrences(text)):
                if begin == 0 or text[begin - 1] == " ":  # a tag's token includes the space before it
                    tagged = f"{tagged[:begin]}<term> {text[begin:end]} <as> {term.target} </term>{tagged[end:]}"
        is_addressed = _YOU.search(text) or not _STATEMENT.match(text)
        if self.formality and is_addressed and tokenizer.knows_tag(f"<{self.formality}>"):
            tagged = f"<{self.formality}> {tagged}"
        return None if tagged == text else tagged

    def with_kept(self, words: Sequence[str]) -> "Terms":
        return Terms(list(self.glossary.values()), [*self.kept, *words], self.formality)

    def for_pivot(self) -> tuple["Terms", "Terms"]:
        """Terms for the first and the second model of a pivot.

        Neither gets the glossary: no model has both of its languages.
        """
        return Terms(keep=list(self.kept)), Terms(keep=list(self.kept), formality=self.formality)

    def identity(self) -> list[list[str]]:
        """All requirements as JSON."""
        terms = [[t.source, t.target] for t in (*self.kept.values(), *self.glossary.values())]
        return [*terms, [self.formality]] if self.formality else terms

    def protected_spans(self, text: str) -> list[tuple[int, int]]:
        """The sorted spans of addresses and kept words."""
        kept = self._kept_pattern.finditer(text) if self._kept_pattern else ()
        return sorted(m.span() for m in chain(addresses(text), kept))

    def stable_length(self, text: str) -> int:
        """The length of the prefix whose words and protected spans stay the same, whatever text is appended."""
        unstable_words = max((len(word.split()) for word in self.kept), default=1)
        ends = [m.end() for m in re.finditer(r"\s+", text)]
        return ends[-unstable_words] if len(ends) >= unstable_words else 0

    def has_words(self, text: str) -> bool:
        """Whether a text has anything to translate besides addresses and kept words."""
        text = normalise(text)
        text = ADDRESS.sub(" ", text) if any(addresses(text)) else text
        return any(map(str.isalnum, self._kept_pattern.sub(" ", text) if self._kept_pattern else text))


def check_formality(formality: Formality, tokenizer: Tokenizer, language: str) -> None:
    """Raise SettingsError if a model or its target language lacks a formality."""
    if language not in FORMAL:
        languages = " or ".join(map(name_of, FORMAL))
        what = f"{name_of(language)} has no formality {formality}."
        raise SettingsError(what, f"Leave it out, or translate into {languages}.")
    if not tokenizer.knows_tag(f"<{formality}>"):
        raise SettingsError(f"This model has no tag for the formality {formality}.", "Use another model.")


def _any_of(sources: Sequence[str], exact: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all terms, the longest first: a glossary may have thousands."""
    exact = set(exact)
    ordered = sorted(dict.fromkeys(sources), key=len, reverse=True)
    words = [re.escape(s) if s in exact else f"(?i:{re.escape(s)})" for s in ordered]
    return re.compile(f"{_WORD_START}(?:{'|'.join(words)}){_WORD_END}")


def read_glossary(path: Path) -> list[Term]:
    """Terms of a TSV file: source TAB target, one per line. Empty lines are skipped."""
    terms: dict[str, Term] = {}
    for number, line in enumerate(Lines(path), start=1):
        location = f"Line {number} of {path}"
        columns = [normalise(column) for column in decode_line(line, number, path).split("\t")]
        if columns == [""]:
            continue
        if len(columns) != 2 or not all(columns):
            raise TextError(f"{location} is not a term.", "Write: source TAB target.")
        term = Term(columns[0], columns[1])
        if terms.setdefault(term.source.casefold(), term) != term:
            raise TextError(f"{location} gives {term.source!r} a second translation.", "Keep one of them.")
    return list(terms.values())


def restore_addresses(source: str, translation: str) -> str:
    """A translation with the source's addresses instead of its own, if it has as many: a model may garble them."""
    originals = [m[0] for m in addresses(source)]
    if not originals or len(originals) != len(list(addresses(translation))):
        return translation
    remaining = iter(originals)
    return ADDRESS.sub(lambda _: next(remaining), translation)
