"""A training run's folder: settings, checkpoints, metrics. Every write is atomic.

    settings.toml        the settings
    run.json             token budget, data, versions
    tokenizer.model      the tokenizer of the first start
    metrics.jsonl        one line per report
    checkpoints/step-…/  weights.safetensors, optimizer.safetensors (the last two only), state.json
    best.safetensors     weights of the best validation, with early stopping
    model.safetensors    the result

A checkpoint folder is written under a temporary name and then renamed, so it is complete or absent.
"""

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError

from onehop.atomic import json_object, new_file, new_folder, remove_folder, write_json, write_whole
from onehop.config import Settings, load_settings, settings_to_dict, settings_to_toml
from onehop.data.store import DESCRIPTION
from onehop.errors import RunError, write_errors
from onehop.storage.checkpoint_arrays import (
    CHECKSUM,
    Arrays,
    broken_checkpoint_error,
    read_arrays,
    read_with_metadata,
    state_checksum,
    write_arrays,
)

# Settings that may change on resume: they do not affect what a step computes.
FREE_TO_CHANGE = {
    *("train.steps", "train.save_every", "train.validate_every", "train.report_every", "train.patience"),
    *("train.keep", "train.average", "train.shard"),
}

# A run overwrites files of these names.
_WRITTEN = ("settings.toml", "metrics.jsonl", "tokenizer.model", "best.safetensors", "model.safetensors")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a run besides its weights."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float | None = None
    since_best: int = 0
    exact: bool = True


@dataclass(frozen=True)
class Checkpoint:
    """Everything that an exact resume needs."""

    progress: Progress
    weights: Arrays
    optimizer: Arrays


class Run:
    """A run folder, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Not thread-local: another thread may release it.
        self._lock = FileLock(path / ".lock", timeout=0, thread_local=False)

    # --- start and resume ---

    def begin(self, settings: Settings, metadata: Mapping[str, Any]) -> None:
        """Create the folder, or check that it was started with the same settings and data."""
        with run_write_errors(self.path):
            self.check_overwrites_nothing()
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout:
                raise RunError(
                    f"Another process is training in {self.path}.", "Wait for it, or choose another folder."
                ) from None
            for abandoned in (self.path / "checkpoints").glob(".*.tmp"):
                shutil.rmtree(abandoned)
            if (self.path / "run.json").exists():
                self.check_same(settings, metadata)
            write_whole(self.path / "settings.toml", settings_to_toml(settings).encode())
            write_json(self.path / "run.json", {**metadata, **self.metadata()})

    def release(self) -> None:
        self._lock.release()

    def check_overwrites_nothing(self) -> None:
        """Refuse a folder without a run that has files of the same names."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file.", "Choose a new folder.")
        if (self.path / DESCRIPTION).exists():
            raise RunError(f"{self.path} is a store.", "Choose a new folder.")
        if any((self.path / mark).exists() for mark in (".lock", "run.json")):
            return
        for name in _WRITTEN:
            if (self.path / name).exists():
                raise RunError(
                    f"{self.path / name} does not belong to a run, and a run would overwrite it.",
                    "Choose a new folder.",
                )

    def check_same(self, settings: Settings, metadata: Mapping[str, Any]) -> None:
        """Refuse to resume with other settings or data."""
        # A cosine schedule depends on the total number of steps.
        fixed = {"train.steps"} if settings.train.decay == "cosine" else set()
        for name, (old, new) in _differences(load_settings(str(self.path / "settings.toml")), settings).items():
            if name not in FREE_TO_CHANGE - fixed:
                raise RunError(
                    f"{self.path} was started with {name} = {old}, but now it is {new}.",
                    "Train in another folder, or set it back to resume this run.",
                )
        done = max(self.steps(), default=0)
        if done > settings.train.steps:
            raise RunError(
                f"{self.path} has {done} steps, but train.steps is {settings.train.steps}.",
                "Train in another folder, or set train.steps to at least that number.",
            )
        for name in ("tokenizer", "data"):
            if name in metadata and self.metadata().get(name, metadata[name]) != metadata[name]:
                raise RunError(
                    f"{self.path} was started with another {name} than the store has.",
                    "Give the store of the run, or train in another folder.",
                )

    def metadata(self) -> dict[str, Any]:
        """What run.json holds."""
        file = self.path / "run.json"
        if not file.exists():
            return {}
        try:
            metadata: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise RunError(f"{file} cannot be read: {e}.", "Restore it or train in another folder.") from None
        return metadata

    def note(self, **metadata: Any) -> None:
        with run_write_errors(self.path):
            write_json(self.path / "run.json", {**self.metadata(), **metadata})

    def keep_tokenizer(self, tokenizer: bytes) -> None:
        """Copy the tokenizer into the folder, so that a checkpoint can become a model file without the store."""
        with run_write_errors(self.path):
            write_whole(self.path / "tokenizer.model", tokenizer)

    def check_exists(self) -> None:
        if not (self.path / "run.json").exists():
            raise RunError(f"{self.path} is not a run folder.", "Give the folder that `onehop train -o` wrote.")

    def ingredients(self) -> tuple[Settings, bytes, str, str]:
        """What a model file needs besides weights: settings, tokenizer, source and target language."""
        settings = load_settings(str(self.path / "settings.toml"))
        try:
            tokenizer = (self.path / "tokenizer.model").read_bytes()
        except OSError:
            raise RunError(f"{self.path} has no tokenizer.model.", "Give the folder of a training run.") from None
        # A store names its languages itself; the settings' may be others.
        metadata = self.metadata()
        source, target = metadata.get("source", settings.data.source), metadata.get("target", settings.data.target)
        return settings, tokenizer, source, target

    # --- checkpoints ---

    def steps(self) -> list[int]:
        """Steps with a checkpoint, oldest first."""
        matches = (re.fullmatch(r"step-(\d+)", p.name) for p in (self.path / "checkpoints").glob("step-*"))
        return sorted(int(match[1]) for match in matches if match)

    def folder(self, step: int) -> Path:
        return self.path / "checkpoints" / f"step-{step:08d}"

    def save(self, checkpoint: Checkpoint, keep: int, every: int) -> None:
        """Write a checkpoint, then remove old optimizer states and old weights.

        The previous optimizer state stays as a fallback for a damaged last one. A checkpoint of an interruption,
        between two regular ones, is removed, so that an average does not depend on interruptions.
        """
        step = checkpoint.progress.step
        with run_write_errors(self.path):
            if step not in self.steps():
                self._write(checkpoint, self.folder(step), regular=step > 0 and step % every == 0)
            for irregular in [old for old in self.steps()[:-1] if not self._is_regular(old)]:
                remove_folder(self.folder(irregular))
            for old in self.steps()[:-keep]:
                remove_folder(self.folder(old))
            for old in self.steps()[:-2]:
                (self.folder(old) / "optimizer.safetensors").unlink(missing_ok=True)

    def _is_regular(self, step: int) -> bool:
        """Whether a checkpoint was due when it was made, whatever `save_every` is now."""
        with contextlib.suppress(OSError, ValueError):  # a damaged checkpoint must not prevent saving the new one
            state: dict[str, Any] = json.loads((self.folder(step) / "state.json").read_text(encoding="utf-8"))
            return bool(state.get("regular", step > 0))
        return step > 0

    def _write(self, checkpoint: Checkpoint, folder: Path, *, regular: bool) -> None:
        with new_folder(folder) as partial:
            write_arrays(checkpoint.weights, partial / "weights.safetensors")
            write_arrays(checkpoint.optimizer, partial / "optimizer.safetensors")
            state = {**asdict(checkpoint.progress), "regular": regular}
            state[CHECKSUM] = state_checksum(state)
            (partial / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def latest(self) -> Checkpoint | None:
        """The checkpoint to resume from, or None."""
        steps = self.steps()
        if not steps:
            return None
        folder = self.folder(steps[-1])
        try:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            if state.pop(CHECKSUM, None) not in (None, state_checksum(state)):
                raise ValueError("its checksum does not match")
            progress = Progress(**{f.name: state[f.name] for f in fields(Progress)})
            counts = (progress.step, progress.epoch, progress.batch, progress.since_best)
            if progress.step != steps[-1] or not all(type(count) is int and count >= 0 for count in counts):
                raise ValueError("its step, epoch or batch is out of range")
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
            raise broken_checkpoint_error(folder / "state.json", e) from None
        return Checkpoint(progress, self.weights(steps[-1]), read_arrays(folder / "optimizer.safetensors"))

    def weights(self, step: int) -> Arrays:
        return read_arrays(self.folder(step) / "weights.safetensors")

    def averaged(self, last: int) -> tuple[Arrays, list[int]]:
        """The mean of the weights of the last checkpoints, and their steps."""
        steps = self.steps()[-last:]
        if not steps:
            raise RunError(f"There is no checkpoint in {self.path}.", "Train first.")
        return average(self.weights(step) for step in steps), steps

    def exponential_average(self) -> tuple[Arrays, list[int]]:
        """The exponential average of the weights at the last checkpoint, and its step."""
        steps = self.steps()
        if not steps:
            raise RunError(f"There is no checkpoint in {self.path}.", "Train first.")
        prefix, state = "ema.", read_arrays(self.folder(steps[-1]) / "optimizer.safetensors")
        weights = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        if not weights:
            raise RunError(
                f"{self.path} has no exponential moving average.", "Omit --ema, or train with train.ema set."
            )
        return weights, steps[-1:]

    def save_best(self, weights: Arrays, step: int) -> None:
        """Keep the weights of the best validation so far."""
        with run_write_errors(self.path), new_file(self.path / "best.safetensors") as file:
            write_arrays(weights, file, {"step": str(step)})

    def forget_best(self) -> None:
        """Delete best.safetensors: a newer best exists but was not saved."""
        (self.path / "best.safetensors").unlink(missing_ok=True)

    def best(self) -> tuple[Arrays, list[int]] | None:
        """The weights of the best validation, if they were kept, and their step."""
        file = self.path / "best.safetensors"
        if not file.exists():
            return None
        weights, metadata = read_with_metadata(file)
        return weights, [int(metadata["step"])]

    # --- metrics ---

    def report(self, line: Mapping[str, Any]) -> None:
        with run_write_errors(self.path), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    def rewind_metrics(self, step: int) -> None:
        """Drop the lines after a step, which will be written again, and a line truncated by a kill."""
        file = self.path / "metrics.jsonl"
        if file.exists():
            kept = [line for line in read_metrics(file) if line["step"] <= step]
            with run_write_errors(self.path):
                write_whole(file, "".join(json.dumps(line) + "\n" for line in kept).encode())


def average(weights: Iterable[Arrays]) -> Arrays:
    """The mean of several sets of weights, summed in float64 with one set in memory at a time."""
    sums: dict[str, NDArray[np.float64]] = {}
    count = 0
    for one in weights:
        count += 1
        for name, array in one.items():
            sums[name] = sums.get(name, np.zeros(array.shape)) + array
    return {name: (array / count).astype(np.float32) for name, array in sums.items()}


def _differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    """Settings that are not the same, by their full name."""
    before, after = settings_to_dict(old), settings_to_dict(new)
    names = [(table, key) for table in after for key in before[table].keys() | after[table].keys()]
    pairs = {f"{t}.{k}": (before[t].get(k, "unset"), after[t].get(k, "unset")) for t, k in sorted(names)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The reports in a metrics file: its complete lines that have a step."""
    lines = map(json_object, file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and "step" in line]


@contextlib.contextmanager
def run_write_errors(path: Path) -> Iterator[None]:
    """Turn a disk error into a one-line RunError. Earlier files stay."""
    full = "Free some space and start again: training resumes from the last checkpoint."
    with write_errors(path, "Check the folder.", RunError, full=full):
        try:
            yield
        except SafetensorError as e:  # `save_file` reports a full disk in this way
            raise OSError(errno.ENOSPC, str(e)) from None
