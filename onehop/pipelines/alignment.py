"""Which source tokens a translation's tokens come from: cross-attention of one decoder layer, its heads averaged.

Either engine gives it for a translation that is there already, by letting the model write that translation again.
Which layer was chosen by measurement: docs/results/translation-quality.md.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.shapes import Float
from onehop.text.tokenizer import Tokenizer

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
