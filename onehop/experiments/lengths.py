"""Beyond the training length: quality and attention by source length.

Texts longer than one sentence are neighbouring sentences joined and translated as one.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from onehop.decoding.options import SearchOptions
from onehop.evaluation.metrics import bleu, chrf
from onehop.experiments.heads import attention_weights
from onehop.interpret.tracer import Tracer

Json = dict[str, Any]
_EDGES = (10, 20, 30, 40, 60, 80, 120, 160, 200, 260, 320, 400)
_JOINED = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32)
_MOST, _LOOKED_AT = 30, 4
_GREEDY = SearchOptions(beam=1)

Pair = tuple[str, str, int]


def lengths(tracer: Tracer, sources: Sequence[str], references: Sequence[str], longest: int) -> Json:
    """Scores by the number of source tokens. `longest` is the maximum source length in training."""
    filled = by_length(tracer, sources, references)
    rows = [_bucket(tracer, i, pairs) for i, pairs in sorted(filled.items())]
    return {"search": "greedy", "trained_to": longest, "most": _MOST, "buckets": rows}


def by_length(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> dict[int, list[Pair]]:
    """Pairs in buckets by length, each of limited size; pairs beyond the last edge are dropped."""
    found: dict[int, list[Pair]] = {}
    for count in _JOINED:
        for i in range(0, len(sources) - count + 1, count):
            text, reference = (" ".join(side[i : i + count]) for side in (sources, references))
            length = len(tracer.translator.tokenizer.encode(text))
            place = bisect_left(_EDGES, length)
            if place < len(_EDGES) and len(found.setdefault(place, [])) < _MOST:
                found[place].append((text, reference, length))
    return found


def _bucket(tracer: Tracer, place: int, pairs: Sequence[Pair]) -> Json:
    """The scores of one bucket, the ratio of output to reference length, and the entropy of the attention."""
    texts = [found.text for found in tracer.translator.translate([text for text, _, _ in pairs], _GREEDY)]
    references = [reference for _, reference, _ in pairs]
    encode = tracer.translator.tokenizer.encode
    written, wanted = (sum(len(encode(text)) for text in side) for side in (texts, references))
    looks = [
        attention_weights(tracer, encode(p[0]), encode(t)) for p, t in zip(pairs[:_LOOKED_AT], texts, strict=False)
    ]
    return {
        "from": _EDGES[place - 1] + 1 if place else 1,
        "to": _EDGES[place],
        "sentences": len(pairs),
        "mean_length": sum(length for _, _, length in pairs) / len(pairs),
        "bleu": bleu(texts, references).value,
        "chrf": chrf(texts, references).value,
        "tokens_ratio": written / max(1, wanted),
        "attention_entropy": {
            role: sum(entropy(look[role]) for look in looks) / len(looks) for role in ("encoder", "cross")
        },
    }


def entropy(weights: Float[Tensor, "layer head query key"]) -> float:
    """The mean entropy of the rows in bits: 0 for one token, log2 of the length for uniform weights."""
    logs = weights.clamp(min=1e-30).log() / math.log(2)
    return float(-(weights * logs).sum(-1).mean())
