"""Measure the loss of BLEU and chrF by computing in int8 instead of float32, on a validation set.

    python benchmarks/int8.py --model MODEL --data FOLDER [--set newstest2013] [--exact FILE] [--json FILE]

FOLDER holds SET.SOURCE and SET.TARGET. A shipped model stores int8 weights, so the loss is that of rounding the
activations. --exact names the same model with its bfloat16 or float32 weights: then float32 computes with those,
and the loss includes that of rounding the weights.

The set is translated in parts, each spread evenly over it. The figures so far are written after every part, and the
translations stay in FILE.parts until the end, so the same command resumes.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onehop.evaluation.metrics import bleu_metric, chrf_metric, compare
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_label import describe
from onehop.storage.registry import find_model

COMPUTE = ("int8", "float32")
Texts = dict[str, list[str]]


def report(exact: Sequence[str], rounded: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return both scores in both metrics, the significance of the difference, and the number of equal translations."""
    scores: dict[str, Any] = {}
    for name, metric in (("bleu", bleu_metric()), ("chrf", chrf_metric())):
        found = compare(metric, rounded, exact, references)
        scores[name] = {
            "float32": round(found.against.value, 2),
            "int8": round(found.score.value, 2),
            "loss": round(found.against.value - found.score.value, 2),
            "p": round(found.p_value, 4),
        }
    same = sum(a == b for a, b in zip(exact, rounded, strict=True))
    return {"sentences": len(references), "same": same, **scores}


def translated(
    translators: dict[str, SentenceTranslator], sources: Sequence[Sequence[str]], key: dict[str, Any], file: Path | None
) -> Iterator[Texts]:
    """Yield the translations of each part, those of an interrupted run first."""
    done = finished_parts(file, key)
    yield from done
    if file and not done:
        file.write_text(json.dumps(key) + "\n", encoding="utf-8")
    for part in sources[len(done) :]:
        texts = {name: [found.text for found in t.translate(part)] for name, t in translators.items()}
        if file:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(texts) + "\n")
        yield texts


def finished_parts(file: Path | None, key: dict[str, Any]) -> list[Texts]:
    """Read what an interrupted run of the same models, set and parts has saved."""
    if file is None or not file.exists():
        return []
    first, *rest = file.read_text(encoding="utf-8").splitlines(keepends=True)
    if json.loads(first) != key:
        raise SystemExit(f"{file} belongs to other models or another set. Remove it, or choose another --json.")
    whole = [line for line in rest if line.endswith("\n")]
    file.write_text(first + "".join(whole), encoding="utf-8")  # a truncated line is translated again
    return [json.loads(line) for line in whole]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="model file or installed model")
    parser.add_argument("--exact", help="the same model with unrounded weights. Default: MODEL")
    parser.add_argument("--data", type=Path, required=True, help="folder with the set")
    parser.add_argument("--set", default="newstest2013")
    parser.add_argument("--parts", type=int, default=12, help="number of parts")
    parser.add_argument("--only", type=int, help="stop after N parts")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    chosen = parser.parse_args()
    files = dict(zip(COMPUTE, (chosen.model, chosen.exact or chosen.model), strict=True))
    key = {name: describe(find_model(file)).hash for name, file in files.items()}
    key |= {"set": chosen.set, "parts": chosen.parts}
    translators = {
        name: SentenceTranslator.load(file, engine="ctranslate2", compute=name, threads=1)  # type: ignore[arg-type]
        for name, file in files.items()
    }
    languages = (translators["int8"].source, translators["int8"].target)
    sides = [(chosen.data / f"{chosen.set}.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in languages]
    sources, references = ([side[i :: chosen.parts] for i in range(chosen.parts)] for side in sides)
    unfinished = chosen.json and chosen.json.with_name(f"{chosen.json.name}.parts")
    texts: Texts = {name: [] for name in COMPUTE}
    seen: list[str] = []
    parts = translated(translators, sources[: chosen.only], key, unfinished)
    for part, expected in zip(parts, references, strict=False):  # there may be more than --only asks for
        seen += expected
        for name in COMPUTE:
            texts[name] += part[name]
        about = {"model": chosen.model, "exact": chosen.exact and Path(chosen.exact).name, "set": chosen.set}
        found = json.dumps({**about, "of": len(sides[0]), **report(texts["float32"], texts["int8"], seen)}, indent=1)
        print(found, flush=True)
        if chosen.json:
            chosen.json.write_text(found + "\n", encoding="utf-8")
    if unfinished and len(seen) == len(sides[0]):
        unfinished.unlink()


if __name__ == "__main__":
    main()
