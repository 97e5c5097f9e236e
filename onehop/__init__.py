"""onehop: the Transformer of “Attention Is All You Need”, to use and to look inside."""

__version__ = "0.1.0"
