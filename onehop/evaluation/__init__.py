"""BLEU, chrF and TER, evaluation reports, perplexity, training curves.

It knows nothing of the training loop: it reads texts, model files and run folders.
"""
