"""One new token per row, for decoding. Specified by the functions of the same names in `decoding.one_token`.

A decoding step computes so little that the number of kernels determines its time. Each of these replaces five to
fifteen of torch's, and never reads an uninitialised slot.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PART = 512  # logits per warp
MANY = 1024  # programs that fill a GPU with one or two warps each


@triton.jit
def store_halves(line, number, mask, WIDTH: tl.constexpr):
    """Activations as three blocks of float16 columns."""
    scaled = number * 16.0
    high = scaled.to(tl.float16)
    tl.store(line, (scaled - high.to(tl.float32)).to(tl.float16), mask=mask)
    tl.store(line + WIDTH, (high.to(tl.float32) / 2048.0).to(tl.float16), mask=mask)
    tl.store(line + 2 * WIDTH, high, mask=mask)


@triton.jit
def split_kernel(x, halves, WIDTH: tl.constexpr, TILE: tl.constexpr, IS_WEIGHT: tl.constexpr):
    """One row."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    inside = columns < WIDTH
    number = tl.load(x + row * WIDTH + columns, mask=inside, other=0.0)
    line = halves + row * 3 * WIDTH + columns
    if IS_WEIGHT:
        high = (number / 16.0).to(tl.float16)
        tl.store(line, high, mask=inside)
        tl.store(line + WIDTH, ((number / 16.0 - high.to(tl.float32)) * 2048.0).to(tl.float16), mask=inside)
        tl.store(line + 2 * WIDTH, high, mask=inside)
    else:
        store_halves(line, number, inside, WIDTH)


def split(x: Tensor, halves: Tensor, is_weight: bool) -> None:
    """Write x as three blocks of float16 columns for a split product."""
    rows, width = x.shape
    split_kernel[(rows,)](x, halves, WIDTH=width, TILE=triton.next_power_of_2(width), IS_WEIGHT=is_weight, num_warps=4)


@triton.jit(do_not_specialize=["rows", "capacity"])
def past_kernel(
    qkv, keys, values, origins, position, out, halves, rows, capacity, scale,
    HEADS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    K_TILE: tl.constexpr, V_TILE: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One head of one row. Its new key and value stay in registers."""
    row, head = tl.program_id(0), tl.program_id(1)
    now = tl.load(position).to(tl.int32)
    k_columns, v_columns = tl.arange(0, K_TILE), tl.arange(0, V_TILE)
    in_k, in_v = k_columns < D_K, v_columns < D_V
    line = qkv + row * HEADS * (2 * D_K + D_V)
    q = tl.load(line + head * D_K + k_columns, mask=in_k, other=0.0).to(tl.float32) * scale
    k = tl.load(line + (HEADS + head) * D_K + k_columns, mask=in_k, other=0.0)
    v = tl.load(line + 2 * HEADS * D_K + head * D_V + v_columns, mask=in_v, other=0.0)
    slot = (now.to(tl.int64) * rows + row) * HEADS + head
    tl.store(keys + slot * D_K + k_columns, k, mask=in_k)
    tl.store(values + slot * D_V + v_columns, v, mask=in_v)
    largest = tl.sum(q * k.to(tl.float32), 0)
    total = tl.full([], 1.0, tl.float32)
    blend = v.to(tl.float32)
    for at in range(0, now, TILE):
        times = at + tl.arange(0, TILE)
        known = times < now
        origin = tl.load(origins + row.to(tl.int64) * capacity + times, mask=known, other=0)
        slots = (times.to(tl.int64) * rows + origin) * HEADS + head
        past_k = tl.load(
            keys + slots[:, None] * D_K + k_columns[None, :], mask=known[:, None] & in_k[None, :], other=0.0
        )
        past_v = tl.load(
            values + slots[:, None] * D_V + v_columns[None, :], mask=known[:, None] & in_v[None, :], other=0.0
        )
        scores = tl.where(known, tl.sum(past_k.to(tl.float32) * q[None, :], 1), float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 0))
        weights = tl.exp(scores - larger)
        shrink = tl.exp(largest - larger)
        total = total * shrink + tl.sum(weights, 0)
        blend = blend * shrink + tl.sum(weights[:, None] * past_v.to(tl.float32), 0)
        largest = larger
    tl.store(out + (row * HEADS + head) * D_V + v_columns, (blend / total).to(out.dtype.element_ty), mask=in_v)
    if SPLIT:
        store_halves(halves + (row * 3 * HEADS + head) * D_V + v_columns, blend / total, in_v, HEADS * D_V)


def attend_past(
    qkv: Tensor, keys: Tensor, values: Tensor, origins: Tensor, position: Tensor, halves: Tensor | None = None
) -> Tensor:
    """Write the new tokens' keys and values at their position and attend to all up to there."""
    capacity, rows, heads, d_k = keys.shape
    d_v = values.shape[3]
    out = qkv.new_empty(rows, heads * d_v)
    # With few rows, more threads work on each, to fill the GPU.
    tile, warps = (64, 4) if rows * heads < MANY else (16, 1)
    past_kernel[(rows, heads)](
        qkv, keys, values, origins, position, out, halves, rows, capacity, d_k**-0.5,
        HEADS=heads, D_K=d_k, D_V=d_v, K_TILE=triton.next_power_of_2(d_k), V_TILE=triton.next_power_of_2(d_v),
        TILE=tile, SPLIT=halves is not None, num_warps=warps,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["source"])
def source_kernel(
    q, keys, values, lengths, out, halves, source, scale,
    HEADS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, K_TILE: tl.constexpr, V_TILE: tl.constexpr,
    BEAM: tl.constexpr, QUERIES: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One head of all rows of one sentence: its keys and values are read once."""
    sentence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sentence).to(tl.int32)
    k_columns, v_columns = tl.arange(0, K_TILE), tl.arange(0, V_TILE)
    in_k, in_v = k_columns < D_K, v_columns < D_V
    beams = tl.arange(0, QUERIES)
    rows = (sentence * BEAM + beams) * HEADS + head
    real = beams < BEAM
    queries = tl.load(q + rows[:, None] * D_K + k_columns[None, :], mask=real[:, None] & in_k[None, :], other=0.0)
    queries = queries.to(tl.float32) * scale
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    blend = tl.zeros([QUERIES, V_TILE], tl.float32)
    for at in range(0, length, TILE):
        positions = at + tl.arange(0, TILE)
        known = positions < length
        slots = (sentence * source + positions) * HEADS + head
        k = tl.load(keys + slots[:, None] * D_K + k_columns[None, :], mask=known[:, None] & in_k[None, :], other=0.0)
        v = tl.load(values + slots[:, None] * D_V + v_columns[None, :], mask=known[:, None] & in_v[None, :], other=0.0)
        scores = tl.sum(queries[:, None, :] * k.to(tl.float32)[None, :, :], 2)
        scores = tl.where(known[None, :], scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - larger[:, None])
        shrink = tl.exp(largest - larger)
        total = total * shrink + tl.sum(weights, 1)
        blend = blend * shrink[:, None] + tl.sum(weights[:, :, None] * v.to(tl.float32)[None, :, :], 1)
        largest = larger
    blend, written = blend / total[:, None], real[:, None] & in_v[None, :]
    tl.store(out + rows[:, None] * D_V + v_columns[None, :], blend.to(out.dtype.element_ty), mask=written)
    if SPLIT:
        lines = ((sentence * BEAM + beams) * 3 * HEADS + head) * D_V
        store_halves(halves + lines[:, None] + v_columns[None, :], blend, written, HEADS * D_V)


def attend_source(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, halves: Tensor | None = None) -> Tensor:
    """Attend to the source; each sentence has the same number of consecutive rows."""
    sentences, source, heads, d_k = keys.shape
    d_v, beam = values.shape[3], len(q) // sentences
    out = q.new_empty(len(q), heads * d_v)
    queries = triton.next_power_of_2(beam)
    warps = 4 if sentences * heads < MANY or queries > 4 else 2
    source_kernel[(sentences, heads)](
        q, keys, values, lengths, out, halves, source, d_k**-0.5,
        HEADS=heads, D_K=d_k, D_V=d_v, K_TILE=triton.next_power_of_2(d_k), V_TILE=triton.next_power_of_2(d_v),
        BEAM=beam, QUERIES=queries, TILE=max(2, 32 // queries), SPLIT=halves is not None, num_warps=warps,
    )  # fmt: skip
    return out


@triton.jit
def add_norm_kernel(
    x, added, gain, bias, out, halves, eps, WIDTH: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    """One row."""
    columns = tl.arange(0, TILE)
    inside = columns < WIDTH
    start = tl.program_id(0) * WIDTH
    total = tl.load(x + start + columns, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(added + start + columns, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, total - tl.sum(total, 0) / WIDTH, 0.0)
    variance = tl.sum(centred * centred, 0) / WIDTH
    gains = tl.load(gain + columns, mask=inside, other=0.0).to(tl.float32)
    biases = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    normed = centred * tl.rsqrt(variance + eps) * gains + biases
    tl.store(out + start + columns, normed.to(out.dtype.element_ty), mask=inside)
    if SPLIT:
        store_halves(halves + 3 * start + columns, normed, inside, WIDTH)


def add_norm(x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, eps: float, halves: Tensor | None = None) -> Tensor:
    """LayerNorm(x + added)."""
    out, width = torch.empty_like(x), x.shape[1]
    add_norm_kernel[(len(x),)](
        x, added, gain, bias, out, halves, eps,
        WIDTH=width, TILE=triton.next_power_of_2(width), SPLIT=halves is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def relu_kernel(x, out, halves, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """One row."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    inside = columns < WIDTH
    number = tl.load(x + row * WIDTH + columns, mask=inside, other=0.0)
    number = tl.where(number < 0.0, 0.0, number)  # NaN stays
    tl.store(out + row * WIDTH + columns, number, mask=inside)
    store_halves(halves + row * 3 * WIDTH + columns, number, inside, WIDTH)


def relu(x: Tensor, halves: Tensor) -> Tensor:
    """ReLU of contiguous float32 rows."""
    out, width = torch.empty_like(x), x.shape[-1]
    relu_kernel[(len(halves),)](x, out, halves, WIDTH=width, TILE=triton.next_power_of_2(width), num_warps=4)
    return out


@triton.jit
def take_best(x, ids, beyond, FEW: tl.constexpr, KEPT: tl.constexpr):
    """The `FEW` largest of a vector, best first, ties by the lowest id, in the first `FEW` of `KEPT` elements."""
    ranks = tl.arange(0, KEPT)
    best_x = tl.full([KEPT], float("-inf"), tl.float32)
    best_ids = tl.zeros([KEPT], tl.int32)
    for i in tl.static_range(FEW):
        largest = tl.max(x, 0)
        # If nothing is left, or all values are NaN, the id must still be valid.
        lowest = tl.minimum(tl.min(tl.where(x == largest, ids, beyond), 0), beyond - 1)
        best_x = tl.where(ranks == i, largest, best_x)
        best_ids = tl.where(ranks == i, lowest, best_ids)
        x = tl.where(ids == lowest, float("-inf"), x)
    return best_x, best_ids


@triton.jit
def summary_kernel(
    logits, peaks, sums, allowed_peaks, position, min_length,
    VOCAB: tl.constexpr, PARTS: tl.constexpr, END: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One part of one row: its largest, its sum of exponentials, and its largest that may be chosen."""
    row, part = tl.program_id(0), tl.program_id(1)
    ids = part * TILE + tl.arange(0, TILE)
    x = tl.load(logits + row.to(tl.int64) * VOCAB + ids, mask=ids < VOCAB, other=float("-inf")).to(tl.float32)
    peak = tl.max(x, 0)
    at = row * PARTS + part
    tl.store(peaks + at, peak)
    tl.store(sums + at, tl.sum(tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak)), 0))
    may_not_end = tl.load(position) < tl.load(min_length)
    tl.store(allowed_peaks + at, tl.max(tl.where((ids == END) & may_not_end, float("-inf"), x), 0))


@triton.jit
def best_kernel(
    logits, peaks, sums, allowed_peaks, log_probs, best, position, min_length,
    VOCAB: tl.constexpr, PARTS: tl.constexpr, END: tl.constexpr, FEW: tl.constexpr, KEPT: tl.constexpr,
    PARTS_TILE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One row. Its best tokens are in the parts with the largest maxima, so only those parts are read again."""
    row = tl.program_id(0)
    part_ids, ranks = tl.arange(0, PARTS_TILE), tl.arange(0, KEPT)
    inside = part_ids < PARTS
    peak = tl.load(peaks + row * PARTS + part_ids, mask=inside, other=float("-inf"))
    largest = tl.max(peak, 0)
    total = tl.sum(tl.load(sums + row * PARTS + part_ids, mask=inside, other=0.0) * tl.exp(peak - largest), 0)
    allowed_peak = tl.load(allowed_peaks + row * PARTS + part_ids, mask=inside, other=float("-inf"))
    allowed_peak, parts = take_best(allowed_peak, part_ids, PARTS, FEW, KEPT)
    ids = parts[:, None] * TILE + tl.arange(0, TILE)[None, :]
    # A part taken only because too few were left is empty, and would be counted twice.
    read = (ids < VOCAB) & (allowed_peak > float("-inf"))[:, None]
    x = tl.load(logits + row.to(tl.int64) * VOCAB + ids, mask=read, other=float("-inf")).to(tl.float32)
    may_not_end = tl.load(position) < tl.load(min_length)
    x = tl.where((ids == END) & may_not_end, float("-inf"), x)
    best_x, best_ids = take_best(tl.reshape(x, [KEPT * TILE]), tl.reshape(ids, [KEPT * TILE]), VOCAB, FEW, KEPT)
    tl.store(log_probs + row * FEW + ranks, (best_x - largest) - tl.log(total), mask=ranks < FEW)
    tl.store(best + row * FEW + ranks, best_ids.to(tl.int64), mask=ranks < FEW)


def best_of_rows(logits: Tensor, few: int, end: int, position: Tensor, min_length: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids of each row's most probable tokens, best first. Ties: the lowest id."""
    rows, vocab = logits.shape
    parts, kept = triton.cdiv(vocab, PART), triton.next_power_of_2(few)
    peaks, sums, allowed_peaks = (logits.new_empty(rows, parts, dtype=torch.float32) for _ in range(3))
    log_probs = logits.new_empty(rows, few, dtype=torch.float32)
    best = torch.empty_like(log_probs, dtype=torch.int64)
    summary_kernel[(rows, parts)](
        logits, peaks, sums, allowed_peaks, position, min_length,
        VOCAB=vocab, PARTS=parts, END=end, TILE=PART, num_warps=1,
    )  # fmt: skip
    # One warp per two parts: with more, a thread runs out of registers and compilation takes too long.
    best_kernel[(rows,)](
        logits, peaks, sums, allowed_peaks, log_probs, best, position, min_length,
        VOCAB=vocab, PARTS=parts, END=end, FEW=few, KEPT=kept,
        PARTS_TILE=triton.next_power_of_2(parts), TILE=PART, num_warps=max(4, kept // 2),
    )  # fmt: skip
    return log_probs, best


@triton.jit
def keep_best_kernel(
    values, ids, totals, tokens, parents, answer, sentences,
    VOCAB: tl.constexpr, END: tl.constexpr, BEAM: tl.constexpr, FEW: tl.constexpr, CANDIDATES: tl.constexpr,
    CELLS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One sentence, in one warp: all reads come before the writes."""
    sentence = tl.program_id(0)
    first = sentence * BEAM
    cells = tl.arange(0, CELLS)
    inside = cells < BEAM * FEW
    sums = tl.load(totals + first + cells // FEW, mask=inside, other=float("-inf"))
    sums += tl.load(values + first * FEW + cells, mask=inside, other=float("-inf")).to(tl.float64)
    new = tl.load(ids + first * FEW + cells, mask=inside, other=0).to(tl.int32)
    has_nan = tl.max(tl.where(sums != sums, 1, 0), 0) > 0
    free = inside
    kept = tl.full([], 0, tl.int32)
    for i in range(CANDIDATES):
        best = tl.max(tl.where(free, sums, float("-inf")), 0)
        # Ties: the first. If all values are NaN, still a valid one.
        at = tl.minimum(tl.min(tl.where(free & (sums == best), cells, CELLS), 0), BEAM * FEW - 1)
        token = tl.sum(tl.where(cells == at, new, 0), 0)
        free = free & (cells != at)
        pointer = answer + sentence * CANDIDATES + i
        tl.store(pointer, tl.where(has_nan, float("nan"), best))
        tl.store(pointer + sentences * CANDIDATES, ((at // FEW) * VOCAB + token).to(tl.float64))
        unfinished = (token != END) & (kept < BEAM)
        tl.store(totals + first + kept, best, mask=unfinished)
        tl.store(tokens + first + kept, token.to(tl.int64), mask=unfinished)
        tl.store(parents + first + kept, (first + at // FEW).to(tl.int64), mask=unfinished)
        kept += unfinished.to(tl.int32)
    slots = tl.arange(0, SLOTS)
    empty = (slots >= kept) & (slots < BEAM)
    tl.store(totals + first + slots, tl.full([SLOTS], float("-inf"), tl.float64), mask=empty)
    tl.store(tokens + first + slots, tl.full([SLOTS], END, tl.int64), mask=empty)
    tl.store(parents + first + slots, (first + slots).to(tl.int64), mask=empty)


def keep_best(
    values: Tensor, ids: Tensor, totals: Tensor, tokens: Tensor, parents: Tensor, answer: Tensor, end: int, vocab: int
) -> None:
    """One step of all beams: best candidates into the answer, unfinished ones into totals, tokens and parents."""
    (sentences, beam), few = totals.shape, values.shape[1]
    keep_best_kernel[(sentences,)](
        values, ids, totals, tokens, parents, answer, sentences,
        VOCAB=vocab, END=end, BEAM=beam, FEW=few, CANDIDATES=answer.shape[2],
        CELLS=triton.next_power_of_2(beam * few), SLOTS=triton.next_power_of_2(beam), num_warps=1,
    )  # fmt: skip
