"""Model files, run folders, installed models and the cache. Every write is atomic.

It holds weights as NumPy arrays and knows nothing of torch.
"""
