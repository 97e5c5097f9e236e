"""What a translation brings: the text, its sentences with their scores, and what a reader should be warned of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, runtime_checkable

from onehop.errors import OnehopError
from onehop.pipelines.confidence import DOUBTFUL
from onehop.pipelines.glossary import Term
from onehop.pipelines.sentence_translator import Translation
from onehop.text.formality import Formality
from onehop.text.language_id import LanguageWatch

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # what bytes become that are no letter together
_SHOWN = 80  # characters of a text in a repr


@runtime_checkable
class Scorer(Protocol):
    """A model that is asked again about a sentence that it has translated."""

    def token_scores(self, sentence: "Sentence") -> tuple[float, ...]:
        """The log-probability of each token of the translation."""

    def alignments(self, sentences: Sequence["Sentence"]) -> list[dict[str, Any]]:
        """Which tokens of each translation come from which of the source."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Sentence:
    """A sentence, or a part of one that was split, with its translation and what the search found besides.

    Nothing was found where there was nothing to translate: the text was copied. `given` is what the model was
    given, where that is not the source: of a sentence in capitals the same in ordinary letters; `tagged` is the same
    with the tags for terms and formality. `address` is the asked formality, where the translation has the other one.
    `confidence` is the probability that the translation is good; None: it is not known of this model.
    `legs` are the sentences of a translation through English: that into English, and those out of it.
    """

    source: str
    text: str
    found: tuple[Translation, ...] = ()
    given: str | None = None
    tagged: str | None = None
    split: bool = False
    restored: bool = False
    unmet: tuple[Term, ...] = ()
    missing_numbers: tuple[str, ...] = ()
    missing_names: tuple[str, ...] = ()
    address: Formality | None = None
    confidence: float | None = None
    legs: tuple["Sentence", ...] = ()
    scorer: Scorer | None = field(default=None, compare=False)

    @property
    def read(self) -> str:
        """What the model has read."""
        return self.source if self.given is None else self.given

    @property
    def score(self) -> float:
        """Log-probability over length penalty, as the search ranks; 0 where the text was copied."""
        return self.found[0].score if self.found else 0.0

    @property
    def tokens(self) -> tuple[str, ...]:
        """The pieces that the model wrote, with U+2581 where a word begins."""
        return self.found[0].tokens if self.found else ()

    @cached_property
    def token_scores(self) -> tuple[float, ...]:
        """The log-probability of each of the tokens; the model is asked when this is first read."""
        if self.legs:
            return tuple(chain.from_iterable(leg.token_scores for leg in self.legs[1:]))
        return self.asked.token_scores(self) if self.found else ()

    @cached_property
    def alignment(self) -> dict[str, Any] | None:
        """Which token comes from which, as in `onehop translate --json --alignments`.

        It is None where the text was copied, and where it went through English: then each of the legs has one. The keys
        are `source_tokens`, `target_tokens`, `attention` (a row for each target token) and `pairs` (places of a source
        token and a target token). The model is asked when this is first read.
        """
        return self.asked.alignments([self])[0] if self.found and not self.legs else None

    @property
    def asked(self) -> Scorer:
        """Who knows more about this sentence."""
        if self.scorer is None:
            raise OnehopError("This sentence does not know its model.", "Translate it with onehop.Translator.")
        return self.scorer

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Sentence({shortened(self.source)} -> {shortened(self.text)}, score={self.score:.2f})"

    def warnings(self) -> Iterator[str]:
        """What a reader should know."""
        if self.split:
            yield "a sentence was too long to translate whole, and split"
        if any(t.looped for t in self.found[:1]):
            yield "a translation repeated itself over and over, and was stopped"
        elif not all(t.finished for t in self.found[:1]):
            yield "a translation came to the greatest length without an end"
        if self.restored:
            yield "an address or a placeholder was garbled, and put back"
        if _BROKEN in self.text and _BROKEN not in self.source:
            yield "a letter that the model does not know came out broken"
        for term in self.unmet:
            yield f"not in the translation: {term}"
        for number in self.missing_numbers:
            yield f"a number is not in the translation: {number}"
        for name in self.missing_names:
            yield f"a name is not in the translation: {name}"
        if self.address:
            yield f"the reader is not addressed as asked: {self.address}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A text and its translation; `str(result)` is the translation.

    `models` names the models that made it, and `via` the language between two of them. `notes` are warnings about the
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
        doubt = LanguageWatch(language).look_at(parts[::2])
        return replace(
            lines[0],
            source="".join(parts),
            text="".join(line.text + end for line, end in zip(lines, ends, strict=True)),
            sentences=tuple(s for line in lines for s in line.sentences),
            notes=() if doubt is None else (doubt,),
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
        """The lowest confidence of a sentence; None: it is not known, or nothing was translated."""
        return min((s.confidence for s in self.sentences if s.confidence is not None), default=None)

    @property
    def doubtful(self) -> list[Sentence]:
        """The sentences with a low confidence, which a person should read."""
        return [s for s in self.sentences if s.confidence is not None and s.confidence < DOUBTFUL]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know, each thing once."""
        return list(dict.fromkeys(chain(self.notes, *(s.warnings() for s in self.sentences))))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        via = f", via={self.via!r}" if self.via else ""
        warned = f", warnings={self.warnings}" if self.warnings else ""
        return f"Result({shortened(self.text)}, score={self.score:.2f}{via}{warned})"

    def details(self, n_best: int = 1, *, alignments: bool = False) -> dict[str, Any]:
        """Everything, as JSON holds it and `onehop translate --json` shows it."""
        sentences = [_sentence_details(s, n_best) for s in self.sentences]
        if alignments:
            _add_alignments(self.sentences, sentences)
        chosen = [s.found[0] for s in self.sentences if s.found]
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
            "capitals": any(s.given is not None for s in self.sentences),
            "unmet": [{"source": t.source, "target": t.target} for s in self.sentences for t in s.unmet],
            "missing_numbers": [number for s in self.sentences for number in s.missing_numbers],
            "missing_names": [name for s in self.sentences for name in s.missing_names],
            "warnings": self.warnings,
            "sentences": sentences,
        }


def _sentence_details(sentence: Sentence, n_best: int) -> dict[str, Any]:
    """A sentence as JSON holds it; the first of its n best is the one that was taken."""
    details: dict[str, Any] = {"source": sentence.source, "text": sentence.text, "split": sentence.split}
    details |= {"confidence": sentence.confidence, "warnings": list(sentence.warnings())}
    details |= {"copied": not sentence.found, "restored": sentence.restored, "capitals": sentence.given is not None}
    best = [
        {"text": t.text, "score": t.score, "log_prob": t.log_prob, "tokens": list(t.tokens), "finished": t.finished}
        | {"looped": t.looped, "engine": t.engine}
        for t in sentence.found[:n_best]
    ]
    return details | {"n_best": best}


def _add_alignments(sentences: Sequence[Sentence], shown: Sequence[dict[str, Any]]) -> None:
    """Give each shown sentence its alignment, made for all of them together; some have none, as in Sentence."""
    both = [(s, details) for s, details in zip(sentences, shown, strict=True) if s.found and not s.legs]
    found = both[0][0].asked.alignments([s for s, _ in both]) if both else []
    for (_, details), alignment in zip(both, found, strict=True):
        details["alignment"] = alignment


def shortened(text: str) -> str:
    """The repr of a text, or of its beginning."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")
