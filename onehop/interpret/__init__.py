"""Record every named tensor of one translation, and run it again with parts switched off.

This package records; the explorer draws.
"""

__all__ = [
    "ablations",
    "attention_svg",
    "embedding_space",
    "recorded_search",
    "reruns",
    "trace_fields",
    "trace_file",
    "tracer",
]
