"""Validation: the loss on the validation pairs, and other scores."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from onehop.config import Settings
from onehop.data.batches import Batch, Epoch
from onehop.data.objectives import TrainingTask
from onehop.data.store import Store
from onehop.errors import RunError
from onehop.model import kernels
from onehop.model.device import is_out_of_memory
from onehop.model.transformer import Predictor
from onehop.model.variants import model_for
from onehop.training.callbacks import Report
from onehop.training.dataloader import to_device
from onehop.training.distributed import World
from onehop.training.optimizer import EMA, load_weights, weight_arrays
from onehop.training.step import Objective, autocast, training_dtype

Validator = Callable[[Predictor], Mapping[str, Any]]


class Validation:
    def __init__(
        self,
        model: Predictor,
        settings: Settings,
        store: Store,
        world: World,
        task: TrainingTask,
        validator: Validator | None,
    ) -> None:
        self.model, self.settings, self.world = model, settings, world
        self.pairs, self.task, self.validator = store.pairs("valid"), task, validator
        self.sharded = world.size > 1 and settings.train.shard
        dtype = training_dtype(settings.train, world.device)
        self.objective = Objective(model, 0.0, 0.0, sharded=self.sharded, dtype=dtype)

    @torch.no_grad()
    def __call__(self, ema: EMA | None, budget: int) -> Report:
        """Validate the EMA of the weights if there is one, else the weights."""
        self.model.eval()
        with ema.swapped_in(self.model) if ema else nullcontext():
            nll = self.loss(budget)
            report: Report = {"valid_nll": nll, "valid_perplexity": math.exp(min(nll, 50.0))}
            if self.validator:
                report |= self.validator(self._gathered_model())
        return report

    def loss(self, budget: int) -> float:
        """Negative log-likelihood per target token."""
        nll, tokens = 0.0, 0
        share = max(budget // self.world.size, 4096)  # the batch of one process
        for number, sentences in enumerate(Epoch(self.pairs, share, 0, 0, shuffle=False)):
            batch = self.task.for_validation(sentences, number)
            nll += self._loss_of(batch)
            tokens += batch.tokens
        return nll / tokens

    def _loss_of(self, batch: Batch) -> float:
        """The loss of one batch, in parts if it does not fit into memory."""
        try:
            with autocast(self.world.device):
                return float(self.objective(to_device(batch, World(0, 1, self.world.device)))[1])
        except RuntimeError as e:
            if not is_out_of_memory(e):
                raise
            # All processes gather sharded weights together, so no process can split its batch alone.
            if self.sharded or len(batch.src_lengths) < 2:
                raise RunError(
                    "A validation does not fit into memory.",
                    "Train in another folder with a smaller train.batch_tokens.",
                ) from None
        return sum(map(self._loss_of, batch.halves()))

    def _gathered_model(self) -> Predictor:
        """The model for decoding: a complete copy if its weights are sharded."""
        if not self.sharded:
            return self.model
        copy = kernels.fuse(model_for(self.settings.model, self.task.vocab_size).to(self.world.device))
        load_weights(copy, weight_arrays(self.model))
        return copy.eval()
