"""Beyond the training length: quality and attention by source length.

Texts longer than one sentence are neighbouring sentences joined and translated as one.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from onehop.evaluation.metrics import bleu, chrf
from onehop.experiments.provenance import Json
from onehop.experiments.sentence_attention import GREEDY, attention_weights
from onehop.interpret.tracer import Tracer

_EDGES = (10, 20, 30, 40, 60, 80, 120, 160, 200, 260, 320, 400)
_JOINED = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32)
_BUCKET_SIZE = 30
_ENTROPY_SENTENCES = 4  # of each bucket

_Pair = tuple[str, str, int]


def lengths(tracer: Tracer, sources: Sequence[str], references: Sequence[str], *, longest: int) -> Json:
    """Scores by the number of source tokens. `longest` is the maximum source length in training."""
    buckets = by_length(tracer, sources, references)
    rows = [_bucket_scores(tracer, i, pairs) for i, pairs in sorted(buckets.items())]
    return {"search": "greedy", "trained_to": longest, "most": _BUCKET_SIZE, "buckets": rows}


def by_length(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> dict[int, list[_Pair]]:
    """Pairs in buckets by length, each of limited size; pairs beyond the last edge are dropped."""
    buckets: dict[int, list[_Pair]] = {}
    for count in _JOINED:
        for i in range(0, len(sources) - count + 1, count):
            text, reference = (" ".join(side[i : i + count]) for side in (sources, references))
            length = len(tracer.translator.tokenizer.encode(text))
            bucket = bisect_left(_EDGES, length)
            if bucket < len(_EDGES) and len(buckets.setdefault(bucket, [])) < _BUCKET_SIZE:
                buckets[bucket].append((text, reference, length))
    return buckets


def _bucket_scores(tracer: Tracer, bucket: int, pairs: Sequence[_Pair]) -> Json:
    """The scores of one bucket, the ratio of output to reference length, and the entropy of the attention."""
    sources, references, lengths = zip(*pairs, strict=True)
    texts = [translation.text for translation in tracer.translator.translate(sources, GREEDY)]
    encode = tracer.translator.tokenizer.encode
    output_tokens, reference_tokens = (sum(len(encode(text)) for text in side) for side in (texts, references))
    attentions = [
        attention_weights(tracer.model, encode(source), encode(text))
        for source, text in zip(sources[:_ENTROPY_SENTENCES], texts, strict=False)
    ]
    return {
        "from": _EDGES[bucket - 1] + 1 if bucket else 1,
        "to": _EDGES[bucket],
        "sentences": len(pairs),
        "mean_length": sum(lengths) / len(pairs),
        "bleu": bleu(texts, references).value,
        "chrf": chrf(texts, references).value,
        "tokens_ratio": output_tokens / max(1, reference_tokens),
        "attention_entropy": {
            role: sum(entropy(weights[role]) for weights in attentions) / len(attentions)
            for role in ("encoder", "cross")
        },
    }


def entropy(weights: Float[Tensor, "layer head query key"]) -> float:
    """The mean entropy of the rows in bits: 0 for one token, log2 of the length for uniform weights."""
    logs = weights.clamp(min=1e-30).log() / math.log(2)
    return float(-(weights * logs).sum(-1).mean())
