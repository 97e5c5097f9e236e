"""Time torch on two short sentences: one thread, two that spin while they wait, and two that sleep.

    python benchmarks/threads.py [--rounds 3] [--turns 5] [--busy 2] [-o results/threads.json]

OpenMP reads its wait policy when torch is imported, so each case is a process of its own. The cases take turns, so
that other work on the machine affects all alike. `--busy` adds loops that keep a core busy each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SENTENCES = ["The cat sat because it was sleepy.", "Where is the station?"]
WAYS = {"one thread": (1, "active"), "two threads, spinning": (2, "active"), "two threads, passive": (2, "passive")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5, help="turns of each case in a round")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.threads:
        print(json.dumps(turns(arguments.threads, arguments.turns)))
        return
    from onehop.experiments.provenance import origin

    before = json.loads(arguments.out.read_text())["runs"] if arguments.out and arguments.out.exists() else []
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        found = compared(arguments.rounds, arguments.turns)
    finally:
        for loop in loops:
            loop.kill()
    run = {"busy loops": arguments.busy, **found}
    print(json.dumps({key: run[key] for key in ("busy loops", "load", "median", "ratio to one thread")}))
    if arguments.out:
        result = {**origin("benchmarks/threads.py"), "model": "en-de", "beam": 4, "runs": [*before, run]}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def turns(threads: int, count: int) -> list[float]:
    """Return the seconds of each turn after a warm-up."""
    import torch

    from onehop.pipelines.sentence_translator import SentenceTranslator

    translator = SentenceTranslator.load("en-de", "cpu", engine="torch")
    torch.set_num_threads(threads)
    translator.translate(SENTENCES)
    seconds = []
    for _ in range(count):
        began = time.monotonic()
        translator.translate(SENTENCES)
        seconds.append(round(time.monotonic() - began, 3))
    return seconds


def compared(rounds: int, count: int) -> dict[str, Any]:
    """Measure every case in each round."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    load = []
    for _ in range(rounds):
        for way, (threads, policy) in WAYS.items():
            command = [sys.executable, __file__, "--threads", str(threads), "--turns", str(count)]
            done = subprocess.run(
                command, env={**os.environ, "OMP_WAIT_POLICY": policy}, stdout=subprocess.PIPE, check=True
            )
            seconds[way] += json.loads(done.stdout)
            load.append(round(os.getloadavg()[0], 1))
    median = {way: round(statistics.median(each), 3) for way, each in seconds.items()}
    one = median["one thread"]
    ratio = {way: round(each / one, 2) for way, each in median.items()}
    return {"load": load, "seconds": seconds, "median": median, "ratio to one thread": ratio}


if __name__ == "__main__":
    main()
