"""The paper's tables, the demos and the proof of exact resume. Only the command line imports this package."""
