"""Which source tokens a translation's tokens come from: cross-attention of one decoder layer, its heads averaged.

Either engine gives it for a translation that is there already, by letting the model write that translation again.
Which layer was chosen by measurement: docs/results/translation-quality.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onehop.pipelines.html_tags import by_words, words
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.shapes import Float
from onehop.text.tokenizer import Tokenizer, normalise

Alignment = Float[np.ndarray, "target source"]


def align_translations(
    translator: SentenceTranslator, texts: Sequence[str], translations: Sequence[Translation]
) -> list[Alignment]:
    """For each text and its translation a row for every token of the translation."""
    tokenizer = translator.tokenizer
    targets = [tokenizer.ids(translation.tokens) for translation in translations]
    return align(translator, tokenizer.encode_batch(texts), targets)


def details(tokenizer: Tokenizer, text: str, tokens: Sequence[str], found: Alignment) -> dict[str, Any]:
    """An alignment as JSON holds it; pairs are places of a source token and of the target token it wins."""
    strongest = found.argmax(axis=1) if found.size else []
    return {
        "source_tokens": tokenizer.tokens(tokenizer.encode(text)),
        "target_tokens": list(tokens),
        "attention": np.round(found.astype(float), 4).tolist(),
        "pairs": [[int(source), target] for target, source in enumerate(strongest)],
    }


def align(
    translator: SentenceTranslator, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[Alignment]:
    """For each pair of ids a row for every target token; what the source's end mark draws is left out."""
    found: list[Alignment] = [
        np.zeros((len(t), len(s)), dtype=np.float32) for s, t in zip(sources, targets, strict=True)
    ]
    places = [i for i, (s, t) in enumerate(zip(sources, targets, strict=True)) if s and t]
    engine = translator.fast
    fast = [i for i in places if engine is not None and engine.reaches(sources[i])]
    rest = sorted(set(places) - set(fast))
    for share, by in ((fast, engine), (rest, translator.reference if rest else None)):
        if share and by is not None:
            aligned = by.align([sources[i] for i in share], [targets[i] for i in share])
            for i, matrix in zip(share, aligned, strict=True):
                found[i] = matrix
    return found


@dataclass(frozen=True)
class Aligned:
    """A translated sentence and, where it holds markup, which of its tokens come from which."""

    sentence: Sentence
    source_tokens: Sequence[tuple[int, int]] = ()
    target_tokens: Sequence[tuple[int, int]] = ()
    attention: Alignment | None = None

    def details(self, tokenizer: Tokenizer) -> dict[str, Any] | None:
        if self.attention is None:
            return None
        return details(tokenizer, self.sentence.read, self.sentence.found[0].tokens, self.attention)


def aligned(translator: SentenceTranslator, sentences: Sequence[Sentence]) -> list[Aligned]:
    """Which tokens of each translation come from which; of what was copied, nothing."""
    tokenizer, found = translator.tokenizer, [Aligned(sentence) for sentence in sentences]
    places = [i for i, sentence in enumerate(sentences) if sentence.found]
    sources = [tokenizer.encode(sentences[i].read) for i in places]
    targets = [tokenizer.ids(sentences[i].found[0].tokens) for i in places]
    matrices = align(translator, sources, targets)
    for i, source, target, matrix in zip(places, sources, targets, matrices, strict=True):
        found[i] = Aligned(sentences[i], tokenizer.spans(source), tokenizer.spans(target), matrix)
    return found


def legs_of(sentences: Sequence[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
    """The sentences into English and out of it, of those that were not copied."""
    legs = [sentence.legs for sentence in sentences if sentence.legs and sentence.found]
    return [each[0] for each in legs], [leg for each in legs for leg in each[1:]]


def through_both(sentences: Sequence[Sentence], first: Iterable[Aligned], second: Iterable[Aligned]) -> list[Aligned]:
    """The alignments of sentences from those of their legs."""
    firsts, seconds = iter(first), iter(second)
    return [
        _chained(sentence, next(firsts), [next(seconds) for _ in sentence.legs[1:]])
        if sentence.legs and sentence.found
        else Aligned(sentence)
        for sentence in sentences
    ]


def _chained(sentence: Sentence, first: Aligned, seconds: Sequence[Aligned]) -> Aligned:
    """The attention of the last language's words to the first's, through those between; none where one has none."""
    second = seconds[0] if len(seconds) == 1 else Aligned(sentence)
    if first.attention is None or second.attention is None:
        return Aligned(sentence)
    source, between = words(normalise(sentence.read)), words(first.sentence.text)
    target = words(sentence.text)
    to_between = by_words(second.attention, second.target_tokens, second.source_tokens, target, between)
    to_source = by_words(first.attention, first.target_tokens, first.source_tokens, between, source)
    return Aligned(sentence, source, target, to_between @ to_source)
