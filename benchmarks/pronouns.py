"""Measure whether the model chooses the pronoun by the noun: English "it" into German (er, sie, es) or French (il,
elle).

    python benchmarks/pronouns.py --model MODEL [--json FILE]

The sentences are those of pronouns.tsv or pronouns-fr.tsv. There are two measures.

- Contrastive: the model scores one version of a sentence for each pronoun, as the sum over its tokens. It is right if
  the right version is the most probable. Chance is a third, and a half in French.
- Free: the model translates, and its pronoun is compared. A sentence does not count if the translation has another noun
  or no single pronoun.
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

from pronoun_set import ACCUSATIVE, FILES, NOMINATIVE, Item, read
from pronoun_set_fr import PRONOUN

from onehop.decoding.options import SearchOptions
from onehop.pipelines.sentence_translator import SentenceTranslator

FORMS = {"de": (NOMINATIVE, ACCUSATIVE), "fr": (PRONOUN, {})}  # as subject and as object
KINDS = ("subject", "object", "next sentence", "hard")
EXPLAINERS = "The animal did not cross the street"
SENTENCES = 32  # at a time


@dataclass(frozen=True)
class Answer:
    """What was chosen for a sentence; None where it cannot be decided."""

    item: Item
    chosen: str | None

    @property
    def right(self) -> bool:
        return self.chosen == self.item.gender


# --- the probability of a given translation -------------------------------------------------------------------


def log_probabilities(translator: SentenceTranslator, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return torch's log-probability of each target given its source, EOS included."""
    sources, targets = (translator.tokenizer.encode_batch(texts) for texts in zip(*pairs, strict=True))
    return list(map(sum, translator.reference.score(sources, targets)))


def contrastive(translator: SentenceTranslator, items: Sequence[Item]) -> Iterator[Answer]:
    """Return the gender of the most probable version of each sentence."""
    for first in range(0, len(items), SENTENCES):
        some = items[first : first + SENTENCES]
        pairs = [(item.english, version) for item in some for version in item.versions.values()]
        scores = iter(log_probabilities(translator, pairs))
        for item in some:
            by_gender = dict(zip(item.versions, scores, strict=False))
            yield Answer(item, max(by_gender, key=by_gender.__getitem__))


# --- the pronoun of a free translation ------------------------------------------------------------------------


def pronoun_in(text: str, item: Item, language: str) -> str | None:
    """Return the gender of the one pronoun after the noun, if the noun is the expected one."""
    places = [re.search(rf"\b{noun}", text) for noun in item.noun.split(", ")]
    if None in places:
        return None
    rest = text[max(place.end() for place in places if place) :]
    forms = FORMS[language][item.kind == "object"]
    words = re.findall(r"\w+", begin_small(rest) if item.kind == "next sentence" else rest)
    found = {gender for gender, form in forms.items() if form in words}
    return found.pop() if len(found) == 1 else None


def begin_small(text: str) -> str:
    """Lower-case the beginning of each sentence, where "Sie" may be "sie"."""
    return re.sub(r"[.!?;:]\W*\w", lambda match: match[0].lower(), text)


# --- the report -----------------------------------------------------------------------------------------------


def interval(right: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a proportion."""
    if of == 0:
        return 0.0, 1.0
    z = 1.96
    p, spread = right / of, z * z / of
    middle = (p + spread / 2) / (1 + spread)
    half = z * math.sqrt(p * (1 - p) / of + spread / (4 * of)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def tally(answers: Sequence[Answer]) -> dict[str, Any]:
    """Count right answers among those that count, with the interval."""
    counted = [a for a in answers if a.chosen is not None]
    right = sum(a.right for a in counted)
    chosen = Counter(a.chosen for a in counted)
    return {
        "sentences": len(answers),
        "counted": len(counted),
        "right": right,
        "accuracy": right / len(counted) if counted else None,
        "interval": interval(right, len(counted)),
        "chosen": {gender: chosen[gender] for gender in answers[0].item.versions},
    }


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """Summarise all sentences with one possible noun, the same by gender and by kind, and the hard ones."""
    plain = [a for a in answers if a.item.kind != "hard"]
    parts = {"all": plain}
    parts |= {gender: [a for a in plain if a.item.gender == gender] for gender in answers[0].item.versions}
    parts |= {kind: [a for a in answers if a.item.kind == kind] for kind in KINDS}
    return {name: tally(part) for name, part in parts.items() if part}


def to_text(report: dict[str, Any]) -> str:
    """Format a table."""
    lines = [
        f"{'':<16}{'right':>7}{'of':>6}{'':>9}{'95%':>15}   chosen {' / '.join(report['contrastive']['all']['chosen'])}"
    ]
    for measure in ("contrastive", "free"):
        lines.append(measure)
        for name, found in report[measure].items():
            share = "" if found["accuracy"] is None else f"{found['accuracy']:.1%}"
            low, high = found["interval"]
            chosen = " / ".join(map(str, found["chosen"].values()))
            counts = f"{found['right']:>7}{found['counted']:>6}{share:>9}"
            lines.append(f"  {name:<14}{counts}{f'{low:.0%} … {high:.0%}':>15}   {chosen}")
    lines += [f"{each['english']} → {each['translation']} ({each['contrastive']})" for each in report["explainers"]]
    chance = 1 / len(report["contrastive"]["all"]["chosen"])
    return "\n".join(
        [*lines, f"Chance is {chance:.1%}; for the hard ones it is 50% for a model that knows the two nouns.", ""]
    )


def measure(translator: SentenceTranslator, items: Sequence[Item], options: SearchOptions) -> dict[str, Any]:
    """Run both measures on all sentences, and on the pair that opens most explanations of attention."""
    choices = list(contrastive(translator, items))
    texts = [found.text for found in translator.translate([item.english for item in items], options)]
    answers = [Answer(item, pronoun_in(text, item, translator.target)) for item, text in zip(items, texts, strict=True)]
    return {
        "contrastive": summary(choices),
        "free": summary(answers),
        "explainers": [
            {"english": item.english, "right": item.gender, "contrastive": choice.chosen, "translation": text}
            for item, choice, text in zip(items, choices, texts, strict=True)
            if item.english.startswith(EXPLAINERS)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="model file or installed model")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--beam", type=int, default=4, help="for the free translations")
    chosen = parser.parse_args()
    translator = SentenceTranslator.load(chosen.model)
    if (translator.source, translator.target) not in [("en", target) for target in FILES]:
        parser.error(
            f"The sentences are English, with versions in {' and '.join(FILES)}. Name a model for one of them."
        )
    report = measure(translator, read(translator.target), SearchOptions(beam=chosen.beam))
    print(to_text(report), end="")
    if chosen.json:
        chosen.json.write_text(json.dumps({"model": chosen.model, **report}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
