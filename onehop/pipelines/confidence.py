"""Estimates from the model's own probabilities how likely a translation is good.

`benchmarks/confidence.py` fitted the weights on newstest2013 and Tatoeba, one set for each shipped model.
"""

import math

SURE = 0.7  # at or above it, a sentence counts as sure
DOUBTFUL = 0.3  # below it, a sentence counts as doubtful


def features(log_prob: float, tokens: int) -> tuple[float, float]:
    """The mean log-probability of a token, EOS included, and the logarithm of the length."""
    return max(log_prob / max(tokens, 1), -10.0), math.log(max(tokens, 1))


# Bias, weight of the mean log-probability, weight of the length; by the name of a shipped model.
WEIGHTS: dict[str, tuple[float, float, float]] = {
    "en-de": (1.8819, 7.434, 0.2868),
    "de-en": (2.2099, 8.8947, 0.4994),
    "en-fr": (2.1802, 7.8903, 0.2603),
    "fr-en": (1.5087, 6.1433, 0.4568),
}


def confidence(model: str | None, log_prob: float, tokens: int, *, finished: bool) -> float | None:
    """The probability that a translation is good, or None for a model without fitted weights.

    `tokens` includes EOS. An unfinished translation is never good.
    """
    if model not in WEIGHTS:
        return None
    if not finished:
        return 0.0
    bias, mean, length = WEIGHTS[model]
    quality, size = features(log_prob, tokens)
    return round(1 / (1 + math.exp(-(bias + mean * quality + length * size))), 3)
