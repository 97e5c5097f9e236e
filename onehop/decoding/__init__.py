"""Source ids to target ids: search options, beam search, and the engines that compute its steps.

Only the torch engines import torch; strings are not known here.
"""

__all__ = [
    "continuous_batching",
    "ctranslate2_engine",
    "cuda_graph_log",
    "cuda_graph_search",
    "cuda_graph_state",
    "engine",
    "one_token",
    "options",
    "search",
    "shortlist",
    "torch_engine",
]
