"""The feed-forward network's first half, max(0, x W + b), with bias and maximum inside the matrix product's own kernel.

Specified by `torch.relu` of a linear layer. The backward pass reads the sign from the result, so nothing else is kept;
one pass over the gradient lets through what was positive and adds up what the bias gets of it.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 16, 256  # of the gradient, that a program holds at a time
GROUPS = 66  # programs that share the rows of a column: with 2,048 columns, four for each of 132 multiprocessors


@triton.jit
def relu_gradient_kernel(
    d_hidden, hidden, passed, d_bias, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Some columns of every so many rows: the gradient where the result is positive, and its sum over the rows."""
    group, groups = tl.program_id(1), tl.num_programs(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(group * ROWS, rows, groups * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (columns < WIDTH)[None, :]
        cells = row.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        positive = tl.load(hidden + cells, mask=inside, other=0.0) > 0.0
        through = tl.where(positive, tl.load(d_hidden + cells, mask=inside, other=0.0), 0.0)
        tl.store(passed + cells, through, mask=inside)
        total += through.to(tl.float32)
    tl.store(d_bias + group * WIDTH + columns, tl.sum(total, 0), mask=columns < WIDTH)


@torch.library.custom_op("onehop::relu_gradient", mutates_args=())
def relu_gradient(d_hidden: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient below the maximum, and parts that add up to the bias's."""
    rows, width = hidden.shape
    passed = torch.empty_like(hidden)
    d_bias = torch.empty(GROUPS, width, dtype=torch.float32, device=hidden.device)
    relu_gradient_kernel[(triton.cdiv(width, COLUMNS), GROUPS)](
        d_hidden.contiguous(), hidden, passed, d_bias, rows, WIDTH=width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4
    )
    return passed, d_bias


@relu_gradient.register_fake
def _(d_hidden: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(hidden), hidden.new_empty(GROUPS, hidden.shape[1], dtype=torch.float32)


@torch.library.custom_op("onehop::linear_relu", mutates_args=())
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x Wᵀ + b) in the type of `x`."""
    return torch._addmm_activation(bias.to(x.dtype), x, weight.to(x.dtype).t())


@linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight, bias, output)


def _gradient(ctx: Any, d_hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, bias, hidden = ctx.saved_tensors
    passed, d_bias = relu_gradient(d_hidden, hidden)
    d_weight = (passed.t() @ x).to(weight.dtype)
    return passed @ weight.to(x.dtype), d_weight, d_bias.sum(0).to(bias.dtype)


linear_relu.register_autograd(_gradient, setup_context=_keep)
