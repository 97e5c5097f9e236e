"""Count needless warnings about numbers, and the changed numbers that are caught.

    python benchmarks/missing_numbers.py en de newstest2013=valid/newstest2013 tatoeba-valid=valid/tatoeba \
        --json results/numbers/en-de.json

Each set is NAME=STEM, with the files STEM.SOURCE and STEM.TARGET. A human translation should cause no warning, so
each warning is saved for review. Then one number in digits that the source has too is raised by one in each of these
translations: the check should warn each time.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from onehop.pipelines.numbers import missing_numbers

DIGITS = re.compile(r"(?<![\d.,:])\d{1,4}(?![\d]|[.,:]\d)")


def raised(source: str, translation: str) -> str | None:
    """Return a translation with one number of the source raised by one; None without a number that occurs once."""
    for number in DIGITS.finditer(translation):
        if len(re.findall(rf"(?<!\d){number[0]}(?!\d)", translation)) == 1 and re.search(
            rf"(?<![\d.,:]){number[0]}(?!\d|[.,:]\d)", source
        ):
            return f"{translation[: number.start()]}{int(number[0]) + 1}{translation[number.end() :]}"
    return None


def judged(sources: list[str], references: list[str], languages: tuple[str, str]) -> dict[str, Any]:
    """Collect the warnings of the references, and of the same with a number raised."""
    pairs = list(zip(sources, references, strict=True))
    warned = [(s, r, missing) for s, r in pairs if (missing := missing_numbers(s, r, languages))]
    silent = [(s, r) for s, r in pairs if not missing_numbers(s, r, languages)]
    changed = [(s, other) for s, r in silent if (other := raised(s, r)) is not None]
    passed = [(s, other) for s, other in changed if not missing_numbers(s, other, languages)]
    return {
        "sentences": len(pairs),
        "warned": len(warned),
        "changed": len(changed),
        "caught": len(changed) - len(passed),
        "warnings": [{"source": s, "reference": r, "missing": m} for s, r, m in warned],
        "passed": [{"source": s, "changed": other} for s, other in passed],
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("sets", nargs="+", metavar="NAME=STEM")
    parser.add_argument("--json", type=Path, help="write every warning and every missed change here")
    args = parser.parse_args()
    report: dict[str, Any] = {}
    for name, _, stem in (each.partition("=") for each in args.sets):
        sides = [
            Path(f"{stem}.{language}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
            for language in (args.source, args.target)
        ]
        report[name] = judged(*sides, (args.source, args.target))
        shown = {key: value for key, value in report[name].items() if isinstance(value, int)}
        print(f"{args.source}-{args.target}", name, json.dumps(shown))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
