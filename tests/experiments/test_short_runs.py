"""Short trainings on the same data and seeds."""

import json

import pytest

from onehop.config import ModelSettings
from onehop.errors import OnehopError
from onehop.experiments.short_runs import means, thinned, twins, warmup


@pytest.mark.slow
def test_warmup_trains_both_norm_orders_with_and_without_warm_up(digits):
    _, store = digits
    small = ModelSettings(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=32, n_heads=2, max_length=64)
    found = warmup(store, 12, model=small, batch_tokens=256, device="cpu")
    assert [(run["norm"], run["warmup"]) for run in found["runs"]] == [("post", 1), ("post", 4), ("pre", 1), ("pre", 4)]
    for run in found["runs"]:
        assert not run["diverged"]
        assert [step for step, _ in run["curve"]] == list(range(1, 13))
    assert len({json.dumps(run["curve"]) for run in found["runs"]}) == 4
    assert found["data"]["pairs"] == len(store.pairs("train"))


def test_twins_are_rows_of_table_3_with_different_heads_or_positions():
    def row(name: str, seed: int, heads: int, bleu: float) -> dict:
        model = {"n_encoder_layers": 3, "n_decoder_layers": 3, "d_model": 16, "d_ff": 32, "n_heads": heads}
        train = {"steps": 9, "warmup": 3, "batch_tokens": 64, "label_smoothing": 0.1}
        settings = {"model": {**model, "dropout": 0.1}, "train": train}
        scores = {"parameters": 7, "perplexity": 5.0, "bleu": bleu, "machines": [{"device": "NVIDIA H200"}]}
        return {"row": name, "seed": seed, "settings": settings, **scores}

    rows = [row("base", 1, 8, 30.0), row("base", 2, 8, 32.0), row("heads-1/8", 1, 1, 29.0), row("big", 1, 16, 40.0)]
    table = {"date": "2026-11-15", "pairs": 30, "valid": 4, "data": "a1", "search": "beam 4", "rows": rows}
    found = twins(table)
    assert [(r["n_heads"], r["d_k"], r["bleu"], r["bleu_range"]) for r in found["rows"]] == [
        (1, 16, 29.0, [29.0, 29.0]),
        (8, 2, 31.0, [30.0, 32.0]),
    ]
    assert (found["base"], found["machine"], found["date"]) == (8, {"device": "NVIDIA H200"}, "2026-11-15")
    assert found["positions"] is None
    learned = twins({**table, "rows": [*rows, row("learned-positions", 1, 8, 28.0)]})["positions"]
    assert [(r["positions"], r["seeds"], r["bleu"], r["bleu_range"]) for r in learned] == [
        ("sinusoidal", 2, 31.0, [30.0, 32.0]),
        ("learned", 1, 28.0, [28.0, 28.0]),
    ]
    with pytest.raises(
        OnehopError, match=r"^The table has no rows A\. Train them: onehop paper table3 SETTINGS --rows A"
    ):
        twins({**table, "rows": rows[:2]})


def test_a_stopped_training_is_an_error(digits, monkeypatch):
    monkeypatch.setattr("onehop.experiments.short_runs.train", lambda *_, **__: None)
    with pytest.raises(OnehopError, match=r"^The training was stopped before its end\. Start the measurement again\.$"):
        warmup(digits[1], 10)


def test_means_reports_mean_and_range_over_seeds():
    runs = [
        {"n_heads": heads, "d_k": 8 // heads, "parameters": 7, "perplexity": perplexity, "bleu": 2 * perplexity}
        for heads, perplexity in ((1, 4.0), (2, 3.0), (1, 6.0), (2, 3.5))
    ]
    one, two = means(runs, (1, 2))
    assert (one["perplexity"], one["perplexity_range"]) == (5.0, [4.0, 6.0])
    assert (two["bleu"], two["bleu_range"], two["d_k"]) == (6.5, [6.0, 7.0], 4)


def test_curves_are_thinned_by_means():
    assert thinned([(i, float(i)) for i in range(1, 5)]) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    few = thinned([(i, float(i)) for i in range(1, 201)])
    assert len(few) == 100
    assert few[0] == (2, 1.5)
    assert thinned([]) == []


def test_a_run_with_a_nonfinite_loss_is_recorded_as_diverged(digits, monkeypatch):
    from onehop.errors import DivergedError, RunError
    from onehop.experiments import short_runs as module

    def breaks(*_, callback, **__):
        callback.stepped({"step": 1, "loss": 9.0})
        raise DivergedError("Step 2 is not finite.", "Lower the learning rate.")

    def is_too_large(*_, **__):
        raise RunError("Step 1 does not fit into memory.", "Begin again with a smaller train.batch_tokens.")

    monkeypatch.setattr(module, "train", breaks)
    run = warmup(digits[1], 10)["runs"][0]
    assert (run["diverged"], run["curve"]) == (True, [(1, 9.0)])
    monkeypatch.setattr(module, "train", is_too_large)
    with pytest.raises(RunError, match="does not fit into memory"):
        warmup(digits[1], 10)
