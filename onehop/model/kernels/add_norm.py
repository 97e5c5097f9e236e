"""Residual, dropout and norm in one pass each way. Specified by `onehop.model.transformer.AddNorm`.

The dropout mask is not stored: both passes compute it from a seed and the position.

Post-norm (`add_norm`): the backward pass recomputes the sum from its two inputs in the dtype of the matrix products, so
only a mean and a deviation per row are float32. A norm's output goes into the next sub-layer and past it, so two
gradients come back. In a compiled step the kernel adds them (`sums_inside`).

Pre-norm (`sum_and_norm`): the norm is the next sub-layer's, and the sum goes past that. Rounding would accumulate in
the sums, so they keep the dtype of the first one, float32 in training.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, fx

CELLS = 512  # elements per warp: a row of the base model is one warp, which needs no synchronisation
PROGRAMS = 16  # backward, per multiprocessor: each keeps its own sums for the gradients of gain and bias


@triton.jit
def dropout_factors(seed, row, drop, TILE: tl.constexpr):
    """Dropout factors of a row: 0 or 1 / (1 - drop). Eight elements share one draw, 16 bits each."""
    eighths = row * (TILE // 8) + tl.arange(0, TILE // 8)
    a, b, c, d = tl.randint4x(tl.load(seed), eighths, 7)  # seven rounds of Philox are the fewest without a known flaw
    words = tl.interleave(tl.interleave(a, b), tl.interleave(c, d)).to(tl.uint32, bitcast=True)
    draws = tl.interleave(words & 0xFFFF, words >> 16).to(tl.float32)
    return tl.where(draws < drop * 65536.0, 0.0, 1.0 / (1.0 - drop))


@triton.jit
def forward_kernel(
    skip, added, gain, bias, seed, total, out, means, spreads, drop, eps,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr, PRE: tl.constexpr,
):  # fmt: skip
    """One row: LayerNorm(skip + Dropout(added)); pre-norm: the sum, too."""
    row, columns = tl.program_id(0), tl.arange(0, TILE)
    inside = columns < WIDTH
    cells = tl.cast(row, tl.int64) * WIDTH + columns
    x = tl.load(added + cells, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        x *= dropout_factors(seed, row, drop, TILE)
    x += tl.load(skip + cells, mask=inside, other=0.0).to(tl.float32)
    if PRE:
        rounded = x.to(total.dtype.element_ty)
        tl.store(total + cells, rounded, mask=inside)
        x = rounded.to(tl.float32)
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
    skip, added, gain, seed, means, spreads, d_out, d_past, d_skip, d_added, d_gains, d_biases, rows, drop,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr, PRE: tl.constexpr, TWO: tl.constexpr,
):  # fmt: skip
    """The gradients of a strided set of rows, and their part of the gradients of gain and bias.

    In pre-norm `skip` is the sum, and `d_past` is the sum's other gradient.
    """
    program, columns = tl.program_id(0), tl.arange(0, TILE)
    inside = columns < WIDTH
    gains = tl.load(gain + columns, mask=inside, other=0.0)
    d_gain = tl.zeros([TILE], tl.float32)
    d_bias = tl.zeros([TILE], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        cells = tl.cast(row, tl.int64) * WIDTH + columns
        x = tl.load(skip + cells, mask=inside, other=0.0).to(tl.float32)
        above = tl.load(d_out + cells, mask=inside, other=0.0).to(tl.float32)
        if TWO:
            past = tl.load(d_past + cells, mask=inside, other=0.0).to(tl.float32)
            if not PRE:
                above += past
        if DROPS:
            factors = dropout_factors(seed, row, drop, TILE)
        if not PRE:
            y = tl.load(added + cells, mask=inside, other=0.0).to(tl.float32)
            if DROPS:
                y *= factors
            x += y
        spread = tl.load(spreads + row)
        normed = (x - tl.load(means + row)) * spread
        d_gain += above * normed
        d_bias += above
        below = above * gains
        along, across = tl.sum(below * normed, 0) / WIDTH, tl.sum(below, 0) / WIDTH
        d_x = (below - across - normed * along) * spread
        if PRE and TWO:
            d_x += past
        tl.store(d_skip + cells, d_x.to(d_skip.dtype.element_ty), mask=inside)
        if DROPS:
            d_x *= factors
        tl.store(d_added + cells, d_x.to(d_added.dtype.element_ty), mask=inside)
    tl.store(d_gains + program * WIDTH + columns, d_gain, mask=inside)
    tl.store(d_biases + program * WIDTH + columns, d_bias, mask=inside)


def constants(width: int, drop: float, *, pre: bool) -> dict[str, Any]:
    """The compile-time constants of a kernel."""
    tile = max(8, triton.next_power_of_2(width))
    return {"WIDTH": width, "TILE": tile, "DROPS": drop > 0.0, "PRE": pre, "num_warps": max(1, tile // CELLS)}


def launch_forward(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, total: Tensor | None, drop: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The norm in the dtype of `added`, and each row's mean and inverse deviation; fills `total` if there is one."""
    rows, width = added.shape
    out = torch.empty_like(added)
    means, spreads = (torch.empty(rows, dtype=torch.float32, device=added.device) for _ in range(2))
    forward_kernel[(rows,)](
        skip, added, gain, bias, seed, total, out, means, spreads, drop, eps,
        **constants(width, drop, pre=total is not None),
    )  # fmt: skip
    return out, means, spreads


def launch_backward(
    skip: Tensor, added: Tensor | None, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor,
    d_out: Tensor, d_past: Tensor | None, drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `skip` and `added`, and the partial sums of those of gain and bias; no `added`: pre-norm."""
    rows, width = skip.shape
    d_skip, d_added = torch.empty_like(skip), torch.empty_like(d_out if added is None else added)
    programs = programs_for(skip.device)
    d_affine = torch.empty(2, programs, width, dtype=torch.float32, device=skip.device)
    backward_kernel[(programs,)](
        skip, added, gain, seed, means, spreads, d_out.contiguous(), d_past if d_past is None else d_past.contiguous(),
        d_skip, d_added, *d_affine, rows, drop, TWO=d_past is not None, **constants(width, drop, pre=added is None),
    )  # fmt: skip
    return d_skip, d_added, d_affine


def programs_for(device: torch.device) -> int:
    """How many programs share the rows of a backward pass."""
    if device.type != "cuda":
        return PROGRAMS
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count


# --- as operators that torch can differentiate and compile ----------------------------------------------------


@torch.library.custom_op("onehop::add_norm", mutates_args=())
def add_norm(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, drop: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm(skip + Dropout(added)) in the dtype of `added`; each row's mean and inverse deviation.

    Without dropout no seed is needed.
    """
    return launch_forward(skip, added, gain, bias, seed, None, drop, eps)


@add_norm.register_fake
def _(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, drop: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    means = added.new_empty(added.shape[0], dtype=torch.float32)
    return torch.empty_like(added), means, torch.empty_like(means)


@torch.library.custom_op("onehop::add_norm_backward", mutates_args=())
def add_norm_backward(
    skip: Tensor, added: Tensor, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor, d_out: Tensor,
    d_past: Tensor | None, drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `skip` and `added`, and the partial sums of those of gain and bias.

    The output's gradient is `d_out`, or the sum of `d_out` and `d_past`.
    """
    return launch_backward(skip, added, gain, seed, means, spreads, d_out, d_past, drop)


@add_norm_backward.register_fake
def _(
    skip: Tensor, added: Tensor, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor, d_out: Tensor,
    d_past: Tensor | None, drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    d_affine = means.new_empty(2, programs_for(added.device), added.shape[1])
    return torch.empty_like(skip), torch.empty_like(added), d_affine


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    skip, added, gain, bias, seed, ctx.drop, _ = inputs
    _, means, spreads = output
    ctx.save_for_backward(skip, added, gain, bias, seed, means, spreads)
    ctx.mark_non_differentiable(means, spreads)


def _gradient(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Any, ...]:
    skip, added, gain, bias, seed, means, spreads = ctx.saved_tensors
    d_skip, d_added, d_affine = add_norm_backward(skip, added, gain, seed, means, spreads, d_out, None, ctx.drop)
    d_gain, d_bias = d_affine.sum(1)
    return d_skip, d_added, d_gain.to(gain.dtype), d_bias.to(bias.dtype), None, None, None


add_norm.register_autograd(_gradient, setup_context=_keep)


@torch.library.custom_op("onehop::sum_and_norm", mutates_args=())
def sum_and_norm(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, drop: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """skip + Dropout(added) in the dtype of `skip`, and its LayerNorm in that of `added`.

    Also each row's mean and inverse deviation. Without dropout no seed is needed.
    """
    total = torch.empty_like(skip)
    return total, *launch_forward(skip, added, gain, bias, seed, total, drop, eps)


@sum_and_norm.register_fake
def _(
    skip: Tensor, added: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, drop: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    means = added.new_empty(added.shape[0], dtype=torch.float32)
    return torch.empty_like(skip), torch.empty_like(added), means, torch.empty_like(means)


@torch.library.custom_op("onehop::sum_and_norm_backward", mutates_args=())
def sum_and_norm_backward(
    total: Tensor, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor, d_out: Tensor,
    d_total: Tensor | None, drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `skip` and `added`, and the partial sums of those of gain and bias.

    `d_out` is the norm's gradient, `d_total` that of the sum where it goes past the next sub-layer.
    """
    return launch_backward(total, None, gain, seed, means, spreads, d_out, d_total, drop)


@sum_and_norm_backward.register_fake
def _(
    total: Tensor, gain: Tensor, seed: Tensor | None, means: Tensor, spreads: Tensor, d_out: Tensor,
    d_total: Tensor | None, drop: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    d_affine = means.new_empty(2, programs_for(total.device), total.shape[1])
    return torch.empty_like(total), torch.empty_like(d_out), d_affine


def _keep_sum(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, gain, bias, seed, ctx.drop, _ = inputs
    total, _, means, spreads = output
    ctx.save_for_backward(total, gain, bias, seed, means, spreads)
    ctx.mark_non_differentiable(means, spreads)
    ctx.set_materialize_grads(False)  # nothing goes past a stack's last norm


def _sum_gradient(ctx: Any, d_total: Tensor | None, d_out: Tensor | None, *_: Any) -> tuple[Any, ...]:
    total, gain, bias, seed, means, spreads = ctx.saved_tensors
    d_out = torch.zeros_like(total) if d_out is None else d_out
    d_skip, d_added, d_affine = sum_and_norm_backward(total, gain, seed, means, spreads, d_out, d_total, ctx.drop)
    d_gain, d_bias = d_affine.sum(1)
    return d_skip, d_added, d_gain.to(gain.dtype), d_bias.to(bias.dtype), None, None, None


sum_and_norm.register_autograd(_sum_gradient, setup_context=_keep_sum)


# --- in a compiled pass ---------------------------------------------------------------------------------------


def sums_inside(graph: fx.Graph) -> None:
    """Let the backward kernel add the gradients that meet at a norm's output, instead of a separate kernel."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.onehop.add_norm_backward.default):
        *before, d_out, d_past, drop = node.args
        parts = summands(d_out)
        if d_past is None and parts is not None:
            with graph.inserting_before(node):
                rows = [as_rows(graph, part, node.args[1]) for part in parts]
            node.args = (*before, *rows, drop)
    graph.eliminate_dead_code()


def summands(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors whose sum is a gradient, if nothing else uses the sum."""
    while node.target in (torch.ops.aten.view.default, torch.ops.aten.reshape.default) and len(node.users) == 1:
        node = node.all_input_nodes[0]
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs or len(node.users) > 1:
        return None
    parts = node.all_input_nodes
    alike = {(part.meta["val"].shape, part.meta["val"].dtype) for part in (node, *parts)}
    return (parts[0], parts[1]) if len(parts) == 2 and len(alike) == 1 else None


def as_rows(graph: fx.Graph, part: fx.Node, like: fx.Node) -> fx.Node:
    """A gradient in the shape that the kernel takes."""
    shape = list(like.meta["val"].shape)
    rows = graph.call_function(torch.ops.aten.reshape.default, (part, shape))
    rows.meta["val"] = part.meta["val"].reshape(shape)
    return rows
