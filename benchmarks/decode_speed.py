"""Translation speed on this machine's CPU: onehop beside CTranslate2 by itself and Hugging Face Marian.

    python benchmarks/decode_speed.py [--rounds 5] [-o results/decode_speed.json]

The paper's base shape with random weights, the same in every system through onehop's own exports. Sources of 25 tokens,
outputs of exactly 25: the weights are made so that nothing ends a sentence before. One call of each system in turn, one
thread each; medians of CPU seconds, which a busy machine disturbs least. CTranslate2 is called as its README shows.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ctranslate2
import numpy as np
import torch
from transformers import MarianMTModel, logging

from onehop import engines
from onehop.config import ModelSettings, Settings, TokenizerSettings
from onehop.export import ctranslate2 as to_ctranslate2
from onehop.export import huggingface as to_huggingface
from onehop.model import Transformer
from onehop.modelfile import StoredModel, write_model
from onehop.options import SearchOptions
from onehop.tokenizer import EOS, Tokenizer
from onehop.translator import Translator

LENGTH = 25
Call = Callable[[list[list[int]], int], int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    engines.MORE_THAN_SOURCE = 0  # outputs as long as the sources, and no longer
    stored = random_model()
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


def random_model() -> StoredModel:
    """Base shape; the last norm puts a constant into every output vector that speaks against the end mark alone."""
    draw = np.random.default_rng(1)
    words = ["".join(map(chr, draw.integers(97, 123, n))) for n in draw.integers(2, 9, 60_000)]
    texts = [" ".join(words[i : i + 20]) for i in range(0, len(words), 20)]
    tokenizer = Tokenizer.learn(texts, TokenizerSettings(vocab_size=16_000))
    settings = Settings(model=ModelSettings())
    torch.manual_seed(1)
    model = Transformer(settings.model, tokenizer.vocab_size)
    with torch.no_grad():
        direction = torch.randn(settings.model.d_model)
        direction /= direction.norm()
        model.decoder.layers[-1].feed_add_norm.norm.bias.copy_(10 * direction)
        model.embedding.weight[EOS] = -10 * direction
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    return StoredModel(
        settings=settings, tokenizer=tokenizer.model, source="en", target="de", provenance={}, tensors=weights
    )


def make_systems(stored: StoredModel, folder: Path) -> dict[str, Call]:
    """Every system as a call on ids that returns how many tokens it wrote."""
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
    ours = {c: Translator.load(file, engine="ctranslate2", compute=c, threads=1).fast for c in ("int8", "float32")}
    reference = Translator.load(file, engine="torch").reference
    return {
        "onehop int8": lambda ids, beam: by_engine(ours["int8"], ids, beam),
        "CTranslate2 int8": lambda ids, beam: by_ctranslate2(plain["int8"], pieces, ids, beam),
        "onehop float32": lambda ids, beam: by_engine(ours["float32"], ids, beam),
        "CTranslate2 float32": lambda ids, beam: by_ctranslate2(plain["float32"], pieces, ids, beam),
        "onehop torch": lambda ids, beam: by_engine(reference, ids, beam),
        "Hugging Face float32": lambda ids, beam: by_marian(marian, ids, beam),
    }


def by_engine(engine: engines.Engine, ids: list[list[int]], beam: int) -> int:
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
    """CPU seconds of each call, in turn; the first turn warms up."""
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


if __name__ == "__main__":
    main()
