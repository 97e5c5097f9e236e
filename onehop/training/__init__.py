"""Batches to checkpoints: the trainer, its step, optimizer, dataloader, distribution, validation, callbacks.

It knows nothing of the command line, the server or the explorer.
"""

__all__ = [
    "callbacks",
    "checks",
    "cuda_step",
    "dataloader",
    "distributed",
    "estimate",
    "finetune",
    "optimizer",
    "signals",
    "step",
    "trainer",
    "validation",
    "workflow",
]
