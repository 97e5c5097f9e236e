"""Aligns target to source tokens by the cross-attention of one decoder layer, averaged over its heads.

Both engines align a finished translation by teacher forcing. The layer was chosen by measurement:
docs/results/translation-quality.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onehop.pipelines.html_tags import Attention, by_words, words
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import Tokenizer, normalise


def align(
    translator: SentenceTranslator, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[Attention]:
    """A row for each target token and a column for each source token. EOS of the source is left out."""
    alignments: list[Attention] = [
        np.zeros((len(t), len(s)), dtype=np.float32) for s, t in zip(sources, targets, strict=True)
    ]
    fast = translator.fast
    indices = [i for i, alignment in enumerate(alignments) if alignment.size]
    for engine, share in translator.split_by_engine(indices, lambda i: fast is not None and fast.reaches(sources[i])):
        aligned = engine.align([sources[i] for i in share], [targets[i] for i in share])
        for i, alignment in zip(share, aligned, strict=True):
            alignments[i] = alignment
    return alignments


@dataclass(frozen=True)
class Aligned:
    """A translated sentence with the attention between its tokens, which are spans of its texts.

    `attention` is None if the text was copied, or if no alignment was needed.
    """

    sentence: Sentence
    source_tokens: Sequence[tuple[int, int]] = ()
    target_tokens: Sequence[tuple[int, int]] = ()
    attention: Attention | None = None

    def details(self, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """The alignment as JSON; `pairs` are the indices of a target token's strongest source token and of itself."""
        if self.attention is None:
            return None
        strongest = self.attention.argmax(axis=1) if self.attention.size else []
        return {
            "source_tokens": tokenizer.tokens(tokenizer.encode(self.sentence.model_input)),
            "target_tokens": list(self.sentence.tokens),
            "attention": np.round(self.attention.astype(float), 4).tolist(),
            "pairs": [[int(source), target] for target, source in enumerate(strongest)],
        }


def align_sentences(translator: SentenceTranslator, sentences: Sequence[Sentence]) -> list[Aligned]:
    """The alignment of each sentence that was not copied."""
    tokenizer, results = translator.tokenizer, [Aligned(sentence) for sentence in sentences]
    indices = [i for i, sentence in enumerate(sentences) if sentence.n_best]
    sources = [tokenizer.encode(sentences[i].model_input) for i in indices]
    targets = [tokenizer.ids(sentences[i].tokens) for i in indices]
    alignments = align(translator, sources, targets)
    for i, source, target, alignment in zip(indices, sources, targets, alignments, strict=True):
        results[i] = Aligned(sentences[i], tokenizer.spans(source), tokenizer.spans(target), alignment)
    return results


def chain_alignments(
    sentences: Sequence[Sentence], first: Iterable[Aligned], second: Iterable[Aligned]
) -> list[Aligned]:
    """The alignments of sentences through a pivot language, from the alignments of their legs."""
    firsts, seconds = iter(first), iter(second)
    return [
        _chain(sentence, next(firsts), [next(seconds) for _ in sentence.legs[1:]])
        if sentence.legs and sentence.n_best
        else Aligned(sentence)
        for sentence in sentences
    ]


def _chain(sentence: Sentence, first: Aligned, seconds: Sequence[Aligned]) -> Aligned:
    """The attention of target words to source words: the product over the words of the pivot language."""
    second = seconds[0] if len(seconds) == 1 else Aligned(sentence)
    if first.attention is None or second.attention is None:
        return Aligned(sentence)
    source, pivot, target = words(normalise(sentence.model_input)), words(first.sentence.text), words(sentence.text)
    to_pivot = by_words(second.attention, second.target_tokens, second.source_tokens, target, pivot)
    to_source = by_words(first.attention, first.target_tokens, first.source_tokens, pivot, source)
    return Aligned(sentence, source, target, to_pivot @ to_source)
