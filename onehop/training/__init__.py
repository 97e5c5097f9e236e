"""Batches to checkpoints: the trainer, its step, optimizer, dataloader, distribution, validation, callbacks."""

__all__ = [
    "callbacks",
    "checks",
    "dataloader",
    "distributed",
    "estimate",
    "optimizer",
    "schedule",
    "step",
    "trainer",
    "validation",
    "workflow",
]
