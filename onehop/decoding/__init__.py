"""Source ids to target ids: search options, beam search, and the engines that compute its steps.

It knows nothing of text. Options and the CTranslate2 engine do not import torch.
"""

__all__ = [
    "beam",
    "continuous_batching",
    "ctranslate2_engine",
    "cuda_graph_hypotheses",
    "cuda_graph_search",
    "cuda_graph_state",
    "engine",
    "one_token",
    "options",
    "request",
    "search",
    "settled",
    "torch_engine",
]
