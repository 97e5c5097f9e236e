"""Measure translation speed on this machine's CPU: onehop beside CTranslate2 and Hugging Face Marian.

    python benchmarks/decode_speed.py [--rounds 5] [-o results/decode_speed.json]
    python benchmarks/decode_speed.py --file NEWS.en NEWS.de [--model en-de] [--rounds 3] [-o results/decode_file.json]

Without --file, every system runs the paper's base shape with the same random weights, through onehop's exports.
Sources and outputs have exactly 25 tokens: the weights suppress EOS. The systems take turns, on one thread each.
The result is the median of CPU seconds, which other work on the machine disturbs least. CTranslate2 is called as
its README shows.

With --file, `onehop translate` and the systems of decode_file.py translate a real file, one after the other, each
in its own process. `--small` adds a second model as onehop-small. Systems in float32 get a sample of the lines. The
figures are written after every system. The time of a single line, the start, is subtracted before tokens are
divided by seconds. Tokens are those of onehop's tokenizer for every system.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ctranslate2
import numpy as np
import sacrebleu
import torch
from random_models import endless_base
from transformers import MarianMTModel, logging

from onehop.converters import ctranslate2 as to_ctranslate2
from onehop.converters import huggingface as to_huggingface
from onehop.decoding import engine as engine_module
from onehop.decoding.options import SearchOptions
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import read_model, write_model
from onehop.storage.registry import find_model
from onehop.text.tokenizer import EOS, Tokenizer

LENGTH = 25
ON_ALL, SAMPLED = ["onehop", "ctranslate2-readme", "ctranslate2-tuned"], ["onehop-torch", "marian", "naive-torch"]
# Other ways to call onehop; those with "small" in their names use the model of --small.
MORE = {
    "onehop-greedy": ["--beam", "1"],
    "onehop-small": [],
    "onehop-small-greedy": ["--beam", "1"],
}
Call = Callable[[list[list[int]], int], int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--file", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--model", default="en-de", help="With --file: the systems to run.")
    parser.add_argument("--small", help="With --file: the model of the systems onehop-small and onehop-small-greedy.")
    parser.add_argument("--every", type=int, default=1, help="With --file: only every N-th line.")
    parser.add_argument(
        "--sample", type=int, default=20, help="With --file: every N-th of those lines for systems in float32."
    )
    parser.add_argument("--threads", type=int, help="With --file: threads of each process. Default: one per core.")
    parser.add_argument("--systems", nargs="+", default=[*ON_ALL, *SAMPLED], choices=[*ON_ALL, *SAMPLED, *MORE])
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    if arguments.small is None and any("small" in system for system in arguments.systems):
        parser.error("name the model of onehop-small with --small")
    if arguments.file:
        on_file(arguments)
    else:
        on_fixed_lengths(arguments)


def on_fixed_lengths(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    engine_module.MORE_THAN_SOURCE = 0  # outputs are as long as the sources
    stored = endless_base()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ONEHOP_CACHE"] = folder
        systems = make_systems(stored, Path(folder))
        rows = {
            f"batch {size}, beam {beam}": measure(systems, size, beam, arguments.rounds)
            for size in (1, 32)
            for beam in (1, 4)
        }
    report(rows)
    if arguments.out:
        versions = {m.__name__: m.__version__ for m in (torch, ctranslate2)}
        arguments.out.write_text(json.dumps({"cpu_seconds": rows, "versions": versions}, indent=1) + "\n")


def make_systems(stored: StoredModel, folder: Path) -> dict[str, Call]:
    """Return each system as a call on ids that returns the number of tokens it wrote."""
    file = folder / "model.safetensors"
    write_model(file, stored)
    for name, writer in (("hf", to_huggingface), ("ct2", to_ctranslate2)):
        (folder / name).mkdir()
        writer.write(stored, folder / name)
    pieces = [piece for piece, _ in Tokenizer(stored.tokenizer).vocabulary()]
    marian = MarianMTModel.from_pretrained(folder / "hf").eval()
    plain = {
        c: ctranslate2.Translator(str(folder / "ct2"), device="cpu", compute_type=c, intra_threads=1)
        for c in ("int8", "float32")
    }
    ours = {
        c: SentenceTranslator.load(file, engine="ctranslate2", compute=c, threads=1).fast for c in ("int8", "float32")
    }
    reference = SentenceTranslator.load(file, engine="torch").reference
    return {
        "onehop int8": lambda ids, beam: by_engine(ours["int8"], ids, beam),
        "CTranslate2 int8": lambda ids, beam: by_ctranslate2(plain["int8"], pieces, ids, beam),
        "onehop float32": lambda ids, beam: by_engine(ours["float32"], ids, beam),
        "CTranslate2 float32": lambda ids, beam: by_ctranslate2(plain["float32"], pieces, ids, beam),
        "onehop torch": lambda ids, beam: by_engine(reference, ids, beam),
        "Hugging Face float32": lambda ids, beam: by_marian(marian, ids, beam),
    }


def by_engine(engine: engine_module.Engine, ids: list[list[int]], beam: int) -> int:
    found = engine.translate(ids, SearchOptions(beam=beam, loop_repeats=0), list(range(len(ids))))
    return sum(len(h[0].ids) for h in found)


def by_ctranslate2(translator: ctranslate2.Translator, pieces: list[str], ids: list[list[int]], beam: int) -> int:
    tokens = [[pieces[i] for i in [*sentence, EOS]] for sentence in ids]
    found = translator.translate_batch(tokens, beam_size=beam, max_decoding_length=LENGTH)
    return sum(len(r.hypotheses[0]) for r in found)


@torch.inference_mode()
def by_marian(model: MarianMTModel, ids: list[list[int]], beam: int) -> int:
    src = torch.tensor([[*sentence, EOS] for sentence in ids])
    found = model.generate(
        src, attention_mask=torch.ones_like(src), num_beams=beam, max_new_tokens=LENGTH, do_sample=False
    )
    return found[:, 1:].numel()


def measure(systems: dict[str, Call], size: int, beam: int, rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each call, in turn; the first turn warms up."""
    draw = np.random.default_rng(2)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 1):
        ids = draw.integers(300, 15_000, (size, LENGTH)).tolist()
        for name, call in systems.items():
            began = time.process_time()
            written = call(ids, beam)
            if turn:
                times[name].append(time.process_time() - began)
            assert written == size * LENGTH, f"{name} wrote {written} tokens"
    return times


def report(rows: dict[str, dict[str, list[float]]]) -> None:
    names = list(next(iter(rows.values())))
    print(f"{'CPU milliseconds':<20}" + "".join(f"{name:>22}" for name in names))
    for row, times in rows.items():
        print(f"{row:<20}" + "".join(f"{1e3 * statistics.median(times[name]):>22,.0f}" for name in names))


# --- a real file ----------------------------------------------------------------------------------------------

# The peak memory of a child includes its parent's at the fork, so a small process starts and measures it.
MEASURE = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
wall, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = used.ru_utime + used.ru_stime
print(json.dumps({"status": status, "wall": wall, "cpu": cpu, "megabytes": used.ru_maxrss / 1024}))
"""


class Lines:
    """Lines of a file, written for the systems, and their references."""

    def __init__(self, file: Path, sources: list[str], references: list[str]) -> None:
        self.file, self.references = file, references
        file.write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")


def on_file(arguments: argparse.Namespace) -> None:
    sources, references = (f.read_text(encoding="utf-8").split("\n")[:-1] for f in arguments.file)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = write_exports(find_model(arguments.model), folder, arguments.small)
        every, few = slice(None, None, arguments.every), slice(None, None, arguments.every * arguments.sample)
        files = {
            "all": Lines(folder / "all", sources[every], references[every]),
            "sample": Lines(folder / "sample", sources[few], references[few]),
            "one": Lines(folder / "one", sources[:1], references[:1]),
        }
        turns: list[dict[str, dict[str, float]]] = []
        for _ in range(arguments.rounds):
            turns.append({})
            for system in arguments.systems:
                turns[-1][system] = on_system(system, folder, files, tokenizer, arguments.threads)
                rows = {name: file_row([t[name] for t in turns if name in t]) for name in turns[0]}
                write_rows(arguments, rows, turns)
    print(f"{'':<26}" + "".join(f"{name:>14}" for name in next(iter(rows.values()))))
    for system, row in rows.items():
        print(f"{system:<26}" + "".join(f"{value:>14,.2f}" for value in row.values()))


def write_rows(arguments: argparse.Namespace, rows: dict[str, Any], turns: list[Any]) -> None:
    if arguments.out:
        about = {
            "load": os.getloadavg(),
            "threads": arguments.threads,
            "file": arguments.file[0].name,
            "model": arguments.model,
            "small": arguments.small and Path(arguments.small).name,
            "ctranslate2": ctranslate2.__version__,
            "torch": torch.__version__,
        }
        arguments.out.write_text(json.dumps({**about, "rows": rows, "turns": turns}, indent=1) + "\n")


def write_exports(model: Path, folder: Path, small: str | None) -> Tokenizer:
    """Write the model files and the exports that the other systems read."""
    stored = read_model(model)
    write_model(folder / "model.safetensors", stored)
    if small is not None:
        write_model(folder / "small.safetensors", read_model(find_model(small)))
    for name, writer in (("hf", to_huggingface), ("ct2", to_ctranslate2)):
        (folder / name).mkdir()
        writer.write(stored, folder / name)
    return Tokenizer(stored.tokenizer)


def on_system(
    system: str, folder: Path, files: dict[str, Lines], tokenizer: Tokenizer, threads: int | None
) -> dict[str, float]:
    """Run a system once on its file and once on a single line."""
    process(folder, system, files["one"], threads)  # the first run fills the caches
    lines = files["sample" if system in SAMPLED else "all"]
    start, work = (process(folder, system, file, threads) for file in (files["one"], lines))
    texts = (folder / "out").read_text(encoding="utf-8").split("\n")[:-1]
    found = {
        "sentences": len(texts),
        "tokens": sum(len(ids) + 1 for ids in tokenizer.encode_batch(texts)),
        "start": start["wall"],
        "seconds": work["wall"] - start["wall"],
        "cpu_seconds": work["cpu"] - start["cpu"],
        "whole_cpu_seconds": work["cpu"],
        "megabytes": work["megabytes"],
        "bleu": sacrebleu.corpus_bleu(texts, [lines.references]).score,
    }
    print(system, found, flush=True)
    return found


def process(folder: Path, system: str, lines: Lines, threads: int | None) -> dict[str, float]:
    """Return wall time, CPU time and peak memory of a process, which may use all cores by default."""
    if system.startswith("onehop"):
        engine = "torch" if "torch" in system else "auto"
        model = folder / ("small.safetensors" if "small" in system else "model.safetensors")
        command = ["-m", "onehop", "translate", "--model", model, "--engine", engine, *MORE.get(system, [])]
        command += ["--whole-lines", "-i", lines.file, "-o", folder / "out"]
    else:
        command = [Path(__file__).with_name("decode_file.py"), system, folder, lines.file, folder / "out"]
    environment = {**os.environ, "ONEHOP_CACHE": str(folder / "cache")}
    environment.pop("OMP_NUM_THREADS")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    measured = [sys.executable, "-c", MEASURE, sys.executable, *command]
    found = json.loads(subprocess.run(measured, env=environment, capture_output=True, text=True).stdout)
    if found.pop("status"):
        raise SystemExit(f"{system} failed: {' '.join(map(str, command))}")
    return found


def file_row(turns: list[dict[str, float]]) -> dict[str, float]:
    """Return medians over the turns."""
    middle = {key: statistics.median(t[key] for t in turns) for key in turns[0]}
    return {
        "sentences": middle["sentences"],
        "tokens/s": statistics.median(t["tokens"] / t["seconds"] for t in turns),
        "tokens/CPU s": statistics.median(t["tokens"] / t["cpu_seconds"] for t in turns),
        "MB": middle["megabytes"],
        "start s": middle["start"],
        "BLEU": middle["bleu"],
    }


if __name__ == "__main__":
    main()
