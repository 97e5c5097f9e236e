"""Plot BLEU against speed: a dot for each system of decode_speed.py's comparison on a file.

    python benchmarks/plot_speed.py RAW.json... -o docs/pictures/speed.svg

`decode_speed.py --file … -o RAW.json` writes RAW. All files must cover the same lines; others are refused. If
several files have a system, the last one counts. Systems without a name here, which onehop no longer has, are left
out. Speed is sentences per CPU second, without the start.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

OURS, PEERS = "#1f5fbf", "#8a8a8a"
NAMES = {
    "onehop": "onehop, {model}",
    "onehop-greedy": "onehop, {model}, greedy",
    "onehop-small": "onehop, {small}",
    "onehop-small-greedy": "onehop, {small}, greedy",
    "onehop-torch": "onehop in torch, float32",
    "ctranslate2-readme": "CTranslate2 as in its README",
    "ctranslate2-tuned": "CTranslate2 tuned by hand",
    "marian": "Hugging Face Marian, float32",
    "naive-torch": "naive loop in torch, float32, greedy",
}
Dot = tuple[float, float]


def read(file: Path) -> tuple[dict[str, Any], dict[str, Dot]]:
    """Return which lines were measured, and each system's sentences per CPU second and BLEU."""
    raw = json.loads(file.read_text(encoding="utf-8"))
    turns = {name: [turn[name] for turn in raw["turns"] if name in turn] for name in raw["turns"][0] if name in NAMES}
    dots = {
        name: tuple(
            statistics.median(values)
            for values in ([t["sentences"] / t["cpu_seconds"] for t in each], [t["bleu"] for t in each])
        )
        for name, each in turns.items()
    }
    lines = {"file": raw.get("file"), "sentences": {t["sentences"] for each in turns.values() for t in each}}
    names = {"model": raw.get("model", "en-de"), "small": raw.get("small") and Path(raw["small"]).stem}
    return lines, {NAMES[name].format(**names): dot for name, dot in dots.items()}  # type: ignore[misc]


def read_all(files: list[Path]) -> tuple[str, dict[str, Dot]]:
    """Return the title, and the dots of files with the same lines."""
    found = [read(file) for file in files]
    first = found[0][0]
    for file, (lines, _) in zip(files, found, strict=True):
        if lines != first or len(lines["sentences"]) > 1:
            raise SystemExit(f"{file} covers other lines than {files[0]}, or its systems do. Plot them separately.")
    title = f"{first['file'] or 'one file'}, {first['sentences'].pop():,} sentences"
    return title, {name: dot for _, dots in found for name, dot in dots.items()}


def draw(title: str, dots: dict[str, Dot]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    lowest, highest = min(bleu for _, bleu in dots.values()), max(bleu for _, bleu in dots.values())
    points = 200 / (highest - lowest or 1)  # of the axis, per BLEU
    labelled: list[Dot] = []
    for name, (speed, bleu) in sorted(dots.items(), key=lambda dot: -dot[1][1]):
        colour = OURS if name.startswith("onehop") else PEERS
        axis.plot(speed, bleu, "o", color=colour)
        height = bleu * points
        while any(max(s / speed, speed / s) < 6 and abs(other - height) < 11 for s, other in labelled):
            height -= 1  # stack the labels of close dots
        labelled.append((speed, height))
        shift = (7, height - bleu * points - 3)
        axis.annotate(name, (speed, bleu), shift, textcoords="offset points", fontsize=8, color=colour)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.minorticks_off()
    axis.set_xlabel("sentences a CPU second")
    axis.set_ylabel("BLEU (13a)")
    axis.set_title(title, fontsize=10, loc="left")
    axis.xaxis.set_major_formatter("{x:,g}")
    axis.margins(x=0.25, y=0.15)
    axis.grid(alpha=0.3)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("raw", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the picture, an .svg")
    chosen = parser.parse_args()
    rcParams["svg.hashsalt"] = "onehop"  # reproducible bytes
    rcParams["svg.fonttype"] = "none"
    draw(*read_all(chosen.raw)).savefig(chosen.out, metadata={"Date": None})
    print(chosen.out)


if __name__ == "__main__":
    main()
