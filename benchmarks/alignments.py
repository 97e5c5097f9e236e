"""Measure which decoder layer and head aligns known words best.

    python benchmarks/alignments.py --pair NEWS.en NEWS.de [--pair …] [--model en-de] [--pairs 500] [-o FILE.json]

There are no manual alignments here, so words with a known alignment are used. They have a digit or a capital letter,
and occur exactly once in the source and, unchanged, once in the reference. An aligned target token is one whose
strongest source token belongs to the same word; attention to EOS does not count. "Written" uses the attention of the
step that writes a token, "read" that of the next step, which reads it.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from onehop.experiments.sentence_attention import attention_weights
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import Tokenizer

WORD = re.compile(r"[^\s]*[^\s\W]")
TELLS = re.compile(r"[\dA-ZÄÖÜ]")
Weights = Float[np.ndarray, "layers heads target source"]
Anchor = tuple[int, Sequence[int]]  # a target token, and the source tokens of the same word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", nargs=2, type=Path, action="append", required=True, metavar=("SRC", "TGT"))
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--pairs", type=int, default=500, help="Pairs of each file, evenly spread.")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    translator = SentenceTranslator.load(arguments.model, "cpu", engine="torch")
    found = {src.name: measure(translator, src, tgt, arguments.pairs) for src, tgt in arguments.pair}
    for name, shares in found.items():
        report(name, shares)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


def measure(translator: SentenceTranslator, src: Path, tgt: Path, most: int) -> dict[str, float]:
    """Return the share of tokens that each way to read the attention aligns correctly."""
    right: Counter[str] = Counter()
    tokens = 0
    for source, target in spread(src, tgt, most):
        source_ids, target_ids = (translator.tokenizer.encode(text) for text in (source, target))
        known = list(anchors(translator.tokenizer, source_ids, target_ids))
        if not known:
            continue
        cross = attention_weights(translator.model, source_ids, target_ids)["cross"]
        weights: Weights = cross[..., : len(source_ids)].numpy()
        tokens += len(known)
        for way, matrix in ways(weights):
            strongest = matrix.argmax(axis=1)
            right[way] += sum(int(strongest[place]) in word for place, word in known)
    return {"tokens": tokens, **{way: count / tokens for way, count in right.items()}}


def spread(src: Path, tgt: Path, most: int) -> list[tuple[str, str]]:
    """Return pairs of two files, evenly spread over them."""
    lines = (file.read_text(encoding="utf-8").split("\n")[:-1] for file in (src, tgt))
    pairs = list(zip(*lines, strict=True))
    return pairs[:: max(1, len(pairs) // most)][:most]


def anchors(tokenizer: Tokenizer, source: Sequence[int], target: Sequence[int]) -> Iterator[Anchor]:
    """Find the target tokens whose source word is known."""
    ours, theirs = (words(tokenizer, ids) for ids in (source, target))
    for word, places in theirs.items():
        if len(places) == len(ours.get(word, ())) == 1 and TELLS.search(word):
            yield from ((place, ours[word][0]) for place in places[0])


def words(tokenizer: Tokenizer, ids: Sequence[int]) -> dict[str, list[list[int]]]:
    """Return the tokens of each occurrence of each word."""
    text, spans = tokenizer.decode(ids), tokenizer.spans(ids)
    found: dict[str, list[list[int]]] = {}
    for match in WORD.finditer(text):
        inside = [i for i, (begin, end) in enumerate(spans) if begin < match.end() and end > match.start()]
        found.setdefault(match.group(), []).append(inside)
    return found


def ways(weights: Weights) -> Iterator[tuple[str, Float[np.ndarray, "target source"]]]:
    """Yield each way to read the attention, in two rows: single heads, the mean of a layer, the mean of all layers."""
    for moment, rows in (("written", weights[:, :, :-1]), ("read", weights[:, :, 1:])):
        for i, layer in enumerate(rows):
            yield f"{moment}, layer {i}, mean", layer.mean(axis=0)
            for j, head in enumerate(layer):
                yield f"{moment}, layer {i}, head {j}", head
        yield f"{moment}, all layers, mean", rows.mean(axis=(0, 1))


def report(name: str, shares: dict[str, float]) -> None:
    print(f"{name}: {shares['tokens']:,} tokens of known words; per cent aligned correctly")
    for moment in ("written", "read"):
        rows = {way.removeprefix(f"{moment}, "): share for way, share in shares.items() if way.startswith(moment)}
        layers = sorted({way.split(",")[0] for way in rows if "head" in way})
        for layer in layers:
            heads = [rows[way] for way in sorted(rows) if way.startswith(f"{layer}, head")]
            shown = "".join(f"{100 * share:7.1f}" for share in heads)
            print(f"  {moment:<8}{layer}  mean {100 * rows[f'{layer}, mean']:5.1f}   heads{shown}")
        print(f"  {moment:<8}all layers, mean {100 * rows['all layers, mean']:5.1f}")


if __name__ == "__main__":
    main()
