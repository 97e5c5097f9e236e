"""Measure the cost of the taps when they are off: the same forward pass with and without them.

    python benchmarks/taps.py

For the comparison, `Tapped.tap` is replaced at every call site by a function that only returns its value. So the
difference is the check for a tap alone. Runs are interleaved; the results are medians.
"""

import statistics
import time

import torch

from onehop.config import load_settings
from onehop.model.taps import Tapped
from onehop.model.transformer import Tokens, Transformer

ROUNDS = 200


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Transformer(load_settings("small").model, 8000).eval()
    ids = Tokens.padded(torch.randint(4, 8000, (1, 12)))
    checked, unchecked = Tapped.tap, lambda self, name, value: value
    times: dict[str, list[float]] = {"with taps, off": [], "without the check": []}
    for _ in range(ROUNDS):
        for found, tap in zip(times.values(), (checked, unchecked), strict=True):
            Tapped.tap = tap
            began = time.perf_counter()
            model(ids, ids)
            found.append(time.perf_counter() - began)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, seconds in medians.items():
        print(f"{name:<22} {1e3 * seconds:.3f} ms")
    print(f"ratio {medians['with taps, off'] / medians['without the check']:.4f}")


if __name__ == "__main__":
    main()
