"""Measure decoding on one GPU: onehop's CUDA graphs beside Hugging Face Marian, with the same weights.

    python benchmarks/gpu_decode.py [--rounds 20] [-o results/gpu_decode.json] [--all] [--profile]
    python benchmarks/gpu_decode.py --model MODEL --source FILE [--reference FILE] [-o FILE]

First it checks agreement: in float32 the graphs give the translations of the plain search, on the GPU and on the
CPU. In bfloat16 it reports the share that agrees. Then it measures time, with the paper's base shape, random
weights and a vocabulary of 37,000. Sources and outputs have exactly 28 tokens: the weights suppress EOS.

The systems take turns. The results are the median of wall seconds and their spread: the range of the middle 80%
over the median. Only ratios within a run are meaningful. The file is written after each row. `--all` adds the
search without kernels and without graphs, and `--tiny` rehearses everything on a CPU. With a model and a text, it
reports how many translations agree between float32 and bfloat16, the time, and BLEU.
"""

import argparse
import copy
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import synchronize
from random_models import endless
from safetensors.numpy import save

from onehop.config import ModelSettings
from onehop.converters.huggingface import config, generation_config, to_marian, write_json
from onehop.decoding import engine as engine_module
from onehop.decoding import one_token
from onehop.decoding.cuda_graph_search import CapturedSearch
from onehop.decoding.cuda_graph_state import Shape, operations
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.torch_engine import TorchEngine
from onehop.model.transformer import Transformer
from onehop.pipelines.load import model_of
from onehop.storage.model_io import read_model
from onehop.text.tokenizer import EOS, Tokenizer

LENGTH = 28
TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
Sentences = list[list[int]]
Call = Callable[[Sentences, int], int]


def main() -> None:
    arguments = parse()
    if arguments.model:
        report_text(arguments)
    else:
        report_speed(arguments)


def report_speed(arguments: argparse.Namespace) -> None:
    torch.manual_seed(1)
    device = torch.device("cpu" if arguments.tiny else "cuda")
    tiny = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 4}
    settings, vocab = ModelSettings(**(tiny if arguments.tiny else {})), 300 if arguments.tiny else 37_000
    sizes = (1, 4) if arguments.tiny else (1, 32, 512)
    result: dict[str, Any] = {"machine": machine(), "length": LENGTH, "vocabulary": vocab}
    result["rows"] = {}
    result["agreement"] = check(Transformer(settings, vocab).eval(), device, 8 if arguments.tiny else 64)
    engine_module.MORE_THAN_SOURCE = 1  # with EOS; outputs are as long as the sources
    with tempfile.TemporaryDirectory() as folder:
        systems = make_systems(settings, vocab, device, Path(folder), arguments)
    ours = systems["onehop bfloat16"]
    for size in sizes:
        for beam in (1, 4):
            row = {"seconds": measure(systems, size, beam, vocab, arguments.rounds)}
            row.update(summary(row["seconds"]), device_milliseconds=device_times(ours.engine, size, beam))
            result["rows"][name_of(size, beam)] = row
            write(arguments.out, result)
            print(line_of(name_of(size, beam), row), flush=True)
    if arguments.profile:
        for cell in ((sizes[0], 1), (sizes[-1], 4)):
            profile(ours.engine, *cell)


def write(file: Path | None, result: dict[str, Any]) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--all", action="store_true", help="without kernels and without graphs too")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="rehearse everything with a small model on the CPU")
    parser.add_argument("--alone", action="store_true", help="without Hugging Face")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step")
    parser.add_argument("--model", type=Path, help="a model file: translate --source instead")
    parser.add_argument("--source", type=Path, help="text, a sentence a line")
    parser.add_argument("--reference", type=Path, help="its translations, for BLEU")
    return parser.parse_args()


def machine() -> dict[str, str]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {"device": gpu, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}


def name_of(size: int, beam: int) -> str:
    return f"batch {size}, beam {beam}"


# --- agreement ------------------------------------------------------------------------------------


def check(model: Transformer, device: torch.device, count: int) -> dict[str, dict[str, str]]:
    """Count the sentences whose translations equal the plain search's on this device in float32."""
    draw = np.random.default_rng(3)
    sentences = [draw.integers(4, model.vocab_size, n).tolist() for n in draw.integers(1, 41, count)]
    few = sentences[: count // 4]
    found: dict[str, dict[str, str]] = {}
    on_cpu = TorchEngine(model)
    cpu = {beam: translated(on_cpu, few, beam) for beam in (1, 4)}
    model = model.to(device)
    for beam in (1, 4):
        plain = translated(TorchEngine(model, capture=False), sentences, beam)
        shares = {
            "graphs with kernels": agreeing(plain, translated(graphs(model, operations(device)), sentences, beam)),
            "graphs without kernels": agreeing(plain, translated(graphs(model, one_token), sentences, beam)),
            "CPU": agreeing(cpu[beam], translated(graphs(model, operations(device)), few, beam)),
        }
        found[f"beam {beam}"] = shares
    exact = {beam: translated(graphs(model, operations(device)), sentences, beam) for beam in (1, 4)}
    model = model.to(torch.bfloat16)
    for beam in (1, 4):
        rounded = translated(graphs(model, operations(device)), sentences, beam)
        found[f"beam {beam}"]["graphs in bfloat16"] = agreeing(exact[beam], rounded)
        plain = translated(TorchEngine(model, capture=False), sentences, beam)
        found[f"beam {beam}"]["plain in bfloat16"] = agreeing(exact[beam], plain)
    print(json.dumps(found, indent=1), flush=True)
    return found


def graphs(model: Transformer, how: Any) -> TorchEngine:
    engine = TorchEngine(model, capture=False)
    engine.captured = CapturedSearch(model, how)
    return engine


def translated(engine: TorchEngine, sentences: Sentences, beam: int) -> list[list[Hypothesis]]:
    return engine.translate(sentences, SearchOptions(beam=beam, n_best=beam), range(len(sentences)))


def agreeing(one: Sequence[Sequence[Hypothesis]], other: Sequence[Sequence[Hypothesis]]) -> str:
    """Count equal best translations, and the largest difference of their scores."""
    pairs = [(a[0], b[0]) for a, b in zip(one, other, strict=True)]
    same = [(a, b) for a, b in pairs if (a.ids, a.finished, a.looped) == (b.ids, b.finished, b.looped)]
    apart = max((abs(a.score - b.score) for a, b in same), default=0.0)
    return f"{len(same)} of {len(pairs)}, scores within {apart:.1e}"


# --- speed -------------------------------------------------------------------------------------------------


class Ours:
    """An engine as a call that returns the number of tokens it wrote."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine

    def __call__(self, sentences: Sentences, beam: int) -> int:
        options = SearchOptions(beam=beam, loop_repeats=0)
        found = self.engine.translate(sentences, options, range(len(sentences)))
        return sum(len(best[0].ids) for best in found)


class Marian:
    """Hugging Face's model with its search."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @torch.inference_mode()
    def __call__(self, sentences: Sentences, beam: int) -> int:
        src = torch.tensor([[*ids, EOS] for ids in sentences]).to(self.model.device)
        found = self.model.generate(
            src, attention_mask=torch.ones_like(src), num_beams=beam, max_new_tokens=LENGTH, do_sample=False
        )
        return int(found[:, 1:].numel())


def make_systems(
    settings: ModelSettings, vocab: int, device: torch.device, folder: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return each system as a call on ids that returns the number of tokens it wrote."""
    model = endless(settings, vocab)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    models = {name: copy.deepcopy(model).to(device, dtype) for name, dtype in TYPES.items()}
    how = operations(device)
    systems: dict[str, Any] = {f"onehop {name}": Ours(graphs(m, how)) for name, m in models.items()}
    if arguments.all:
        systems["without kernels"] = Ours(graphs(models["bfloat16"], one_token))
        systems["without graphs"] = Ours(TorchEngine(models["bfloat16"], capture=False))
    if not arguments.alone:
        from transformers import MarianMTModel, logging

        logging.set_verbosity_error()
        (folder / "model.safetensors").write_bytes(save(to_marian(weights, settings), {"format": "pt"}))
        write_json(folder / "config.json", config(settings, vocab))
        write_json(folder / "generation_config.json", generation_config(settings, 0.6))
        for name, dtype in TYPES.items():
            read = MarianMTModel.from_pretrained(folder, local_files_only=True, dtype=dtype)
            systems[f"Hugging Face {name}"] = Marian(read.eval().to(device))
    return systems


def sentences_of(size: int, vocab: int, seed: int) -> Sentences:
    return np.random.default_rng(seed).integers(4, vocab, (size, LENGTH - 1)).tolist()


def measure(systems: dict[str, Call], size: int, beam: int, vocab: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call, in turn; the first two turns warm up."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 2):
        sentences = sentences_of(size, vocab, turn)
        for name, call in systems.items():
            synchronize()
            began = time.perf_counter()
            written = call(sentences, beam)
            synchronize()
            if turn > 1:
                times[name].append(time.perf_counter() - began)
            assert written == size * LENGTH, f"{name} wrote {written} tokens"
    return times


def summary(times: dict[str, list[float]]) -> dict[str, Any]:
    """Return median and maximum in milliseconds, the spread, and the ratio to the peer in the same dtype."""
    medians = {name: statistics.median(t) for name, t in times.items()}
    spreads = {}
    for name, t in times.items():
        low, high = np.quantile(t, [0.1, 0.9])
        spreads[name] = float(high - low) / medians[name]
    peers = {name: name.replace("onehop", "Hugging Face") for name in times if name.startswith("onehop")}
    return {
        "median_milliseconds": {name: 1e3 * median for name, median in medians.items()},
        "slowest_milliseconds": {name: 1e3 * max(t) for name, t in times.items()},
        "spread": spreads,
        "times_as_fast": {name: medians[peer] / medians[name] for name, peer in peers.items() if peer in medians},
    }


def line_of(cell: str, row: dict[str, Any]) -> str:
    """Format a row."""
    device, parts = row["device_milliseconds"], []
    for name, median in row["median_milliseconds"].items():
        ratio = row["times_as_fast"].get(name)
        faster = f", {ratio:.1f} times Hugging Face" if ratio else ""
        slowest, spread = row["slowest_milliseconds"][name], row["spread"][name]
        parts.append(f"  {name}: {median:,.2f} ms, spread {spread:.0%}, slowest {slowest:,.2f}{faster}")
    own = f"  device alone: {device['begin'] + LENGTH * device['step']:,.2f} ms"
    return "\n".join([cell, *parts, own])


@torch.inference_mode()
def device_times(engine: TorchEngine, size: int, beam: int) -> dict[str, float]:
    """Return the milliseconds of the captured start and of a captured step, without the host."""
    captured = graphs_of(engine, size, beam)

    def run(step: Callable[[], None], times: int) -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(times):
            step()
        synchronize()
        return 1e3 * (time.perf_counter() - began) / times

    begin = run(captured.begin, 5)
    captured.begin()
    return {"begin": begin, "step": run(captured.step, LENGTH)}


def graphs_of(engine: TorchEngine, size: int, beam: int) -> Any:
    assert engine.captured is not None
    sentences, options = sentences_of(size, 300, 0), SearchOptions(beam=beam, loop_repeats=0)
    return engine.captured.graphs_for(Shape.of(sentences, [LENGTH] * size, options, engine.model.settings))


@torch.inference_mode()
def profile(engine: TorchEngine, size: int, beam: int) -> None:
    """List the kernels of one step, launched one by one instead of replayed as a graph."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watched

    captured = graphs_of(engine, size, beam)
    captured.begin()
    for _ in range(LENGTH // 2):
        captured.step()
    synchronize()
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with watched(activities=kinds) as seen:
        captured.step_eagerly()
        synchronize()
    key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    print(name_of(size, beam))
    print(seen.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=70))


# --- a real model -------------------------------------------------------------------------------------------


def report_text(arguments: argparse.Namespace) -> None:
    """Translate a text with the paper's beam: in float32 plain and by graphs, and in bfloat16 by graphs."""
    stored = read_model(arguments.model)
    tokenizer = Tokenizer(stored.tokenizer)
    sentences = tokenizer.encode_batch(arguments.source.read_text(encoding="utf-8").splitlines())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ways = {"plain float32": False, "float32": True, "bfloat16": True}
    found, texts, result = {}, {}, {"machine": machine(), "sentences": len(sentences)}
    for name, captured in ways.items():
        model = model_of(stored).to(device, TYPES[name.split()[-1]])
        engine = graphs(model, operations(device)) if captured else TorchEngine(model, capture=False)
        found[name], seconds = timed(engine, sentences)
        texts[name] = [tokenizer.decode(best[0].ids) for best in found[name]]
        tokens = sum(len(best[0].ids) + 1 for best in found[name])
        result[name] = {
            "seconds": seconds,
            "tokens_a_second": tokens / seconds,
            "agrees with plain float32": agreeing(found["plain float32"], found[name]),
            "BLEU": bleu_of(texts[name], arguments.reference),
        }
        print(name, result[name], flush=True)
        result[name]["otherwise"] = apart(texts["plain float32"], texts[name])
    write(arguments.out, result)


def apart(plain: list[str], texts: list[str]) -> dict[int, list[str]]:
    """Return the translations that differ, by line number."""
    pairs = enumerate(zip(plain, texts, strict=True), 1)
    return {line: [one, other] for line, (one, other) in pairs if one != other}


def timed(engine: TorchEngine, sentences: Sentences) -> tuple[list[list[Hypothesis]], float]:
    """Time the second run, when every graph is captured."""
    engine.translate(sentences, SearchOptions(), range(len(sentences)))
    synchronize()
    began = time.perf_counter()
    found = engine.translate(sentences, SearchOptions(), range(len(sentences)))
    synchronize()
    return found, time.perf_counter() - began


def bleu_of(texts: list[str], reference: Path | None) -> float | None:
    if reference is None:
        return None
    from onehop.evaluation.metrics import bleu

    return bleu(texts, reference.read_text(encoding="utf-8").splitlines()).value


if __name__ == "__main__":
    main()
