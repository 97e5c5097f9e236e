"""Results of a translation: the text, its sentences with their scores, and warnings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from onehop.errors import OnehopError
from onehop.pipelines.confidence import DOUBTFUL
from onehop.pipelines.glossary import Term
from onehop.pipelines.sentence_translator import Translation
from onehop.text.formality import Formality
from onehop.text.language_id import LanguageWatch

if TYPE_CHECKING:
    from onehop.pipelines.lazy_model import LazyModel

_INVALID = "\N{REPLACEMENT CHARACTER}"  # decoded from bytes that are not valid UTF-8
_REPR_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True, repr=False)
class Sentence:
    """A sentence, or a part of a long one, with its translation.

    Attributes:
        source: The sentence.
        text: Its translation, or the same text if it has nothing to translate.
        n_best: The n best translations, the chosen one first; empty if the text was copied.
        recased: The input of the model if the case of the source was changed, as in a sentence in capitals.
        tagged: The input with tags for terms and formality, or None without tags.
        split: Whether this is a part of a sentence that was too long.
        restored: Whether a garbled address or placeholder was replaced by that of the source.
        unmet: The terms that are not in the translation.
        missing_numbers: The numbers that are not in the translation.
        missing_names: The names that are not in the translation.
        address: The required formality if the translation has the other one.
        confidence: The probability that the translation is good; None if it is unknown for this model.
        legs: Through English, the sentence into English and those out of it.
        scorer: The model that computes `token_scores` and `alignment`.
    """

    source: str
    text: str
    n_best: tuple[Translation, ...] = ()
    recased: str | None = None
    tagged: str | None = None
    split: bool = False
    restored: bool = False
    unmet: tuple[Term, ...] = ()
    missing_numbers: tuple[str, ...] = ()
    missing_names: tuple[str, ...] = ()
    address: Formality | None = None
    confidence: float | None = None
    legs: tuple["Sentence", ...] = ()
    scorer: "LazyModel | None" = field(default=None, compare=False)

    # The names of these fields in version 0.2.
    found = property(lambda self: self.n_best)
    given = property(lambda self: self.recased)
    read = property(lambda self: self.model_input)

    @property
    def model_input(self) -> str:
        """The input of the model, without tags."""
        return self.source if self.recased is None else self.recased

    @property
    def score(self) -> float:
        """Log-probability over length penalty, by which the search ranks; 0 if the text was copied."""
        return self.n_best[0].score if self.n_best else 0.0

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the translation, with U+2581 where a word begins."""
        return self.n_best[0].tokens if self.n_best else ()

    @cached_property
    def token_scores(self) -> tuple[float, ...]:
        """The log-probability of each token; the first access runs the model."""
        if self.legs:
            return tuple(chain.from_iterable(leg.token_scores for leg in self.legs[1:]))
        return self._require_scorer().token_scores(self) if self.n_best else ()

    @cached_property
    def alignment(self) -> dict[str, Any] | None:
        """The alignment of target to source tokens, as in `onehop translate --json --alignments`.

        It is None if the text was copied, and through English, where each of the legs has one. The keys are
        `source_tokens`, `target_tokens`, `attention` (a row for each target token) and `pairs` (indices of a source
        token and a target token). The first access runs the model.
        """
        return self._require_scorer().alignments([self])[0] if self.n_best and not self.legs else None

    def _require_scorer(self) -> "LazyModel":
        if self.scorer is None:
            raise OnehopError("This sentence does not know its model.", "Translate it with onehop.Translator.")
        return self.scorer

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Sentence({short_repr(self.source)} -> {short_repr(self.text)}, score={self.score:.2f})"

    def warnings(self) -> Iterator[str]:
        if self.split:
            yield "a sentence was too long to translate whole, and split"
        if any(t.looped for t in self.n_best[:1]):
            yield "a translation repeated itself over and over, and was stopped"
        elif not all(t.finished for t in self.n_best[:1]):
            yield "a translation reached the maximum length without ending"
        elif self.n_best and not self.text.strip():
            yield "a translation is empty"
        if self.restored:
            yield "an address or a placeholder was garbled, and put back"
        if _INVALID in self.text and _INVALID not in self.source:
            yield "a character that the model does not know came out garbled"
        yield from (f"not in the translation: {term}" for term in self.unmet)
        yield from (f"a number is not in the translation: {number}" for number in self.missing_numbers)
        yield from (f"a name is not in the translation: {name}" for name in self.missing_names)
        if self.address:
            yield f"the form of address is not {self.address}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A text and its translation; `str(result)` is the translation.

    `models` are the names of the models, and `via` is the language between two models. `notes` are warnings about the
    text as a whole.
    """

    source: str
    text: str
    sentences: tuple[Sentence, ...]
    models: tuple[str, ...] = ()
    via: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_lines(cls, parts: Sequence[str], lines: Sequence["Result"], language: str) -> "Result":
        """The lines of a text as one result; `parts` alternates between source lines and their line ends."""
        ends = [*parts[1::2], ""]
        warning = LanguageWatch(language).check(parts[::2])
        return replace(
            lines[0],
            source="".join(parts),
            text="".join(line.text + end for line, end in zip(lines, ends, strict=True)),
            sentences=tuple(s for line in lines for s in line.sentences),
            notes=() if warning is None else (warning,),
        )

    @property
    def score(self) -> float:
        """The sum of the sentences' scores: log-probabilities over length penalties."""
        return sum((s.score for s in self.sentences), 0.0)

    @property
    def scores(self) -> tuple[float, ...]:
        """Each sentence's score."""
        return tuple(s.score for s in self.sentences)

    @property
    def confidence(self) -> float | None:
        """The lowest confidence of a sentence; None if it is unknown, or nothing was translated."""
        return min((s.confidence for s in self.sentences if s.confidence is not None), default=None)

    @property
    def doubtful(self) -> list[Sentence]:
        """The sentences with a low confidence, which a person should read."""
        return [s for s in self.sentences if s.confidence is not None and s.confidence < DOUBTFUL]

    @property
    def warnings(self) -> list[str]:
        """The warnings of all sentences, without duplicates."""
        return list(dict.fromkeys(chain(self.notes, *(s.warnings() for s in self.sentences))))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        via = f", via={self.via!r}" if self.via else ""
        warnings = f", warnings={self.warnings}" if self.warnings else ""
        return f"Result({short_repr(self.text)}, score={self.score:.2f}{via}{warnings})"

    def details(self, n_best: int = 1, *, alignments: bool = False) -> dict[str, Any]:
        """Everything as JSON, as in `onehop translate --json`."""
        sentences = [_sentence_details(s, n_best) for s in self.sentences]
        aligned = [i for i, s in enumerate(self.sentences) if alignments and s.n_best and not s.legs]
        if aligned:
            scorer = self.sentences[aligned[0]]._require_scorer()
            batch = scorer.alignments([self.sentences[i] for i in aligned])
            for i, alignment in zip(aligned, batch, strict=True):
                sentences[i]["alignment"] = alignment
        chosen = [s.n_best[0] for s in self.sentences if s.n_best]
        return {
            "source": self.source,
            "text": self.text,
            **({"models": list(self.models), "via": self.via} if self.models else {}),
            "score": self.score,
            "confidence": self.confidence,
            "tokens": [token for t in chosen for token in t.tokens],
            "engine": next((t.engine for t in chosen), None),
            "compute": next((t.compute for t in chosen), None),
            "finished": all(t.finished for t in chosen),
            "looped": any(t.looped for t in chosen),
            "split": any(s.split for s in self.sentences),
            "capitals": any(s.recased is not None for s in self.sentences),
            "unmet": [{"source": t.source, "target": t.target} for s in self.sentences for t in s.unmet],
            "missing_numbers": [number for s in self.sentences for number in s.missing_numbers],
            "missing_names": [name for s in self.sentences for name in s.missing_names],
            "warnings": self.warnings,
            "sentences": sentences,
        }


def _sentence_details(sentence: Sentence, n_best: int) -> dict[str, Any]:
    """A sentence as JSON, with the chosen translation as the first of its n best."""
    details: dict[str, Any] = {"source": sentence.source, "text": sentence.text, "split": sentence.split}
    details |= {"confidence": sentence.confidence, "warnings": list(sentence.warnings())}
    details |= {"copied": not sentence.n_best, "restored": sentence.restored, "capitals": sentence.recased is not None}
    best = [
        {"text": t.text, "score": t.score, "log_prob": t.log_prob, "tokens": list(t.tokens), "finished": t.finished}
        | {"looped": t.looped, "engine": t.engine}
        for t in sentence.n_best[:n_best]
    ]
    return details | {"n_best": best}


def short_repr(text: str) -> str:
    return repr(text if len(text) <= _REPR_CHARACTERS else f"{text[: _REPR_CHARACTERS - 1]}…")
