"""Strings to ids and back: the tokenizer, sentence splitting, casing, language identification.

It knows nothing of files, models or torch.
"""
