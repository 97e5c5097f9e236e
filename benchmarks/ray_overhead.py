"""Compare the cost of `onehop translate --ray local` and `onehop translate` on the same lines, without the start.

    python benchmarks/ray_overhead.py TEXT [--lines 5000] [--model en-de] [--rounds 3] [-o results/ray_overhead.json]

Each round runs four commands: both ways over all lines, and both ways over the first line. The second pair is the
start, which is subtracted. The commands take turns, so that a busy machine affects both alike. CPU seconds are those of
the command and of every process below it, Ray's own among them, read from /proc twice a second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LOOK_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")
WAYS = ("plain", "ray")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        sources = write_sources(arguments.text, Path(folder), arguments.lines)
        for number in range(arguments.rounds):
            ways = WAYS[:: 1 if number % 2 else -1]
            rounds.append({"load": os.getloadavg()[0]})
            for source in sources:
                rounds[-1][source.stem] = {way: measure(way, arguments.model, source) for way in ways}
                same(source)
            print(json.dumps(rounds[-1]), flush=True)
            result = {"machine": machine(), "lines": arguments.lines, "model": arguments.model, **summary(rounds)}
            if arguments.out:
                arguments.out.write_text(json.dumps({**result, "rounds": rounds}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def machine() -> dict[str, Any]:
    import ctranslate2
    import ray

    return {"cores": os.cpu_count(), "ctranslate2": ctranslate2.__version__, "ray": ray.__version__}


def write_sources(text: Path, folder: Path, lines: int) -> list[Path]:
    """Write all lines, and the first line, as two files."""
    chosen = text.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
    if len(chosen) < lines:
        sys.exit(f"{text} has {len(chosen):,} lines.")
    sources = [folder / "work.txt", folder / "start.txt"]
    sources[0].write_text("".join(chosen), encoding="utf-8")
    sources[1].write_text(chosen[0], encoding="utf-8")
    return sources


def target(way: str, source: Path) -> Path:
    return source.parent / way / source.name


def measure(way: str, model: str, source: Path) -> dict[str, float]:
    """Return wall clock and CPU seconds of one command."""
    out = target(way, source)
    out.parent.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    how = (
        ["-i", str(source), "-o", str(out)]
        if way == "plain"
        else ["--ray", "local", str(source), "-o", str(out.parent)]
    )
    command = [sys.executable, "-m", "onehop", "translate", "--model", model, "--beam", "1", *how]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        used: dict[tuple[int, str], float] = {}
        while process.poll() is None:
            look(process.pid, used)
            time.sleep(LOOK_SECONDS)
        seconds = time.perf_counter() - began
        if process.returncode:
            said.seek(0)
            sys.exit(said.read().decode())
    found = {"seconds": round(seconds, 2), "cpu_seconds": round(sum(used.values()), 2)}
    print(source.stem, way, found, file=sys.stderr, flush=True)
    return found


def look(root: int, used: dict[tuple[int, str], float]) -> None:
    """Record the CPU seconds of a process and its descendants, by process number and start time."""
    parents: dict[int, int] = {}
    stats: dict[int, list[str]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(file.parent.name)
        parents[pid], stats[pid] = int(fields[1]), fields
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    for pid in below & stats.keys():
        user, system, started = stats[pid][11], stats[pid][12], stats[pid][19]
        used[pid, started] = (int(user) + int(system)) / TICKS


def same(source: Path) -> None:
    """Stop if the two commands gave different lines: their times could not be compared."""
    if target("plain", source).read_bytes() != target("ray", source).read_bytes():
        sys.exit(f"The two ways translated {source.name} differently.")


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians without the start, and the overhead of Ray."""
    found: dict[str, Any] = {}
    for measure in ("seconds", "cpu_seconds"):
        for way in WAYS:
            each = [one["work"][way][measure] - one["start"][way][measure] for one in rounds]
            found.setdefault(way, {})[measure] = round(statistics.median(each), 2)
        found.setdefault("overhead", {})[measure] = round(found["ray"][measure] / found["plain"][measure] - 1, 4)
    for way in WAYS:
        found[way]["start_seconds"] = round(statistics.median(one["start"][way]["seconds"] for one in rounds), 2)
    return found


if __name__ == "__main__":
    main()
