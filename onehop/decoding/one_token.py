"""The computation of one new token per row, in plain torch.

All addresses are fixed: nothing grows, and the position is itself a tensor on the device, so that a step can be
captured and replayed. Keys and values stay where they were written, [time, row]. If other rows wrote a hypothesis's
past, its row of `origins` names them, so reordering hypotheses copies nothing. `onehop.model.kernels.one_token` has the
same functions for a GPU.
"""

import math

import torch
from jaxtyping import Float, Float16, Float64, Int
from torch import Tensor
from torch.nn import functional as F

_Rows = Float[Tensor, "rows width"]
_Halves = Float16[Tensor, "rows depth"]
# Powers of two that keep small numbers out of float16's subnormals: activations are below 4,094 and near one, weights
# smaller. A low half of a weight becomes as large as its high half.
SCALE, _LOW_SCALE = 2.0**4, 2.0**11


def split(x: _Rows, halves: _Halves, is_weight: bool) -> None:
    """Write x as three blocks of float16 columns: a row of activations times a row of weights is the split product.

    The small products come first, because tensor cores truncate their sums.
    """
    scaled = x / SCALE if is_weight else x * SCALE
    high = scaled.half().float()
    low = scaled - high
    halves.copy_(torch.cat([high, low * _LOW_SCALE, high] if is_weight else [low, high / _LOW_SCALE, high], dim=1))


def _split_too(out: _Rows, halves: _Halves | None) -> _Rows:
    """Write the halves of a result, if its reader wants them."""
    if halves is not None:
        split(out, halves, False)
    return out


def attend_past(
    qkv: Float[Tensor, "rows h_d_k_d_k_d_v"],
    keys: Float[Tensor, "capacity rows heads d_k"],
    values: Float[Tensor, "capacity rows heads d_v"],
    origins: Int[Tensor, "rows capacity"],
    position: Int[Tensor, ""],
    halves: _Halves | None = None,
) -> Float[Tensor, "rows h_d_v"]:
    """Write the new tokens' keys and values at their position and attend to all up to there."""
    capacity, rows, heads, d_k = keys.shape
    q, k, v = torch.split(qkv, [heads * d_k, heads * d_k, heads * values.shape[3]], dim=1)
    keys.index_copy_(0, position[None], k.reshape(1, *keys.shape[1:]))
    values.index_copy_(0, position[None], v.reshape(1, *values.shape[1:]))
    times = torch.arange(capacity, device=qkv.device)
    past_keys, past_values = keys[times, origins], values[times, origins]
    scores = torch.einsum("rhd,rthd->rht", q.reshape(rows, heads, d_k), past_keys) / math.sqrt(d_k)
    weights = scores.masked_fill(times > position, -math.inf).softmax(-1)
    return _split_too(torch.einsum("rht,rthd->rhd", weights, past_values).flatten(1), halves)


def attend_source(
    q: Float[Tensor, "rows h_d_k"],
    keys: Float[Tensor, "sentences source heads d_k"],
    values: Float[Tensor, "sentences source heads d_v"],
    lengths: Int[Tensor, " sentences"],
    halves: _Halves | None = None,
) -> Float[Tensor, "rows h_d_v"]:
    """Attend to the source. Each sentence has the same number of consecutive rows."""
    sentences, source, heads, d_k = keys.shape
    queries = q.view(sentences, -1, heads, d_k)
    scores = torch.einsum("sbhd,sthd->sbht", queries, keys) / math.sqrt(d_k)
    outside = torch.arange(source, device=q.device) >= lengths[:, None]
    weights = scores.masked_fill(outside[:, None, None], -math.inf).softmax(-1)
    return _split_too(torch.einsum("sbht,sthd->sbhd", weights, values).reshape(len(q), -1), halves)


def add_norm(
    x: _Rows,
    added: _Rows,
    gain: Float[Tensor, " width"],
    bias: Float[Tensor, " width"],
    eps: float,
    halves: _Halves | None = None,
) -> _Rows:
    return _split_too(F.layer_norm(x + added, gain.shape, gain, bias, eps), halves)


def relu(x: Float[Tensor, "*rows width"], halves: _Halves) -> Float[Tensor, "*rows width"]:
    out = x.relu()
    split(out.flatten(0, -2), halves, False)
    return out


def best_of_rows(
    logits: Float[Tensor, "rows vocab"], few: int, end: int, position: Int[Tensor, ""], min_length: Int[Tensor, ""]
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """Log-probabilities and ids of each row's most probable tokens, best first. Ties: the lowest id.

    The token `end` is ruled out before `min_length`; the others are not renormalised.
    """
    log_probs = logits.float().log_softmax(-1)
    log_probs[:, end].masked_fill_(position < min_length, -math.inf)
    # `topk` breaks ties in an undefined way. In float64 the id fits behind a float32's last bit.
    ids = torch.arange(logits.shape[1], dtype=torch.float64, device=logits.device)
    best = (log_probs.double() * (1 + ids * 2.0**-50)).topk(few, dim=1).indices
    return log_probs.gather(1, best), best


def keep_best(
    values: Float[Tensor, "rows few"],
    ids: Int[Tensor, "rows few"],
    totals: Float64[Tensor, "sentences beam"],
    tokens: Int[Tensor, " rows"],
    parents: Int[Tensor, " rows"],
    answer: Float64[Tensor, "two sentences candidates"],
    end: int,
    vocab: int,
) -> None:
    """One step of all beams: best candidates into the answer, unfinished ones into totals, tokens and parents.

    A candidate in the answer is its total and, as one number, its parent's index times `vocab` plus its token. Rows are
    sorted best first, ties by the lowest id, so a stable sort breaks ties as `search` does.
    """
    n, beam = totals.shape
    sums = (totals.view(-1, 1) + values.double()).view(n, -1)
    best, order = (x[:, : answer.shape[2]] for x in sums.sort(dim=1, descending=True, stable=True))
    slots, new = order // values.shape[1], ids.view(n, -1).gather(1, order)
    answer.copy_(torch.stack([best, (slots * vocab + new).double()]))
    is_end = new == end
    kept = is_end.byte().sort(dim=1, stable=True).indices[:, :beam]
    first_rows = torch.arange(0, len(tokens), beam, device=tokens.device)[:, None]
    tokens.copy_(new.gather(1, kept).view(-1))
    parents.copy_((first_rows + slots.gather(1, kept)).view(-1))
    totals.copy_(best.masked_fill(is_end, -math.inf).gather(1, kept))
