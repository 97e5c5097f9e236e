"""One batch forwards and backwards, and the update of the weights that follows."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, fx, nn

from onehop.model import kernels
from onehop.model.loss import Loss, cross_entropy, divergence, output_loss
from onehop.model.transformer import Predictor
from onehop.training.dataloader import Fed
from onehop.training.distributed import whole

Compute = Callable[[Fed], tuple[Tensor, Tensor]]


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
    # Down a chain of such operators, which the layers are with model.kernels, the text doubles again and again, and
    # the compiler never ends. The operator's name is enough; torch 2.13 writes the text only when it is read.
    if torch.__version__ < "2.13":  # as versions, not as letters
        with suppress(ImportError):
            from torch._inductor.exc import OperatorIssue

            OperatorIssue.operator_str = staticmethod(name_alone)  # type: ignore[method-assign]
    return torch.compile(module, dynamic=False, options=compiler_options())


def compiler_options() -> dict[str, Any] | None:
    """What the compiler is to do with operators of onehop.model.kernels."""
    if not kernels.usable():
        return None
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    from onehop.model.kernels import add_norm

    class SumsInside(CustomGraphPass):
        def __call__(self, graph: fx.Graph) -> None:
            add_norm.sums_inside(graph)

        def uuid(self) -> bytes:
            return get_hash_for_files((add_norm.__file__,))

    return {"post_grad_custom_pre_pass": SumsInside()}


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


def update_if_finite(
    model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, norm: Tensor, numbers: Tensor
) -> None:
    """Clip and update, but leave weights and moments alone where a number is not finite; nobody has to read them."""
    # What gradient scaling uses to tell the fused optimiser of an overflow.
    optimizer.found_inf = (~numbers.isfinite().all()).float()  # type: ignore[attr-defined]
    try:
        apply_gradients(model, optimizer, clip, norm)
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]
