"""What does computing in int8 cost? The same model file in int8 and in float32, on a thousand validation sentences.

    python benchmarks/int8.py --model MODEL --data FOLDER [--set newstest2013] [--most 1000] [--json FILE]

FOLDER holds SET.SOURCE and SET.TARGET. Both computations read the same stored weights, which are int8. So this is the
cost of rounding the activations; the cost of rounding the weights needs a file in bfloat16.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alpha import lines

from onehop.evaluation.metrics import bleu_metric, chrf_metric, compare
from onehop.pipelines.sentence_translator import SentenceTranslator


def report(exact: Sequence[str], rounded: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Both scores by both metrics, whether they differ, and how many translations are the same."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="model file or installed model")
    parser.add_argument("--data", type=Path, required=True, help="folder with the set")
    parser.add_argument("--set", default="newstest2013")
    parser.add_argument("--most", type=int, default=1000, help="sentences")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    chosen = parser.parse_args()
    texts = {}
    for compute in ("int8", "float32"):
        translator = SentenceTranslator.load(chosen.model, engine="ctranslate2", compute=compute)
        sources = lines(chosen.data / f"{chosen.set}.{translator.source}", chosen.most)
        texts[compute] = [found.text for found in translator.translate(sources)]
    references = lines(chosen.data / f"{chosen.set}.{translator.target}", chosen.most)
    found = json.dumps(
        {"model": chosen.model, "set": chosen.set, **report(texts["float32"], texts["int8"], references)}, indent=1
    )
    print(found)
    if chosen.json:
        chosen.json.write_text(found + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
