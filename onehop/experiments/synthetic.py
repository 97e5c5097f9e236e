"""What needs no trained model: what the dimension does to a softmax, how far gradients reach, what layers cost.

Inputs are random, with a seed that stands beside the result; layers are untrained and as they are used everywhere.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onehop.model.attention import MultiHeadAttention, fused_attention

Json = dict[str, Any]
SEED = 1

# --- the dimension ---------------------------------------------------------------------------------------------

_KEYS, _DRAWS = 16, 200
_DIMENSIONS = tuple(2**i for i in range(11))


def dimension() -> Json:
    """Queries and keys of ever more dimensions, their products scaled by √d_k and not: when does the softmax die?"""
    torch.manual_seed(SEED)
    return {"seed": SEED, "keys": _KEYS, "draws": _DRAWS, "rows": [_of_dimension(d) for d in _DIMENSIONS]}


def _of_dimension(d: int) -> Json:
    """The products of many queries with some keys, all components standard normal."""
    q, k = torch.randn(_DRAWS, 1, d), torch.randn(_DRAWS, _KEYS, d)
    scores = (q @ k.transpose(1, 2))[:, 0]
    variance = float(scores.var(correction=0))
    return {"d": d, "variance": variance, "unscaled": _softened(scores), "scaled": _softened(scores / d**0.5)}


def _softened(scores: Float[Tensor, "draws keys"]) -> Json:
    """The softmax of scores: its largest weight and how much gradient it lets through, on average; and one draw."""
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return {
        "top": float(p.max(-1).values.mean()),
        "gradient": float(jacobian.norm(dim=(1, 2)).mean()),
        "weights": p[0].tolist(),
        "scores": scores[0].tolist(),
    }


# --- the distance ----------------------------------------------------------------------------------------------

WIDTH = 64
_DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def paths(draws: int = 32) -> Json:
    """How strongly the last output depends on an input so many steps before it, relative to one step before."""
    torch.manual_seed(SEED)
    inputs = torch.randn(draws, _DISTANCES[-1] + 1, WIDTH)
    attention = MultiHeadAttention(WIDTH, 8, WIDTH // 8, WIDTH // 8)
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        "recurrent": _first_of(nn.RNN(WIDTH, WIDTH, batch_first=True)),
        "lstm": _first_of(nn.LSTM(WIDTH, WIDTH, batch_first=True)),
        "attention": lambda x: attention(x, x, None),
    }
    norms = {name: _reach(layer, inputs) for name, layer in layers.items()}
    rows = [{"distance": d, **{name: norm[d] / norm[1] for name, norm in norms.items()}} for d in _DISTANCES]
    return {"seed": SEED, "d_model": WIDTH, "draws": draws, "untrained": True, "rows": rows}


def _first_of(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """A recurrent layer's outputs without its last state."""
    return lambda x: layer(x)[0]


def _reach(layer: Callable[[Tensor], Tensor], inputs: Float[Tensor, "draws length width"]) -> dict[int, float]:
    """The mean norm of the gradient that arrives so many steps before the last output."""
    x = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, -1].sum(), [x])
    norms = gradient.norm(dim=-1).mean(0).flip(0).tolist()
    return dict(enumerate(norms))


# --- the cost --------------------------------------------------------------------------------------------------

_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)
_WIDTHS = (64, 256, 512)
KERNEL, NEIGHBOURHOOD, HEADS = 3, 32, 8
Layer = Callable[[Float[Tensor, "1 length width"]], Tensor]


def complexity(lengths: tuple[int, ...] = _LENGTHS, widths: tuple[int, ...] = _WIDTHS, repeats: int = 15) -> Json:
    """Processor seconds of one whole layer of each kind at growing lengths: medians of runs in turn, on one thread."""
    with on_one_thread():
        rows = [{"d": d, "n": n, **_costs(d, n, repeats)} for d in widths for n in lengths]
    facts: Json = {"d": list(widths), "n": list(lengths), "threads": 1, "repeats": repeats, "heads": HEADS}
    facts |= {"statistic": "median", "clock": "thread_time", "projections": True}
    return {**facts, "seed": SEED, "kernel": KERNEL, "neighbourhood": NEIGHBOURHOOD, "rows": rows}


@contextmanager
def on_one_thread() -> Iterator[None]:
    """What is timed must not depend on how many cores are free."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def _costs(d: int, n: int, repeats: int) -> dict[str, float]:
    """The whole layers at one width and length, in turn."""
    torch.manual_seed(SEED)
    # Processor time of this thread: what else the machine does is not counted.
    return timed(whole_layers(d), torch.randn(1, n, d), repeats, time.thread_time, statistics.median)


def whole_layers(d: int) -> dict[str, Layer]:
    """Untrained layers as models use them: attention with its four projections, which `table_layers` leaves out."""
    attention = MultiHeadAttention(d, HEADS, d // HEADS, d // HEADS)
    bare = table_layers(d)

    def restricted(x: Float[Tensor, "1 length width"]) -> Tensor:
        k, v = attention.keys_and_values(x)
        heads = windowed_attention(attention.queries(x), k, v)
        return nn.functional.linear(heads.transpose(1, 2).flatten(2), attention.w_o.weight)

    return {**bare, "self_attention": lambda x: attention(x, x, None), "restricted": restricted}


def table_layers(d: int) -> dict[str, Layer]:
    """Untrained layers of the paper's table 1, at one width, counted as it counts: without attention's projections."""
    recurrence, convolution = nn.RNN(d, d, batch_first=True), nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)
    return {
        "self_attention": full_attention,
        "recurrence": lambda y: recurrence(y)[0],
        "convolution": lambda y: convolution(y.transpose(1, 2)),
        "restricted": restricted_attention,
    }


def timed(
    layers: dict[str, Layer],
    x: Float[Tensor, "1 length width"],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    statistic: Callable[[list[float]], float] = min,
) -> dict[str, float]:
    """Seconds of each layer, by a statistic of some runs in turn; the first run of all is not counted."""
    times: dict[str, list[float]] = {name: [] for name in layers}
    for layer in layers.values():
        layer(x)
    for _ in range(repeats):
        for name, layer in layers.items():
            began = clock()
            layer(x)
            times[name].append(clock() - began)
    return {name: statistic(found) for name, found in times.items()}


def full_attention(x: Float[Tensor, "1 length width"]) -> Tensor:
    heads = x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
    return fused_attention(heads, heads, heads)


def restricted_attention(x: Float[Tensor, "1 length width"]) -> Tensor:
    """Every position with its neighbours alone, which are gathered for each."""
    heads = x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
    around = nn.functional.pad(heads, (0, 0, *_BEFORE_AND_BEHIND))
    near = around.unfold(2, NEIGHBOURHOOD, 1)
    scores = torch.einsum("bhnd,bhndr->bhnr", heads, near) / heads.shape[-1] ** 0.5
    return torch.einsum("bhnr,bhndr->bhnd", scores.softmax(-1), near)


_BEFORE_AND_BEHIND = (NEIGHBOURHOOD // 2, NEIGHBOURHOOD - NEIGHBOURHOOD // 2 - 1)


def windowed_attention(
    q: Float[Tensor, "1 heads length d_k"],
    k: Float[Tensor, "1 heads length d_k"],
    v: Float[Tensor, "1 heads length d_k"],
) -> Float[Tensor, "1 heads length d_k"]:
    """Every position with its neighbours inside the sentence, in blocks.

    A block of r queries meets the 2r keys around it in one matrix product, and a mask leaves each query its r. That is
    twice the paper's r·n·d products, but gathering r keys for each query takes several times as long.
    """
    length, r = q.shape[2], NEIGHBOURHOOD
    blocks = -(-length // r)
    more, (before, behind) = blocks * r - length, _BEFORE_AND_BEHIND
    asking = nn.functional.pad(q, (0, 0, 0, more)).view(-1, blocks, r, q.shape[-1]).transpose(0, 1)
    # Blocks of 2r keys, r apart; the last one needs a place more than the neighbourhood reaches.
    near = [nn.functional.pad(x, (0, 0, before, behind + 1 + more)).unfold(2, 2 * r, r)[0] for x in (k, v)]
    keys, values = (x.permute(1, 0, 3, 2) for x in near)
    query, key = torch.arange(r)[:, None], torch.arange(2 * r)[None]
    place = key - before + r * torch.arange(blocks)[:, None, None]
    mask = (key >= query) & (key < query + r) & (place >= 0) & (place < length)
    mask = mask | ~mask.any(-1, keepdim=True)  # padded queries may look anywhere: they are cut off
    out = fused_attention(asking, keys, values, mask[:, None])
    return out.transpose(0, 1).flatten(1, 2)[None, :, :length]
