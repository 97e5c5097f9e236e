"""Does the model choose er, sie or es by the noun? English "it" into German, on the sentences of pronouns.tsv.

    python benchmarks/pronouns.py --model MODEL [--json FILE]

Two measures. Contrastive: of three German sentences that differ in the pronoun alone, the model is right where it gives
the right one the highest probability (the sum over its pieces); chance is a third. Free: it translates, and the pronoun
it wrote is compared; where it used another noun or no single pronoun, the sentence does not count.
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pronoun_set import ACCUSATIVE, GENDERS, NOMINATIVE, Item, read

from onehop.decoding.options import SearchOptions
from onehop.decoding.torch_engine import padded
from onehop.model.transformer import Tokens, Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import BOS, PAD, Tokenizer

KINDS = ("subject", "object", "next sentence", "hard")
SENTENCES = 32  # at a time


@dataclass(frozen=True)
class Answer:
    """What was chosen for a sentence; None where nothing can be said."""

    item: Item
    chosen: str | None

    @property
    def right(self) -> bool:
        return self.chosen == self.item.gender


# --- the probability of a given translation -------------------------------------------------------------------


@torch.inference_mode()
def log_probabilities(model: Transformer, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """How probable each target is as a translation of its source, end mark included."""
    device = next(model.parameters()).device
    sources = padded(tokenizer.encode_batch([src for src, _ in pairs])).to(device)
    targets = padded([[BOS, *ids] for ids in tokenizer.encode_batch([tgt for _, tgt in pairs])]).to(device)
    labels = targets[:, 1:]
    found = model.log_probabilities(Tokens.padded(sources, PAD), Tokens.padded(targets[:, :-1], PAD)).double()
    each = found.gather(-1, labels[..., None])[..., 0].masked_fill(labels == PAD, 0.0)
    return [float(x) for x in each.sum(-1)]


def contrastive(translator: SentenceTranslator, items: Sequence[Item]) -> Iterator[Answer]:
    """The gender of the most probable version of each sentence."""
    for first in range(0, len(items), SENTENCES):
        some = items[first : first + SENTENCES]
        pairs = [(item.english, item.german[gender]) for item in some for gender in GENDERS]
        found = log_probabilities(translator.model, translator.tokenizer, pairs)
        for i, item in enumerate(some):
            scores = found[len(GENDERS) * i :][: len(GENDERS)]
            yield Answer(item, GENDERS[scores.index(max(scores))])


# --- the pronoun of a free translation ------------------------------------------------------------------------


def free(translator: SentenceTranslator, items: Sequence[Item], options: SearchOptions) -> Iterator[Answer]:
    """The gender of the pronoun in the translation of each sentence."""
    texts = [found.text for found in translator.translate([item.english for item in items], options)]
    return (Answer(item, pronoun_in(text, item)) for item, text in zip(items, texts, strict=True))


def pronoun_in(text: str, item: Item) -> str | None:
    """The gender of the one pronoun behind the noun, if the noun is the one that is asked for."""
    places = [re.search(rf"\b{noun}", text) for noun in item.noun.split(", ")]
    if None in places:
        return None
    rest = text[max(place.end() for place in places if place) :]
    forms = ACCUSATIVE if item.kind == "object" else NOMINATIVE
    words = re.findall(r"\w+", begin_small(rest) if item.kind == "next sentence" else rest)
    found = {gender for gender, form in forms.items() if form in words}
    return found.pop() if len(found) == 1 else None


def begin_small(text: str) -> str:
    """The text with a small letter at the beginning of each sentence: there "Sie" may be "sie"."""
    return re.sub(r"[.!?;:]\W*\w", lambda match: match[0].lower(), text)


# --- the report -----------------------------------------------------------------------------------------------


def interval(right: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    if of == 0:
        return 0.0, 1.0
    p, spread = right / of, z * z / of
    middle = (p + spread / 2) / (1 + spread)
    half = z * math.sqrt(p * (1 - p) / of + spread / (4 * of)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def tally(answers: Sequence[Answer]) -> dict[str, Any]:
    """Right answers among those that count, with the interval."""
    counted = [a for a in answers if a.chosen is not None]
    right = sum(a.right for a in counted)
    chosen = Counter(a.chosen for a in counted)
    return {
        "sentences": len(answers),
        "counted": len(counted),
        "right": right,
        "accuracy": right / len(counted) if counted else None,
        "interval": interval(right, len(counted)),
        "chosen": {gender: chosen[gender] for gender in GENDERS},
    }


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """All sentences with one possible noun, the same by gender and by kind, and the hard ones apart."""
    plain = [a for a in answers if a.item.kind != "hard"]
    parts = {"all": plain}
    parts |= {gender: [a for a in plain if a.item.gender == gender] for gender in GENDERS}
    parts |= {kind: [a for a in answers if a.item.kind == kind] for kind in KINDS}
    return {name: tally(part) for name, part in parts.items() if part}


def to_text(report: dict[str, Any]) -> str:
    """A table for people."""
    lines = [f"{'':<16}{'right':>7}{'of':>6}{'':>9}{'95%':>15}   chosen er / sie / es"]
    for measure in ("contrastive", "free"):
        lines.append(measure)
        for name, found in report[measure].items():
            share = "" if found["accuracy"] is None else f"{found['accuracy']:.1%}"
            low, high = found["interval"]
            chosen = " / ".join(str(found["chosen"][gender]) for gender in GENDERS)
            counts = f"{found['right']:>7}{found['counted']:>6}{share:>9}"
            lines.append(f"  {name:<14}{counts}{f'{low:.0%} … {high:.0%}':>15}   {chosen}")
    return "\n".join([*lines, "Chance is 33.3%; for the hard ones 50% to who knows the two nouns.", ""])


def measure(translator: SentenceTranslator, items: Sequence[Item], options: SearchOptions) -> dict[str, Any]:
    """Both measures on all sentences."""
    return {
        "contrastive": summary(list(contrastive(translator, items))),
        "free": summary(list(free(translator, items, options))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="model file or installed model")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--beam", type=int, default=4, help="for the free translations")
    chosen = parser.parse_args()
    report = measure(SentenceTranslator.load(chosen.model), read(), SearchOptions(beam=chosen.beam))
    print(to_text(report), end="")
    if chosen.json:
        chosen.json.write_text(json.dumps({"model": chosen.model, **report}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
