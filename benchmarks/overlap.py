"""Measure how much of a test set is in the training text. `prepare` drops whole sentences; this finds large parts.

    python benchmarks/overlap.py --train FILE.tsv.xz … --sets FOLDER/NAME … [-o FILE]

For each test sentence, it finds the largest share of its 5-grams that one training line has too. NAME stands for
NAME.en and NAME.de. Sentences with fewer than three 5-grams are not counted, because everyone says "I do not know
what".
"""

import argparse
import json
import lzma
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "de")  # the columns of the training text
RUN, FEWEST_RUNS = 5, 3
SHARES = (0.5, 0.8)


def runs(text: str) -> set[str]:
    """Return the 5-grams of a text, in lower case and without punctuation."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


class Side:
    """One language of the test sets, and the largest overlap of each sentence so far."""

    def __init__(self, sets: Iterable[Path], language: str) -> None:
        self.counts: dict[tuple[str, int], int] = {}
        self.places: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.best: defaultdict[tuple[str, int], float] = defaultdict(float)
        for path in sets:
            lines = path.with_name(f"{path.name}.{language}").read_text(encoding="utf-8").split("\n")[:-1]
            for number, line in enumerate(lines):
                self.add((path.name, number), runs(line))

    def add(self, place: tuple[str, int], found: set[str]) -> None:
        """Add a test sentence."""
        if len(found) >= FEWEST_RUNS:
            self.counts[place] = len(found)
            for run in found:
                self.places[run].append(place)

    def see(self, text: str) -> None:
        """Compare a line of the training text."""
        hits = Counter(place for run in runs(text) if run in self.places for place in self.places[run])
        for place, count in hits.items():
            self.best[place] = max(self.best[place], count / self.counts[place])

    def report(self, name: str) -> dict[str, int]:
        """Count the sentences of a set, and those that share this much with one line."""
        counted = [place for place in self.counts if place[0] == name]
        shared = {f"{share:.0%}": sum(self.best[place] >= share for place in counted) for share in SHARES}
        return {"counted": len(counted), **shared}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="tab-separated, packed with xz")
    parser.add_argument("--sets", type=Path, nargs="+", required=True, help="test sets without the language")
    parser.add_argument("-o", "--out", type=Path, help="write the counts here too")
    chosen = parser.parse_args()
    sides = [Side(chosen.sets, language) for language in LANGUAGES]
    for file in chosen.train:
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                for side, text in zip(sides, line.rstrip("\n").split("\t")[:2], strict=True):
                    side.see(text)
    found: dict[str, Any] = {"train": [file.name for file in chosen.train]}
    found |= {s.name: {lang: x.report(s.name) for lang, x in zip(LANGUAGES, sides, strict=True)} for s in chosen.sets}
    print(text := json.dumps(found, indent=1))
    if chosen.out:
        chosen.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
