"""Measure the sentences per second of `onehop translate` over a file, from the start of the command to its last line.

    python benchmarks/bulk.py TEXT --lines 1000000 --workers 8 -o results/gpu/bulk.json
    python benchmarks/bulk.py TEXT --lines 200000 --beams 4 --workers 4 8 --compute bfloat16 float32

One command runs for each beam, number of workers and dtype; the time includes loading models and capturing graphs.
TEXT has one sentence a line. Repeated lines are left out, so that no answer comes from a cache. If too few lines
remain, the command says so. The file is written after each measurement.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    arguments = parse()
    result: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        lines = write_distinct(arguments.text, source, arguments.lines)
        result["text"] = {"lines": lines, "bytes": source.stat().st_size}
        for beam, workers, compute in itertools.product(arguments.beams, arguments.workers, arguments.compute):
            run = measure(arguments, source, beam, workers, compute)
            result["runs"].append(run)
            print(run, flush=True)
            if arguments.out:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--beams", type=int, nargs="+", default=[1])
    parser.add_argument("--workers", type=int, nargs="+", default=[8])
    parser.add_argument("--compute", nargs="+", default=["bfloat16"])
    parser.add_argument("-o", "--out", type=Path)
    return parser.parse_args()


def machine() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"device": gpu, "cores": os.cpu_count(), "torch": torch.__version__}


def write_distinct(text: Path, target: Path, lines: int) -> int:
    """Write the first so many distinct lines that are not empty, and return their number."""
    seen: set[int] = set()
    with text.open("rb") as source, target.open("wb") as out:
        for line in source:
            if len(seen) == lines:
                break
            if line.strip() and (mark := hash(line)) not in seen:
                seen.add(mark)
                out.write(line)
    if len(seen) < lines:
        print(f"{text} has {len(seen):,} distinct lines.", file=sys.stderr)
    return len(seen)


def measure(arguments: argparse.Namespace, source: Path, beam: int, workers: int, compute: str) -> dict[str, Any]:
    """Time one command in its own process."""
    out = source.with_name("target")
    out.unlink(missing_ok=True)
    options = ["--model", arguments.model, "--device", arguments.device, "--compute", compute, "--beam", str(beam)]
    options += ["--workers", str(workers), "--whole-lines", "-i", str(source), "-o", str(out)]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "onehop", "translate", *options], stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stderr.decode())
    lines = sum(1 for _ in out.open("rb"))
    assert lines == sum(1 for _ in source.open("rb"))
    run = {"beam": beam, "workers": workers, "compute": compute, "lines": lines}
    return {**run, "seconds": round(seconds, 2), "sentences_a_second": round(lines / seconds, 1)}


if __name__ == "__main__":
    main()
