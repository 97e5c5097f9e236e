"""The paper's tables, the demos and the proof of exact resume. Only the command line imports this package."""

__all__ = [
    "demo",
    "digits",
    "family_figure",
    "heads",
    "lengths",
    "measure",
    "parallel_runs",
    "patches",
    "provenance",
    "pruning",
    "reverse",
    "sample_store",
    "short_runs",
    "synthetic",
    "table1",
    "table3",
    "table3_report",
    "verify_resume",
]
