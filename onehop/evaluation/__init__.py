"""How good an output or a model is: BLEU, chrF and TER, reports, perplexity, training curves."""

__all__ = ["curves", "language_model", "masked_language_model", "metrics", "report"]
