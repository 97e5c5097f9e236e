"""Translate unusual text, and report loops, omissions and other faults.

    python benchmarks/robustness.py --model MODEL [--json FILE]

It translates the lines of robustness.tsv, and two generated ones of 500 words, as `onehop translate` does, and
prints a Markdown table. The faults are: loops, translations without an end, empty translations, far too few or too
many words, missing numbers, capitals that are only copied, and missing text of the column `keep`. A person must
judge the rest.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from onehop.decoding.options import SearchOptions
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of
from onehop.pipelines.result import Result
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.registry import find_model

FILE = Path(__file__).with_name("robustness.tsv")
CITIES = ("Hamburg", "Paris", "Madrid", "London", "Berlin", "Amsterdam", "Dublin", "Oslo", "Barcelona", "Boston")
WORDS = 500
FEWEST_WORDS = 4  # shorter inputs may correctly become much shorter or longer
LEAST, MOST = 0.5, 2.0  # words of the translation for each of the input
SHOWN = 120


@dataclass(frozen=True)
class Case:
    """A line to translate, and what must stay as it is in its translation."""

    kind: str
    keep: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Outcome:
    """A translation and its faults."""

    kind: str
    input: str
    output: str
    faults: list[str]


def cases() -> list[Case]:
    """Return the lines of the file and the long ones."""
    rows = [line.split("\t") for line in FILE.read_text(encoding="utf-8").split("\n")[1:-1]]
    read = [Case(kind, tuple(keep.split("|")) if keep else (), text) for kind, keep, text in rows]
    return [*read, Case("500 words", CITIES, many_sentences()), Case("500 words", CITIES, one_sentence())]


def many_sentences() -> str:
    """Build many sentences, each with its own number, so that a missing one is noticed."""
    return " ".join(cut_to_words(f"In {city} there were {n} people who waited for the bus." for n, city in numbered()))


def one_sentence() -> str:
    """Build the same without a full stop."""
    parts = cut_to_words(f"in {city} there were {n} people who waited for the bus" for n, city in numbered())
    return f"We heard that {' and '.join(parts)}."


def numbered() -> Iterator[tuple[int, str]]:
    """Yield numbers and cities in turn."""
    return ((101 + 7 * i, CITIES[i % len(CITIES)]) for i in range(WORDS))


def cut_to_words(parts: Iterator[str]) -> list[str]:
    """Return the first parts, up to this many words."""
    taken: list[str] = []
    while sum(len(part.split()) for part in taken) < WORDS:
        taken.append(next(parts))
    return taken


# --- faults ----------------------------------------------------------------------------------------


def faults(case: Case, found: Result) -> Iterator[str]:
    """Return every fault that a program can notice."""
    best = [sentence.n_best[0] for sentence in found.sentences if sentence.n_best]
    if any(translation.looped for translation in best):
        yield "loops"
    if not all(translation.finished or translation.looped for translation in best):
        yield "has no end"
    if bool(case.text.strip()) != bool(found.text.strip()):
        yield "is empty" if case.text.strip() else "is not empty"
    if case.kind == "capitals" and found.text == case.text:
        yield "is copied"
    yield from length_faults(case.text, found.text)
    for number in numbers(case.text) - numbers(found.text):
        yield f"lacks {number}"
    for text in case.keep:
        if text not in found.text:
            yield f"lacks {text}"


def length_faults(source: str, translation: str) -> Iterator[str]:
    """Report far too few or too many words."""
    before, after = len(source.split()), len(translation.split())
    if before >= FEWEST_WORDS and not LEAST * before <= after <= MOST * before:
        yield f"has {after} words for {before}"


def numbers(text: str) -> Counter[str]:
    """Return the numbers of a text without separators, which differ between languages."""
    return Counter(re.sub(r"\D", "", number) for number in re.findall(r"\d[\d.,:]*\d|\d", text))


# --- the report -----------------------------------------------------------------------------------------------


def outcomes(translator: ParagraphTranslator, chosen: list[Case]) -> list[Outcome]:
    """Translate each line and check it."""
    found = translator.translate([case.text for case in chosen])
    return [
        Outcome(case.kind, case.text, paragraph.text, list(faults(case, paragraph)))
        for case, paragraph in zip(chosen, found, strict=True)
    ]


def to_markdown(found: list[Outcome]) -> str:
    """Format a table for the model card."""
    lines = ["| | input | translation | |", "|---|---|---|---|"]
    for outcome in found:
        cells = (outcome.kind, shown(outcome.input), shown(outcome.output), "; ".join(outcome.faults))
        lines.append("| " + " | ".join(cells) + " |")
    wrong = sum(bool(outcome.faults) for outcome in found)
    return "\n".join([*lines, "", f"{len(found)} inputs, something wrong with {wrong}.", ""])


def shown(text: str) -> str:
    """Shorten a text for a table."""
    return (text if len(text) <= SHOWN else text[:SHOWN] + "…").replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="model file or installed model")
    parser.add_argument("--json", type=Path, help="write everything here too")
    parser.add_argument("--beam", type=int, default=4)
    chosen = parser.parse_args()
    options = SearchOptions(beam=chosen.beam)
    path = find_model(chosen.model)
    translator = ParagraphTranslator(SentenceTranslator.load(path), max_length=max_length_of(path), options=options)
    found = outcomes(translator, cases())
    print(to_markdown(found), end="")
    if chosen.json:
        values = {"model": chosen.model, "outcomes": [asdict(outcome) for outcome in found]}
        chosen.json.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
