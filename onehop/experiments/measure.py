"""`onehop paper measure`: the measurements that the explorer's page shows, each in a file.

Every file records its model, machine and command. docs/guide/explore.md describes the measurements.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onehop.atomic import write_whole
from onehop.config import settings_from_dict
from onehop.data.store import Store
from onehop.errors import SettingsError
from onehop.evaluation.report import aligned
from onehop.experiments.coreference import coreference
from onehop.experiments.heads import patterns
from onehop.experiments.lengths import lengths
from onehop.experiments.provenance import made
from onehop.experiments.pruning import pruning
from onehop.experiments.short_runs import twins, warmup
from onehop.experiments.synthetic import complexity, dimension, paths
from onehop.interpret.tracer import Tracer
from onehop.storage.model_label import describe
from onehop.storage.registry import find_model

_Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class MeasureInputs:
    """The inputs of measurements; files are read and the model is loaded on first use."""

    model: str | None = None
    source: Path | None = None
    reference: Path | None = None
    sentences: int = 300
    store: Path | None = None
    steps: int = 500
    table3: Path | None = None
    device: str | None = None

    @cached_property
    def tracer(self) -> Tracer:
        return Tracer.load(find_model(self.model), self.device)

    def needed(self, name: str) -> Path:
        """The file of a required option."""
        file: Path | None = getattr(self, name)
        if file is None:
            raise SettingsError(f"--{name} is missing.", f"Give --{name} {name.upper()}.")
        return file

    def lines(self, *names: str) -> list[list[str]]:
        """The first lines of aligned files."""
        return [lines[: self.sentences] for lines in aligned([self.needed(name) for name in names])]

    def pairs(self) -> tuple[list[str], list[str]]:
        sources, references = self.lines("source", "reference")
        return sources, references

    def trained_to(self) -> int:
        """The maximum source length in tokens of the model's training."""
        return settings_from_dict(describe(find_model(self.model)).content["settings"]).data.longest

    def table3_rows(self) -> _Json:
        file = self.needed("table3")
        try:
            found: _Json = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise SettingsError(f"{file} cannot be read ({e}).", "Give a table3.json of onehop paper table3.") from None
        return found


MEASURE: dict[str, Callable[[MeasureInputs], _Json]] = {
    "dimension": lambda given: dimension(),
    "paths": lambda given: paths(),
    "complexity": lambda given: complexity(),
    "coreference": lambda given: coreference(given.tracer),
    "patterns": lambda given: patterns(given.tracer, *given.lines("source")),
    "pruning": lambda given: pruning(given.tracer, *given.pairs()),
    "lengths": lambda given: lengths(given.tracer, *given.pairs(), given.trained_to()),
    "warmup": lambda given: warmup(Store.open(given.needed("store")), given.steps, device=given.device),
    "twins": lambda given: twins(given.table3_rows()),
}
# The inputs of each measurement, recorded with its result.
OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dimension", "paths", "complexity"), ()),
    "coreference": ("model",),
    "patterns": ("model", "source", "sentences"),
    "pruning": ("model", "source", "reference", "sentences"),
    "lengths": ("model", "source", "reference", "sentences"),
    "warmup": ("store", "steps", "device"),
    "twins": ("table3",),
}


def measure(name: str, given: MeasureInputs, folder: Path) -> Path:
    """Run a measurement and write its file; returns the path."""
    for option in {"source", "reference", "store", "table3"} & {*OPTIONS[name]}:
        given.needed(option)  # checked before a model is loaded
    found, model = MEASURE[name](given), None
    if "model" in OPTIONS[name]:
        about = given.tracer.about()
        model = {"name": about["name"], "hash": about["hash"]}
    text = next((getattr(given, option).stem for option in ("source", "store") if option in OPTIONS[name]), None)
    told = {**made(name, _command(name, given)), "model": model, "set": text, **found}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    write_whole(file, (json.dumps(told, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())
    return file


def _command(name: str, given: MeasureInputs) -> str:
    """The command that makes this file; paths are reduced to names."""
    values = {option: getattr(given, option) for option in OPTIONS[name]}
    if "model" in values and given.model is None:
        values["model"] = given.tracer.about()["name"]
    options = [f"--{option} {Path(str(value)).name}" for option, value in values.items() if value is not None]
    return " ".join(["onehop paper measure", name, *options])
