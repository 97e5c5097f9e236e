"""What does a vocabulary shortlist save, and what does it change? CPU seconds, BLEU and changed sentences.

    python benchmarks/shortlist.py SOURCE REFERENCE [--table FILE ...] [--batch 512 1024] [--every 10] [-o FILE.json]

Without a shortlist and with each table, one after the other in one process, on one thread, so many rounds. The report
is written after every round and has the CPU seconds of each; the least is shown, for other work on the machine only
adds. Choose with a validation set, and report on a test set.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from onehop.decoding import ctranslate2_engine
from onehop.decoding.engine import batches_by_length
from onehop.decoding.shortlist import read_shortlist
from onehop.evaluation.metrics import bleu
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.registry import find_model, shortlist_beside

WARM_UP = 8  # sentences translated before the clock starts


def main() -> None:
    chosen = arguments()
    model = find_model(chosen.model)
    tables = chosen.table or [shortlist_beside(model)]
    sources, references = (lines(file, chosen.every) for file in (chosen.source, chosen.reference))
    settings: list[tuple[Path | None, int]] = [(None, ctranslate2_engine.BATCH_TOKENS)]
    settings += [(table, batch) for table in tables for batch in chosen.batch]
    runs = [Run(str(model), sources, *setting) for setting in settings]
    for _ in range(chosen.rounds):
        for run in runs:
            run.translate()
            print(f"{run.name:<44}{run.seconds[-1]:8.2f} CPU s", flush=True)
        rows = [run.row(references, runs[0].texts) for run in runs]
        print("\n".join(table_lines(rows)), flush=True)
        report = {"model": chosen.model, "source": chosen.source.name, "sentences": len(sources), "rows": rows}
        report |= {"ctranslate2": ctranslate2.__version__, "machine": machine()}
        if chosen.out:
            chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--table", type=Path, nargs="+", help="Otherwise the one beside the model.")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[ctranslate2_engine.BATCH_TOKENS], help="Tokens in a batch."
    )
    parser.add_argument("--every", type=int, default=1, help="Only each so-manieth sentence.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path)
    return parser.parse_args()


class Run:
    """The sentences under one setting, as often as they are translated."""

    def __init__(self, model: str, sources: Sequence[str], table: Path | None, batch: int) -> None:
        self.sources, self.table, self.batch = sources, table, batch
        self.name = f"{table.name}, {batch} tokens" if table else "without"
        self.translator = SentenceTranslator.load(model, engine="ctranslate2", threads=1, shortlist=table or False)
        self.translator.translate(sources[:WARM_UP])
        self.texts: list[str] = []
        self.seconds: list[float] = []

    def translate(self) -> None:
        ctranslate2_engine.BATCH_TOKENS = self.batch
        began = time.process_time()
        self.texts = [found.text for found in self.translator.translate(self.sources)]
        self.seconds.append(time.process_time() - began)

    def row(self, references: Sequence[str], plain: Sequence[str]) -> dict[str, Any]:
        """Figures, compared with the translations without a shortlist."""
        return {
            "run": self.name,
            "batch_tokens": self.batch,
            **(dict(self.about()) if self.table else {}),
            "cpu_seconds": [round(seconds, 2) for seconds in self.seconds],
            "bleu": round(bleu(self.texts, references).value, 2),
            "changed": sum(one != other for one, other in zip(self.texts, plain, strict=True)),
        }

    def about(self) -> Iterator[tuple[str, Any]]:
        """What the table is, and how many candidates a batch has."""
        assert self.table is not None
        tokenizer = self.translator.tokenizer
        table = read_shortlist(self.table, tokenizer.model)
        encoded = tokenizer.encode_batch(self.sources)
        batches = batches_by_length(encoded, self.batch, 1, ctranslate2_engine.SHORT)
        allowed = [len(table.allowed(i for place in batch for i in encoded[place])) for batch in batches]
        yield from (("table", dict(table.made)), ("bytes", self.table.stat().st_size))
        yield "candidates", round(float(np.mean(allowed)))


def lines(file: Path, every: int) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:-1][::every]


def machine() -> str:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return model[0].split(": ")[1] if model else platform.processor()


def table_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"{'':<44}{'CPU s':>8}{'':>8}{'BLEU':>8}{'changed':>9}{'candidates':>12}"
    plain = min(rows[0]["cpu_seconds"])
    for row in rows:
        least = min(row["cpu_seconds"])
        share = f"{least / plain - 1:+.1%}"
        candidates = f"{row.get('candidates', 0):>12,}" if "candidates" in row else ""
        yield f"{row['run']:<44}{least:8.2f}{share:>8}{row['bleu']:8.2f}{row['changed']:9,}{candidates}"


if __name__ == "__main__":
    main()
