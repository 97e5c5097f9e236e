"""Switch off each head of a model in turn, and report the probability of one word of a translation.

    python benchmarks/which_head.py -o results/which_head.json

The prefix before the word stays fixed. Each row names an attention and a head, counted from 0 as in the trace.
"""

import argparse
import json
import math
from pathlib import Path

from onehop.experiments.provenance import origin
from onehop.interpret.tracer import Tracer

SENTENCE = "The animal didn't cross the street because it was too tired."


def measure(model: str, sentence: str, word: str) -> dict:
    """Return the word's probability, and its value without each head, lowest first."""
    tracer = Tracer.load(model, "cpu")
    header = tracer.trace(sentence).header
    step = header["target"]["output_tokens"].index(f"▁{word}")
    p = header["steps"][step]["chosen"]["p"]
    rows = [
        {
            "attention": part.role,
            "layer": part.layer,
            "head": head,
            "p": p * math.exp(float(part.effect[head, step])),
            "best then": {tracer.pieces([token])[0]: p_then for token, p_then in part.top[head][step]},
        }
        for part in tracer.heads_off(header)
        for head in range(len(part.effect))
    ]
    return {
        "model": header["model"]["name"],
        "hash": header["model"]["hash"],
        "source": sentence,
        "translation": header["target"]["text"],
        "word": word,
        "p": p,
        "without a head": sorted(rows, key=lambda row: row["p"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--sentence", default=SENTENCE)
    parser.add_argument("--word", default="sie")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    found = origin("python benchmarks/which_head.py") | measure(args.model, args.sentence, args.word)
    args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    first = found["without a head"][0]
    head = "{attention}.{layer}.{head}".format(**first)
    print(f"{args.word}: {found['p']:.3f}; without {head}: {first['p']:.3f}")


if __name__ == "__main__":
    main()
