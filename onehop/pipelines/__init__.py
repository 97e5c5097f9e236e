"""Strings to strings: translate lines, paragraphs and documents; continue a text, fill masks, embed sentences.

Tokenizer and engine meet here; the command line, Python and the server share it.
"""

__all__ = [
    "alignment",
    "arguments",
    "bulk",
    "bulk_workers",
    "confidence",
    "documents",
    "embed",
    "fill_mask",
    "generate",
    "glossary",
    "html",
    "html_markup",
    "html_plan",
    "html_tags",
    "insist",
    "lazy_model",
    "load",
    "names",
    "numbers",
    "paragraphs",
    "pivot",
    "plan",
    "result",
    "route",
    "sentence_translator",
    "streaming",
    "tags",
    "translate",
    "translator",
]
