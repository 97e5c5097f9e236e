"""Train on Multi30k en→de with several seeds, and report mean and spread on test2016. Nothing is tuned on the test set.

    python benchmarks/multi30k.py --data MULTI30K -o results/multi30k

MULTI30K holds train, val and test_2016_flickr as .en and .de. It writes every translation and results.json. Where
sacremoses, the published tokenisation, is missing, run `--only translate` there and `--only score` elsewhere.
"""

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

from onehop.config import load_settings, with_changes
from onehop.decoding.options import SearchOptions
from onehop.evaluation.metrics import Moses, bleu, chrf
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.training.workflow import train

RECIPE = Path(__file__).parent.parent / "recipes" / "multi30k.toml"
SETS = {"val": "val", "test2016": "test_2016_flickr"}


def main() -> None:
    arguments = parse()
    # The published scores on this set use it. Check before the training, not after.
    moses = None if arguments.only == "translate" else Moses("de", normalise=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.only != "score":
        for seed in arguments.seeds:
            train_and_translate(arguments, seed)
    if moses is not None:
        report(arguments, moses)


def report(arguments: argparse.Namespace, moses: Moses) -> None:
    results = [scored(arguments, seed, moses) for seed in arguments.seeds]
    summary = summarise(results)
    (arguments.out / "results.json").write_text(json.dumps({"seeds": results, "summary": summary}, indent=1) + "\n")
    for name, text in summary.items():
        print(f"{name:<24} {text}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="folder for the run folders. Default: below OUT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--device")
    parser.add_argument("--only", choices=["translate", "score"])
    return parser.parse_args()


def train_and_translate(arguments: argparse.Namespace, seed: int) -> None:
    settings = with_changes(load_settings(str(RECIPE)), [*arguments.changes, f"train.seed={seed}"])
    folder = (arguments.runs or arguments.out) / f"seed-{seed}"
    began = time.monotonic()
    model = train(settings, folder, data=arguments.data, device=arguments.device, bleu_on=1014)
    assert model is not None
    minutes = (time.monotonic() - began) / 60
    translator = SentenceTranslator.load(model, arguments.device, engine="torch")
    options = SearchOptions(beam=arguments.beam, alpha=arguments.alpha, penalty="paper")
    for name, file in SETS.items():
        texts = [t.text for t in translator.translate(lines(arguments.data / f"{file}.en"), options)]
        (arguments.out / f"seed-{seed}.{name}.de").write_text("\n".join(texts) + "\n", encoding="utf-8")
    shutil.copy(folder / "metrics.jsonl", arguments.out / f"seed-{seed}.metrics.jsonl")
    facts = {"seed": seed, "minutes": round(minutes, 2), "changes": arguments.changes}
    (arguments.out / f"seed-{seed}.json").write_text(json.dumps(facts) + "\n")


def scored(arguments: argparse.Namespace, seed: int, moses: Moses) -> dict[str, object]:
    result: dict[str, object] = json.loads((arguments.out / f"seed-{seed}.json").read_text())
    for name, file in SETS.items():
        texts = lines(arguments.out / f"seed-{seed}.{name}.de")
        result[name] = scores(texts, lines(arguments.data / f"{file}.de"), moses)
    return result


def scores(texts: list[str], references: list[str], moses: Moses) -> dict[str, float]:
    found = {
        "BLEU 13a": bleu(texts, references),
        "BLEU 13a lowercased": bleu(texts, references, lower=True),
        "chrF2++": chrf(texts, references),
        "BLEU tokenised": bleu(texts, references, tokenize=moses),
        "BLEU tokenised lowercased": bleu(texts, references, tokenize=moses, lower=True),
    }
    return {name: round(score.value, 2) for name, score in found.items()}


def summarise(results: list[dict[str, object]]) -> dict[str, str]:
    found = {}
    for name in SETS:
        for score in results[0][name]:
            values = [result[name][score] for result in results]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            found[f"{name} {score}"] = f"{statistics.mean(values):.2f}{spread}"
    return found


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main()
