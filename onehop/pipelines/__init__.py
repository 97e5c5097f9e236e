"""Text to text: translates lines, paragraphs and documents, continues texts, fills masks, embeds sentences.

Pipelines combine a tokenizer with an engine. The command line, Python and the server share them. They know nothing of
training.
"""
