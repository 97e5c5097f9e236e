"""The feed-forward network, max(0, x W_1 + b_1) W_2 + b_2, as one operator.

Specified by `onehop.model.transformer.FeedForward`.

Bias and ReLU run inside the kernel of the first matrix product. In the backward pass, the product that leads to the
inner layer applies ReLU's gradient and sums the first bias's gradient before it writes. It reads the sign from the
inner layer's output, so nothing else is stored.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

TILE = {"ROWS": 128, "COLUMNS": 128, "DEPTH": 32, "num_warps": 4, "num_stages": 4}


@triton.jit
def hidden_gradient_kernel(
    d_out, w_2, hidden, passed, d_bias,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """A tile of the gradient below ReLU, d_out W_2 where the inner layer is positive, and its column sums.

    Matrices come as TMA descriptors: out-of-bounds rows read as zero and are not written.
    """
    column, tile = tl.program_id(0) * COLUMNS, tl.program_id(1)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for at in range(0, WIDTH, DEPTH):
        left, right = d_out.load([tile * ROWS, at]), w_2.load([at, column])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    positive = hidden.load([tile * ROWS, column]) > 0.0
    through = tl.where(positive, total.to(passed.dtype), 0.0)
    passed.store([tile * ROWS, column], through)
    tl.store(d_bias + tile * HIDDEN + column + tl.arange(0, COLUMNS), tl.sum(through.to(tl.float32), 0))


def fits(d_model: int, d_ff: int) -> bool:
    """Whether the tiles divide a network of this size."""
    return d_model % TILE["DEPTH"] == 0 and d_ff % TILE["COLUMNS"] == 0


@torch.library.custom_op("onehop::hidden_gradient", mutates_args=())
def hidden_gradient(d_out: Tensor, w_2: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient below ReLU, and partial sums of the first bias's gradient."""
    (rows, width), wide = d_out.shape, hidden.shape[1]
    down, across, deep = TILE["ROWS"], TILE["COLUMNS"], TILE["DEPTH"]
    tiles = triton.cdiv(rows, down)
    passed = hidden.new_empty(hidden.shape)
    d_bias = torch.empty(tiles, wide, dtype=torch.float32, device=hidden.device)
    blocks = ((d_out, [down, deep]), (w_2, [deep, across]), (hidden, [down, across]), (passed, [down, across]))
    hidden_gradient_kernel[(wide // across, tiles)](
        *(TensorDescriptor.from_tensor(matrix.contiguous(), block) for matrix, block in blocks), d_bias,
        WIDTH=width, HIDDEN=wide, PRECISION="ieee" if hidden.dtype == torch.float32 else "tf32", **TILE,
    )  # fmt: skip
    return passed, d_bias


@hidden_gradient.register_fake
def _(d_out: Tensor, w_2: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    tiles = triton.cdiv(hidden.shape[0], TILE["ROWS"])
    return hidden.new_empty(hidden.shape), hidden.new_empty(tiles, hidden.shape[1], dtype=torch.float32)


@torch.library.custom_op("onehop::feed_forward", mutates_args=())
def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> tuple[Tensor, Tensor]:
    """The network's output in the dtype of `x`, and its inner layer."""
    hidden = torch._addmm_activation(b_1.to(x.dtype), x, w_1.to(x.dtype).t())
    return torch.addmm(b_2.to(x.dtype), hidden, w_2.to(x.dtype).t()), hidden


@feed_forward.register_fake
def _(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[0], w_1.shape[0])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, d_out: Tensor, _: Any) -> tuple[Tensor, ...]:
    x, w_1, b_1, w_2, b_2, hidden = ctx.saved_tensors
    passed, d_b_1 = hidden_gradient(d_out, w_2.to(x.dtype), hidden)
    return (
        passed @ w_1.to(x.dtype),
        (passed.t() @ x).to(w_1.dtype),
        d_b_1.sum(0).to(b_1.dtype),
        (d_out.t() @ hidden).to(w_2.dtype),
        d_out.sum(0, dtype=torch.float32).to(b_2.dtype),
    )


feed_forward.register_autograd(_gradient, setup_context=_keep)
