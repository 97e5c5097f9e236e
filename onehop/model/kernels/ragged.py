"""Attention over sentences packed end to end. Specified by `onehop.model.attention.padded_attention`.

In the forward pass, a program takes a tile of rows of any sentences. It visits the keys from the start of its first
sentence to the end of its last one and masks other sentences. In the backward pass it takes whole sentences, those that
begin within half a tile. Attention weights never reach global memory, and there are no atomic adds, so the result is
deterministic.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows per program, and of the other side per block; fewer registers per thread allow more programs.
FORWARD = {"TILE": 64, "BLOCK": 64, "num_warps": 4, "num_stages": 1, "maxnreg": 128}
BACKWARD = {"TILE": 64, "BLOCK": 32, "num_warps": 4, "num_stages": 1, "maxnreg": 168}
WIDTHS = (16, 32, 64, 128)
LONGEST = 512  # per sentence: backward, one program handles all of it
CELLS = 2**31  # limit of elements in queries, keys and values together: offsets have 32 bits
LOG2_E = 1.4426950408889634


@triton.jit
def span(row_sentences, starts, first, rows, TILE: tl.constexpr):
    """The rows on the other side that a tile's sentences cover: from the first one's start to the last one's end."""
    last = tl.minimum(first + TILE, rows) - 1
    begin = tl.load(starts + tl.load(row_sentences + first))
    end = tl.load(starts + tl.load(row_sentences + last) + 1)
    return begin, end


@triton.jit
def rows_of(matrix, rows, stride, columns, inside):
    """One head's part of some rows; zero for rows outside."""
    return tl.load(matrix + rows[:, None] * stride + columns, mask=inside[:, None], other=0.0)


@triton.jit
def first_sentence(row_sentences, starts, row, rows, count):
    """The first sentence that begins at this row or later."""
    sentence = tl.load(row_sentences + row, mask=row < rows, other=0)
    sentence += (tl.load(starts + sentence) < row).to(tl.int32)
    return tl.where(row == 0, 0, tl.where(row < rows, sentence, count))


@triton.jit
def may_attend(queries, keys, query_sentences, key_sentences, CAUSAL: tl.constexpr):
    """Which pairs of rows belong to one sentence; row and sentence indices broadcast."""
    allowed = query_sentences == key_sentences
    if CAUSAL:
        allowed = allowed & (keys <= queries)
    return allowed


@triton.jit
def forward_kernel(
    q, k, v, out, lse, q_sentences, k_sentences, k_starts, q_rows,
    q_stride, k_stride, v_stride, out_stride, scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Equation 1 for a tile of queries and one head, keys block by block with a running softmax."""
    first, head = tl.program_id(0) * TILE, tl.program_id(1)
    columns = head * WIDTH + tl.arange(0, WIDTH)
    rows = first + tl.arange(0, TILE)
    inside = rows < q_rows
    queries = rows_of(q, rows, q_stride, columns, inside)
    sentences = tl.load(q_sentences + rows, mask=inside, other=-1)
    begin, end = span(q_sentences, k_starts, first, q_rows, TILE)
    if CAUSAL:
        end = tl.minimum(end, first + TILE)
    largest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    blend = tl.zeros([TILE, WIDTH], tl.float32)
    for at in range(begin, end, BLOCK):
        others = at + tl.arange(0, BLOCK)
        known = others < end
        keys = rows_of(k, others, k_stride, columns, known)
        values = rows_of(v, others, v_stride, columns, known)
        other_sentences = tl.load(k_sentences + others, mask=known, other=-2)
        allowed = may_attend(rows[:, None], others[None, :], sentences[:, None], other_sentences[None, :], CAUSAL)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where(allowed, scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        anchor = tl.where(larger == float("-inf"), 0.0, larger)  # a row without any key so far
        weights = tl.exp2(scores - anchor[:, None])
        shrink = tl.exp2(largest - anchor)
        total = total * shrink + tl.sum(weights, 1)
        blend = blend * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        largest = larger
    seen = total > 0.0
    total = tl.where(seen, total, 1.0)
    blend = blend / total[:, None]
    tl.store(out + rows[:, None] * out_stride + columns, blend.to(out.dtype.element_ty), mask=inside[:, None])
    tl.store(lse + head * q_rows + rows, tl.where(seen, largest + tl.log2(total), 0.0), mask=inside)


@triton.jit
def backward_kernel(
    q, k, v, out, d_out, lse, dq, dk, dv, q_sentences, k_sentences, q_starts, k_starts, q_rows, sentence_count,
    q_stride, k_stride, v_stride, out_stride, dq_stride, dk_stride, dv_stride, scale, natural_scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All gradients of the sentences that begin within a stretch of half a tile, for one head.

    Short sentences share a tile, and every element is read once. Longer ones are processed block by block.
    """
    stretch, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)  # padding, which is long, comes first
    columns = head * WIDTH + tl.arange(0, WIDTH)
    lse += head * q_rows
    first = first_sentence(q_sentences, q_starts, stretch * (TILE // 2), q_rows, sentence_count)
    last = first_sentence(q_sentences, q_starts, (stretch + 1) * (TILE // 2), q_rows, sentence_count)
    q_begin, q_end = tl.load(q_starts + first), tl.load(q_starts + last)
    k_begin, k_end = tl.load(k_starts + first), tl.load(k_starts + last)
    if (q_end - q_begin <= TILE) & (k_end - k_begin <= TILE):
        rows, others = q_begin + tl.arange(0, TILE), k_begin + tl.arange(0, TILE)
        inside, known = rows < q_end, others < k_end
        queries = rows_of(q, rows, q_stride, columns, inside)
        keys = rows_of(k, others, k_stride, columns, known)
        values = rows_of(v, others, v_stride, columns, known)
        d_rows = rows_of(d_out, rows, out_stride, columns, inside)
        outs = rows_of(out, rows, out_stride, columns, inside)
        delta = tl.sum(d_rows.to(tl.float32) * outs.to(tl.float32), 1)
        row_lse = tl.load(lse + rows, mask=inside, other=0.0)
        sentences = tl.load(q_sentences + rows, mask=inside, other=-1)
        other_sentences = tl.load(k_sentences + others, mask=known, other=-2)
        allowed = may_attend(rows[:, None], others[None, :], sentences[:, None], other_sentences[None, :], CAUSAL)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
        weights = tl.where(allowed, tl.exp2(scores - row_lse[:, None]), 0.0)
        d_values = tl.dot(tl.trans(weights.to(d_rows.dtype)), d_rows, input_precision=PRECISION)
        d_weights = tl.dot(d_rows, tl.trans(values), input_precision=PRECISION)
        d_scores = (weights * (d_weights - delta[:, None])).to(keys.dtype)
        d_queries = tl.dot(d_scores, keys, input_precision=PRECISION) * natural_scale
        d_keys = tl.dot(tl.trans(d_scores), queries, input_precision=PRECISION) * natural_scale
        tl.store(dq + rows[:, None] * dq_stride + columns, d_queries.to(dq.dtype.element_ty), mask=inside[:, None])
        tl.store(dk + others[:, None] * dk_stride + columns, d_keys.to(dk.dtype.element_ty), mask=known[:, None])
        tl.store(dv + others[:, None] * dv_stride + columns, d_values.to(dv.dtype.element_ty), mask=known[:, None])
    else:
        k_used = k_begin  # keys from here on have no queries, as in padding
        if q_end > q_begin:
            k_used = tl.load(k_starts + tl.load(q_sentences + q_end - 1) + 1)
        for begin in range(q_begin, q_end, TILE):
            rows = begin + tl.arange(0, TILE)
            inside = rows < q_end
            queries = rows_of(q, rows, q_stride, columns, inside)
            d_rows = rows_of(d_out, rows, out_stride, columns, inside)
            outs = rows_of(out, rows, out_stride, columns, inside)
            delta = tl.sum(d_rows.to(tl.float32) * outs.to(tl.float32), 1)
            row_lse = tl.load(lse + rows, mask=inside, other=0.0)
            sentences = tl.load(q_sentences + rows, mask=inside, other=-1)
            gradient = tl.zeros([TILE, WIDTH], tl.float32)
            end = tl.minimum(k_used, begin + TILE) if CAUSAL else k_used
            for at in range(k_begin, end, BLOCK):
                others = at + tl.arange(0, BLOCK)
                known = others < k_end
                keys = rows_of(k, others, k_stride, columns, known)
                values = rows_of(v, others, v_stride, columns, known)
                other_sentences = tl.load(k_sentences + others, mask=known, other=-2)
                allowed = may_attend(
                    rows[:, None], others[None, :], sentences[:, None], other_sentences[None, :], CAUSAL
                )
                scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
                weights = tl.where(allowed, tl.exp2(scores - row_lse[:, None]), 0.0)
                d_weights = tl.dot(d_rows, tl.trans(values), input_precision=PRECISION)
                d_scores = weights * (d_weights - delta[:, None])
                gradient += tl.dot(d_scores.to(keys.dtype), keys, input_precision=PRECISION)
            gradient = (gradient * natural_scale).to(dq.dtype.element_ty)
            tl.store(dq + rows[:, None] * dq_stride + columns, gradient, mask=inside[:, None])
        for begin in range(k_begin, k_end, TILE):
            rows = begin + tl.arange(0, TILE)
            inside = rows < k_end
            keys = rows_of(k, rows, k_stride, columns, inside)
            values = rows_of(v, rows, v_stride, columns, inside)
            sentences = tl.load(k_sentences + rows, mask=inside, other=-1)
            d_keys = tl.zeros([TILE, WIDTH], tl.float32)
            d_values = tl.zeros([TILE, WIDTH], tl.float32)
            start = begin if CAUSAL else q_begin
            for at in range(tl.where(begin < k_used, start, q_end), q_end, BLOCK):
                others = at + tl.arange(0, BLOCK)
                known = others < q_end
                queries = rows_of(q, others, q_stride, columns, known)
                d_rows = rows_of(d_out, others, out_stride, columns, known)
                outs = rows_of(out, others, out_stride, columns, known)
                delta = tl.sum(d_rows.to(tl.float32) * outs.to(tl.float32), 1)
                row_lse = tl.load(lse + others, mask=known, other=0.0)
                other_sentences = tl.load(q_sentences + others, mask=known, other=-2)
                allowed = may_attend(
                    others[None, :], rows[:, None], other_sentences[None, :], sentences[:, None], CAUSAL
                )
                scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION) * scale
                weights = tl.where(allowed, tl.exp2(scores - row_lse[None, :]), 0.0)
                d_values += tl.dot(weights.to(d_rows.dtype), d_rows, input_precision=PRECISION)
                d_weights = tl.dot(values, tl.trans(d_rows), input_precision=PRECISION)
                d_scores = weights * (d_weights - delta[None, :])
                d_keys += tl.dot(d_scores.to(queries.dtype), queries, input_precision=PRECISION)
            d_keys = (d_keys * natural_scale).to(dk.dtype.element_ty)
            tl.store(dk + rows[:, None] * dk_stride + columns, d_keys, mask=inside[:, None])
            tl.store(dv + rows[:, None] * dv_stride + columns, d_values.to(dv.dtype.element_ty), mask=inside[:, None])


# --- launching ------------------------------------------------------------------------------------------------


Three = tuple[Tensor, ...]


def forward(
    qkv: Three, heads: int, rows: tuple[Tensor, Tensor], k_starts: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Every head's output side by side, and the logarithm (base 2) of each row's softmax sum."""
    q, k, v = qkv
    width = q.shape[1] // heads
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(heads, len(q), dtype=torch.float32, device=q.device)
    forward_kernel[(triton.cdiv(len(q), FORWARD["TILE"]), heads)](
        q, k, v, out, lse, *rows, k_starts, len(q), q.stride(0), k.stride(0), v.stride(0), out.stride(0),
        LOG2_E * width**-0.5, **constants(q, width, causal), **FORWARD,
    )  # fmt: skip
    return out, lse


def backward(
    qkv: Three,
    gradients: Three,
    results: Three,
    heads: int,
    rows: tuple[Tensor, Tensor],
    starts: tuple[Tensor, Tensor],
    causal: bool,
) -> None:
    """Fill the gradients of queries, keys and values, given (output, its gradient, the softmax sums)."""
    q = qkv[0]
    if len(q) == 0:  # without queries no program would write the zeros
        for gradient in gradients:
            gradient.zero_()
        return
    width, stretches = q.shape[1] // heads, triton.cdiv(len(q), BACKWARD["TILE"] // 2)
    strides = [x.stride(0) for x in (*qkv, results[0], *gradients)]
    backward_kernel[(stretches, heads)](
        *qkv, *results, *gradients, *rows, *starts, len(q), len(starts[0]) - 1, *strides,
        LOG2_E * width**-0.5, width**-0.5, **constants(q, width, causal), **BACKWARD,
    )  # fmt: skip


def constants(q: Tensor, width: int, causal: bool) -> dict[str, Any]:
    """The compile-time constants of a kernel."""
    return {
        "CAUSAL": causal,
        "WIDTH": width,
        "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32",
    }


# --- as operators that torch can differentiate and compile ----------------------------------------------------


@torch.library.custom_op("onehop::ragged_self_attention", mutates_args=())
def self_attention(qkv: Tensor, sentences: Tensor, starts: Tensor, heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention within each sentence; `qkv` has all heads' queries, then all keys, then all values in a row."""
    return forward(qkv.chunk(3, 1), heads, (sentences, sentences), starts, causal)


@self_attention.register_fake
def _(qkv: Tensor, sentences: Tensor, starts: Tensor, heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    rows, width = qkv.shape
    return qkv.new_empty(rows, width // 3), qkv.new_empty(heads, rows, dtype=torch.float32)


@torch.library.custom_op("onehop::ragged_self_attention_backward", mutates_args=())
def self_attention_backward(
    qkv: Tensor, out: Tensor, d_out: Tensor, lse: Tensor, sentences: Tensor, starts: Tensor, heads: int, causal: bool
) -> Tensor:
    """The gradient of `qkv`."""
    gradient = torch.empty_like(qkv)
    results, rows = (out, d_out.contiguous(), lse), (sentences, sentences)
    backward(qkv.chunk(3, 1), gradient.chunk(3, 1), results, heads, rows, (starts, starts), causal)
    return gradient


@self_attention_backward.register_fake
def _(
    qkv: Tensor, out: Tensor, d_out: Tensor, lse: Tensor, sentences: Tensor, starts: Tensor, heads: int, causal: bool
) -> Tensor:
    return torch.empty_like(qkv)


def _keep_self(ctx: Any, inputs: Any, output: Any) -> None:
    qkv, sentences, starts, ctx.heads, ctx.causal = inputs
    ctx.save_for_backward(qkv, *output, sentences, starts)
    ctx.mark_non_differentiable(output[1])


def _self_gradient(ctx: Any, d_out: Tensor, _: Any) -> tuple[Any, ...]:
    qkv, out, lse, sentences, starts = ctx.saved_tensors
    return self_attention_backward(qkv, out, d_out, lse, sentences, starts, ctx.heads, ctx.causal), *[None] * 4


self_attention.register_autograd(_self_gradient, setup_context=_keep_self)


@torch.library.custom_op("onehop::ragged_cross_attention", mutates_args=())
def cross_attention(
    q: Tensor, kv: Tensor, q_sentences: Tensor, k_sentences: Tensor, q_starts: Tensor, k_starts: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    """Attention from each sentence to its partner; `kv` has all heads' keys, then all values in a row."""
    return forward((q, *kv.chunk(2, 1)), heads, (q_sentences, k_sentences), k_starts, False)


@cross_attention.register_fake
def _(
    q: Tensor, kv: Tensor, q_sentences: Tensor, k_sentences: Tensor, q_starts: Tensor, k_starts: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(heads, q.shape[0], dtype=torch.float32)


@torch.library.custom_op("onehop::ragged_cross_attention_backward", mutates_args=())
def cross_attention_backward(
    q: Tensor, kv: Tensor, out: Tensor, d_out: Tensor, lse: Tensor,
    q_sentences: Tensor, k_sentences: Tensor, q_starts: Tensor, k_starts: Tensor, heads: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of `q` and `kv`."""
    dq, dkv = torch.empty_like(q), torch.empty_like(kv)
    results, rows, starts = (out, d_out.contiguous(), lse), (q_sentences, k_sentences), (q_starts, k_starts)
    backward((q, *kv.chunk(2, 1)), (dq, *dkv.chunk(2, 1)), results, heads, rows, starts, False)
    return dq, dkv


@cross_attention_backward.register_fake
def _(
    q: Tensor, kv: Tensor, out: Tensor, d_out: Tensor, lse: Tensor,
    q_sentences: Tensor, k_sentences: Tensor, q_starts: Tensor, k_starts: Tensor, heads: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), torch.empty_like(kv)


def _keep_cross(ctx: Any, inputs: Any, output: Any) -> None:
    q, kv, *boundaries, ctx.heads = inputs
    ctx.save_for_backward(q, kv, *output, *boundaries)
    ctx.mark_non_differentiable(output[1])


def _cross_gradient(ctx: Any, d_out: Tensor, _: Any) -> tuple[Any, ...]:
    q, kv, out, lse, *boundaries = ctx.saved_tensors
    return *cross_attention_backward(q, kv, out, d_out, lse, *boundaries, ctx.heads), *[None] * 5


cross_attention.register_autograd(_cross_gradient, setup_context=_keep_cross)
