"""BLEU and chrF2++ if the model of the opposite direction takes part in the choice from each beam.

    python benchmarks/rerank.py --model en-de --reverse de-en --src SRC --ref REF [--every 3] -o FILE

Each hypothesis has the score of its model, and that of its source by the opposite model; both are log-probabilities
over length^0.6. The second one counts times a weight. The file gets a row for each weight.
"""

import argparse
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF

from onehop.atomic import write_json
from onehop.decoding.options import SearchOptions
from onehop.pipelines.sentence_translator import SentenceTranslator

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--reverse", required=True)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--ref", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="take only every n-th line")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    source, reference = (
        file.read_text(encoding="utf-8").splitlines()[:: asked.every] for file in (asked.src, asked.ref)
    )
    options = SearchOptions(beam=asked.beam, n_best=asked.beam, alpha=0.6)
    beams = SentenceTranslator.load(asked.model).n_best(source, options)
    reverse = SentenceTranslator.load(asked.reverse)
    back = iter(
        reverse.score(
            reverse.tokenizer.encode_batch([t.text for beam in beams for t in beam]),
            reverse.tokenizer.target.encode_batch([s for s, beam in zip(source, beams, strict=True) for _ in beam]),
        )
    )
    scored = [[(t, options.score(sum(s), len(s))) for t, s in ((t, next(back)) for t in beam)] for beam in beams]
    rows = []
    for weight in WEIGHTS:
        texts = [max(beam, key=lambda pair: pair[0].score + weight * pair[1])[0].text for beam in scored]
        bleu, chrf = (metric.corpus_score(texts, [reference]).score for metric in (BLEU(), CHRF(word_order=2)))
        rows.append({"weight": weight, "bleu": round(bleu, 2), "chrf": round(chrf, 2)})
        print(rows[-1])
    write_json(asked.out, {"model": asked.model, "set": asked.src.name, "lines": len(source), "rows": rows})


if __name__ == "__main__":
    main()
