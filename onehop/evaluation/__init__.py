"""How good an output or a model is: BLEU, chrF and TER, reports, perplexity, training curves.

It knows nothing of the training loop: it reads texts, model files and run folders.
"""

__all__ = ["curves", "language_model", "masked_language_model", "metrics", "report"]
