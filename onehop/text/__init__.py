"""Strings to ids and back: the tokenizer, sentence splitting, casing, language identification.

It knows nothing of files, models or torch.
"""

__all__ = [
    "casing",
    "clock",
    "formality",
    "inflection",
    "language_id",
    "names",
    "number_words",
    "sentences",
    "tokenizer",
    "units",
]
