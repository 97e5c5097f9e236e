"""Source ids to target ids: search options, beam search, and the engines that compute its steps.

It knows nothing of text. Options and the CTranslate2 engine do not import torch.
"""
