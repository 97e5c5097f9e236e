"""The explorer: one page on which a translation can be watched from inside, served, in one file or in a notebook."""

__all__ = ["content", "html", "routes", "serve", "view"]
