"""Short trainings on the same data and seeds: with or without warmup, one head or many."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from onehop.config import ModelSettings, Settings, TrainSettings
from onehop.data.store import Store
from onehop.errors import DivergedError, RunError, SettingsError
from onehop.experiments.provenance import Json
from onehop.text.tokenizer import vocabulary_of
from onehop.training.callbacks import Callback, Report
from onehop.training.trainer import train

_POINTS = 100
_SEED, _RATE, _BATCH = 1, 2e-3, 600


class _Losses(Callback):
    """A callback that keeps the loss of every step."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float]] = []

    def stepped(self, report: Report) -> None:
        self.steps.append((report["step"], report["loss"]))


def _train_settings(steps: int, rise: int, batch_tokens: int) -> TrainSettings:
    """The paper's Adam and label smoothing, with a linear warmup of `rise` steps and cosine decay to zero."""
    return TrainSettings(
        steps=steps,
        warmup=rise,
        learning_rate=_RATE,
        decay="cosine",
        batch_tokens=batch_tokens,
        seed=_SEED,
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


def thinned(losses: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """A limited number of points, each the mean loss of the steps since the previous one."""
    size = max(1, -(-len(losses) // _POINTS))
    groups = [losses[i : i + size] for i in range(0, len(losses), size)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


# As deep as the paper's model, since instability comes with depth; narrow, to be fast.
_DEEP = ModelSettings(d_model=64, d_ff=256, n_heads=8, dropout=0.1)


def warmup(
    store: Store, steps: int, *, model: ModelSettings = _DEEP, batch_tokens: int = _BATCH, device: str | None = None
) -> Json:
    """The losses of four runs: post-norm and pre-norm, with warmup over a third of the steps and without."""
    runs = []
    for norm in ("post", "pre"):
        for rise in (1, max(2, steps // 3)):
            settings = Settings(model=replace(model, norm=norm), train=_train_settings(steps, rise, batch_tokens))
            runs.append({"norm": norm, "warmup": rise, **_followed(settings, store, device)})
    facts = _described(model, _train_settings(steps, 1, batch_tokens), store)
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
        # Half a curve could be mistaken for a whole one.
        raise RunError("The training was stopped before its end.", "Start the measurement again.")
    return {"curve": thinned(losses.steps), "diverged": diverged}


def twins(table: Json) -> Json:
    """Rows A of table 3 from `onehop paper table3`: models that differ only in their number of heads."""
    rows = [row for row in table["rows"] if row["row"] == "base" or row["row"].startswith("heads-")]
    if len({row["row"] for row in rows}) < 2:
        raise SettingsError("The table has no rows A.", "Train them: onehop paper table3 SETTINGS --rows A.")
    runs = []
    for row in rows:
        model = row["settings"]["model"]
        heads = {"n_heads": model["n_heads"], "d_k": model.get("d_k") or model["d_model"] // model["n_heads"]}
        runs.append({**heads, **{name: row[name] for name in ("seed", "parameters", "perplexity", "bleu")}})
    base = next(row for row in rows if row["row"] == "base")
    model, train = base["settings"]["model"], base["settings"]["train"]
    devices = {machine["device"] for row in rows for machine in row.get("machines", [])}
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
    kinds = {"sinusoidal": "base", "learned": "learned-positions"}
    results = []
    for kind, name in kinds.items():
        values = [row["bleu"] for row in table["rows"] if row["row"] == name]
        if not values:
            return None
        spread = [min(values), max(values)]
        results.append(
            {"positions": kind, "seeds": len(values), "bleu": sum(values) / len(values), "bleu_range": spread}
        )
    return results


def means(runs: Sequence[Json], heads: Iterable[int]) -> list[Json]:
    """For each number of heads the mean over the seeds, and their range."""
    rows = []
    for count in heads:
        seeds = [run for run in runs if run["n_heads"] == count]
        row = {"n_heads": count, "d_k": seeds[0]["d_k"], "parameters": seeds[0]["parameters"]}
        for name in ("perplexity", "bleu"):
            values = [run[name] for run in seeds]
            row |= {name: sum(values) / len(values), f"{name}_range": [min(values), max(values)]}
        rows.append(row)
    return rows
