"""Count, on real sentences, the translations that depend on their batch and those in which the engines disagree.

    python benchmarks/agreement.py [--sentences tests/data/tatoeba-1000.en] [--model en-de] [-o FILE.json]
    python benchmarks/agreement.py --engines "ctranslate2 int8" -o FILE.json      # the others take half an hour

Each sentence is translated alone, in calls of 7, in calls of 64, and in calls of 64 after a shuffle, on one thread.
`differ` counts the sentences whose tokens differ from those alone, `exact` those with bit-identical scores, and `score`
is the largest difference of a score. Then the engines are compared, each with every sentence alone. Translations are
saved as they are made, so the same command resumes. The report is rewritten after each engine.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from onehop.decoding.options import SearchOptions
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.storage.model_label import describe
from onehop.storage.registry import named_model

SEARCHES = {"beam 4": SearchOptions(), "greedy": SearchOptions(beam=1)}
ENGINES = {
    "ctranslate2 int8": {"engine": "ctranslate2", "compute": "int8"},
    "ctranslate2 float32": {"engine": "ctranslate2", "compute": "float32"},
    "torch float32": {"engine": "torch", "device": "cpu"},
}
COMPARED = [("torch float32", "ctranslate2 float32"), ("ctranslate2 float32", "ctranslate2 int8")]
Found = list[list[Any]]  # tokens and score of each sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=Path, default=Path("tests/data/tatoeba-1000.en"))
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="ENGINE")
    parser.add_argument(
        "--raw",
        type=Path,
        default=Path("runs/agreement"),
        help="Folder for the translations, from which a later start resumes.",
    )
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # Without the hash, translations of another model would be read as this model's.
    model = describe(named_model(arguments.model)).hash
    raw = arguments.raw / model[:8]
    raw.mkdir(parents=True, exist_ok=True)
    texts = arguments.sentences.read_text(encoding="utf-8").split("\n")[:-1]
    report: dict[str, dict[str, dict[str, float]]] = {}
    for search, options in SEARCHES.items():
        report[search] = rows = {}
        alone = {}
        for name in arguments.engines:
            translator = SentenceTranslator.load(arguments.model, threads=1, **ENGINES[name])
            runs = {
                way: kept(raw / f"{name} {search} {way}.json", run(translator, texts, options, *how))
                for way, how in orders(texts).items()
            }
            alone[name] = runs.pop("alone")
            rows |= {f"{name}, {way}": difference(alone[name], found) for way, found in runs.items()}
            pairs = [(one, other) for one, other in COMPARED if {one, other} <= alone.keys()]
            rows |= {f"{one} | {other}": difference(alone[one], alone[other]) for one, other in pairs}
            if arguments.out:
                arguments.out.write_text(
                    json.dumps({"model": model, "sentences": len(texts), **report}, indent=1) + "\n"
                )
    for search, rows in report.items():
        print(f"{search}: sentences of {len(texts):,} that differ, largest difference of a score among the others")
        for name, row in rows.items():
            print(f"  {name:<42}{row['differ']:>5}  {row['score']:.1e}")


def orders(texts: Sequence[str]) -> dict[str, tuple[list[int], int]]:
    """Return each order of the sentences and the size of its calls."""
    places = list(range(len(texts)))
    shuffled = random.Random(5).sample(places, len(places))
    return {"alone": (places, 1), "by 7": (places, 7), "by 64": (places, 64), "by 64, shuffled": (shuffled, 64)}


def run(
    translator: SentenceTranslator, texts: Sequence[str], options: SearchOptions, order: Sequence[int], size: int
) -> Callable[[], Found]:
    """Translate in this order, so many sentences a call. Return the results in the order of the texts."""

    def translate() -> Found:
        found: dict[int, Translation] = {}
        for begin in range(0, len(order), size):
            places = order[begin : begin + size]
            found |= zip(places, translator.translate([texts[i] for i in places], options), strict=True)
        return [[list(found[i].tokens), found[i].score] for i in range(len(texts))]

    return translate


def kept(file: Path, make: Callable[[], Found]) -> Found:
    """Read what an earlier start has saved, or translate and save it."""
    if not file.exists():
        began = time.process_time()
        file.write_text(json.dumps(make()))
        print(f"{file.stem}: {time.process_time() - began:.0f} CPU s", flush=True)
    found: Found = json.loads(file.read_text())
    return found


def difference(one: Found, other: Found) -> dict[str, float]:
    """Count the sentences whose tokens differ, and the largest difference of a score among the others."""
    same = [(x, y) for (a, x), (b, y) in zip(one, other, strict=True) if a == b]
    exact = sum(x == y for x, y in same)
    return {"differ": len(one) - len(same), "exact": exact, "score": max(abs(x - y) for x, y in same)}


if __name__ == "__main__":
    main()
