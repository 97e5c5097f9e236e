"""Estimates of a training's time and memory, compared with torch's counters."""

import pytest
import torch
from command_line import onehop
from torch.utils.flop_counter import FlopCounterMode

from onehop.config import ModelSettings, Settings, TrainSettings, settings_to_toml, with_changes
from onehop.data.batches import Batch, Epoch
from onehop.errors import SettingsError
from onehop.model.transformer import Transformer, parameter_count
from onehop.text.tokenizer import Tokenizer
from onehop.training import estimate as estimate_module
from onehop.training.dataloader import to_device
from onehop.training.distributed import World
from onehop.training.estimate import (
    example_batch,
    max_token_budget,
    measured_peak,
    plan,
    saved_bytes_per_token,
    update_flops,
)
from onehop.training.step import Objective

CPU = torch.device("cpu")
VOCAB = 311


def objective_for(model: ModelSettings, r_drop: float = 0.0) -> Objective:
    torch.manual_seed(0)
    return Objective(Transformer(model, VOCAB), 0.1, r_drop)


def small(**changes) -> ModelSettings:
    given = {"n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 32, "d_ff": 48, "n_heads": 4, "max_length": 64}
    return ModelSettings(**(given | changes))


@pytest.mark.parametrize("changes", [{}, {"d_k": 5, "d_v": 11}, {"tied": False, "norm": "pre"}])
def test_flops_match_torchs_counter(changes):
    """Forward and backward. Products inside attention are left out of both counts."""
    model = small(**changes)
    objective = objective_for(model)
    src, tgt = example_batch(160, 16, VOCAB), example_batch(240, 24, VOCAB)  # ten sentences each
    batch = Batch(src.src, src.src_lengths, tgt.tgt, tgt.labels, tgt.tgt_lengths)
    with FlopCounterMode(display=False) as counter:
        objective(to_device(batch, World(0, 1, CPU)))[0].backward()
    counts = counter.get_flop_counts()["Global"]
    outside = sum(n for op, n in counts.items() if "attention" not in str(op) and "bmm" not in str(op))
    assert update_flops(model, VOCAB, 160, 240) == outside


def test_the_measured_peak_is_plausible():
    assert 1e8 < measured_peak(CPU) < 1e15


# --- memory ---------------------------------------------------------------------------------------------------


def test_activation_memory_grows_with_batch_and_model():
    def kept(r_drop: float = 0.0, **changes) -> int:
        model = small(**changes)
        settings = Settings(model=model, train=TrainSettings(r_drop=r_drop))
        return saved_bytes_per_token(objective_for(model, r_drop), settings)

    plain = kept()
    # At least the logits, and each layer's input and hidden units, in float32.
    assert plain > 4 * (VOCAB + 5 * 32 + 5 * 48)
    assert plain < 100 * 4 * (VOCAB + 5 * 32 + 5 * 48)
    assert kept(dropout=0.0) < plain
    assert kept(n_encoder_layers=4, n_decoder_layers=6) > 1.3 * plain
    assert kept(r_drop=1.0) > 1.5 * plain
    assert kept(max_length=20) == pytest.approx(plain, rel=0.2)  # shorter sentences, but as much for each token


def test_the_memory_estimate_matches_autograd():
    """Twice the batch keeps twice as much, and the weights are not counted."""
    model, settings = small(), Settings(model=small())
    objective = objective_for(model)
    estimate = saved_bytes_per_token(objective, settings) - 3 * 4 * VOCAB
    own = {p.data_ptr() for p in objective.parameters()}
    storages = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        if t.untyped_storage().data_ptr() not in own:
            storages[t.untyped_storage().data_ptr()] = (t.untyped_storage().nbytes(), t)  # held: no address is reused
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        loss, _ = objective(to_device(example_batch(1024, 32, VOCAB), World(0, 1, CPU)))
    assert loss.requires_grad
    assert sum(size for size, _ in storages.values()) / 1024 == pytest.approx(estimate, rel=0.1)


@pytest.mark.parametrize("memory", [0, 10**8, 2 * 10**8, 10**9, 10**12])
def test_the_token_budget_fits_into_half_of_the_free_memory(monkeypatch, memory):
    monkeypatch.setattr(estimate_module, "available_memory", lambda: memory)
    settings = Settings(model=small())
    objective = objective_for(settings.model)
    budget = max_token_budget(objective, settings, CPU)
    least, most = 2 * 64, 25_000 // 64 * 64
    assert least <= budget <= most
    assert budget % 64 == 0
    per_token, state = saved_bytes_per_token(objective, settings), 16 * parameter_count(objective)
    if budget > least:
        assert state + budget * per_token <= 0.5 * memory
    if budget < most:
        assert state + (budget + 64) * per_token > 0.5 * memory
    assert (memory >= 10**9) == (budget == most)
    assert (memory == 0) == (budget == least)


# --- the dry run ----------------------------------------------------------------------------------------------


def test_a_plan_has_sizes_steps_and_time_of_the_training(digits, monkeypatch):
    monkeypatch.setattr(estimate_module, "measured_peak", lambda *_: 1e9)
    settings, store = with_changes(digits[0], ["train.accumulate=2", "train.steps=100"]), digits[1]
    pairs = store.pairs("train")
    model = Transformer(settings.model, Tokenizer(store.tokenizer).vocab_size)
    found = plan(settings, pairs, Objective(model, 0.1, 0.0), torch.device("cpu"))
    batches = len(Epoch(pairs, 256, settings.train.seed, 0))
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.state_bytes == 16 * found.parameters
    assert found.batch_tokens == 256
    assert found.steps_per_epoch == round(batches / 2)
    assert found.epochs == pytest.approx(100 / (batches / 2))
    assert found.memory_bytes == found.state_bytes + 256 * found.bytes_per_token
    src, tgt = (int(lengths.sum()) + len(pairs) for lengths in (pairs.src_lengths, pairs.tgt_lengths))
    once = update_flops(settings.model, model.vocab_size, src, tgt)
    assert found.least_seconds == pytest.approx(once * 100 / (batches / 2) / 1e9)
    twice = plan(with_changes(settings, ["train.r_drop=1.0"]), pairs, Objective(model, 0.1, 1.0), torch.device("cpu"))
    assert twice.least_seconds == pytest.approx(2 * found.least_seconds)


def test_weights_that_leave_no_pairs_are_reported(digits):
    settings, store = with_changes(digits[0], ["train.weights={digits=0.0001}"]), digits[1]
    model = Transformer(settings.model, Tokenizer(store.tokenizer).vocab_size)
    with pytest.raises(SettingsError) as e:
        plan(settings, store.pairs("train", settings.train.weights), Objective(model, 0.1, 0.0), torch.device("cpu"))
    assert str(e.value) == "train.weights leave no pair for the first epoch. Raise them."


def test_a_dry_run_prints_the_plan_and_trains_nothing(digits, tmp_path):
    (tmp_path / "settings.toml").write_text(settings_to_toml(digits[0]))
    command = ["train", str(tmp_path / "settings.toml"), "--store", str(digits[1].path), "-o", str(tmp_path / "run")]
    done = onehop(*command, "--dry-run")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    vocab = Tokenizer(digits[1].tokenizer).vocab_size
    assert lines[0] == f"{parameter_count(Transformer(digits[0].model, vocab)):,} parameters"
    assert "GB of memory" in lines[1]
    assert "for each of 256 tokens" in lines[1]
    steps = len(Epoch(digits[1].pairs("train"), 256, digits[0].train.seed, 0))
    assert lines[2] == f"{steps} steps an epoch; 20 steps are {20 / steps:.1f} epochs"
    assert lines[3].startswith("at least ")
    assert not (tmp_path / "run").exists()
