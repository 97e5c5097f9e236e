"""Every named tensor of one translation, and the same translation with parts switched off.

It records; the explorer draws.
"""

__all__ = ["ablations", "attention_svg", "embedding_space", "recorded_search", "trace_fields", "trace_file", "tracer"]
