"""One batch forwards and backwards, and the update of the weights that follows; on a GPU both recorded and replayed.

A step of a small model is hundreds of short kernels, and launching them one by one takes longer than running them. In
fixed shapes the launches are the same every time, so a CUDA graph keeps them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from onehop.feed import Fed, tensors_of
from onehop.loss import Loss, cross_entropy, divergence, output_loss
from onehop.model import Predictor
from onehop.parallel import whole

Compute = Callable[[Fed], tuple[Tensor, Tensor]]
Results = TypeVar("Results")


class Objective(nn.Module):
    """Model and loss as one module, so that processes and compiler see a single forward pass.

    `sharded`: weights spread over processes are whole only inside the model's own forward pass, so the loss starts from
    its logits.
    """

    def __init__(self, model: Predictor, label_smoothing: float, r_drop: float, *, sharded: bool = False) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.sharded = sharded

    def forward(self, fed: Fed) -> tuple[Tensor, Tensor]:
        """The objective and the negative log-likelihood, summed over the batch."""
        model = self.model
        if not self.r_drop and not self.sharded:
            states = model.states(fed.src, fed.tgt)
            loss = output_loss(states[0], model.output_weight, model.output_bias, fed.labels, self.label_smoothing)
            return loss.objective, loss.nll
        logits = model(fed.src, fed.tgt)[0]
        loss = cross_entropy(logits, fed.labels, self.label_smoothing)
        if not self.r_drop:
            return loss.objective, loss.nll
        # The batch stands there twice, with other dropout: half of the sum over both, so that a token counts once.
        one, two = logits.chunk(2)
        apart = divergence(one, two, fed.labels.chunk(2)[0])
        return (loss.objective + self.r_drop * apart) / 2, loss.nll / 2


def precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 arithmetic on float32 weights on a GPU, float32 throughout on a CPU."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def compiled(module: nn.Module) -> Compute:
    """A module as one graph of fixed shapes."""
    # Torch 2.11 spells out, for a log that nobody reads, all that an operator new to its compiler is computed from.
    # Down a chain of such operators, which the layers are with onehop.kernels, the text doubles again and again, and
    # the compiler never ends. The operator's name is enough; torch 2.13 writes the text only when it is read.
    if torch.__version__ < "2.13":  # as versions, not as letters
        with suppress(ImportError):
            from torch._inductor.exc import OperatorIssue

            OperatorIssue.operator_str = staticmethod(name_alone)  # type: ignore[method-assign]
    return torch.compile(module, dynamic=False)


def name_alone(target: Any, args: Any, kwargs: Any) -> str:
    """An operator in a message of the compiler's."""
    return str(target)


def forward_and_backward(compute: Compute, fed: Fed, scale: float | Tensor) -> Loss:
    """Add a batch's gradients, times `scale`, to those that are there."""
    with precision(fed.labels.device):
        objective, nll = compute(fed)
        (objective * scale).backward()  # type: ignore[no-untyped-call]
    return Loss(objective.detach(), nll)


def gradient_norm(model: nn.Module) -> Tensor:
    """The length of all gradients together."""
    return whole(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def apply_gradients(model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, norm: Tensor) -> None:
    """Clip and update."""
    if clip:
        nn.utils.clip_grads_with_norm_(model.parameters(), clip, norm)
    optimizer.step()
    optimizer.zero_grad()


class Recording(Generic[Results]):
    """Work on tensors that stay in their place, as a CUDA graph."""

    def __init__(self, work: Callable[[], Results], warm_up: int = 0) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm_up):
                work()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # others may go on with their work
            self.results = work()

    def replay(self) -> Results:
        """Do the work again on what the tensors hold now; the results are overwritten each time."""
        self.graph.replay()
        return self.results


class RecordedStep:
    """The steps of one process on one GPU, for batches in the shapes of the first."""

    def __init__(
        self, compute: Compute, model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, fed: Fed
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.fed = fed
        # Translating for a validation may put longer position tables in place of these, which the graph goes on with.
        self.tables = list(model.buffers())
        self.scale = torch.zeros((), device=fed.labels.device)
        random = torch.cuda.get_rng_state()
        self.passes = Recording(lambda: self._pass(compute), warm_up=2)
        torch.cuda.set_rng_state(random)
        self.gradients = [p.grad for p in model.parameters()]
        self.norm = self.passes.results[1]
        self.clip = clip
        self.update: Recording[None] | None = None

    def _pass(self, compute: Compute) -> tuple[Loss, Tensor]:
        self.optimizer.zero_grad()  # to None: the graph's own gradients are overwritten, not added to
        loss = forward_and_backward(compute, self.fed, self.scale)
        return loss, gradient_norm(self.model)

    def fits(self, fed: Fed) -> bool:
        """Whether a batch has the recorded shapes."""
        pairs = zip(tensors_of(self.fed), tensors_of(fed), strict=True)
        return all(own.shape == new.shape for own, new in pairs)

    def run(self, fed: Fed, scale: float) -> tuple[Loss, Tensor]:
        """Loss and gradients of a batch, and the gradients' norm."""
        for own, new in zip(tensors_of(self.fed), tensors_of(fed), strict=True):
            own.copy_(new, non_blocking=True)
        self.scale.fill_(scale)
        if self.update is None:
            self._point_to_gradients()
        return self.passes.replay()

    def apply(self) -> None:
        """Update the weights by the gradients of the last run."""
        if self.update is None:
            # The first time as it is: the optimiser makes its state then, and recording does nothing.
            self._apply()
            self._point_to_gradients()
            self.update = Recording(self._apply)
        else:
            self.update.replay()

    def _apply(self) -> None:
        apply_gradients(self.model, self.optimizer, self.clip, self.norm)

    def _point_to_gradients(self) -> None:
        for p, gradient in zip(self.model.parameters(), self.gradients, strict=True):
            p.grad = gradient
