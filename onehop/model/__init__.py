"""The paper: attention, the Transformer, its loss and its variants (BERT, GPT, ViT); `kernels/` is for the GPU.

It takes tensors and settings, and knows nothing of text, files or training.
"""
