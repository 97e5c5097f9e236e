"""Which source tokens a translation's tokens come from: cross-attention of one decoder layer, its heads averaged.

Either engine gives it for a translation that is there already, by letting the model write that translation again.
Which layer was chosen by measurement: docs/results/translation-quality.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.shapes import Float
from onehop.storage.ctranslate2_format import alignment_layer
from onehop.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from onehop.decoding.ctranslate2_engine import Ct2Engine

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
    fast = [i for i in places if translator.fast is not None and translator.fast.reaches(sources[i])]
    for i, matrix in zip(fast, _by_ctranslate2(translator, *chosen(fast, sources, targets)), strict=True):
        found[i] = matrix
    for i in sorted(set(places) - set(fast)):
        found[i] = _by_torch(translator, sources[i], targets[i])
    return found


def chosen(places: Sequence[int], *lists: Sequence[list[int]]) -> list[list[list[int]]]:
    """The same places of some lists."""
    return [[each[i] for i in places] for each in lists]


def _by_ctranslate2(
    translator: SentenceTranslator, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[Alignment]:
    """Greedy search that is given every token; the layer stands in the converted files."""
    if not sources:
        return []
    engine: Ct2Engine = translator.fast  # type: ignore[assignment]
    results = engine.translator.translate_batch(
        [engine.tokenizer.tokens(ids) for ids in sources],
        target_prefix=[engine.tokenizer.tokens(ids) for ids in targets],
        beam_size=1,
        max_batch_size=32,
        max_decoding_length=max(map(len, targets)),
        max_input_length=0,
        min_decoding_length=0,
        return_attention=True,
    )
    each = zip(results, targets, strict=True)
    return [np.array(result.attention[0][: len(ids)], dtype=np.float32) for result, ids in each]


def _by_torch(translator: SentenceTranslator, source: list[int], target: list[int]) -> Alignment:
    """One forward pass with a tap in it."""
    import torch

    from onehop.decoding.torch_engine import source_rows
    from onehop.model.taps import watch
    from onehop.model.transformer import Tokens
    from onehop.text.tokenizer import BOS, PAD

    model, kept = translator.model, {}
    wanted = f"decoder.layers.{alignment_layer(model.settings)}.cross_attention.weights"

    def keep(name: str, value: torch.Tensor) -> torch.Tensor:
        if name == wanted:
            kept[name] = value[0].mean(dim=0)[: len(target), : len(source)].float().cpu().numpy()
        return value

    device = next(model.parameters()).device
    src, tgt = source_rows(model, [source]).to(device), torch.tensor([[BOS, *target]], device=device)
    with torch.inference_mode():
        watch(model, keep)(Tokens.padded(src, PAD), Tokens.padded(tgt, PAD))
    found: Alignment = kept[wanted]
    return found
