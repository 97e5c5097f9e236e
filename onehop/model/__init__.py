"""The paper: attention, the Transformer, its loss and its variants (BERT, GPT, ViT); `kernels/` is for the GPU.

It takes tensors and settings, and knows nothing of text, files or training.
"""

__all__ = ["attention", "device", "kernels", "kv_cache", "loss", "packing", "taps", "transformer", "variants"]
