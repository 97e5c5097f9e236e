"""Measure training speed on this machine's CPU: onehop beside torch.nn.Transformer and Hugging Face Marian.

    python benchmarks/train_speed.py [--threads 1] [-o results/train_speed.json]

All have the same model shape, sentence pairs, optimizer and places of dropout, and make one update each in turn.
Each runs in float32 and with products in bfloat16, as `train.cpu_dtype` and `torch.autocast` have it. Freed memory is
kept for all. The results are medians over the rounds; only ratios within a run are meaningful. The peers get batches
sorted by length and padded, as is good practice; onehop gets them packed in random order. Lengths are like those of
image captions: 15 on average, and a translation is about as long as its source.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from peers import Marian, TorchTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import Settings, load_settings
from onehop.data.batches import Epoch
from onehop.data.store import Pairs, side_from_lists
from onehop.machine import all_freed_memory_kept
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import BOS, EOS, PAD
from onehop.training.dataloader import to_device
from onehop.training.distributed import World
from onehop.training.optimizer import make_optimizer
from onehop.training.step import Objective

VOCABULARY = 8000
BUDGET = 2000
CPU = World(0, 1, torch.device("cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = load_settings("small")
    pairs = caption_like(4000)
    systems = {}
    for dtype, ending in ((torch.float32, ""), (torch.bfloat16, ", bfloat16")):
        systems["onehop" + ending] = ours(settings, pairs, dtype)
        for name, make in (("nn.Transformer", TorchTransformer), ("Hugging Face Marian", Marian)):
            systems[name + ending] = peer(make(settings.model, VOCABULARY), settings, pairs, dtype)
    with all_freed_memory_kept():
        rates = measure(systems, arguments.rounds)
    report(rates, arguments)


def caption_like(count: int) -> Pairs:
    """Draw random ids in sentences as long as captions."""
    draw = np.random.default_rng(1)
    src = draw.normal(15, 5, count)
    tgt = src + draw.normal(0, 2.5, count)
    lengths = [np.clip(side.round().astype(int), 4, 45) for side in (src, tgt)]
    sides = [[draw.integers(4, VOCABULARY, n).tolist() for n in side] for side in lengths]
    return Pairs(*(side_from_lists(side, np.dtype("<u2")) for side in sides))


Update = Callable[[], int]


def ours(settings: Settings, pairs: Pairs, dtype: torch.dtype) -> Update:
    """Make one update of onehop's objective on packed batches. Return the source and target tokens."""
    torch.manual_seed(1)
    model = Transformer(settings.model, VOCABULARY).train()
    objective = Objective(model, settings.train.label_smoothing, 0.0, dtype=dtype)
    optimizer = make_optimizer(model, settings.train)
    batches = iter(Epoch(pairs, BUDGET, 1, 0))

    def update() -> int:
        batch = next(batches)
        loss, _ = objective(to_device(batch, CPU))
        (loss / batch.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        return len(batch.src) + batch.tokens

    return update


def peer(model: nn.Module, settings: Settings, pairs: Pairs, dtype: torch.dtype) -> Update:
    """Make one update of a plain loop over padded batches of sentences of similar length."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    batches = iter(padded_batches(pairs))

    def update() -> int:
        src, tgt = next(batches)
        labels = tgt[:, 1:]
        smoothing = settings.train.label_smoothing
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            logits = model(src, tgt[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(logits.float(), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return int((src != PAD).sum() + (labels != PAD).sum())

    return update


def padded_batches(pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
    """Sort pairs by length and split them into batches of at most BUDGET padded tokens a side, in random order."""
    lengths = np.maximum(pairs.src_lengths, pairs.tgt_lengths) + 1
    batches: list[list[int]] = [[]]
    for i in np.argsort(lengths, kind="stable"):
        if (len(batches[-1]) + 1) * lengths[i] > BUDGET:
            batches.append([])
        batches[-1].append(int(i))
    np.random.default_rng(1).shuffle(batches)
    return [
        (padded([[*pairs.src(i), EOS] for i in b]), padded([[BOS, *pairs.tgt(i), EOS] for i in b])) for b in batches
    ]


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(r, dtype=torch.int64) for r in rows], batch_first=True)


def measure(systems: dict[str, Update], rounds: int) -> dict[str, list[float]]:
    """Return the tokens per CPU second of each system's updates, in turn."""
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 2):
        for name, update in systems.items():
            began = time.process_time()
            tokens = update()
            if turn >= 2:  # the first two warm up
                rates[name].append(tokens / (time.process_time() - began))
    return rates


def report(rates: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{'':<30} source + target tokens / CPU second   speedup by onehop")
    for name, rate in medians.items():
        ours = "onehop, bfloat16" if name.endswith("bfloat16") else "onehop"
        print(f"{name:<30} {rate:>14,.0f} {medians[ours] / rate:>40.2f}")
    if arguments.out:
        facts = {"torch": torch.__version__, "threads": arguments.threads, "machine": platform.machine()}
        arguments.out.write_text(json.dumps({"median": medians, "rates": rates, **facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
