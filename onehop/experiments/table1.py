"""Table 1 measured: the cost of each layer type by n and d, and the gradient by path length.

Projections are excluded, as in the table. Self-attention is also measured unfused: the fused kernel never stores the
n × n scores that the table counts.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onehop.evaluation.curves import COLOURS, new_figure
from onehop.experiments import synthetic
from onehop.experiments.provenance import Json, markdown
from onehop.model.attention import attention
from onehop.training.estimate import saved_storages

LENGTHS = (64, 128, 256, 512, 1024, 2048)
WIDTHS = (64, 128, 256, 512)
# Each layer's label and the paper's values: complexity, its exponents of n and d, and the maximum path length.
PAPER: dict[str, tuple[str, str, int, int, str]] = {
    "self_attention": ("self-attention, fused", "O(n²·d)", 2, 1, "O(1)"),
    "spelled_out": ("self-attention, spelled out", "O(n²·d)", 2, 1, "O(1)"),
    "recurrence": ("recurrent, plain", "O(n·d²)", 1, 2, "O(n)"),
    "lstm": ("recurrent, LSTM", "O(n·d²)", 1, 2, "O(n)"),
    "gru": ("recurrent, GRU", "O(n·d²)", 1, 2, "O(n)"),
    "convolution": ("convolutional, k = 3", "O(k·n·d²)", 1, 2, "O(log_k n)"),
    "restricted": (f"self-attention, r = {synthetic.NEIGHBOURHOOD}", "O(r·n·d)", 1, 1, "O(n/r)"),
}
_RECURRENT = ("recurrence", "lstm", "gru")


def table1(lengths: Sequence[int], widths: Sequence[int], repeats: int) -> Json:
    """Seconds and saved bytes of every layer by length and width, their growth, and the crossings."""
    with synthetic.on_one_thread():
        rows = [{"d": d, "n": n, **_measure(d, n, repeats)} for d in widths for n in lengths]
    facts: Json = {"n": list(lengths), "d": list(widths), "threads": 1, "repeats": repeats, "seed": synthetic.SEED}
    shape = {"heads": synthetic.HEADS, "kernel": synthetic.KERNEL, "neighbourhood": synthetic.NEIGHBOURHOOD}
    analysis = {"growth": growth(rows), "crossings": list(crossings(rows)), "paths": synthetic.paths()}
    return {**facts, **shape, "rows": rows, **analysis}


def _measure(d: int, n: int, repeats: int) -> Json:
    torch.manual_seed(synthetic.SEED)
    layers, x = layers_of(d), torch.randn(1, n, d)
    with torch.inference_mode():
        seconds = synthetic.timed(layers, x, repeats, time.thread_time)  # CPU time: others may use the machine too
    return {"seconds": seconds, "bytes": {name: kept_bytes(layer, x) for name, layer in layers.items()}}


def layers_of(d: int) -> dict[str, synthetic.Layer]:
    """The layers of the explorer's figure, and the other layers that the table may mean."""
    lstm, gru = nn.LSTM(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)
    layers: dict[str, synthetic.Layer] = {
        **synthetic.table_layers(d),
        "spelled_out": _spelled_out,
        "lstm": lambda x: lstm(x)[0],
        "gru": lambda x: gru(x)[0],
    }
    return {name: layers[name] for name in PAPER}


def _spelled_out(x: Float[Tensor, "1 length width"]) -> Tensor:
    """Unfused attention of every position to every other."""
    heads = x.view(*x.shape[:2], synthetic.HEADS, -1).transpose(1, 2)
    return attention(heads, heads, heads)


def kept_bytes(layer: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """The bytes saved for the backward pass of one layer, each storage once, without its input and weights."""
    with saved_storages() as sizes:
        out = layer(x.requires_grad_())
    leaves = {leaf.untyped_storage().data_ptr() for leaf in _leaves(out)}
    return sum(size for pointer, size in sizes.items() if pointer not in leaves)


def _leaves(out: Tensor) -> list[Tensor]:
    """The input and weights that a result was computed from."""
    leaves, pending, seen = [], [out.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending += [before for before, _ in node.next_functions]
            if hasattr(node, "variable"):
                leaves.append(node.variable)
    return leaves


# --- analysis -------------------------------------------------------------------------------------------------


def growth(rows: Sequence[Mapping[str, Any]]) -> Json:
    """The exponents of n and d for time and memory, fitted at the largest width and length."""
    longest, widest = max(row["n"] for row in rows), max(row["d"] for row in rows)
    by_n = [row for row in rows if row["d"] == widest][-3:]
    by_d = [row for row in rows if row["n"] == longest]
    return {
        name: {
            "time_n": power([(row["n"], row["seconds"][name]) for row in by_n]),
            "time_d": power([(row["d"], row["seconds"][name]) for row in by_d]),
            "memory_n": power([(row["n"], row["bytes"][name]) for row in by_n]),
            "memory_d": power([(row["d"], row["bytes"][name]) for row in by_d]),
        }
        for name in PAPER
    }


def power(points: Sequence[tuple[float, float]]) -> float | None:
    """The exponent of a power law fitted by least squares of the logarithms; None without values."""
    if len(points) < 2 or any(y <= 0 for _, y in points):
        return None
    return statistics.linear_regression(*([math.log(v) for v in values] for values in zip(*points, strict=True))).slope


def crossings(rows: Sequence[Mapping[str, Any]]) -> Iterator[Json]:
    """For each width and recurrent layer, the length from which self-attention is slower; None if it never is."""
    for d in sorted({row["d"] for row in rows}):
        at = [row for row in rows if row["d"] == d]
        for other in _RECURRENT:
            ratios = [(row["n"], row["seconds"]["self_attention"] / row["seconds"][other]) for row in at]
            yield {"d": d, "against": other, "n": crossing(ratios)}


def crossing(ratios: Sequence[tuple[int, float]]) -> float | None:
    """The length at which a growing ratio passes 1 for good, interpolated on logarithmic scales."""
    if ratios[-1][1] < 1:
        return None
    for (n, low), (more, high) in reversed(list(pairwise(ratios))):
        if low < 1 <= high:
            share = -math.log(low) / (math.log(high) - math.log(low))
            return math.exp(math.log(n) + share * (math.log(more) - math.log(n)))
    return float(ratios[0][0])


# --- report ---------------------------------------------------------------------------------------------------


def table_text(results: Json) -> str:
    last = results["rows"][-1]
    header = ["layer", "paper", "time grows as", "memory grows as", "longest path"]
    header += [f"ms at n = {last['n']}, d = {last['d']}", "MB kept"]
    rows = []
    for name, (title, complexity, _, _, path) in PAPER.items():
        g = results["growth"][name]
        times = f"n^{_exponent(g['time_n'])} · d^{_exponent(g['time_d'])}"
        memory = f"n^{_exponent(g['memory_n'])} · d^{_exponent(g['memory_d'])}"
        cost = [f"{last['seconds'][name] * 1e3:.1f}", f"{last['bytes'][name] / 1e6:.1f}"]
        rows.append([title, complexity, times, memory, path, *cost])
    return markdown(header, rows) + "\n" + _crossing_text(results) + "\n" + _path_text(results)


def _exponent(exponent: float | None) -> str:
    return "–" if exponent is None else f"{exponent:.2f}"


def _crossing_text(results: Json) -> str:
    widths = results["d"]
    lengths = {(c["against"], c["d"]): c["n"] for c in results["crossings"]}
    longest = max(results["n"])
    rows = [
        [PAPER[name][0], *(f"{n:.0f}" if (n := lengths[name, d]) is not None else f"> {longest}" for d in widths)]
        for name in _RECURRENT
    ]
    return markdown(["self-attention is slower from n =", *(f"d = {d}" for d in widths)], rows)


def _path_text(results: Json) -> str:
    rows, names = results["paths"]["rows"], ("attention", "recurrent", "lstm")
    chosen = [row for row in rows if row["distance"] in (1, 4, 16, 64)]
    header = ["gradient by distance, relative to distance 1", *(str(row["distance"]) for row in chosen)]
    return markdown(header, [[name, *(f"{row[name]:.1e}" for row in chosen)] for name in names])


def picture(results: Json) -> Any:
    """Time and memory by length at the largest width, and the gradient by distance."""
    figure, (cost, memory, gradient) = new_figure(1, 3, (15, 4))
    widest = max(results["d"])
    rows = [row for row in results["rows"] if row["d"] == widest]
    for colour, name in zip(COLOURS, PAPER, strict=True):
        ns = [row["n"] for row in rows]
        cost.loglog(ns, [row["seconds"][name] * 1e3 for row in rows], color=colour, marker=".", label=PAPER[name][0])
        if all(row["bytes"][name] for row in rows):  # a convolution saves only its input
            memory.loglog(ns, [row["bytes"][name] / 1e6 for row in rows], color=colour, marker=".")
    for colour, name in zip(COLOURS, ("attention", "recurrent", "lstm"), strict=False):
        points = results["paths"]["rows"]
        gradient.loglog([p["distance"] for p in points], [p[name] for p in points], color=colour, label=name)
    for axis, title, along in (
        (cost, f"milliseconds of a layer, d = {widest}", "n"),
        (memory, f"MB kept for the way back, d = {widest}", "n"),
        (gradient, "gradient that arrives, untrained layers", "distance"),
    ):
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel(along)
    cost.legend(frameon=False, fontsize=7)
    gradient.legend(frameon=False, fontsize=7)
    return figure
