"""Batches to checkpoints: the trainer, its step, optimizer, dataloader, distribution, validation, callbacks."""

__all__ = [
    "callbacks",
    "checks",
    "cuda_step",
    "dataloader",
    "distributed",
    "estimate",
    "optimizer",
    "step",
    "trainer",
    "validation",
    "workflow",
]
