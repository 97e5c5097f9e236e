"""The output projection and label-smoothed cross-entropy as one operator. Specified by `onehop.loss.cross_entropy`.

The logits exist once, in the precision of the matrix product, and one pass over them leaves their gradient in their
place: what the backward pass needs is then two matrix products.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def loss_kernel(logits, labels, objective, nll, vocab, stride, smoothing, ignore, BLOCK: tl.constexpr):
    """One row: its loss, and its gradient p - q written over its logits."""
    row = tl.program_id(0)
    label = tl.load(labels + row)
    logits += row.to(tl.int64) * stride
    columns = tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    plain_sum = tl.zeros([BLOCK], tl.float32)
    for at in range(0, vocab, BLOCK):
        inside = at + columns < vocab
        x = tl.load(logits + at + columns, mask=inside, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(largest, x)
        anchor = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(largest - anchor) + tl.exp(x - anchor)
        plain_sum += tl.where(inside, x, 0.0)
        largest = larger
    top = tl.max(largest, 0)
    lse = top + tl.log(tl.sum(total * tl.exp(largest - top), 0))
    counted = tl.where(label == ignore, 0.0, 1.0)
    surprise = lse - tl.load(logits + label).to(tl.float32)
    spread = lse - tl.sum(plain_sum, 0) / vocab
    tl.store(nll + row, surprise * counted)
    tl.store(objective + row, ((1.0 - smoothing) * surprise + smoothing * spread) * counted)
    tl.debug_barrier()  # the label's logit is read before it is written over
    for at in range(0, vocab, BLOCK):
        inside = at + columns < vocab
        x = tl.load(logits + at + columns, mask=inside, other=float("-inf")).to(tl.float32)
        on_label = tl.where(at + columns == label, 1.0 - smoothing, 0.0)
        gradient = (tl.exp(x - lse) - smoothing / vocab - on_label) * counted
        tl.store(logits + at + columns, gradient.to(logits.dtype.element_ty), mask=inside)


def loss_and_gradient(logits: Tensor, labels: Tensor, smoothing: float, ignore: int) -> tuple[Tensor, Tensor]:
    """Each row's objective and negative log-likelihood; the logits become their gradient."""
    rows, vocab = logits.shape
    objective, nll = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    loss_kernel[(rows,)](
        logits, labels, objective, nll, vocab, logits.stride(0), smoothing, ignore, BLOCK=BLOCK, num_warps=8
    )
    return objective, nll


@torch.library.custom_op("onehop::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(
    x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The objective and the negative log-likelihood, summed over the rows, and the gradient of the logits."""
    logits = x @ weight.to(x.dtype).t()
    objective, nll = loss_and_gradient(logits, labels, smoothing, ignore)
    return objective.sum(), nll.sum(), logits


@linear_cross_entropy.register_fake
def _(x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, ignore: int) -> tuple[Tensor, Tensor, Tensor]:
    scalar = x.new_empty((), dtype=torch.float32)
    return scalar, torch.empty_like(scalar), x.new_empty(x.shape[0], weight.shape[0])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, *_ = inputs
    ctx.save_for_backward(x, weight, output[2])
    ctx.mark_non_differentiable(output[1], output[2])


def _gradient(ctx: Any, d_objective: Tensor, *_: Any) -> tuple[Any, ...]:
    x, weight, d_logits = ctx.saved_tensors
    d_x, d_weight = d_logits @ weight.to(x.dtype), d_logits.t() @ x
    return (d_x.float() * d_objective).to(x.dtype), d_weight.float() * d_objective, None, None, None


linear_cross_entropy.register_autograd(_gradient, setup_context=_keep)
