"""Score several beams and length penalties on validation sets, by BLEU and chrF2++.

    python benchmarks/alpha.py --model MODEL --data FOLDER [--most 1000] [-o FILE]

FOLDER holds NAME.SOURCE and NAME.TARGET for each name of --sets. The sets are validation sets, never test sets, because
the choice is then used on those. Sentences are spread evenly over a set, since newstest2013 is not shuffled: its first
five hundred scored 27 BLEU and the next five hundred 17. Each row is written as soon as it is measured.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onehop.decoding.options import ALPHA, SearchOptions
from onehop.evaluation.metrics import bleu, chrf
from onehop.pipelines.sentence_translator import SentenceTranslator

SETS = ("newstest2013", "tatoeba-valid", "europarl-valid")
ALPHAS = (0.0, 0.6, 1.0, 1.4)
BEAMS = (1, 8)


def searches() -> Iterator[SearchOptions]:
    """Return each length penalty with the usual beam, then other beams with the usual penalty."""
    yield from (SearchOptions(alpha=alpha) for alpha in ALPHAS)
    yield from (SearchOptions(beam=beam, alpha=ALPHA) for beam in BEAMS)


def lines(file: Path, most: int) -> list[str]:
    """Return at most this many lines, evenly spread."""
    read = file.read_text(encoding="utf-8").split("\n")[:-1]
    return read[:: max(1, len(read) // most)][:most]


def row(
    translator: SentenceTranslator, sources: Sequence[str], references: Sequence[str], how: SearchOptions
) -> dict[str, Any]:
    """Return the scores of one search on one set, and the output's length relative to the reference."""
    texts = [found.text for found in translator.translate(sources, how)]
    words = (sum(len(text.split()) for text in side) for side in (texts, references))
    return {
        "sentences": len(texts),
        "beam": how.beam,
        "alpha": how.alpha,
        "bleu": round(bleu(texts, references).value, 2),
        "chrf": round(chrf(texts, references).value, 2),
        "length": round(next(words) / next(words), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="model file or installed model")
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--most", type=int, default=1000, help="sentences of each set")
    parser.add_argument("-o", "--out", type=Path, help="write the rows here too, a JSON object a line")
    chosen = parser.parse_args()
    translator = SentenceTranslator.load(chosen.model)
    if chosen.out:
        chosen.out.write_text("", encoding="utf-8")
    for name in chosen.sets:
        sources, references = (
            lines(chosen.data / f"{name}.{language}", chosen.most)
            for language in (translator.source, translator.target)
        )
        for how in searches():
            found = json.dumps({"set": name, **row(translator, sources, references, how)})
            print(found, flush=True)
            if chosen.out:
                with chosen.out.open("a", encoding="utf-8") as file:
                    file.write(found + "\n")


if __name__ == "__main__":
    main()
