"""BLEU, chrF and TER, evaluation reports, perplexity, training curves.

It knows nothing of the training loop: it reads texts, model files and run folders.
"""

__all__ = ["curves", "language_model", "masked_language_model", "metrics", "report"]
