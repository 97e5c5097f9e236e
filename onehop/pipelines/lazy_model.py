"""A model whose weights are loaded on first use."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from onehop.errors import SettingsError
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_label import check_kind, check_unchanged, describe
from onehop.storage.registry import name_of, named_model
from onehop.text.tokenizer import EOS


@dataclass(frozen=True)
class Score:
    """The tokens of a given translation, EOS last, and the log-probability of each."""

    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole translation."""
        return sum(self.token_scores)

    @property
    def perplexity(self) -> float:
        """The exponential of the mean negative log-probability of a token; 1 is certainty."""
        return math.exp(-self.log_prob / len(self.token_scores))

    def __repr__(self) -> str:
        return f"Score(log_prob={self.log_prob:.2f}, perplexity={self.perplexity:.2f}, tokens={len(self.tokens)})"


class LazyModel:
    """A model file whose weights are loaded on first use. It pickles without them."""

    def __init__(self, path: Path, **options: Any) -> None:
        check_kind(path, None)
        # The working directory may change before the weights are loaded.
        self.path, self.options = path.absolute(), options
        self.name = name_of(self.path)
        label = describe(path)
        self.hash = label.hash
        self.source, self.target = label.content["source"], label.content["target"]
        self.loaded: SentenceTranslator | None = None
        self._loading = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(_unpickle, **self.options), (self.name, self.hash)

    @property
    def sentences(self) -> SentenceTranslator:
        with self._loading:
            if self.loaded is None:
                check_unchanged(self.path, self.hash)  # earlier results are scored with the weights that made them
                self.loaded = SentenceTranslator.load(self.path, **self.options)
            return self.loaded

    def pipeline(self, **options: Any) -> ParagraphTranslator:
        max_length = max_length_of(self.path)
        return ParagraphTranslator(self.sentences, max_length=max_length, model=self.name, scorer=self, **options)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Score]:
        """The scores of each target as the translation of its source."""
        tokenizer = self.sentences.tokenizer
        ids = tokenizer.target.encode_batch(targets)
        scored = self.sentences.score(tokenizer.encode_batch(sources), ids)
        return [Score(tuple(tokenizer.tokens([*i, EOS])), tuple(s)) for i, s in zip(ids, scored, strict=True)]

    def token_scores(self, sentence: Sentence) -> tuple[float, ...]:
        """The log-probability of each token of a sentence's translation."""
        tokenizer = self.sentences.tokenizer
        ids = tokenizer.ids(sentence.tokens)
        text = sentence.model_input if sentence.tagged is None else sentence.tagged
        source = tokenizer.encode(text, tags=sentence.tagged is not None)
        return tuple(self.sentences.score([source], [ids])[0][: len(ids)])

    def alignments(self, sentences: Sequence[Sentence]) -> list[dict[str, Any] | None]:
        """The alignment of each sentence's translation as JSON; None if the sentence was copied."""
        from onehop.pipelines.alignment import align_sentences  # imports NumPy

        return [aligned.details(self.sentences.tokenizer) for aligned in align_sentences(self.sentences, sentences)]


def _unpickle(name: str, hash: str, **options: Any) -> LazyModel:
    path = named_model(name)
    check_unchanged(path, hash)
    return LazyModel(path, **options)


def check_chain(models: Sequence[LazyModel], source: str | None, to: str | None) -> None:
    """Raise SettingsError if the models cannot be chained, or do not translate from `source` to `to`."""
    if len(models) not in (1, 2):
        raise SettingsError(f"{len(models)} models are given.", "Give one, or two to go through.")
    if models[0].target != models[-1].source and len(models) == 2:
        first, second = models
        what = f"{first.name} translates into {first.target}, and {second.name} from {second.source}."
        raise SettingsError(what, "Give two models with one language between them.")
    ends = models[0].source, models[-1].target
    if (source or ends[0], to or ends[1]) != ends:
        what = f"The models translate from {ends[0]} to {ends[1]}, not from {source or ends[0]} to {to or ends[1]}."
        raise SettingsError(what, "Choose others, or leave out source= and to=.")
