"""One training step: forward, backward, clip, update.

`PlainStep` runs anywhere; `cuda_step.CudaGraphStep` replays the same work on a GPU.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from onehop.config import Settings, TrainSettings
from onehop.data.batches import Batch
from onehop.errors import RunError
from onehop.model import kernels
from onehop.model.device import fast_bfloat16, is_out_of_memory
from onehop.model.loss import Loss, allowed_tokens, cross_entropy, divergence
from onehop.model.transformer import Predictor
from onehop.model.variants import model_for
from onehop.training.dataloader import DeviceBatch, FixedShapes, Update, to_device
from onehop.training.distributed import World, gather, without_sync

Compute = Callable[[DeviceBatch], tuple[Tensor, Tensor]]


class Objective(nn.Module):
    """Model and loss as one module, so that processes and compiler see a single forward pass.

    `sharded`: sharded weights are complete only inside the model's own forward pass, so the loss starts from its
    logits. `dtype`: that of matrix products on a CPU; on a GPU the caller's autocast decides.
    """

    def __init__(
        self,
        model: Predictor,
        label_smoothing: float,
        r_drop: float,
        *,
        sharded: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.sharded = sharded
        self.dtype = dtype

    @classmethod
    def of(cls, settings: Settings, vocab_size: int, device: torch.device, *, sharded: bool = False) -> "Objective":
        """A fresh model of these settings, with kernels where they apply, and its loss."""
        model = kernels.fuse(model_for(settings.model, vocab_size).to(device))
        train = settings.train
        dtype = training_dtype(train, device)
        return cls(model, train.label_smoothing, train.r_drop, sharded=sharded, dtype=dtype)

    def forward(self, batch: DeviceBatch) -> tuple[Tensor, Tensor]:
        """The objective and the negative log-likelihood, summed over the batch."""
        if self.dtype is torch.float32 or batch.labels.is_cuda:
            return self._losses(batch)
        with torch.autocast("cpu", self.dtype):
            return self._losses(batch)

    def _losses(self, batch: DeviceBatch) -> tuple[Tensor, Tensor]:
        model = self.model
        if not self.r_drop and not self.sharded:
            states = model.states(batch.src, batch.tgt)
            weight, bias = model.output_weight, model.output_bias
            loss = model.output_loss(states[0], weight, bias, batch.labels, self.label_smoothing)
            return loss.objective, loss.nll
        logits = model(batch.src, batch.tgt)[0]
        allowed = None if self.sharded else allowed_tokens(model.output_bias)
        loss = cross_entropy(logits, batch.labels, self.label_smoothing, allowed=allowed)
        if not self.r_drop:
            return loss.objective, loss.nll
        # The batch is there twice, with different dropout: half of the sum, so that a token counts once.
        one, two = logits.chunk(2)
        kl = divergence(one, two, batch.labels.chunk(2)[0])
        return (loss.objective + self.r_drop * kl) / 2, loss.nll / 2


def training_dtype(train: TrainSettings, device: torch.device) -> torch.dtype:
    """The dtype of matrix products in training: bfloat16 on a GPU, `train.cpu_dtype` on a CPU."""
    wanted = train.cpu_dtype == "bfloat16" or (train.cpu_dtype == "auto" and fast_bfloat16())
    return torch.bfloat16 if wanted or device.type != "cpu" else torch.float32


def autocast(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 arithmetic on float32 weights on a GPU; on a CPU `Objective` has its own."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def compiled(module: nn.Module) -> Compute:
    """A module as one graph of fixed shapes."""
    # For a log, torch 2.11 prints every input of a custom operator, recursively. The layers with model.kernels are a
    # chain of such operators, so the text doubles with each and the compiler never ends. The operator's name is
    # enough; torch 2.13 makes the text only when it is read.
    if torch.__version__ < "2.13":  # a TorchVersion, which compares as a version and not as a string
        with suppress(ImportError):
            from torch._inductor.exc import OperatorIssue

            OperatorIssue.operator_str = staticmethod(lambda target, args, kwargs: str(target))  # type: ignore[method-assign]
    return torch.compile(module, dynamic=False, options=_compiler_options())


def _compiler_options() -> dict[str, Any] | None:
    """Compiler options for the operators of onehop.model.kernels."""
    if not kernels.available():
        return None
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    from onehop.model.kernels import add_norm

    class SumsInside(CustomGraphPass):
        def __call__(self, graph: fx.Graph) -> None:
            add_norm.sums_inside(graph)

        def uuid(self) -> bytes:
            return get_hash_for_files((add_norm.__file__,))

    return {"post_grad_custom_pre_pass": SumsInside()}


def forward_and_backward(compute: Compute, batch: DeviceBatch, scale: float | Tensor) -> Loss:
    """Accumulate a batch's gradients, times `scale`."""
    with autocast(batch.labels.device):
        objective, nll = compute(batch)
        (objective * scale).backward()  # type: ignore[no-untyped-call]
    return Loss(objective.detach(), nll)


def gradient_norm(model: nn.Module) -> Tensor:
    return gather(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def apply_gradients(model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, norm: Tensor) -> None:
    if clip:
        nn.utils.clip_grads_with_norm_(model.parameters(), clip, norm)
    optimizer.step()
    optimizer.zero_grad()


def update_if_finite(
    model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, norm: Tensor, numbers: Tensor
) -> None:
    """Clip and update, but keep weights and moments if a gradient is not finite. The host does not wait."""
    # Gradient scaling tells the fused optimizer of an overflow in the same way.
    optimizer.found_inf = (~numbers.isfinite().all()).float()  # type: ignore[attr-defined]
    try:
        apply_gradients(model, optimizer, clip, norm)
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


# --- the step as the training loop calls it ---------------------------------------------------------------------


@dataclass(frozen=True)
class StepResult:
    """Sums over the update's tokens, and the gradients' norm; `parts` counts the pieces of a step that was split."""

    objective: float
    nll: float
    norm: float
    parts: int = 0

    @property
    def finite(self) -> bool:
        """Whether loss and gradients are finite; if not, the weights are unchanged."""
        return all(map(math.isfinite, (self.objective, self.nll, self.norm)))


class PlainStep:
    """Steps that launch one kernel after the other, on any device and in any number of processes."""

    def __init__(
        self,
        objective: Objective,
        parallel: nn.Module,
        optimizer: torch.optim.Optimizer,
        train: TrainSettings,
        world: World,
        shapes: FixedShapes | None,
    ) -> None:
        self.objective, self.model, self.parallel = objective, objective.model, parallel
        self.optimizer, self.train, self.world, self.shapes = optimizer, train, world, shapes
        self.compute: Compute = parallel if shapes is None else compiled(parallel)

    def run(
        self, number: int, update: Update, peek: Callable[[], Update | None], *, too_large: bool = False
    ) -> StepResult:
        """Update the weights if loss and gradients are finite. `too_large`: the update does not fit in memory."""
        loss, norm, parts = self.gradients(number, update, too_large=too_large)
        objective, nll, gradient = torch.stack([loss.objective, loss.nll, norm]).tolist()  # waits for the device
        result = StepResult(objective, nll, gradient, parts)
        if result.finite:
            apply_gradients(self.model, self.optimizer, self.train.clip, norm)
        return result

    def gradients(self, number: int, update: Update, *, too_large: bool = False) -> tuple[Loss, Tensor, int]:
        """The loss over all processes, the gradients' norm, and the parts of a step that was split to fit into memory.

        Parts of a compiled step's fixed shapes would need as much memory as the whole, so they are not compiled.
        """
        parts = self._halves(number, update.batches) if too_large else update.batches
        while True:
            split = parts is not update.batches
            shapes, compute = (None, self.parallel) if split else (self.shapes, self.compute)
            try:
                return *self._backward(number, parts, update.tokens, shapes, compute), len(parts) if split else 0
            except RuntimeError as e:
                if not is_out_of_memory(e):
                    raise
            parts = self._halves(number, parts)

    def _halves(self, number: int, parts: list[Batch]) -> list[Batch]:
        if self.world.size > 1 or all(len(b.src_lengths) < 2 for b in parts):
            raise RunError(
                f"Step {number} does not fit into memory.",
                "Train in another folder with a smaller train.batch_tokens.",
            ) from None
        self.optimizer.zero_grad()
        return [half for b in parts for half in (b.halves() if len(b.src_lengths) > 1 else (b,))]

    def prepare(self, number: int) -> None:
        """Seed dropout for a step, and set the training mode."""
        # Mixed, so that neighbouring steps are independent.
        seeds = np.random.SeedSequence((self.train.seed, number, self.world.rank))
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        if not self.model.training:  # checking is cheaper than visiting all modules
            self.model.train()

    def to_device(self, batch: Batch, shapes: FixedShapes | None) -> DeviceBatch:
        return to_device(batch, self.world, shapes, twice=self.train.r_drop > 0)

    def _backward(
        self, number: int, parts: list[Batch], tokens: int, shapes: FixedShapes | None, compute: Compute
    ) -> tuple[Loss, Tensor]:
        self.prepare(number)
        world = self.world
        objective = torch.zeros((), device=world.device)
        nll = torch.zeros((), device=world.device)
        for i, batch in enumerate(parts):
            on_device = self.to_device(batch, shapes)
            with without_sync(self.parallel) if i + 1 < len(parts) else nullcontext():
                # DDP averages the gradients; the sum is needed.
                loss = forward_and_backward(compute, on_device, world.size / tokens)
            objective += loss.objective
            nll += loss.nll
        return Loss(world.sum(objective), world.sum(nll)), gradient_norm(self.model)
