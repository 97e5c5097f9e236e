"""Fit and evaluate the confidence of sentences: the probability of a good translation, given the model's probabilities.

    python benchmarks/confidence.py features --model en-de --source newstest2013.en --reference newstest2013.de \
        --hypothesis results/en-de/newstest2013.hyp.gz --limit 1000 \
        -o results/confidence/features/en-de-newstest2013.json.gz
    python benchmarks/confidence.py fit results/confidence/features/en-de-{newstest2013,tatoeba-valid}.json.gz \
        --test results/confidence/features/en-de-{newstest2014,tatoeba-test}.json.gz -o results/confidence/en-de.json

A translation counts as right when its chrF against the reference is RIGHT or more. A sentence is called sure when its
confidence is SURE or more. The logistic regression is fitted on the
validation files; the report is of the test files.
"""

import argparse
import gzip
import json
import math
from pathlib import Path

import numpy as np
from sacrebleu import sentence_chrf

from onehop.pipelines.confidence import SURE, features
from onehop.pipelines.sentence_translator import SentenceTranslator

RIGHT = 50.0
BINS = 10


def lines_of(path: Path) -> list[str]:
    """Read the lines of a file, which may end in .gz."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().removesuffix("\n").split("\n")


def measure(args: argparse.Namespace) -> None:
    """Score given translations, or make them, and write chrF and features of each."""
    translator = SentenceTranslator.load(args.model, engine="ctranslate2", threads=1)
    tokenizer = translator.tokenizer
    sources, references = lines_of(args.source)[: args.limit], lines_of(args.reference)[: args.limit]
    if args.hypothesis:
        written = lines_of(args.hypothesis)[: args.limit]
    else:
        written = [t.text for t in translator.translate(sources)]
    ids = tokenizer.target.encode_batch(written)
    scored = translator.score(tokenizer.encode_batch(sources), ids)
    rows = [
        {"chrf": round(sentence_chrf(text, [reference]).score, 4), "log_prob": round(sum(s), 4)}
        | {"tokens": len(s), "least": round(min(s), 4)}
        for text, reference, s in zip(written, references, scored, strict=True)
    ]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(gzip.compress((json.dumps(rows) + "\n").encode(), mtime=0))


def rows_of(path: Path) -> list[dict[str, float]]:
    """Read what `measure` wrote."""
    found: list[dict[str, float]] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def table(rows: list[dict[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Features and whether each translation is right."""
    x = np.array([features(row["log_prob"], int(row["tokens"])) for row in rows])
    return x, np.array([row["chrf"] >= RIGHT for row in rows], dtype=float)


def logistic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression, the bias first, by Newton's method."""
    x = np.c_[np.ones(len(x)), x]
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        w += np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + 1e-6 * np.eye(len(w)), x.T @ (y - p))
    return w


def area(score: np.ndarray, y: np.ndarray) -> float:
    """The area under the ROC curve."""
    order = np.argsort(score)
    ranks = np.empty(len(score))
    ranks[order] = np.arange(1, len(score) + 1)
    good = y.sum()
    return float((ranks[y == 1].sum() - good * (good + 1) / 2) / (good * (len(y) - good)))


def judge(p: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """Measure calibration, separation, and the share that is called sure."""
    edges = np.minimum((p * BINS).astype(int), BINS - 1)
    bins = [
        {"from": b / BINS, "sentences": int((edges == b).sum()), "right": round(float(y[edges == b].mean()), 3)}
        for b in range(BINS)
        if (edges == b).any()
    ]
    error = sum(b["sentences"] * abs(float(p[edges == int(b["from"] * BINS)].mean()) - b["right"]) for b in bins)
    sure = p >= SURE
    return {
        "sentences": len(y),
        "right": round(float(y.mean()), 3),
        "area_under_roc": round(area(p, y), 3),
        "calibration_error": round(error / len(y), 3),
        "sure": int(sure.sum()),
        "right_of_sure": round(float(y[sure].mean()), 3) if sure.any() else None,
        "right_of_others": round(float(y[~sure].mean()), 3),
        "bins": bins,
    }


def fit(args: argparse.Namespace) -> None:
    """Fit on valid files, report on test files."""
    x, y = table([row for file in args.valid for row in rows_of(file)])
    weights = logistic(x, y)
    report: dict[str, object] = {"right": f"chrF >= {RIGHT:g}", "sure": SURE, "weights": weights.round(4).tolist()}
    for file in args.test:
        rows = rows_of(file)
        x, y = table(rows)
        judged = judge(1 / (1 + np.exp(-np.c_[np.ones(len(x)), x] @ weights)), y)
        least = area(np.array([math.exp(r["least"]) for r in rows]), y)
        report[file.name.removesuffix(".json.gz")] = judged | {"area_of_least_token": round(least, 3)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("features")
    first.add_argument("--model", required=True)
    first.add_argument("--source", type=Path, required=True)
    first.add_argument("--reference", type=Path, required=True)
    first.add_argument("--hypothesis", type=Path, help="otherwise the sources are translated")
    first.add_argument("--limit", type=int)
    first.set_defaults(run=measure)
    second = commands.add_parser("fit")
    second.add_argument("valid", type=Path, nargs="+")
    second.add_argument("--test", type=Path, nargs="+", required=True)
    second.set_defaults(run=fit)
    for command in (first, second):
        command.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
