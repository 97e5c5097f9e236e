"""Code that the attacks share: the size of a run, a small model, and the report."""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from onehop.config import ModelSettings, Settings, TokenizerSettings
from onehop.experiments.provenance import origin
from onehop.model.transformer import Transformer
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import write_model
from onehop.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
FULL = bool(os.environ.get("FULL"))


def of(full: int) -> int:
    """How many of a full run's attempts this one makes."""
    return full if FULL else full // 10


def report(name: str, found: dict[str, Any], failures: list[str]) -> None:
    """Print one line, write a JSON file under results/chaos, and exit with status 1 if something failed."""
    out = ROOT / "results" / "chaos"
    out.mkdir(parents=True, exist_ok=True)
    result = {**origin(f"benchmarks/chaos/{name}.py"), "full": FULL, **found, "failures": failures[:20]}
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{name}: {'held' if not failures else f'{len(failures)} FAILURES'}: {json.dumps(found)}", flush=True)
    for line in failures[:20]:
        print(f"  {line}")
    sys.exit(bool(failures))


def small_model(folder: Path) -> Path:
    """Build a model with random weights; its translations make no sense but are deterministic."""
    words = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
    tokenizer = Tokenizer.learn(words, TokenizerSettings(vocab_size=300))
    shape = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 2, "max_length": 64}
    model = ModelSettings(**shape, dropout=0.0)
    torch.manual_seed(0)
    weights = Transformer(model, tokenizer.vocab_size).state_dict()
    stored = StoredModel(
        settings=Settings(model=model),
        tokenizer=tokenizer.model,
        source="en",
        target="de",
        provenance={},
        tensors={name: tensor.numpy() for name, tensor in weights.items()},
    )
    return write_model(folder / "small.safetensors", stored)
