"""The explorer: one page on which a translation can be watched from inside, served, in one file or in a notebook.

It draws what `interpret` records and `experiments` measured, and computes no translation of its own.
"""

__all__ = ["content", "cross_origin", "html", "routes", "serve", "view"]
