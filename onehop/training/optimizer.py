"""The optimizer, its learning rate (section 5.3, equation 3), the moving average, and their state as arrays."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from onehop.config import TrainSettings
from onehop.storage.checkpoint_arrays import Arrays
from onehop.training.distributed import gather, shard_like


class EMA:
    """An exponential moving average of the weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(model.named_parameters())
        self.weights = {name: p.detach().clone() for name, p in self.parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the present weights, faster at first, so that the initial weights are forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), list(self.parameters.values()), 1 - decay)

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """A context in which the model has the average as its weights."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        _copy_into(model, self.weights)
        try:
            yield
        finally:
            _copy_into(model, own)

    def load(self, arrays: Arrays) -> None:
        for name, p in self.weights.items():
            p.copy_(shard_like(torch.from_numpy(arrays[f"ema.{name}"]), p))


@torch.no_grad()
def _copy_into(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        p.copy_(weights[name])


def make_optimizer(model: nn.Module, train: TrainSettings, *, capturable: bool = False) -> torch.optim.Optimizer:
    """Adam with the paper's constants; decoupled weight decay on matrices only.

    `capturable`: for a CUDA graph, step counts and learning rate are on the device.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": train.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    betas = (train.beta1, train.beta2)
    rate = torch.zeros((), device=parameters[0].device) if capturable else 0.0
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=train.epsilon, fused=True, capturable=capturable)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_arrays(model: nn.Module, optimizer: torch.optim.Optimizer) -> Arrays:
    """Adam's moments and step counts by parameter."""
    named = model.named_parameters()
    return to_arrays({f"{key}.{name}": value for name, p in named for key, value in optimizer.state[p].items()})


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, arrays: Arrays) -> None:
    for name, p in model.named_parameters():
        if f"exp_avg.{name}" in arrays:
            moments = {k: shard_like(torch.from_numpy(arrays[f"{k}.{name}"]), p) for k in ("exp_avg", "exp_avg_sq")}
            step = torch.from_numpy(arrays[f"step.{name}"]).to(p.device)
            optimizer.state[p] = {"step": step, **moments}


@torch.no_grad()
def load_weights(model: nn.Module, arrays: Arrays) -> None:
    for name, p in model.named_parameters():
        p.copy_(shard_like(torch.from_numpy(arrays[name]), p))


def weight_arrays(model: nn.Module) -> Arrays:
    return to_arrays(dict(model.named_parameters()))


def to_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """The tensors' values on the host, gathered if they are sharded. Every process must call it."""
    return {name: gather(tensor.detach()).cpu().numpy() for name, tensor in tensors.items()}


def learning_rate(step: int, settings: TrainSettings, d_model: int) -> float:
    """Grows linearly for `warmup` steps to its peak, then falls. Steps count from 1.

    With the defaults this is the paper's d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), whose peak is
    (d_model · warmup)^-0.5.
    """
    warmup = settings.warmup
    peak = settings.learning_rate or (d_model * warmup) ** -0.5
    if step <= warmup:
        return peak * step / warmup
    if settings.decay == "sqrt":
        return peak * math.sqrt(warmup / step)
    done = min(1.0, (step - warmup) / max(1, settings.steps - warmup))
    return peak * 0.5 * (1.0 + math.cos(math.pi * done))
