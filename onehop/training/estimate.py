"""An estimate of a training before it starts: parameters, memory, FLOPs, steps per epoch."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from onehop.config import ModelSettings, Settings
from onehop.data.batches import Batch, Epoch
from onehop.data.objectives import black_images
from onehop.data.store import Pairs
from onehop.errors import SettingsError
from onehop.machine import all_freed_memory_kept, available_memory
from onehop.model.transformer import parameter_count
from onehop.training.dataloader import to_device
from onehop.training.distributed import World
from onehop.training.optimizer import make_optimizer
from onehop.training.step import Objective, apply_gradients, forward_and_backward, gradient_norm, training_dtype

# The paper's budget; a small machine gains nothing from more.
_MOST_ON_CPU = 25_000


@dataclass(frozen=True)
class Plan:
    """The answers of `onehop train --dry-run`."""

    parameters: int
    state_bytes: int
    bytes_per_token: int
    batch_tokens: int
    steps_per_epoch: int
    epochs: float
    least_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Weights, gradients, Adam's moments, and what the backward pass keeps of a full batch."""
        return self.state_bytes + self.bytes_per_token * self.batch_tokens


def plan(settings: Settings, pairs: Pairs, objective: Objective, device: torch.device) -> Plan:
    model = objective.model
    parameters = parameter_count(objective)
    per_token = saved_bytes_per_token(objective, settings)
    state = _state_bytes(parameters, device)
    budget = settings.train.batch_tokens or max_token_budget(objective, settings, device)
    epoch = Epoch(pairs, budget, settings.train.seed, 0)
    if not len(epoch):
        raise SettingsError("train.weights leave no pair for the first epoch.", "Raise them.")
    per_epoch = len(epoch) / settings.train.accumulate
    epochs = settings.train.steps / per_epoch
    lengths = (pairs.src_lengths, pairs.tgt_lengths)  # without EOS
    src, tgt = (int(side[epoch.order].sum()) + len(epoch.order) for side in lengths)
    flops = epochs * update_flops(settings.model, model.vocab_size, src, tgt) * (2 if settings.train.r_drop else 1)
    seconds = flops / measured_peak(device, training_dtype(settings.train, device))
    return Plan(parameters, state, per_token, budget, max(1, round(per_epoch)), epochs, seconds)


def update_flops(model: ModelSettings, vocab_size: int, src_tokens: int, tgt_tokens: int) -> float:
    """FLOPs of the matrix products of one update: 2 per weight forward, twice that backward.

    The products of attention scores and values are omitted: at these lengths they are a few percent.
    """
    queries = model.d_model * model.n_heads * (model.key_width + model.value_width)  # W_Q and W_O
    keys_values = queries  # W_K and W_V
    feed_forward = 2 * model.d_model * model.d_ff
    if model.kind is not None:
        n_layers = model.n_decoder_layers if model.kind == "decoder" else model.n_encoder_layers
        stack = n_layers * (queries + keys_values + feed_forward)
        if model.kind == "vision":
            return 6.0 * (src_tokens / (model.patch or 1) ** 2 + tgt_tokens) * stack
        return 6.0 * tgt_tokens * (stack + vocab_size * model.d_model)
    encoder = model.n_encoder_layers * (queries + keys_values + feed_forward)
    decoder = model.n_decoder_layers * (2 * queries + keys_values + feed_forward) + vocab_size * model.d_model
    cross_attention = model.n_decoder_layers * keys_values
    return 6.0 * (src_tokens * (encoder + cross_attention) + tgt_tokens * decoder)


def measured_peak(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> float:
    """FLOP/s of a large matrix product on this device."""
    size = 8192 if device.type == "cuda" else 1024
    a = torch.randn(size, size, dtype=dtype, device=device)
    return 2.0 * size**3 / min(_seconds(lambda: a @ a, device) for _ in range(5))


def measured_step(objective: Objective, settings: Settings, pairs: Pairs, budget: int, device: torch.device) -> float:
    """Seconds of one update on this device, the better of two. The learning rate is 0, so the weights do not change."""
    model = objective.model
    optimizer = make_optimizer(model, settings.train)
    epoch = Epoch(pairs, budget, settings.train.seed, 0)
    model.train()

    def update(batch: Batch) -> None:
        on_device = to_device(batch, World(0, 1, device), twice=settings.train.r_drop > 0)
        forward_and_backward(objective, on_device, 1 / batch.tokens)
        apply_gradients(model, optimizer, settings.train.clip, gradient_norm(model))

    batches = (epoch[i % len(epoch)] for i in range(2))
    with all_freed_memory_kept():
        return settings.train.accumulate * min(_seconds(partial(update, batch), device) for batch in batches)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    wait: Callable[[], None] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def example_batch(tokens: int, length: int, vocab_size: int) -> Batch:
    """Sentences of one length with `tokens` tokens in all."""
    count = max(1, tokens // length)
    ids = np.random.default_rng(0).integers(4, vocab_size, count * length)
    lengths = np.full(count, length)
    return Batch(ids, lengths, ids, ids, lengths)


@contextmanager
def saved_storages() -> Iterator[dict[int, int]]:
    """The bytes of each storage that autograd saves within the block, by address."""
    saved: dict[int, int] = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        yield saved


def saved_bytes_per_token(objective: Objective, settings: Settings) -> int:
    """Bytes kept for the backward pass, counted on a small batch: each buffer once, without the weights."""
    model = objective.model
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    device = next(model.parameters()).device
    batch = example_batch(512, min(32, settings.model.max_length), model.vocab_size)
    if settings.model.kind == "vision":
        batch = black_images(512, settings.model.image or 0)
    with saved_storages() as saved:
        objective(to_device(batch, World(0, 1, device), twice=settings.train.r_drop > 0))
    kept = sum(size for address, size in saved.items() if address not in weights)
    # The loss also holds a few rows of the vocabulary at once.
    return kept // max(len(batch.src), len(batch.tgt)) + 3 * 4 * model.vocab_size


def _state_bytes(parameters: int, device: torch.device) -> int:
    """Weights, gradients and Adam's two moments in float32; on a GPU also weights and gradients in bfloat16."""
    return (20 if device.type == "cuda" else 16) * parameters


def max_token_budget(objective: Objective, settings: Settings, device: torch.device) -> int:
    """The largest token budget that should fit into the free memory."""
    state = _state_bytes(parameter_count(objective), device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        usable, limit = 0.8 * free, 10**6
    else:
        usable, limit = 0.5 * available_memory(), _MOST_ON_CPU
    tokens = int((usable - state) / saved_bytes_per_token(objective, settings))
    return max(2 * settings.model.max_length, min(tokens, limit) // 64 * 64)
