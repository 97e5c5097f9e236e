"""Raw parallel files to a filtered, tokenized store, and the store to batches.

It knows nothing of models or torch: a batch is made of NumPy arrays.
"""
