"""Short trainings on the same data and seeds: with or without warmup, one head or many."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onehop.config import ModelSettings, Settings, TrainSettings
from onehop.data.store import Store
from onehop.errors import DivergedError, RunError, SettingsError
from onehop.text.tokenizer import vocabulary_of
from onehop.training.callbacks import Callback, Report
from onehop.training.trainer import train

Json = dict[str, Any]
_POINTS = 100
_SEED, _RATE, _BATCH = 1, 2e-3, 600


class _Losses(Callback):
    """A callback that keeps the loss of every step and the last validation."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float]] = []
        self.validation: Report = {}

    def stepped(self, report: Report) -> None:
        self.found.append((report["step"], report["loss"]))

    def validated(self, report: Report) -> None:
        self.validation = report


def recipe(steps: int, rise: int, batch_tokens: int = _BATCH, seed: int = _SEED) -> TrainSettings:
    """The paper's Adam and label smoothing, with a linear warmup of `rise` steps and cosine decay to zero."""
    return TrainSettings(
        steps=steps,
        warmup=rise,
        learning_rate=_RATE,
        decay="cosine",
        batch_tokens=batch_tokens,
        seed=seed,
        compile=False,
        report_every=1,
        save_every=steps,
        validate_every=steps,
        keep=1,
        average=1,
    )


def _described(model: ModelSettings, train: TrainSettings, store: Store) -> Json:
    """The settings that all trainings of a comparison share."""
    return {
        "layers": [model.n_encoder_layers, model.n_decoder_layers],
        **{name: getattr(model, name) for name in ("d_model", "d_ff", "dropout")},
        **{name: getattr(train, name) for name in ("steps", "learning_rate", "batch_tokens", "label_smoothing")},
        "data": {
            "pairs": len(store.pairs("train")),
            "valid": len(store.pairs("valid")),
            "source": store.source,
            "target": store.target,
            "vocab_size": vocabulary_of(store.tokenizer).vocab_size,
            "hash": store.hash,
        },
    }


def thinned(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """A limited number of points, each the mean loss of the steps since the previous one."""
    size = max(1, -(-len(found) // _POINTS))
    groups = [found[i : i + size] for i in range(0, len(found), size)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


# --- warmup ----------------------------------------------------------------------------------------------------

# As deep as the paper's model, since instability comes with depth; narrow, to be fast.
_DEEP = ModelSettings(d_model=64, d_ff=256, n_heads=8, dropout=0.1)


def warmup(
    store: Store, steps: int, *, model: ModelSettings = _DEEP, batch_tokens: int = _BATCH, device: str | None = None
) -> Json:
    """The losses of four runs: post-norm and pre-norm, with warmup over a third of the steps and without."""
    runs = []
    for norm in ("post", "pre"):
        for rise in (1, max(2, steps // 3)):
            settings = Settings(model=replace(model, norm=norm), train=recipe(steps, rise, batch_tokens))
            runs.append({"norm": norm, "warmup": rise, **_followed(settings, store, device)})
    facts = _described(model, recipe(steps, 1, batch_tokens), store)
    return {**facts, "n_heads": model.n_heads, "seed": _SEED, "runs": runs}


def _followed(settings: Settings, store: Store, device: str | None) -> Json:
    """The losses of one run, until its end or until they are NaN."""
    losses, diverged, model = _Losses(), False, None
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = train(settings, store, Path(folder) / "run", device=device, callback=losses)
        except DivergedError:
            diverged = True
    if model is None and not diverged:
        raise stopped()
    return {"curve": thinned(losses.found), "diverged": diverged}


def stopped() -> RunError:
    """The error of a stopped training: half a curve could be mistaken for a whole one."""
    return RunError("The training was stopped before its end.", "Start the measurement again.")


# --- one head or many ------------------------------------------------------------------------------------------


def twins(table: Json) -> Json:
    """Rows A of table 3 from `onehop paper table3`: models that differ only in their number of heads."""
    found = [one for one in table["rows"] if one["row"] == "base" or one["row"].startswith("heads-")]
    if len({one["row"] for one in found}) < 2:
        raise SettingsError("The table has no rows A.", "Train them: onehop paper table3 SETTINGS --rows A.")
    runs = [{**_heads_of(one), **{name: one[name] for name in RUN}} for one in found]
    base = next(one for one in found if one["row"] == "base")
    model, train = base["settings"]["model"], base["settings"]["train"]
    devices = {machine["device"] for one in found for machine in one.get("machines", [])}
    return {
        "date": table["date"],
        "machine": {"device": ", ".join(sorted(devices)) or None},
        "layers": [model["n_encoder_layers"], model["n_decoder_layers"]],
        **{name: model[name] for name in ("d_model", "d_ff", "dropout")},
        **{name: train[name] for name in ("steps", "warmup", "batch_tokens", "label_smoothing")},
        "data": {"pairs": table["pairs"], "valid": table["valid"], "hash": table["data"]},
        "search": table["search"],
        "base": model["n_heads"],
        "runs": runs,
        "rows": means(runs, sorted({run["n_heads"] for run in runs})),
        "positions": _positions(table),
    }


def _positions(table: Json) -> list[Json] | None:
    """Row E and the base: learned positions instead of sinusoids; None if the table has no row E."""
    rows = {"sinusoidal": "base", "learned": "learned-positions"}
    found = []
    for kind, name in rows.items():
        values = [one["bleu"] for one in table["rows"] if one["row"] == name]
        if not values:
            return None
        spread = [min(values), max(values)]
        found.append({"positions": kind, "seeds": len(values), "bleu": sum(values) / len(values), "bleu_range": spread})
    return found


RUN = ("seed", "parameters", "perplexity", "bleu")


def _heads_of(one: Json) -> Json:
    """The number of heads of a row, and their width."""
    model = one["settings"]["model"]
    return {"n_heads": model["n_heads"], "d_k": model.get("d_k") or model["d_model"] // model["n_heads"]}


def means(runs: Sequence[Json], heads: Iterable[int]) -> list[Json]:
    """For each number of heads the mean over the seeds, and their range."""
    rows = []
    for count in heads:
        alike = [run for run in runs if run["n_heads"] == count]
        row = {"n_heads": count, "d_k": alike[0]["d_k"], "parameters": alike[0]["parameters"]}
        for name in ("perplexity", "bleu"):
            values = [run[name] for run in alike]
            row |= {name: sum(values) / len(values), f"{name}_range": [min(values), max(values)]}
        rows.append(row)
    return rows
