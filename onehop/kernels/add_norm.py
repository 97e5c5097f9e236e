"""Residual, dropout and norm in one pass each way. Specified by the post-norm line of `onehop.model.AddNorm`.

What is dropped is never stored: it comes from a seed and the place of a number, forwards and backwards alike. The sum
is made again in the backward pass from its two parts, which are in the precision of the matrix products, so that
nothing in float32 goes through memory but a mean and a spread a row.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CELLS = 512  # numbers of a row that a warp takes: one warp for a row of the base model, which then need not wait
PROGRAMS = 16  # backwards, a multiprocessor: each keeps its own sums for the gradients of gain and bias


@triton.jit
def dropout_factors(seed, row, drop, TILE: tl.constexpr):
    """For each number of a row nought or 1 / (1 - drop); eight numbers share one draw, 16 bits each."""
    eighths = row * (TILE // 8) + tl.arange(0, TILE // 8)
    a, b, c, d = tl.randint4x(tl.load(seed), eighths, 7)  # seven rounds of Philox are the fewest without a known flaw
    words = tl.interleave(tl.interleave(a, b), tl.interleave(c, d)).to(tl.uint32, bitcast=True)
    draws = tl.interleave(words & 0xFFFF, words >> 16).to(tl.float32)
    return tl.where(draws < drop * 65536.0, 0.0, 1.0 / (1.0 - drop))


@triton.jit
def forward_kernel(
    skip, added, gain, bias, seed, out, means, spreads, drop, eps,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """One row: LayerNorm(skip + Dropout(added))."""
    row, columns = tl.program_id(0), tl.arange(0, TILE)
    inside = columns < WIDTH
    cells = tl.cast(row, tl.int64) * WIDTH + columns
    x = tl.load(added + cells, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        x *= dropout_factors(seed, row, drop, TILE)
    x += tl.load(skip + cells, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / WIDTH
    centred = tl.where(inside, x - mean, 0.0)
    spread = tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + eps)
    gains = tl.load(gain + columns, mask=inside, other=0.0)
    biases = tl.load(bias + columns, mask=inside, other=0.0)
    normed = centred * spread * gains + biases
    tl.store(out + cells, normed.to(out.dtype.element_ty), mask=inside)
    tl.store(means + row, mean)
    tl.store(spreads + row, spread)


@triton.jit
def backward_kernel(
    skip, added, gain, seed, means, spreads, d_out, d_skip, d_added, d_gains, d_biases, rows, drop,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Every so many rows: their gradients, and what they add to those of gain and bias."""
    program, columns = tl.program_id(0), tl.arange(0, TILE)
    inside = columns < WIDTH
    gains = tl.load(gain + columns, mask=inside, other=0.0)
    d_gain = tl.zeros([TILE], tl.float32)
    d_bias = tl.zeros([TILE], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        cells = tl.cast(row, tl.int64) * WIDTH + columns
        x = tl.load(added + cells, mask=inside, other=0.0).to(tl.float32)
        above = tl.load(d_out + cells, mask=inside, other=0.0).to(tl.float32)
        if DROPS:
            factors = dropout_factors(seed, row, drop, TILE)
            x *= factors
        x += tl.load(skip + cells, mask=inside, other=0.0).to(tl.float32)
        spread = tl.load(spreads + row)
        normed = (x - tl.load(means + row)) * spread
        d_gain += above * normed
        d_bias += above
        below = above * gains
        along, across = tl.sum(below * normed, 0) / WIDTH, tl.sum(below, 0) / WIDTH
        d_x = (below - across - normed * along) * spread
        tl.store(d_skip + cells, d_x.to(d_skip.dtype.element_ty), mask=inside)
        if DROPS:
            d_x *= factors
        tl.store(d_added + cells, d_x.to(d_added.dtype.element_ty), mask=inside)
    tl.store(d_gains + program * WIDTH + columns, d_gain, mask=inside)
    tl.store(d_biases + program * WIDTH + columns, d_bias, mask=inside)


def constants(width: int, drop: float) -> dict[str, Any]:
    """What a kernel is compiled for."""
    tile = max(8, triton.next_power_of_2(width))
    return {"WIDTH": width, "TILE": tile, "DROPS": drop > 0.0, "num_warps": max(1, tile // CELLS)}


# --- as operators that torch can differentiate and compile ----------------------------------------------------


@torch.library.custom_op("onehop::add_norm", mutates_args=())
def add_norm(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, drop: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm(skip + Dropout(added)) in the type of `added`; each row's mean and the inverse of its deviation.

    Without dropout no seed is needed.
    """
    rows, width = added.shape
    out = torch.empty_like(added)
    means, spreads = (torch.empty(rows, dtype=torch.float32, device=added.device) for _ in range(2))
    forward_kernel[(rows,)](skip, added, gain, bias, seed, out, means, spreads, drop, eps, **constants(width, drop))
    return out, means, spreads


@add_norm.register_fake
def _(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, drop: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    means = added.new_empty(added.shape[0], dtype=torch.float32)
    return torch.empty_like(added), means, torch.empty_like(means)


@torch.library.custom_op("onehop::add_norm_backward", mutates_args=())
def add_norm_backward(
    skip: Tensor, added: Tensor, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor, d_out: Tensor,
    drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `skip` and `added`, and the parts that add up to those of gain and bias."""
    rows, width = added.shape
    d_skip, d_added = torch.empty_like(skip), torch.empty_like(added)
    programs = programs_for(added.device)
    d_affine = torch.empty(2, programs, width, dtype=torch.float32, device=added.device)
    backward_kernel[(programs,)](
        skip, added, gain, seed, means, spreads, d_out.contiguous(), d_skip, d_added, *d_affine, rows, drop,
        **constants(width, drop),
    )  # fmt: skip
    return d_skip, d_added, d_affine


@add_norm_backward.register_fake
def _(
    skip: Tensor, added: Tensor, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor, d_out: Tensor,
    drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    d_affine = means.new_empty(2, programs_for(added.device), added.shape[1])
    return torch.empty_like(skip), torch.empty_like(added), d_affine


def programs_for(device: torch.device) -> int:
    """How many programs share the rows of a backward pass."""
    if device.type != "cuda":
        return PROGRAMS
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    skip, added, gain, bias, seed, ctx.drop, _ = inputs
    _, means, spreads = output
    ctx.save_for_backward(skip, added, gain, bias, seed, means, spreads)
    ctx.mark_non_differentiable(means, spreads)


def _gradient(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Any, ...]:
    skip, added, gain, bias, seed, means, spreads = ctx.saved_tensors
    d_skip, d_added, d_affine = add_norm_backward(skip, added, gain, seed, means, spreads, d_out, ctx.drop)
    d_gain, d_bias = d_affine.sum(1)
    return d_skip, d_added, d_gain.to(gain.dtype), d_bias.to(bias.dtype), None, None, None


add_norm.register_autograd(_gradient, setup_context=_keep)
