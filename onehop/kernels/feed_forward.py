"""The feed-forward network's first half, max(0, x W + b), with bias and maximum inside the matrix product's own kernel.

Specified by `torch.relu` of a linear layer. The backward pass reads the sign from the result, so nothing else is kept.
"""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("onehop::linear_relu", mutates_args=())
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x Wᵀ + b) in the type of `x`."""
    return torch._addmm_activation(bias.to(x.dtype), x, weight.to(x.dtype).t())


@linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output)


def _gradient(ctx: Any, d_hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, hidden = ctx.saved_tensors
    passed = d_hidden.masked_fill(hidden <= 0, 0.0)
    d_weight = (passed.t() @ x).to(weight.dtype)
    return passed @ weight.to(x.dtype), d_weight, passed.sum(0, dtype=weight.dtype)


linear_relu.register_autograd(_gradient, setup_context=_keep)
