"""A training step on a GPU, recorded once as CUDA graphs and then replayed.

A step of a small model is hundreds of short kernels, and launching them one by one takes longer than running them. In
fixed shapes the launches are the same every time, so a CUDA graph keeps them.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy

import torch
from torch import Tensor, nn

from onehop.model.device import is_out_of_memory
from onehop.model.kernels.cuda_graph import CudaGraph, warm_up
from onehop.model.loss import Loss
from onehop.training import step
from onehop.training.dataloader import DeviceBatch, FixedShapes, Update, tensors_of


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors with one launch per dtype: between two steps the device waits for the host."""
    for dtype in {tensor.dtype for tensor in targets}:
        pairs = [(own, new) for own, new in zip(targets, sources, strict=True) if own.dtype == dtype]
        torch._foreach_copy_([own for own, _ in pairs], [new for _, new in pairs], non_blocking=True)


class BFloat16Twin:
    """A copy of a model on a GPU with bfloat16 weights in its linear layers; all other tensors are shared.

    All weights are cast to bfloat16 together, once a step, instead of one by one where they are used. Their gradients
    are cast back to float32 in the same way.
    """

    def __init__(self, objective: step.Objective, dtype: torch.dtype = torch.bfloat16) -> None:
        own = (*objective.parameters(), *objective.buffers())
        self.objective = deepcopy(objective, {id(tensor): tensor for tensor in own})
        self.masters: list[Tensor] = []
        self.copies: list[Tensor] = []
        output = objective.model.output_weight  # tied weights are also an embedding
        for module in self.objective.modules():
            if isinstance(module, nn.Linear) and module.weight is not output:
                for name, parameter in list(module.named_parameters()):
                    setattr(module, name, nn.Parameter(parameter.detach().to(dtype, copy=True)))
                    self.masters.append(parameter)
                    self.copies.append(getattr(module, name))

    @torch.no_grad()
    def take_weights(self) -> None:
        """Copy the model's present weights, and clear the gradients."""
        torch._foreach_copy_(self.copies, self.masters)
        for parameter in self.copies:
            parameter.grad = None

    @torch.no_grad()
    def give_gradients(self) -> None:
        """Copy the gradients to the model. Unused weights have none."""
        pairs = zip(self.masters, self.copies, strict=True)
        used = [(own, twin.grad) for own, twin in pairs if twin.grad is not None]
        gradients = [torch.empty_like(own) for own, _ in used]
        torch._foreach_copy_(gradients, [gradient for _, gradient in used])
        for (own, _), gradient in zip(used, gradients, strict=True):
            own.grad = gradient


class RecordedStep:
    """The steps of one process on one GPU, for batches in the shapes of the first."""

    def __init__(
        self, objective: step.Objective, optimizer: torch.optim.Optimizer, clip: float, batch: DeviceBatch
    ) -> None:
        self.model, self.optimizer = objective.model, optimizer
        self.twin = BFloat16Twin(objective)
        self.batch = batch
        # A validation's translation may replace the position tables by longer ones; the graph keeps using these.
        self.tables = list(self.model.buffers())
        self.scale = torch.zeros((), device=batch.labels.device)
        compute = step.compiled(self.twin.objective)
        random = torch.cuda.get_rng_state()
        warm_up(lambda: self._pass(compute), 2)
        self.passes = CudaGraph(lambda: self._pass(compute))
        torch.cuda.set_rng_state(random)
        self.gradients = [p.grad for p in self.model.parameters()]
        self.clip = clip
        self.update: CudaGraph[None] | None = None
        self.passed, self.side_stream = torch.cuda.Event(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _pass(self, compute: step.Compute) -> tuple[Loss, Tensor, Tensor]:
        self.optimizer.zero_grad()  # to None: the graph's own gradients are overwritten, not added to
        self.twin.take_weights()
        loss = step.forward_and_backward(compute, self.batch, self.scale)
        self.twin.give_gradients()
        norm = step.gradient_norm(self.model)
        return loss, norm, torch.stack([loss.objective, loss.nll, norm])

    def fits(self, batch: DeviceBatch) -> bool:
        """Whether a batch has the recorded shapes."""
        pairs = zip(tensors_of(self.batch), tensors_of(batch), strict=True)
        return all(own.shape == new.shape for own, new in pairs)

    def run(self, batch: DeviceBatch, scale: float) -> tuple[Loss, Tensor]:
        """Loss and gradients of a batch, and the gradients' norm."""
        copy_all(tensors_of(self.batch), tensors_of(batch))
        self.scale.fill_(scale)
        if self.update is None:
            self._point_to_gradients()
        loss, norm, _ = self.passes.replay()
        self.passed.record()
        return loss, norm

    def settle(self) -> list[float]:
        """Update the weights unless something is not finite; the last run's objective, likelihood and norm.

        The device checks for NaN itself. So the update does not wait until the host has read the numbers, and the next
        batch can be launched during the update.
        """
        if self.update is None:
            # The first update runs eagerly: the optimizer creates its state, which a capture would not.
            self._apply()
            self._point_to_gradients()
            self.update = CudaGraph(self._apply)
        else:
            self.update.replay()
        self.side_stream.wait_event(self.passed)
        with torch.cuda.stream(self.side_stream):
            numbers: list[float] = self.passes.results[2].tolist()
        return numbers

    def _apply(self) -> None:
        _, norm, numbers = self.passes.results
        step.update_if_finite(self.model, self.optimizer, self.clip, norm, numbers)

    def _point_to_gradients(self) -> None:
        for p, gradient in zip(self.model.parameters(), self.gradients, strict=True):
            p.grad = gradient


class CudaGraphStep:
    """Steps of one process on one GPU, replayed from CUDA graphs; `plain` runs what does not have the fixed shapes."""

    def __init__(self, plain: step.PlainStep, shapes: FixedShapes) -> None:
        self.plain, self.shapes = plain, shapes
        self.recorded: RecordedStep | None = None
        self.ahead: tuple[Update, DeviceBatch] | None = None  # the next update's batch, already on the device

    def run(self, number: int, update: Update, peek: Callable[[], Update | None]) -> step.StepResult:
        """Replay a step, and copy the next batch to the device meanwhile."""
        try:
            recorded = self._launch(number, update)
            if recorded is not None:
                self._look_ahead(peek())
        except RuntimeError as e:
            if not is_out_of_memory(e):
                raise
            self.ahead = None
            return self.plain.run(number, update, peek, too_large=True)
        if recorded is None:
            return self.plain.run(number, update, peek)
        objective, nll, norm = recorded.settle()
        return step.StepResult(objective, nll, norm)

    def _launch(self, number: int, update: Update) -> RecordedStep | None:
        """Start forward and backward; None where the update is not one batch of the recorded shapes."""
        ahead, self.ahead = self.ahead, None
        if len(update.batches) > 1:
            return None
        self.plain.prepare(number)
        batch = ahead[1] if ahead and ahead[0] is update else self.plain.to_device(update.batches[0], self.shapes)
        train = self.plain.train
        if self.recorded is None and self.shapes.match(batch, copies=2 if train.r_drop else 1):
            # The first batch's tensors become the buffers of all later ones.
            self.recorded = RecordedStep(self.plain.objective, self.plain.optimizer, train.clip, batch)
        if self.recorded is None or not self.recorded.fits(batch):
            return None
        self.recorded.run(batch, 1 / update.tokens)
        return self.recorded

    def _look_ahead(self, following: Update | None) -> None:
        with suppress(torch.OutOfMemoryError):  # there may be enough memory later
            self.ahead = (following, self.plain.to_device(following.batches[0], self.shapes)) if following else None
