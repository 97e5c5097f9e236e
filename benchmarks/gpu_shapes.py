"""Training speed of the shapes that people train, on one GPU, each beside its compiled peers.

    python benchmarks/gpu_shapes.py [--shapes base big ...] [--store STORE] [--limit 500] -o results/gpu/shapes.json

Every shape has two processes. The first one has empty compiler caches, and says how long the first steps took from its
start. The second one has these caches filled. It does the same, and then onehop and the peers train in turn, for as
many rounds as asked for. `--no-warm` leaves the first process out, which saves a minute or two of a GPU. The figures
are medians over the rounds; what counts is the ratio within a run.

onehop's step is that of `onehop train`: packed sentences of unequal lengths, whose batches a thread makes meanwhile.
A peer's step is forward, loss and backward, compiled as one, and fused Adam. It gets one batch on the device, of
sentences of equal length without padding: the kindest case. That length is the mean of onehop's. All have random ids
and bfloat16 arithmetic on float32 weights. `--store` takes the lengths of a prepared store.

The file is written after each shape. A shape that is in it already is skipped, one that failed is tried again.
`--tiny` rehearses it all on any machine.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import peers_of, prose_lengths, synchronize
from torch import nn
from torch.nn import functional as F

from onehop.atomic import write_json
from onehop.config import ModelSettings, Settings, load_settings
from onehop.data.batches import Epoch
from onehop.data.objectives import TrainingTask
from onehop.data.store import Pairs, Store, id_type, side_from_lists
from onehop.text.tokenizer import PAD
from onehop.training.cuda_step import CudaGraphStep
from onehop.training.dataloader import FixedShapes, prefetch, updates
from onehop.training.distributed import World
from onehop.training.estimate import measured_peak, update_flops
from onehop.training.optimizer import make_optimizer, set_rate
from onehop.training.step import Objective, PlainStep

ROOT = Path(__file__).parents[1]
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
# The settings behind each name, and what the shape changes in them.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("base", {}),
    "big": ("big", {}),
    "prenorm": ("base", {"norm": "pre"}),
    "small": ("small", {}),
    "decoder": ("decoder", {}),
    "encoder": ("encoder", {}),
    "student": (str(ROOT / "recipes" / "en-de-small.toml"), {}),
}
TINY = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 64, "d_ff": 128, "n_heads": 4}
UNTIMED = 5  # steps at the start of a round: more than the batches that wait ready-made
Row = dict[str, Any]
Step = Callable[[], tuple[int, int]]  # does a step; its source and target tokens


def main(arguments: Sequence[str] | None = None) -> None:
    asked = parsed(arguments)
    if asked.child:
        write_json(asked.out, measure(asked.shapes[0], asked))
    else:
        all_shapes(asked)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--store", type=Path, help="take the lengths of this store's training pairs")
    parser.add_argument("--batch-tokens", type=int, default=25_600, help="source and as many target tokens")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a round")
    parser.add_argument("--peer-mode", default="default", help="mode of torch.compile for the peers")
    parser.add_argument("--no-warm", action="store_true", help="say only how long a start with empty caches takes")
    parser.add_argument("--limit", type=float, default=500, help="seconds that a shape may take")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--child", choices=["cold", "race"], help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.tiny:
        asked.batch_tokens, asked.rounds, asked.steps = 512, 2, 2
    return asked


# --- the parent: one shape after the other ----------------------------------------------------------------------


def all_shapes(asked: argparse.Namespace) -> None:
    """Measure what is missing in the file."""
    given = {name: getattr(asked, name) for name in ("batch_tokens", "rounds", "steps", "peer_mode", "tiny")}
    given["store"] = asked.store and asked.store.name
    found: Row = {"settings": given, "shapes": {}, "failed": {}}
    if asked.out.exists():
        found = json.loads(asked.out.read_text())
        if found["settings"] != given:
            sys.exit(f"{asked.out} has other settings: {found['settings']}. Give another file.")
    for name in asked.shapes:
        if name not in found["shapes"]:
            found["failed"].pop(name, None)
            try:
                found["shapes"][name] = in_processes(name, asked)
            except subprocess.TimeoutExpired:
                found["failed"][name] = f"not done after {asked.limit:.0f} s"
            except subprocess.CalledProcessError as e:
                found["failed"][name] = f"ended with status {e.returncode}"
            write_json(asked.out, found)
        for line in lines_of(name, found):
            print(line, flush=True)


def in_processes(name: str, asked: argparse.Namespace) -> Row:
    """One shape's figures, from two processes with a compiler cache of their own."""
    deadline = time.monotonic() + asked.limit
    with tempfile.TemporaryDirectory() as folder:
        caches = {f"{what}_CACHE_DIR": f"{folder}/{what}" for what in ("TORCHINDUCTOR", "TRITON")}
        parts: Row = {}
        for part in ("cold", "race")[asked.no_warm :]:
            out, began = Path(folder, f"{part}.json"), time.time()
            own = ["--shapes", name, "--child", part, "--began", str(began), "--peer-mode", asked.peer_mode]
            own += ["--batch-tokens", str(asked.batch_tokens), "--rounds", str(asked.rounds)]
            own += ["--steps", str(asked.steps), "-o", str(out), *["--tiny"] * asked.tiny]
            own += ["--store", str(asked.store)] if asked.store else []
            environment = {**os.environ, **caches, "PYTHONPATH": str(ROOT)}
            left = max(1.0, deadline - time.monotonic())
            subprocess.run([sys.executable, __file__, *own], env=environment, timeout=left, check=True)
            parts[part] = json.loads(out.read_text())
    start = dict(zip(("cold", "warm"), (part.pop("start") for part in parts.values()), strict=False))
    return {"machine": torch.cuda.get_device_name() if CUDA else "cpu", "start": start, **parts["race"]}


def lines_of(name: str, found: Row) -> Iterator[str]:
    if name in found["failed"]:
        yield f"{name}: {found['failed'][name]}"
        return
    row = found["shapes"][name]
    yield f"{name}: {row['ratio']:.2f} times {row['best peer']}"
    for system, own in row["systems"].items():
        rate, share = own["target tokens/s"], own["share of peak"]
        yield f"  {system:<30} {rate:>12,.0f} target tokens/s  {own['ms a step']:8.2f} ms  share {share:.2f}"
    yield from (f"  {system}: {error}" for system, error in row["failed peers"].items())
    for caches, times in row["start"].items():
        yield f"  start, {caches} caches: " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in times.items())


# --- a child: one shape -----------------------------------------------------------------------------------------


def measure(name: str, asked: argparse.Namespace) -> Row:
    """The seconds to onehop's first steps; in a race, all systems' figures, too."""
    start = {"imports": time.time() - asked.began} if asked.began else {}
    settings = settings_of(name, asked)
    pairs = pairs_of(settings, asked)
    with onehop_step(settings, pairs) as step:
        for number in (1, 2, 3):  # the first records the passes, the second the update
            step()
            synchronize()
            if asked.began:
                start[f"step {number}"] = time.time() - asked.began
        if asked.child == "cold":
            return {"start": start}
        return {"start": start, **race(settings, pairs, step, asked)}


def settings_of(name: str, asked: argparse.Namespace) -> Settings:
    preset, changes = SHAPES[name]
    settings = load_settings(preset)
    vocab_size = settings.tokenizer.vocab_size
    if asked.tiny:
        changes, vocab_size = changes | TINY, 500
    return replace(
        settings,
        model=replace(settings.model, **changes),
        tokenizer=replace(settings.tokenizer, vocab_size=vocab_size),
        train=replace(settings.train, batch_tokens=asked.batch_tokens, accumulate=1, weights=None),
    )


def pairs_of(settings: Settings, asked: argparse.Namespace) -> Pairs:
    """Random ids in sentences as long as those of prose or of a store; a model of one stack has no sources."""
    draw = np.random.default_rng(1)
    count = 400 if asked.tiny else 60_000
    if asked.store:
        pairs = Store.open(asked.store).pairs("train")
        chosen = draw.permutation(len(pairs))[:count]
        src, tgt = pairs.src_lengths[chosen], pairs.tgt_lengths[chosen]
    else:
        src, tgt = prose_lengths(draw, count)
    vocab_size = settings.tokenizer.vocab_size
    most = min(settings.model.max_length, asked.batch_tokens) - 1  # the last one is EOS
    lengths = [np.minimum(side, most).astype(int) for side in (src * (settings.model.kind is None), tgt)]
    sides = [[draw.integers(4, vocab_size, n).tolist() for n in side] for side in lengths]
    return Pairs(*(side_from_lists(side, id_type(vocab_size)) for side in sides))


@contextmanager
def onehop_step(settings: Settings, pairs: Pairs) -> Iterator[Step]:
    """One step as `onehop train` does it."""
    train, vocab_size, here = settings.train, settings.tokenizer.vocab_size, World(0, 1, DEVICE)
    torch.manual_seed(1)
    objective = Objective.of(settings, vocab_size, DEVICE)
    optimizer = make_optimizer(objective.model, train, capturable=CUDA)
    set_rate(optimizer, 1e-4)
    longest = settings.model.max_length
    most = Epoch(pairs, train.batch_tokens, train.seed, 0).most_sentences
    shapes = FixedShapes(train.batch_tokens, int(1.1 * most) + train.batch_tokens // longest + 2, longest)
    plain = PlainStep(objective, objective, optimizer, train, here, shapes if CUDA else None)
    step = CudaGraphStep(plain, shapes) if CUDA else plain
    task = TrainingTask(settings.model, vocab_size)
    with prefetch(updates(lambda epoch: pairs, settings, train.batch_tokens, 0, 0, task)) as loader:
        numbers = itertools.count(1)

        def one() -> tuple[int, int]:
            update = next(loader)
            assert step.run(next(numbers), update, loader.peek).finite
            return update.src_tokens, update.tgt_tokens

        yield one


def race(settings: Settings, pairs: Pairs, step: Step, asked: argparse.Namespace) -> Row:
    """Every system's rate in each round, in turn."""
    peak = measured_peak(DEVICE)
    lengths = [float(side.mean()) + 1 for side in (pairs.src_lengths, pairs.tgt_lengths)]
    steps, failed = {"onehop": step}, {}
    for name, make in peers_of(settings.model).items():
        began = time.perf_counter()
        try:
            steps[name] = peer_step(make, settings, round(lengths[1]), asked.peer_mode)
            print(f"({name}: three steps after {time.perf_counter() - began:.0f} s)", flush=True)
        except Exception as e:  # the others' figures are still worth having
            failed[name] = repr(e)[:500]
    rounds: dict[str, list[Row]] = {name: [] for name in steps}
    for _ in range(asked.rounds):
        for name, one in steps.items():
            rounds[name].append(stretch(one, asked.steps))
        steps = {name: steps[name] for name in [*list(steps)[1:], next(iter(steps))]}  # another system is first
    systems = {name: figures(rows, settings, peak) for name, rows in rounds.items()}
    best = max((name for name in systems if name != "onehop"), key=lambda name: systems[name]["target tokens/s"])
    return {
        "torch": torch.__version__,
        "model": asdict(settings.model),
        "vocabulary": settings.tokenizer.vocab_size,
        "mean lengths with EOS": lengths,
        "peak tflops": peak / 1e12,
        "failed peers": failed,
        "best peer": best,
        "ratio": systems["onehop"]["target tokens/s"] / systems[best]["target tokens/s"],
        "systems": systems,
    }


def peer_step(make: Callable[[ModelSettings, int], nn.Module], settings: Settings, length: int, mode: str) -> Step:
    """One step of a peer, which is compiled now."""
    vocab_size, smoothing = settings.tokenizer.vocab_size, settings.train.label_smoothing
    torch.manual_seed(1)
    model = make(settings.model, vocab_size).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    rows = settings.train.batch_tokens // length
    src, tgt, labels = (torch.randint(4, vocab_size, (rows, length), device=DEVICE) for _ in range(3))
    if settings.model.kind == "encoder":
        labels[torch.rand(labels.shape, device=DEVICE) > 0.15] = PAD  # of a text, few tokens are to be predicted

    def loss() -> torch.Tensor:
        logits = model(src, tgt, padded=False)
        return F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing
        )

    compute = torch.compile(loss, dynamic=False, mode=mode) if CUDA else loss

    def step() -> tuple[int, int]:
        with torch.autocast("cuda", torch.bfloat16, enabled=CUDA):
            value = compute()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return (rows * length if settings.model.kind is None else rows), rows * length

    for _ in range(3):
        step()
    synchronize()
    return step


def stretch(step: Step, count: int) -> Row:
    """Seconds and tokens of some steps."""
    for _ in range(UNTIMED):
        step()
    synchronize()
    began = time.perf_counter()
    tokens = [step() for _ in range(count)]
    synchronize()
    seconds = time.perf_counter() - began
    src, tgt = (sum(side) for side in zip(*tokens, strict=True))
    return {"steps": count, "seconds": seconds, "source tokens": src, "target tokens": tgt}


def figures(rows: list[Row], settings: Settings, peak: float) -> Row:
    """Medians over the rounds."""
    vocab_size = settings.tokenizer.vocab_size
    rates = [row["target tokens"] / row["seconds"] for row in rows]
    work = [update_flops(settings.model, vocab_size, row["source tokens"], row["target tokens"]) for row in rows]
    tflops = statistics.median(w / row["seconds"] for w, row in zip(work, rows, strict=True)) / 1e12
    return {
        "target tokens/s": statistics.median(rates),
        "rounds": rates,
        "ms a step": statistics.median(1e3 * row["seconds"] / row["steps"] for row in rows),
        "tflops": tflops,
        "share of peak": 1e12 * tflops / peak,
    }


if __name__ == "__main__":
    main()
