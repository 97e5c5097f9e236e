"""Short runs of post-norm and pre-norm models, with and without warm-up, on the same data and from the same seed."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from onehop.config import ModelSettings, Settings, TrainSettings
from onehop.errors import RunError
from onehop.listener import Report, Silent
from onehop.store import Store
from onehop.train import train

Json = dict[str, Any]
POINTS = 100
MODEL = ModelSettings(d_model=128, d_ff=512, n_heads=4, dropout=0.1)
RATE = 2e-3


class Losses(Silent):
    """A listener that keeps every step's loss."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float]] = []

    def stepped(self, report: Report) -> None:
        """Keep it."""
        self.found.append((report["step"], report["loss"]))


def warmup(
    store: Store, steps: int = 600, *, model: ModelSettings = MODEL, batch_tokens: int = 1500, device: str | None = None
) -> Json:
    """The losses of four runs."""
    runs = []
    for norm in ("post", "pre"):
        for rise in (1, max(2, steps // 3)):
            settings = Settings(model=replace(model, norm=norm), train=recipe(steps, rise, batch_tokens))
            runs.append({"norm": norm, "warmup": rise, **run(settings, store, device)})
    facts = {"layers": [model.n_encoder_layers, model.n_decoder_layers], "d_model": model.d_model}
    return {**facts, "steps": steps, "learning_rate": RATE, "seed": 1, "runs": runs}


def recipe(steps: int, rise: int, batch_tokens: int) -> TrainSettings:
    """The same for all runs but for the warm-up: after it, each falls on its cosine to zero."""
    return TrainSettings(
        steps=steps,
        warmup=rise,
        learning_rate=RATE,
        decay="cosine",
        batch_tokens=batch_tokens,
        compile=False,
        report_every=1,
        save_every=steps,
        validate_every=steps,
        keep=1,
        average=1,
    )


def run(settings: Settings, store: Store, device: str | None) -> Json:
    """One run's losses, until its end or until they are no numbers any more."""
    losses, diverged = Losses(), False
    with tempfile.TemporaryDirectory() as folder:
        try:
            train(settings, store, Path(folder) / "run", device=device, listener=losses)
        except RunError:
            diverged = True
    return {"curve": thinned(losses.found), "diverged": diverged}


def thinned(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """So many points at most: each the mean loss of the steps up to it."""
    size = max(1, -(-len(found) // POINTS))
    groups = [found[i : i + size] for i in range(0, len(found), size)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]
