"""Raw parallel files to a filtered, tokenized store, and the store to batches.

It knows nothing of models or torch: a batch is made of NumPy arrays.
"""

__all__ = [
    "batches",
    "bpe_dropout",
    "chunks",
    "clean",
    "corpus",
    "encode",
    "filters",
    "mixture",
    "objectives",
    "prepare",
    "records",
    "shards",
    "store",
    "worker_pool",
]
