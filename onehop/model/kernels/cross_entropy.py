"""Output projection and label-smoothed cross-entropy as one operator. Specified by `onehop.model.loss.cross_entropy`.

The logits exist once, in the dtype of the matrix product. One pass replaces them by their gradient, so the backward
pass is two matrix products.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

BLOCK = 4096
WARPS = 16
LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def loss_kernel(logits, labels, objective, nll, smoothing, ignore, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """One row: its loss, and its gradient p - q written over its logits. Exponentials and logarithms have base 2."""
    row = tl.program_id(0)
    label = tl.load(labels + row)
    logits += row.to(tl.int64) * VOCAB
    columns = tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    plain_sum = tl.zeros([BLOCK], tl.float32)
    for at in range(0, VOCAB, BLOCK):
        inside = at + columns < VOCAB
        x = tl.load(logits + at + columns, mask=inside, other=float("-inf")).to(tl.float32) * LOG2_E
        # Online softmax: each lane has its own maximum, and rescales its sum when the maximum grows.
        apart = tl.exp2(-tl.abs(x - largest))
        total = tl.where(x > largest, total * apart + 1.0, total + apart)
        plain_sum += tl.where(inside, x, 0.0)
        largest = tl.maximum(largest, x)
    top = tl.max(largest, 0)
    lse = top + tl.log2(tl.sum(total * tl.exp2(largest - top), 0))
    counts = label != ignore
    on_label = tl.load(logits + label).to(tl.float32) * LOG2_E
    surprise = (lse - on_label) / LOG2_E
    spread = (lse - tl.sum(plain_sum, 0) / VOCAB) / LOG2_E
    tl.store(nll + row, tl.where(counts, surprise, 0.0))
    tl.store(objective + row, tl.where(counts, (1.0 - smoothing) * surprise + smoothing * spread, 0.0))
    tl.debug_barrier()  # the label's logit is read before it is written over
    even = tl.where(counts, smoothing / VOCAB, 0.0)
    shift = tl.where(counts, lse, float("inf"))  # padding: every probability is 0
    for at in range(0, VOCAB, BLOCK):
        inside = at + columns < VOCAB
        x = tl.load(logits + at + columns, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.exp2(x * LOG2_E - shift) - even
        tl.store(logits + at + columns, gradient.to(logits.dtype.element_ty), mask=inside)
    tl.debug_barrier()  # the label's gradient is written over the one that all have
    of_label = tl.exp2(on_label - shift) - even - (1.0 - smoothing)
    tl.store(logits + label, of_label.to(logits.dtype.element_ty), mask=counts)


def loss_and_gradient(logits: Tensor, labels: Tensor, smoothing: float, ignore: int) -> tuple[Tensor, Tensor]:
    """Each row's objective and negative log-likelihood; the logits become their gradient."""
    rows, vocab = logits.shape
    objective, nll = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    # The vocabulary size is a constant. Triton specialises arguments only for multiples of 16; with a multiple of 8 it
    # would load and store the logits one by one instead of eight at a time.
    loss_kernel[(rows,)](logits, labels, objective, nll, smoothing, ignore, VOCAB=vocab, BLOCK=BLOCK, num_warps=WARPS)
    return objective, nll


@torch.library.custom_op("onehop::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The objective and the negative log-likelihood, summed over the rows, and the gradient of the logits."""
    logits = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    objective, nll = loss_and_gradient(logits, labels, smoothing, ignore)
    return objective.sum(), nll.sum(), logits


@linear_cross_entropy.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor, Tensor]:
    scalar = x.new_empty((), dtype=torch.float32)
    return scalar, torch.empty_like(scalar), x.new_empty(x.shape[0], weight.shape[0])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, *_ = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight, output[2])
    ctx.mark_non_differentiable(output[1], output[2])


def _gradient(ctx: Any, d_objective: Tensor, *_: Any) -> tuple[Any, ...]:
    x, weight, d_logits = ctx.saved_tensors
    d_x, d_weight = d_logits @ weight.to(x.dtype), d_logits.t() @ x
    d_bias = d_logits.sum(0, dtype=torch.float32) * d_objective if ctx.biased else None
    return (d_x.float() * d_objective).to(x.dtype), d_weight.float() * d_objective, d_bias, None, None, None


linear_cross_entropy.register_autograd(_gradient, setup_context=_keep)
