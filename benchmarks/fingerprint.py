"""Print a SHA-256 for each output that a refactoring must not change, all through the command line.

    python benchmarks/fingerprint.py [-o FILE.json] [--skip-torch]

Two versions of the code with equal hashes train the same weights, write the same translations with the same scores,
record the same trace and serve the same paths. Compare runs on one machine: processors differ in the last bits.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from safetensors.numpy import load_file

SENTENCES = Path(__file__).parent.parent / "tests/data/tatoeba-1000.en"
SENTENCE = "The cat sat because it was sleepy."
TRAININGS = {  # preset: steps, each of a few hundred tokens, so that a CPU trains the largest too
    "tiny": 40,
    "small": 8,
    "base": 3,
}
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--skip-torch", action="store_true", help="skip the slow translations by torch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = fingerprint(Path(folder), torch=not arguments.skip_torch)
    text = json.dumps(found, indent=1) + "\n"
    sys.stdout.write(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


def fingerprint(folder: Path, *, torch: bool) -> dict[str, str]:
    write_pairs(folder / "pairs.tsv")
    found = {f"train {preset}": training(preset, steps, folder) for preset, steps in TRAININGS.items()}
    for engine in ("ctranslate2", "torch") if torch else ("ctranslate2",):
        found[f"translate {engine}"] = translations(engine)
    onehop("trace", SENTENCE, "-o", folder / "trace.json")
    trace: Any = json.loads((folder / "trace.json").read_bytes())
    del trace["seconds"]
    found["trace"] = sha256(json.dumps(trace).encode())
    found["openapi"] = openapi()
    return found


def write_pairs(path: Path) -> None:
    """Write real sentences with their words reversed: enough text for a training."""
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines), encoding="utf-8")


def training(preset: str, steps: int, folder: Path) -> str:
    store, run = folder / f"{preset}.store", folder / f"{preset}.run"
    few = ["--set", "tokenizer.vocab_size=800", "--set", "data.valid_size=50", "--set", "data.language=false"]
    onehop("prepare", folder / "pairs.tsv", "-o", store, "-s", preset, "--processes", 1, *few)
    train = [f"steps={steps}", "batch_tokens=600", "average=1", "save_every=1000", "validate_every=1000", "seed=7"]
    onehop(
        *("train", preset, "--store", store, "-o", run, "--device", "cpu", "--bleu-on", 0),
        *(word for setting in train for word in ("--set", f"train.{setting}")),
    )
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(run / "model.safetensors").items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode() + tensor.tobytes())
    return digest.hexdigest()


def translations(engine: str) -> str:
    written = onehop("translate", "-i", SENTENCES, "--engine", engine, "--json", "--threads", 1)
    lines = [json.loads(line) for line in written.removesuffix("\n").split("\n")]
    for line in lines:  # new in 0.2.0; without them hashes stay comparable with older versions
        for key in ("models", "via"):
            line.pop(key, None)
    return sha256("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode())


def openapi() -> str:
    """Return the server's OpenAPI description."""
    command = [sys.executable, "-m", "onehop", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        address = re.search(r"http://\S+:\d+", server.stderr.readline())
        assert address is not None
        try:
            described: Any = json.load(urlopen(f"{address[0]}/openapi.json"))
        finally:
            server.terminate()
            server.stderr.read()
    described["info"].pop("version")
    return sha256(json.dumps(described, sort_keys=True).encode())


def onehop(*words: object) -> str:
    command = [sys.executable, "-m", "onehop", *map(str, words)]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
