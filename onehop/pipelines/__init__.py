"""Text to text: translates lines, paragraphs and documents, continues texts, fills masks, embeds sentences.

Pipelines combine a tokenizer with an engine. The command line, Python and the server share them. They know nothing of
training.
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
    "forced_terms",
    "generate",
    "glossary",
    "html",
    "html_markup",
    "html_tags",
    "lazy_model",
    "load",
    "numbers",
    "paragraphs",
    "pivot",
    "plan",
    "result",
    "route",
    "sentence_translator",
    "translate",
    "translator",
]
