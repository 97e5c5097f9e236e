"""A model file that is read when it is first needed, and what it answers about its own translations."""

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
    """How probable a given translation is: the tokens, the end mark last, and the log-probability of each."""

    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole translation."""
        return sum(self.token_scores)

    @property
    def perplexity(self) -> float:
        """How many tokens the model hesitated between, on average; 1 is certainty."""
        return math.exp(-self.log_prob / len(self.token_scores))

    def __repr__(self) -> str:
        return f"Score(log_prob={self.log_prob:.2f}, perplexity={self.perplexity:.2f}, tokens={len(self.tokens)})"


class LazyModel:
    """A model file whose weights are read when they are first needed; it pickles without them."""

    def __init__(self, path: Path, **options: Any) -> None:
        check_kind(path, None)
        # The working directory may be another one when the weights are read again.
        self.path, self.options = path.absolute(), options
        self.name = name_of(self.path)
        label = describe(path)
        self.hash = label.hash
        self.source, self.target = label.content["source"], label.content["target"]
        self.loaded: SentenceTranslator | None = None
        self._loading = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(_read_again, **self.options), (self.name, self.hash)

    @property
    def sentences(self) -> SentenceTranslator:
        with self._loading:
            if self.loaded is None:
                check_unchanged(self.path, self.hash)  # results that are there ask about the weights that made them
                self.loaded = SentenceTranslator.load(self.path, **self.options)
            return self.loaded

    def pipeline(self, **how: Any) -> ParagraphTranslator:
        """What translates its lines; `how` as for `ParagraphTranslator`."""
        longest = max_length_of(self.path)
        return ParagraphTranslator(self.sentences, max_length=longest, model=self.name, scorer=self, **how)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Score]:
        """How probable each target is as the translation of its source."""
        tokenizer = self.sentences.tokenizer
        ids = tokenizer.target.encode_batch(targets)
        scored = self.sentences.score(tokenizer.encode_batch(sources), ids)
        return [Score(tuple(tokenizer.tokens([*i, EOS])), tuple(s)) for i, s in zip(ids, scored, strict=True)]

    def token_scores(self, sentence: Sentence) -> tuple[float, ...]:
        """The log-probability of each token of a sentence's translation."""
        tokenizer = self.sentences.tokenizer
        ids = tokenizer.ids(sentence.tokens)
        read = sentence.read if sentence.tagged is None else sentence.tagged
        source = tokenizer.encode(read, tags=sentence.tagged is not None)
        return tuple(self.sentences.score([source], [ids])[0][: len(ids)])

    def alignments(self, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
        """Which tokens of each sentence's translation come from which."""
        from onehop.pipelines.alignment import align_translations, details  # most translations are made without

        read, best = [s.read for s in sentences], [s.found[0] for s in sentences]
        found = align_translations(self.sentences, read, best)
        return [
            details(self.sentences.tokenizer, *each) for each in zip(read, (t.tokens for t in best), found, strict=True)
        ]


def _read_again(name: str, hash: str, **options: Any) -> LazyModel:
    """A model that comes out of a pickle."""
    path = named_model(name)
    check_unchanged(path, hash)
    return LazyModel(path, **options)


def check_chain(models: Sequence[LazyModel], source: str | None, to: str | None) -> None:
    """Refuse models that cannot follow one another, or that lead from or to another language than the given ones."""
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
