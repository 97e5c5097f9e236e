"""Measurements without a trained model: softmax by dimension, gradients by distance, cost of layers.

Inputs are random, with a seed that is recorded with the result. Layers are untrained, with their usual
initialisation.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onehop.experiments.provenance import Json
from onehop.model.attention import MultiHeadAttention, fused_attention

SEED = 1


_KEYS, _DRAWS = 16, 200
_DIMENSIONS = tuple(2**i for i in range(11))


def dimension() -> Json:
    """Attention weights of random queries and keys by dimension, with and without the scale √d_k."""
    torch.manual_seed(SEED)
    return {"seed": SEED, "keys": _KEYS, "draws": _DRAWS, "rows": [_softmax_at(d) for d in _DIMENSIONS]}


def _softmax_at(d: int) -> Json:
    """Scores of many random queries with some keys; all components are standard normal."""
    q, k = torch.randn(_DRAWS, 1, d), torch.randn(_DRAWS, _KEYS, d)
    scores = (q @ k.transpose(1, 2))[:, 0]
    variance = float(scores.var(correction=0))
    return {"d": d, "variance": variance, "unscaled": _softmax_stats(scores), "scaled": _softmax_stats(scores / d**0.5)}


def _softmax_stats(scores: Float[Tensor, "draws keys"]) -> Json:
    """The softmax of scores: the mean of its largest weight and of its gradient, and one example."""
    p = scores.softmax(-1)
    jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return {
        "top": float(p.max(-1).values.mean()),
        "gradient": float(jacobian.norm(dim=(1, 2)).mean()),
        "weights": p[0].tolist(),
        "scores": scores[0].tolist(),
    }


_WIDTH = 64
_DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def paths(draws: int = 32) -> Json:
    """The gradient of the last output with respect to an input at each distance, relative to distance 1."""
    torch.manual_seed(SEED)
    inputs = torch.randn(draws, _DISTANCES[-1] + 1, _WIDTH)
    attention = MultiHeadAttention(_WIDTH, 8, _WIDTH // 8, _WIDTH // 8)
    rnn, lstm = nn.RNN(_WIDTH, _WIDTH, batch_first=True), nn.LSTM(_WIDTH, _WIDTH, batch_first=True)
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        "recurrent": lambda x: rnn(x)[0],
        "lstm": lambda x: lstm(x)[0],
        "attention": lambda x: attention(x, x, None),
    }
    norms = {name: _gradient_norms(layer, inputs) for name, layer in layers.items()}
    rows = [{"distance": d, **{name: norm[d] / norm[1] for name, norm in norms.items()}} for d in _DISTANCES]
    return {"seed": SEED, "d_model": _WIDTH, "draws": draws, "untrained": True, "rows": rows}


def _gradient_norms(layer: Callable[[Tensor], Tensor], inputs: Float[Tensor, "draws length width"]) -> list[float]:
    """The mean norm of the gradient at each distance before the last output."""
    x = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, -1].sum(), [x])
    norms: list[float] = gradient.norm(dim=-1).mean(0).flip(0).tolist()
    return norms


_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)
_WIDTHS = (64, 256, 512)
KERNEL, NEIGHBOURHOOD, HEADS = 3, 32, 8
Layer = Callable[[Float[Tensor, "1 length width"]], Tensor]


def complexity(lengths: tuple[int, ...] = _LENGTHS, widths: tuple[int, ...] = _WIDTHS, repeats: int = 15) -> Json:
    """CPU seconds of one layer of each kind by length: medians of alternating runs on one thread."""
    with on_one_thread():
        rows = [{"d": d, "n": n, **_costs(d, n, repeats)} for d in widths for n in lengths]
    facts: Json = {"d": list(widths), "n": list(lengths), "threads": 1, "repeats": repeats, "heads": HEADS}
    facts |= {"statistic": "median", "clock": "thread_time", "projections": True}
    return {**facts, "seed": SEED, "kernel": KERNEL, "neighbourhood": NEIGHBOURHOOD, "rows": rows}


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Use one thread, so that timings do not depend on the number of free cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def _costs(d: int, n: int, repeats: int) -> dict[str, float]:
    """The seconds of each layer at one width and length, in alternating runs."""
    torch.manual_seed(SEED)
    # CPU time of this thread, which excludes other load on the machine.
    return timed(whole_layers(d), torch.randn(1, n, d), repeats, time.thread_time, statistics.median)


def whole_layers(d: int) -> dict[str, Layer]:
    """Untrained layers as models use them: attention includes its four projections, unlike `table_layers`."""
    attention = MultiHeadAttention(d, HEADS, d // HEADS, d // HEADS)

    def restricted(x: Float[Tensor, "1 length width"]) -> Tensor:
        k, v = attention.keys_and_values(x)
        heads = windowed_attention(attention.queries(x), k, v)
        return nn.functional.linear(heads.transpose(1, 2).flatten(2), attention.w_o.weight)

    return {**table_layers(d), "self_attention": lambda x: attention(x, x, None), "restricted": restricted}


def table_layers(d: int) -> dict[str, Layer]:
    """Untrained layers of the paper's table 1 at one width, without attention's projections, as the table counts."""
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
    """The seconds of each layer, by a statistic over alternating runs; the first run is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in layers}
    for layer in layers.values():
        layer(x)
    for _ in range(repeats):
        for name, layer in layers.items():
            start = clock()
            layer(x)
            times[name].append(clock() - start)
    return {name: statistic(seconds) for name, seconds in times.items()}


def full_attention(x: Float[Tensor, "1 length width"]) -> Tensor:
    heads = x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
    return fused_attention(heads, heads, heads)


def restricted_attention(x: Float[Tensor, "1 length width"]) -> Tensor:
    """Attention of every position to its neighbours, gathered for each."""
    heads = x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
    around = nn.functional.pad(heads, (0, 0, *_BEFORE_AND_AFTER))
    near = around.unfold(2, NEIGHBOURHOOD, 1)
    scores = torch.einsum("bhnd,bhndr->bhnr", heads, near) / heads.shape[-1] ** 0.5
    return torch.einsum("bhnr,bhndr->bhnd", scores.softmax(-1), near)


_BEFORE_AND_AFTER = (NEIGHBOURHOOD // 2, NEIGHBOURHOOD - NEIGHBOURHOOD // 2 - 1)


def windowed_attention(
    q: Float[Tensor, "1 heads length d_k"],
    k: Float[Tensor, "1 heads length d_k"],
    v: Float[Tensor, "1 heads length d_k"],
) -> Float[Tensor, "1 heads length d_k"]:
    """Attention of every position to its neighbours inside the sentence, in blocks.

    A block of r queries meets the 2r keys around it in one matrix product, and a mask leaves each query its r keys.
    This is twice the paper's r·n·d products, but gathering r keys for each query takes several times as long.
    """
    length, r = q.shape[2], NEIGHBOURHOOD
    blocks = -(-length // r)
    padding, (before, after) = blocks * r - length, _BEFORE_AND_AFTER
    queries = nn.functional.pad(q, (0, 0, 0, padding)).view(-1, blocks, r, q.shape[-1]).transpose(0, 1)
    # Blocks of 2r keys at stride r; the last one needs one position more than the neighbourhood.
    windows = [nn.functional.pad(x, (0, 0, before, after + 1 + padding)).unfold(2, 2 * r, r)[0] for x in (k, v)]
    keys, values = (x.permute(1, 0, 3, 2) for x in windows)
    query, key = torch.arange(r)[:, None], torch.arange(2 * r)[None]
    position = key - before + r * torch.arange(blocks)[:, None, None]
    mask = (key >= query) & (key < query + r) & (position >= 0) & (position < length)
    mask = mask | ~mask.any(-1, keepdim=True)  # padded queries may attend anywhere: they are cut off
    out = fused_attention(queries, keys, values, mask[:, None])
    return out.transpose(0, 1).flatten(1, 2)[None, :, :length]
