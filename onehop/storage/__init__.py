"""Model files, run folders, installed models and the cache. Every write is atomic.

It holds weights as NumPy arrays and knows nothing of torch.
"""

__all__ = [
    "cache",
    "checkpoint_arrays",
    "ctranslate2_centring",
    "ctranslate2_conversion",
    "ctranslate2_format",
    "ctranslate2_reading",
    "default_models",
    "model_file",
    "model_io",
    "model_label",
    "model_text",
    "number_formats",
    "parameter_shapes",
    "registry",
    "run_folder",
]
