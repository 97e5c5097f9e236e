"""Training on one GPU: are the kernels right, and how fast is a step beside the peers' and beside the hardware.

    python benchmarks/gpu.py [--peers] [--tune attention around] [--profile] [--curve STORE] [-o results/gpu.json]

The paper's base model with 37,000 pieces, batches of 25,600 source and as many target tokens, sentences of 28 tokens on
average, bfloat16 arithmetic on float32 weights. A step is forwards, backwards, the gradient's norm and Adam; ours also
waits for the loss and makes its batches meanwhile, as training does. `--curve` trains on a store of `onehop prepare`:
with the kernels and in float32 without any, from two seeds each. `--tiny` rehearses it all on any machine.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import Marian, TorchTransformer, prose_lengths, synchronize
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings, TrainSettings
from onehop.data.batches import Batch, Epoch
from onehop.data.store import Pairs, Store, side_from_lists
from onehop.model import kernels, loss
from onehop.model.attention import padded_attention
from onehop.model.kernels import fused
from onehop.model.kernels.fused import varlen_attention
from onehop.model.loss import Loss
from onehop.model.packing import PackedMask, Packing
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import PAD, vocabulary_of
from onehop.training.cuda_step import RecordedStep
from onehop.training.dataloader import DeviceBatch, FixedShapes, prefetch, to_device
from onehop.training.distributed import World
from onehop.training.estimate import measured_peak, update_flops
from onehop.training.optimizer import make_optimizer, set_rate
from onehop.training.step import Objective, forward_and_backward, gradient_norm

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
HERE = World(0, 1, DEVICE)
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="time nn.Transformer and Hugging Face Marian, compiled")
    parser.add_argument("--tune", nargs="+", choices=["attention", "around"], default=[], help="try other tiles, too")
    parser.add_argument("--profile", action="store_true", help="say where a step's time goes")
    parser.add_argument("--plain", action="store_true", help="time the step without the kernels, too")
    parser.add_argument("--curve", type=Path, metavar="STORE", help="compare the loss with that of plain float32")
    parser.add_argument("--curve-steps", type=int, default=400)
    parser.add_argument(
        "--only", nargs="+", metavar="PART", help="such as checks, steps or curve; otherwise all asked for"
    )
    parser.add_argument("--vocabulary", type=int, default=37_000)
    parser.add_argument("--norm", default="post")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    bench = Bench(arguments)
    found: Row = {"machine": torch.cuda.get_device_name() if CUDA else "cpu", "torch": torch.__version__}
    shown = {name: value for name, value in vars(arguments).items() if not isinstance(value, Path)}
    found |= {"settings": shown}
    for part, measure in bench.parts():  # printed and written after each part, in case a later one hangs
        if arguments.only and part not in arguments.only and part != "ceilings":
            continue
        began = time.perf_counter()
        found[part] = measure()
        for line in lines_of(part, found):
            print(line, flush=True)
        print(f"({part}: {time.perf_counter() - began:.0f} s)", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")


# --- are they right? ------------------------------------------------------------------------------------------


def checks() -> Row:
    """Largest relative errors against float64: attention at lengths 1 to 256 and mixed, the loss, the other kernels."""
    torch.manual_seed(0)
    worst = {"self": 0.0, "causal": 0.0, "cross": 0.0}
    draw = np.random.default_rng(0)
    mixed = [draw.integers(1, 257, 40).tolist() for _ in range(4)]
    for lengths in [*([n] * max(2, 130 // n) for n in range(1, 257)), *mixed]:
        partner = draw.permutation(lengths).tolist()
        worst["self"] = max(worst["self"], attention_error(lengths, lengths, causal=False))
        worst["causal"] = max(worst["causal"], attention_error(lengths, lengths, causal=True))
        worst["cross"] = max(worst["cross"], attention_error(lengths, partner, causal=False))
    norms = {order: max(add_norm_error(drop, order) for drop in (0.0, 0.1, 0.5)) for order in ("post", "pre")}
    around = {"loss": loss_error(), "add_norm": norms["post"], "sum_and_norm": norms["pre"]}
    return {**worst, **around, "feed_forward": feed_forward_error()}


def attention_error(query: list[int], key: list[int], *, causal: bool) -> float:
    """Output and gradients in bfloat16 against float64."""
    from onehop.model.kernels import ragged

    heads, width = 8, 64
    mask = PackedMask(*(Packing.of(torch.tensor(n, device=DEVICE)) for n in (query, key)), causal)
    q, k, v = (torch.randn(sum(n), heads * width, device=DEVICE, dtype=torch.bfloat16) for n in (query, key, key))
    d_out = torch.randn_like(q)
    if query is key:
        qkv = torch.cat([q, k, v], 1).requires_grad_()
        p = mask.query
        out, _ = ragged.self_attention(qkv, p.sentence_of_row, p.starts, heads, causal)
        out.backward(d_out)
        ours = [out, *qkv.grad.chunk(3, 1)]
    else:
        own_q, kv = q.clone().requires_grad_(), torch.cat([k, v], 1).requires_grad_()
        rows = (mask.query.sentence_of_row, mask.key.sentence_of_row)
        out, _ = ragged.cross_attention(own_q, kv, *rows, mask.query.starts, mask.key.starts, heads)
        out.backward(d_out)
        ours = [out, own_q.grad, *kv.grad.chunk(2, 1)]
    exact = [x.double().view(1, -1, heads, width).transpose(1, 2).requires_grad_() for x in (q, k, v)]
    reference = padded_attention(*exact, mask)
    reference.backward(d_out.double().view(1, -1, heads, width).transpose(1, 2))
    theirs = [x.transpose(1, 2).flatten(2)[0] for x in (reference, *(x.grad for x in exact))]
    return max(relative(a, b) for a, b in zip(ours, theirs, strict=True))


def loss_error() -> float:
    """Loss and gradients of the fused output layer against float64, with a bias and without."""
    from onehop.model.kernels.cross_entropy import linear_cross_entropy

    x = torch.randn(512, 512, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    weight = (torch.randn(37_000, 512, device=DEVICE) * 0.05).requires_grad_()
    bias = torch.randn(37_000, device=DEVICE).bfloat16().float().requires_grad_()
    labels = torch.randint(0, 37_000, (512,), device=DEVICE)
    worst = 0.0
    for inputs in ((x, weight), (x, weight, bias)):
        objective, nll, _ = linear_cross_entropy(*inputs, *[None] * (3 - len(inputs)), labels, 0.1, 0)
        exact = [value.detach().bfloat16().double().requires_grad_() for value in inputs]
        plain = loss.cross_entropy(F.linear(*exact), labels, 0.1)
        ours = torch.autograd.grad(objective / 512, inputs)
        theirs = torch.autograd.grad(plain.objective / 512, exact)
        pairs = zip((objective, nll, *ours), (plain.objective, plain.nll, *theirs), strict=True)
        worst = max(worst, *(relative(a, b) for a, b in pairs))
    return worst


def add_norm_error(drop: float, order: str) -> float:
    """Outputs and gradients of residual, dropout and norm; a zero gradient shows what was dropped."""
    from onehop.model.kernels.add_norm import add_norm, sum_and_norm

    rows, width = 3000, 512
    skip, added = (torch.randn(rows, width, device=DEVICE) for _ in range(2))
    inputs = [skip if order == "pre" else skip.bfloat16(), added.bfloat16()]
    inputs += [torch.randn(width, device=DEVICE) for _ in range(2)]
    for value in inputs:
        value.requires_grad_()
    seed = torch.randint(2**31 - 1, (1,), device=DEVICE) if drop else None
    out = sum_and_norm(*inputs, seed, drop, 1e-5)[:2] if order == "pre" else add_norm(*inputs, seed, drop, 1e-5)[:1]
    d_out = [torch.randn_like(value) for value in out]
    ours = torch.autograd.grad(out, inputs, d_out)
    dropped = ours[1] == 0
    assert abs(dropped.double().mean().item() - drop) < 0.005
    exact = [x.detach().double().requires_grad_() for x in inputs]
    total = exact[0] + exact[1] * torch.where(dropped, 0.0, 1 / (1 - drop))
    reference = (total, F.layer_norm(total, (width,), exact[2], exact[3], 1e-5))[-len(out) :]
    theirs = torch.autograd.grad(reference, exact, [d.double() for d in d_out])
    return max(relative(a, b) for a, b in zip((*out, *ours), (*reference, *theirs), strict=True))


def feed_forward_error() -> float:
    """Output and gradients of the feed-forward network; both use the ReLU mask of the bfloat16 result."""
    from onehop.model.kernels.feed_forward import feed_forward

    rows, width, wide = 3000, 512, 2048
    shapes = ((rows, width), (wide, width), (wide,), (width, wide), (width,))
    inputs = [(torch.randn(*shape, device=DEVICE) * shape[-1] ** -0.5).bfloat16().requires_grad_() for shape in shapes]
    out, hidden = feed_forward(*inputs)
    d_out = torch.randn_like(out)
    ours = torch.autograd.grad(out, inputs, d_out)
    x, w_1, b_1, w_2, b_2 = exact = [value.detach().double().requires_grad_() for value in inputs]
    reference = F.linear(F.linear(x, w_1, b_1) * (hidden > 0), w_2, b_2)
    theirs = torch.autograd.grad(reference, exact, d_out.double())
    return max(relative(a, b) for a, b in zip((out, *ours), (reference, *theirs), strict=True))


def relative(a: Tensor, b: Tensor) -> float:
    b = b.double()  # the error of a gradient that is exactly zero, such as that of a single key, is absolute
    error = ((a.double() - b).norm() / (b.norm() if b.any() else 1.0)).item()
    assert error == error, "not a number"
    return error


# --- how fast? ------------------------------------------------------------------------------------------------


def sentences(count: int, vocabulary: int) -> Pairs:
    """Random ids in sentences as long as those of prose."""
    draw = np.random.default_rng(1)
    sides = [[draw.integers(4, vocabulary, int(n)).tolist() for n in side] for side in prose_lengths(draw, count)]
    return Pairs(*(side_from_lists(side, np.dtype("<u2")) for side in sides))


class Bench:
    """One model shape and one set of sentences for every system."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        tiny = arguments.tiny
        shape = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 64, "d_ff": 128, "n_heads": 4}
        self.model = ModelSettings(norm=arguments.norm, **(shape if tiny else {}))
        self.vocabulary = 500 if tiny else arguments.vocabulary
        self.budget = 512 if tiny else 25_600
        self.pairs = sentences(400 if tiny else 60_000, self.vocabulary)
        self.train = TrainSettings(batch_tokens=self.budget)
        self.steps_timed = 3 if tiny else arguments.steps
        self.curve_steps = 5 if tiny else arguments.curve_steps

    def parts(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """What was asked for, in order."""
        asked = self.arguments
        yield "ceilings", self.ceilings
        if CUDA and kernels.available():
            yield "checks", checks
            yield "attention", self.attention_times
            yield "around", self.other_times
        yield "gradients", self.gradients_beside_float32
        yield "steps", self.steps
        if asked.profile and CUDA:
            yield "profile", self.profile
        if asked.curve:
            yield "curve", lambda: self.curves(Store.open(asked.curve))

    def ceilings(self) -> Row:
        """The rate of a large matrix product and of a large copy."""
        if not CUDA:
            return {"tflops": measured_peak(DEVICE) / 1e12}
        a = torch.empty(1 << 30, device=DEVICE, dtype=torch.uint8)
        b = torch.empty_like(a)
        return {
            "tflops": measured_peak(DEVICE) / 1e12,
            "copy_gb_per_s": 2 * a.numel() / seconds_of(lambda: b.copy_(a)) / 1e9,
        }

    def make(self) -> tuple[Objective, torch.optim.Optimizer]:
        torch.manual_seed(1)
        transformer = kernels.fuse(Transformer(self.model, self.vocabulary).to(DEVICE).train())
        objective = Objective(transformer, self.train.label_smoothing, 0.0)
        return objective, make_optimizer(transformer, self.train, capturable=CUDA)

    def batches(self) -> Iterator[Batch]:
        number = 0
        while True:
            yield from Epoch(self.pairs, self.budget, 1, number)
            number += 1

    @property
    def fixed(self) -> FixedShapes:
        most = Epoch(self.pairs, self.budget, 1, 0).most_sentences
        return FixedShapes(self.budget, int(1.1 * most) + 102, self.model.max_length)

    # --- attention alone ---

    def attention_times(self) -> Row:
        """Microseconds of one attention, forwards and backwards, by ours and by the flash kernel."""
        batch = next(self.batches()).filled(self.fixed.rows, self.fixed.sentences, self.fixed.longest)
        fed = to_device(batch, HERE, self.fixed)
        found = {"flash": self.flash_times(fed.tgt.packing)}
        from onehop.model.kernels import ragged

        kept = ragged.FORWARD, ragged.BACKWARD
        tiles = [(64, 64, 4), (64, 16, 4), (32, 32, 2), (64, 32, 8), (128, 32, 8)]
        others = tiles if "attention" in self.arguments.tune else []
        tried = [{"TILE": tile, "BLOCK": block, "num_warps": warps, "num_stages": 1} for tile, block, warps in others]
        for forward, backward in [kept, *zip(tried, tried, strict=True)]:
            ragged.FORWARD, ragged.BACKWARD = forward, backward
            shape = "" if backward is kept[1] else ", " + ", ".join(f"{k} {v}" for k, v in forward.items())
            found[f"ours{shape}"] = self.ragged_times(fed.src.packing, fed.tgt.packing)
        ragged.FORWARD, ragged.BACKWARD = kept
        return found

    def ragged_times(self, src: Packing, tgt: Packing) -> Row:
        from onehop.model.kernels import ragged

        heads, wide = self.model.n_heads, self.model.d_model
        qkv = torch.randn(self.budget, 3 * wide, device=DEVICE, dtype=torch.bfloat16)
        q, kv = qkv[:, :wide].contiguous(), qkv[:, wide:].contiguous()
        boundaries = (tgt.sentence_of_row, src.sentence_of_row, tgt.starts, src.starts)
        found: Row = {}
        for name, causal in (("self", False), ("causal", True)):
            own = (tgt.sentence_of_row, tgt.starts, heads, causal)
            out, lse = ragged.self_attention(qkv, *own)
            found[f"{name} forward"] = 1e6 * seconds_of(lambda own=own: ragged.self_attention(qkv, *own))
            back = lambda own=own: ragged.self_attention_backward(qkv, out, out, lse, *own)  # noqa: B023, E731
            found[f"{name} backward"] = 1e6 * seconds_of(back)
        out, lse = ragged.cross_attention(q, kv, *boundaries, heads)
        found["cross forward"] = 1e6 * seconds_of(lambda: ragged.cross_attention(q, kv, *boundaries, heads))
        back = lambda: ragged.cross_attention_backward(q, kv, out, out, lse, *boundaries, heads)  # noqa: E731
        found["cross backward"] = 1e6 * seconds_of(back)
        return found

    def other_times(self) -> Row:
        """Microseconds of the other kernels: residual, dropout and norm, feed-forward, and the loss."""
        from onehop.model.kernels import add_norm, cross_entropy, feed_forward

        tune = "around" in self.arguments.tune
        found: Row = {}
        skip, added, above = (
            torch.randn(self.budget, self.model.d_model, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)
        )
        gain, bias = (torch.ones(self.model.d_model, device=DEVICE) for _ in range(2))
        seed = torch.ones(1, dtype=torch.int64, device=DEVICE)
        kept = add_norm.CELLS, add_norm.PROGRAMS
        for cells, programs in ((512, 16), (512, 8), (256, 16), (256, 8), (128, 8), (128, 4)) if tune else (kept,):
            add_norm.CELLS, add_norm.PROGRAMS = cells, programs
            _, *row = add_norm.add_norm(skip, added, gain, bias, seed, 0.1, 1e-5)
            there = lambda: add_norm.add_norm(skip, added, gain, bias, seed, 0.1, 1e-5)  # noqa: E731
            back = lambda row=row: add_norm.add_norm_backward(skip, added, gain, seed, *row, above, None, 0.1)  # noqa: E731
            found[f"add & norm, {cells} cells, {programs} programs"] = [1e6 * seconds_of(f) for f in (there, back)]
        add_norm.CELLS, add_norm.PROGRAMS = kept
        sums = skip.float()
        total, _, *row = add_norm.sum_and_norm(sums, added, gain, bias, seed, 0.1, 1e-5)
        there = lambda: add_norm.sum_and_norm(sums, added, gain, bias, seed, 0.1, 1e-5)  # noqa: E731
        back = lambda: add_norm.sum_and_norm_backward(total, gain, seed, *row, above, sums, 0.1)  # noqa: E731
        found["pre-norm's sum & norm"] = [1e6 * seconds_of(f) for f in (there, back)]
        w_2 = torch.randn(self.model.d_model, self.model.d_ff, device=DEVICE, dtype=torch.bfloat16)
        hidden = torch.randn(self.budget, self.model.d_ff, device=DEVICE, dtype=torch.bfloat16).relu()
        below = lambda: feed_forward.hidden_gradient(above, w_2, hidden)  # noqa: E731
        found["gradient below the maximum, and its product alone"] = [
            1e6 * seconds_of(below),
            1e6 * seconds_of(lambda: above @ w_2),
        ]
        logits = torch.randn(self.budget, self.vocabulary, device=DEVICE, dtype=torch.bfloat16)
        labels = torch.randint(1, self.vocabulary, (self.budget,), device=DEVICE)
        kept = cross_entropy.BLOCK, cross_entropy.WARPS
        for block, warps in ((4096, 8), (2048, 4), (4096, 4), (8192, 8), (8192, 16), (4096, 16)) if tune else (kept,):
            cross_entropy.BLOCK, cross_entropy.WARPS = block, warps
            lost = lambda: cross_entropy.loss_and_gradient(logits, labels, 0.1, 0)  # noqa: E731
            found[f"loss, blocks of {block}, {warps} warps"] = [1e6 * seconds_of(lost)]
        cross_entropy.BLOCK, cross_entropy.WARPS = kept
        return found

    def flash_times(self, packing: Packing) -> Row:
        heads, width = self.model.n_heads, self.model.key_width
        q, k, v = (
            torch.randn(1, heads, self.budget, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        mask = PackedMask(packing, packing)
        out = varlen_attention(q, k, v, mask)
        d_out = torch.randn_like(out)
        forward = seconds_of(lambda: varlen_attention(q, k, v, mask), recorded=False)
        backward = seconds_of(lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True), recorded=False)
        return {"self forward": 1e6 * forward, "self backward": 1e6 * backward}

    # --- the gradients of the whole model ---

    def gradients_beside_float32(self) -> Row:
        """How far bfloat16 gradients are from float32 ones, with the kernels and without; dropout off."""
        self_model = replace(self.model, dropout=0.0)
        torch.manual_seed(1)
        model = kernels.fuse(Transformer(self_model, self.vocabulary).to(DEVICE))
        objective = Objective(model, 0.1, 0.0)
        whole = next(self.batches())
        batch = whole.part(0, min(60, len(whole.src_lengths)))
        fed = to_device(batch, HERE)

        def gradients() -> tuple[float, Tensor]:
            model.zero_grad()
            found = forward_and_backward(objective, fed, 1 / batch.tokens)
            return float(found.objective) / batch.tokens, torch.cat([p.grad.flatten() for p in model.parameters()])

        with_kernels = gradients()
        with plain():
            without = gradients()
            with torch.autocast("cuda", enabled=False) if CUDA else contextlib.nullcontext():
                model.zero_grad()
                exact, _ = objective(fed)
                (exact / batch.tokens).backward()
        reference = torch.cat([p.grad.flatten() for p in model.parameters()])
        return {
            "loss in float32": float(exact.detach()) / batch.tokens,
            "loss with kernels": with_kernels[0],
            "loss without": without[0],
            "relative error with kernels": relative(with_kernels[1], reference),
            "relative error without": relative(without[1], reference),
        }

    # --- the curve of the loss ---

    def curves(self, store: Store) -> Row:
        """The loss over the same batches, by tenths: with the kernels and in float32 without them, two seeds each."""
        self.pairs, self.vocabulary = store.pairs("train"), vocabulary_of(store.tokenizer).vocab_size
        objective, _ = self.make()
        begun = {name: value.clone() for name, value in objective.state_dict().items()}
        fixed = self.fixed if CUDA else None  # kept, since it reads a whole epoch

        def curve(seed: int, *, exact: bool) -> list[float]:
            objective.load_state_dict(begun)
            optimizer = make_optimizer(objective.model, self.train, capturable=CUDA)
            recorded: RecordedStep | None = None
            losses = []
            for step, batch in enumerate(itertools.islice(self.batches(), self.curve_steps)):
                torch.manual_seed(1000 * seed + step)
                # A small rate: at 7e-4 after 25 steps, the step at which post-norm begins to use the source is random.
                set_rate(optimizer, 2e-4 * (step + 1) / self.curve_steps)
                fed, scale = to_device(batch, HERE, fixed), 1 / batch.tokens
                if exact or not CUDA:
                    update = exact_update if exact else forward_and_backward
                    losses.append(update(objective, fed, scale).objective.item() * scale)
                    optimizer.step()
                    optimizer.zero_grad()
                else:
                    recorded = recorded or RecordedStep(objective, optimizer, 0.0, to_device(batch, HERE, fixed))
                    recorded.run(fed, scale)
                    losses.append(recorded.settle()[0] * scale)
            return means(losses, 10)

        found = {}
        for system, exact in (("kernels", False), ("float32 without kernels", True)):
            for seed in (1, 2):
                with plain() if exact else contextlib.nullcontext():
                    losses = found[f"{system}, seed {seed}"] = curve(seed, exact=exact)
                print(f"({system}, seed {seed}:", *(f"{x:.4f}" for x in losses), end=")\n", flush=True)  # minutes each
        return found

    # --- whole steps ---

    def steps(self) -> Row:
        found = {"onehop": self.ours()}
        if self.arguments.plain:
            with plain():
                found["onehop without its kernels"] = self.ours()
        if self.arguments.peers:
            found["nn.Transformer, compiled"] = self.peer(TorchTransformer)
            found["Hugging Face Marian, compiled"] = self.peer(Marian)
        return found

    def ours(self) -> Row:
        """Target tokens a second as training runs."""
        with prefetch(self.batches()) as loader:
            step = self.our_step(loader)
            for _ in range(5):
                step()
            synchronize()
            began, tokens, sources, times = time.perf_counter(), 0, 0, []
            for _ in range(self.steps_timed):
                at = time.perf_counter()
                tgt, src = step()
                times.append(time.perf_counter() - at)
                tokens, sources = tokens + tgt, sources + src
            synchronize()
            return self.rates(tokens, sources, time.perf_counter() - began, times)

    def our_step(self, stream: Iterator[Batch]) -> Callable[[], tuple[int, int]]:
        objective, optimizer = self.make()
        fixed = self.fixed
        if not CUDA:
            return lambda: self.plain_step(objective, optimizer, next(stream))
        set_rate(optimizer, 1e-4)
        upcoming = [(batch := next(stream), to_device(batch, HERE, fixed))]
        recorded = RecordedStep(objective, optimizer, 0.0, to_device(batch, HERE, fixed))

        def step() -> tuple[int, int]:
            batch, fed = upcoming.pop()
            recorded.run(fed, 1 / batch.tokens)
            upcoming.append((following := next(stream), to_device(following, HERE, fixed)))
            recorded.settle()
            return batch.tokens, len(batch.src)

        return step

    def plain_step(self, objective: Objective, optimizer: torch.optim.Optimizer, batch: Batch) -> tuple[int, int]:
        forward_and_backward(objective, to_device(batch, HERE), 1 / batch.tokens)
        gradient_norm(objective.model)
        optimizer.step()
        optimizer.zero_grad()
        return batch.tokens, len(batch.src)

    def rates(self, tokens: int, sources: int, seconds: float, times: list[float]) -> Row:
        work = update_flops(self.model, self.vocabulary, sources, tokens)
        return {
            "target tokens/s": tokens / seconds,
            "ms a step": 1e3 * statistics.median(times),
            "tflops": work / seconds / 1e12,
        }

    def peer(self, make: Callable[[ModelSettings, int], nn.Module]) -> Row:
        """A plain compiled loop over batches of one length, the best case for padding."""
        model = make(self.model, self.vocabulary).to(DEVICE).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        length, rows = 28, self.budget // 28
        compute = torch.compile(model, dynamic=False) if CUDA else model
        src = torch.randint(4, self.vocabulary, (rows, length), device=DEVICE)
        tgt = torch.randint(4, self.vocabulary, (rows, length + 1), device=DEVICE)

        def step() -> int:
            with torch.autocast("cuda", torch.bfloat16, enabled=CUDA):
                logits = compute(src, tgt[:, :-1], padded=False)
                value = F.cross_entropy(
                    logits.flatten(0, 1).float(), tgt[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1
                )
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            return rows * length

        for _ in range(8):
            step()
        synchronize()
        began, tokens = time.perf_counter(), 0
        for _ in range(self.steps_timed):
            tokens += step()
        synchronize()
        seconds = time.perf_counter() - began
        return self.rates(tokens, tokens, seconds, [seconds / self.steps_timed])

    def profile(self) -> Row:
        """Milliseconds of all kernels of a step, and of those that take most of it, with how often they run."""
        from torch.profiler import ProfilerActivity, profile

        with prefetch(self.batches()) as loader:
            step = self.our_step(loader)
            for _ in range(4):
                step()
            synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                for _ in range(3):
                    step()
                synchronize()
        rows = sorted(seen.key_averages(), key=lambda row: -row.device_time_total)
        total = sum(row.device_time_total for row in rows) / 3e3
        return {"all": [total, 0], **{row.key: [row.device_time_total / 3e3, row.count / 3] for row in rows[:36]}}


def means(values: list[float], parts: int) -> list[float]:
    """The means of `parts` consecutive slices of equal length."""
    each = max(1, len(values) // parts)
    return [statistics.mean(values[i : i + each]) for i in range(0, len(values), each)]


def exact_update(objective: Objective, fed: DeviceBatch, scale: float) -> Loss:
    """The forward and backward pass of training, but in float32."""
    value, nll = objective(fed)
    (value * scale).backward()
    return Loss(value.detach(), nll)


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Switch the kernels off inside the block."""
    kept = fused.ragged, fused.linear_cross_entropy, fused.feed_forward, fused.add_norm
    fused.ragged = fused.linear_cross_entropy = fused.feed_forward = fused.add_norm = None
    torch._dynamo.reset()
    try:
        yield
    finally:
        fused.ragged, fused.linear_cross_entropy, fused.feed_forward, fused.add_norm = kept
        torch._dynamo.reset()


def seconds_of(work: Callable[[], Any], *, recorded: bool = True) -> float:
    """Median time of one call, by the device's clock. As a `recorded` CUDA graph, launches do not count."""
    for _ in range(3):
        work()
    synchronize()
    if recorded:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        work = graph.replay
    times = []
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def lines_of(part: str, found: Row) -> Iterator[str]:
    """The results of a part as text."""
    if part == "steps":
        for name, row in found[part].items():
            share = row["tflops"] / found["ceilings"]["tflops"]
            rate, milliseconds = row["target tokens/s"], row["ms a step"]
            yield f"{name:<32} {rate:>12,.0f} target tokens/s  {milliseconds:.2f} ms  share {share:.2f}"
        return
    for name, value in found[part].items():
        values = value.items() if isinstance(value, dict) else [("", value)]
        yield f"{part}: {name[:100]}: " + ", ".join(f"{k} {as_text(v)}".strip() for k, v in values)


def as_text(value: float | list[float]) -> str:
    return " ".join(map(as_text, value)) if isinstance(value, list) else f"{value:,.5g}"


if __name__ == "__main__":
    main()
