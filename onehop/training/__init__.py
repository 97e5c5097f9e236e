"""Batches to checkpoints: the trainer, its step, optimizer, dataloader, distribution, validation, callbacks.

It knows nothing of the command line, the server or the explorer.
"""
