"""Measures what the page shows besides one translation, each into a file of its own.

    python -m onehop.experiments.measure dimension paths complexity
    python -m onehop.experiments.measure coreference -m en-de
    python -m onehop.experiments.measure patterns pruning lengths -m en-de --source test.en --reference test.de
    python -m onehop.experiments.measure warmup --store store
    python -m onehop.experiments.measure twins --table3 table3.json

Every file says which model, machine and command made it. docs/guide/explore.md says what is measured and how.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from onehop.config import settings_from_dict
from onehop.data.corpus import Lines
from onehop.data.store import Store
from onehop.errors import OnehopError, SettingsError
from onehop.experiments.heads import coreference, patterns
from onehop.experiments.lengths import lengths
from onehop.experiments.provenance import made
from onehop.experiments.pruning import pruning
from onehop.experiments.short_runs import twins, warmup
from onehop.experiments.synthetic import complexity, dimension, paths
from onehop.explorer.content import DATA, MEASUREMENTS
from onehop.interpret.tracer import Tracer
from onehop.storage.model_label import describe
from onehop.storage.registry import find_model

_Json = dict[str, Any]


class _MeasureRequest:
    """What the command line asks for; files are read and the model loaded when a measurement needs them."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self._tracer: Tracer | None = None

    @property
    def tracer(self) -> Tracer:
        if self._tracer is None:
            self._tracer = Tracer.load(self.needed("model", "-m MODEL"), self.asked.device)
        return self._tracer

    @property
    def store(self) -> Store:
        """What the short runs train on."""
        return Store.open(self.needed("store", "--store STORE"))

    def sources(self) -> list[str]:
        """The first sentences to look at."""
        return self.lines("source", "--source FILE")

    def pairs(self) -> tuple[list[str], list[str]]:
        """The first sentences and how they should be translated."""
        sources, references = self.sources(), self.lines("reference", "--reference FILE")
        if len(sources) != len(references):
            raise SettingsError(
                f"There are {len(sources)} sources and {len(references)} references.", "Give aligned files."
            )
        return sources, references

    def lines(self, name: str, option: str) -> list[str]:
        """The first lines of a file."""
        lines = islice(Lines(Path(self.needed(name, option))), self.asked.sentences)
        return [line.decode("utf-8", "replace").strip() for line in lines]

    def trained_to(self) -> int:
        """Pieces of the longest sentence that the model's training kept."""
        settings = describe(find_model(self.needed("model", "-m MODEL"))).content["settings"]
        return settings_from_dict(settings).data.longest

    def table3(self) -> _Json:
        file = self.needed("table3", "--table3 FILE")
        try:
            found: _Json = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise SettingsError(f"{file} cannot be read ({e}).", "Give a table3.json of onehop paper table3.") from None
        return found

    def needed(self, name: str, option: str) -> str:
        """An option that a measurement cannot do without."""
        value = getattr(self.asked, name)
        if value is None:
            raise SettingsError(f"This measurement needs {option.split()[0]}.", f"Give {option}.")
        return str(value)

    def set_of(self, name: str) -> str | None:
        """The name of the sentences that a measurement is of."""
        given = next((option for option in ("source", "store") if option in OPTIONS[name]), None)
        return given and Path(self.needed(given, f"--{given}")).stem

    def command(self, name: str) -> str:
        """What makes this file again; of files only the names."""
        words = ["python -m onehop.experiments.measure", name]
        for option in OPTIONS[name]:
            value = getattr(self.asked, option.replace("-", "_"))
            if value is not None:
                words.append(f"--{option} {Path(str(value)).name}")
        return " ".join(words)


MEASURE: dict[str, Callable[[_MeasureRequest], _Json]] = {
    "dimension": lambda request: dimension(),
    "paths": lambda request: paths(),
    "complexity": lambda request: complexity(),
    "coreference": lambda request: coreference(request.tracer),
    "patterns": lambda request: patterns(request.tracer, request.sources()),
    "pruning": lambda request: pruning(request.tracer, *request.pairs()),
    "lengths": lambda request: lengths(request.tracer, *request.pairs(), request.trained_to()),
    "warmup": lambda request: warmup(request.store, request.asked.steps, device=request.asked.device),
    "twins": lambda request: twins(request.table3()),
}
# What each measurement looks at, to be written beside its result.
OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dimension", "paths", "complexity"), ()),
    "coreference": ("model",),
    "patterns": ("model", "source", "sentences"),
    "pruning": ("model", "source", "reference", "sentences"),
    "lengths": ("model", "source", "reference", "sentences"),
    "warmup": ("store", "steps", "device"),
    "twins": ("table3",),
}


def _measure(name: str, request: _MeasureRequest) -> _Json:
    model = None
    if "model" in OPTIONS[name]:
        about = request.tracer.about()
        model = {"name": about["name"], "hash": about["hash"]}
    found = MEASURE[name](request)
    return {**made(name, request.command(name)), "model": model, "set": request.set_of(name), **found}


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m onehop.experiments.measure", description=str(__doc__).split("\n")[0]
    )
    found.add_argument("names", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=", ".join(MEASUREMENTS))
    found.add_argument("-m", "--model", help="a model file or an installed model")
    found.add_argument("--source", help="sentences, one a line")
    found.add_argument("--reference", help="their translations")
    found.add_argument("--sentences", type=int, default=300, help="so many of them (%(default)s)")
    found.add_argument("--store", help="warmup: what to train on")
    found.add_argument("--steps", type=int, default=500, help="warmup: of each run (%(default)s)")
    found.add_argument("--table3", help="twins: what `onehop paper table3` left, with rows A")
    found.add_argument("--device", help="cpu, cuda or cuda:N; otherwise what is there")
    found.add_argument("-o", "--out", type=Path, default=DATA, help="the folder to write to (the package's own)")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit status."""
    asked = _parser().parse_args(arguments)
    request = _MeasureRequest(asked)
    try:
        for name in asked.names:
            began = time.monotonic()
            text = json.dumps(_measure(name, request), ensure_ascii=False, allow_nan=False, indent=1)
            file = asked.out / f"{name}.json"
            file.write_text(text + "\n", encoding="utf-8")
            print(f"{file}: {time.monotonic() - began:.0f} s")
    except OnehopError as e:
        print(f"onehop: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
