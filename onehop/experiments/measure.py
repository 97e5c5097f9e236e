"""`onehop paper measure`: the measurements that the explorer's page shows, each in a file.

Every file records its model, machine and command. docs/guide/explore.md describes the measurements.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop.atomic import write_whole
from onehop.config import settings_from_dict
from onehop.data.store import Store
from onehop.errors import SettingsError
from onehop.evaluation.report import aligned
from onehop.experiments.provenance import Json, origin
from onehop.storage.model_label import describe
from onehop.storage.registry import find_model

if TYPE_CHECKING:  # it imports torch, so errors in the arguments come first
    from onehop.interpret.tracer import Tracer


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
    def tracer(self) -> "Tracer":
        from onehop.interpret.tracer import Tracer

        return Tracer.load(find_model(self.model), self.device)

    def required(self, name: str) -> Path:
        file: Path | None = getattr(self, name)
        if file is None:
            raise SettingsError(f"--{name} is missing.", f"Give --{name} {name.upper()}.")
        return file

    def check(self, measurement: str) -> None:
        """Refuse a measurement that does not exist or lacks one of its files."""
        if measurement not in OPTIONS:
            raise SettingsError(f"There is no measurement {measurement}.", f"Choose from {', '.join(OPTIONS)}.")
        for option in OPTIONS[measurement]:
            if option in ("source", "reference", "store", "table3"):
                self.required(option)

    def lines(self, *names: str) -> list[list[str]]:
        return [lines[: self.sentences] for lines in aligned([self.required(name) for name in names])]

    def trained_to(self) -> int:
        """The maximum source length in tokens of the model's training."""
        return settings_from_dict(describe(find_model(self.model)).content["settings"]).data.longest

    def table3_rows(self) -> Json:
        file = self.required("table3")
        try:
            table: Json = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise SettingsError(f"{file} cannot be read ({e}).", "Give a table3.json of onehop paper table3.") from None
        return table


def _module(name: str) -> Any:
    return import_module(f"onehop.experiments.{name}")


MEASURE: dict[str, Callable[[MeasureInputs], Json]] = {
    "dimension": lambda inputs: _module("synthetic").dimension(),
    "paths": lambda inputs: _module("synthetic").paths(),
    "complexity": lambda inputs: _module("synthetic").complexity(),
    "coreference": lambda inputs: _module("coreference").coreference(inputs.tracer),
    "patterns": lambda inputs: _module("heads").patterns(inputs.tracer, *inputs.lines("source")),
    "pruning": lambda inputs: _module("pruning").pruning(inputs.tracer, *inputs.lines("source", "reference")),
    "lengths": lambda inputs: _module("lengths").lengths(
        inputs.tracer, *inputs.lines("source", "reference"), longest=inputs.trained_to()
    ),
    "warmup": lambda inputs: _module("short_runs").warmup(
        Store.open(inputs.required("store")), inputs.steps, device=inputs.device
    ),
    "twins": lambda inputs: _module("short_runs").twins(inputs.table3_rows()),
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


def measure(name: str, inputs: MeasureInputs, folder: Path) -> Path:
    """Run a measurement and write its file; returns the path."""
    results, model = MEASURE[name](inputs), None
    if "model" in OPTIONS[name]:
        about = inputs.tracer.about()
        model = {"name": about["name"], "hash": about["hash"]}
    text_set = next((getattr(inputs, option).stem for option in ("source", "store") if option in OPTIONS[name]), None)
    record = {"name": name, **origin(_command(name, inputs)), "model": model, "set": text_set, **results}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    write_whole(file, (json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())
    return file


def _command(name: str, inputs: MeasureInputs) -> str:
    """The command that makes this file; paths are reduced to names."""
    values = {option: getattr(inputs, option) for option in OPTIONS[name]}
    if "model" in values and inputs.model is None:
        values["model"] = inputs.tracer.about()["name"]
    options = [f"--{option} {Path(str(value)).name}" for option, value in values.items() if value is not None]
    return " ".join(["onehop paper measure", name, *options])
