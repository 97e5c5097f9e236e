"""The training loop on a model so small that a step takes milliseconds: exact, resumable and robust."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from command_line import onehop
from long_tests import LONG_ONLY
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from onehop.config import ModelSettings, Settings, settings_to_toml, with_changes
from onehop.data.batches import Epoch
from onehop.data.bpe_dropout import make_resegmenter
from onehop.data.prepare import prepare
from onehop.data.store import Store
from onehop.errors import RunError, StoreError
from onehop.model.transformer import Tokens, Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage import checkpoint_arrays
from onehop.storage.checkpoint_arrays import read_arrays, write_arrays
from onehop.storage.model_io import read_model
from onehop.storage.run_folder import Run, read_metrics
from onehop.text.tokenizer import Tokenizer
from onehop.training import signals, workflow
from onehop.training import step as step_module
from onehop.training import trainer as trainer_module
from onehop.training.callbacks import Callback, Callbacks
from onehop.training.dataloader import Update
from onehop.training.distributed import World
from onehop.training.optimizer import learning_rate, set_rate
from onehop.training.step import Objective
from onehop.training.trainer import Trainer, train
from onehop.training.validation import Validation

pytestmark = pytest.mark.usefixtures("quick_peak")
CPU = torch.device("cpu")


@pytest.fixture
def fit(digits, tmp_path):
    """Train with changed settings in a folder of this test. However the training ends, it leaves no thread."""
    before = set(threading.enumerate())

    def run(*changes: str, name: str = "run", **others) -> Path | None:
        return train(with_changes(digits[0], changes), digits[1], tmp_path / name, device="cpu", **others)

    yield run
    assert set(threading.enumerate()) == before


@pytest.fixture
def begin_trainer(digits, tmp_path):
    """Trainers that have begun and have made no step."""
    made = []

    def begin(*changes: str) -> Trainer:
        run = Run(tmp_path / f"run-{len(made)}")
        made.append(Trainer(with_changes(digits[0], changes), digits[1], run, World(0, 1, CPU), Callbacks(), None))
        made[-1].begin()
        return made[-1]

    yield begin
    for trainer in made:
        trainer.run.release()


def metrics(folder: Path, key: str = "loss") -> list[float]:
    return [line[key] for line in read_metrics(folder / "metrics.jsonl") if key in line]


def state(folder: Path) -> dict[str, np.ndarray]:
    """The whole state of a run, by name."""
    found = Run(folder).latest()
    return {**{f"w.{k}": v for k, v in found.weights.items()}, **found.optimizer}


def assert_same_bits(one: Path, two: Path) -> None:
    a, b = state(one), state(two)
    assert a.keys() == b.keys()
    assert [k for k in a if a[k].tobytes() != b[k].tobytes()] == []
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


class Killed(BaseException):
    """Stands in for a kill: no handler of Exception catches it."""


class RecordingCallback(Callback):
    """Keeps all reports, and calls `then` at step `at`."""

    def __init__(self, at: int = -1, then=lambda: None) -> None:
        self.at, self.then = at, then
        self.steps, self.validations, self.texts, self.metadata = [], [], [], {}

    def began(self, metadata) -> None:
        self.metadata = metadata

    def stepped(self, report) -> None:
        self.steps.append(report)
        if report["step"] == self.at:
            self.then()

    def validated(self, report) -> None:
        self.validations.append(report)

    def said(self, text: str) -> None:
        self.texts.append(text)


def kill_at(step: int) -> RecordingCallback:
    def die() -> None:
        raise Killed

    return RecordingCallback(step, die)


def signal_at(step: int, number: signal.Signals = signal.SIGTERM) -> RecordingCallback:
    return RecordingCallback(step, lambda: os.kill(os.getpid(), number))


# --- learning -------------------------------------------------------------------------------------------------


def test_the_loss_goes_down_and_the_result_translates(fit, digits, tmp_path):
    recording = RecordingCallback()
    file = fit("train.steps=60", "train.average=2", callback=recording)
    losses = metrics(tmp_path / "run")
    assert len(losses) == 60
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    assert recording.validations[-1]["valid_nll"] < recording.validations[0]["valid_nll"]
    assert [r["step"] for r in recording.steps] == list(range(1, 61))
    assert recording.metadata["pairs"] == 360

    stored = read_model(file)
    known = {"parameters", "pairs", "data", "tokenizer", "source", "target", "batch_tokens", "machines"}
    assert stored.provenance.keys() == known | {"step", "averaged_steps", "exact"}
    machine = {"from_step", "onehop", "torch", "device", "threads", "processes"}
    assert [m.keys() for m in stored.provenance["machines"]] == [machine]
    assert stored.provenance["data"] == digits[1].hash
    assert (stored.provenance["step"], stored.provenance["averaged_steps"]) == (60, [50, 60])
    assert (stored.source, stored.target) == ("digits", "reversed")
    mean, _ = Run(tmp_path / "run").averaged(2)
    assert all(np.array_equal(stored.weights()[name], mean[name]) for name in mean)
    assert len(SentenceTranslator.load(file, "cpu").translate(["1 2 3", ""])) == 2


def test_a_report_has_loss_rate_and_speed(fit, tmp_path):
    fit("train.steps=3", "train.label_smoothing=0.1")
    line = read_metrics(tmp_path / "run" / "metrics.jsonl")[2]
    assert line["perplexity"] == pytest.approx(np.exp(line["nll"]))
    assert line["learning_rate"] == pytest.approx(3e-3 * 3 / 10)
    assert line["tokens_per_second"] > 0
    assert line["share_of_peak"] > 0
    assert line["loss"] != line["nll"]
    assert line["epoch"] == 0


def test_the_share_of_a_peak_measured_on_a_busy_machine_is_at_most_1(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_module, "measured_peak", lambda *_: 1.0)
    fit("train.steps=3")
    shares = [line["share_of_peak"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")[:3]]
    assert shares[0] == 1
    assert 0 < min(shares) <= max(shares) == 1


def test_reports_and_validations_follow_their_intervals(fit, tmp_path):
    fit("train.steps=11", "train.report_every=4", "train.validate_every=5", "train.save_every=3")
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 11]
    assert [line["step"] for line in lines if "valid_nll" in line] == [5, 10, 11]
    assert Run(tmp_path / "run").steps() == [9, 11]


def test_the_validation_loss_equals_the_padded_models(digits, begin_trainer):
    trainer = begin_trainer()
    pairs = digits[1].pairs("valid")
    nll = tokens = 0
    with torch.no_grad():
        for i in range(len(pairs)):
            src = torch.tensor([[*pairs.src(i).tolist(), 3]])
            tgt = torch.tensor([[2, *pairs.tgt(i).tolist()]])
            labels = torch.tensor([*pairs.tgt(i).tolist(), 3])
            nll += float(
                F.cross_entropy(trainer.model(Tokens.padded(src), Tokens.padded(tgt))[0], labels) * len(labels)
            )
            tokens += len(labels)
    assert trainer.validation.loss(trainer.budget) == pytest.approx(nll / tokens, rel=1e-5)


# --- gradients ------------------------------------------------------------------------------------------------


def test_validation_has_the_dtype_of_training(begin_trainer):
    losses = [begin_trainer(f"train.cpu_dtype={dtype}").validation.loss(500) for dtype in ("float32", "bfloat16")]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.01)


def update_of(*batches) -> Update:
    return Update(list(batches), sum(b.tokens for b in batches), sum(len(b.src) for b in batches), 0, 1)


def gradients_of(trainer: Trainer, update: Update) -> list[torch.Tensor]:
    trainer.optimizer.zero_grad()
    loss, norm, _ = trainer.step.gradients(1, update)
    return [loss.objective, loss.nll, norm, *(p.grad.clone() for p in trainer.model.parameters())]


def take_step(trainer: Trainer, number: int, update: Update) -> None:
    set_rate(trainer.optimizer, learning_rate(number, trainer.settings.train, trainer.settings.model.d_model))
    assert trainer.step.run(number, update, lambda: None).finite


def assert_close(one: list[torch.Tensor], two: list[torch.Tensor]) -> None:
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_packed_gradients_equal_the_padded_models(digits, begin_trainer, norm):
    trainer = begin_trainer("train.label_smoothing=0.1", f"model.norm={norm}")
    batch = Epoch(digits[1].pairs("train"), 256, 1, 0)[0]
    packed = gradients_of(trainer, update_of(batch))[3:]

    def rows(ids, lengths):
        return pad_sequence(torch.from_numpy(ids).split(lengths.tolist()), batch_first=True)

    trainer.optimizer.zero_grad()
    src, tgt = rows(batch.src, batch.src_lengths), rows(batch.tgt, batch.tgt_lengths)
    logits = trainer.model(Tokens.padded(src), Tokens.padded(tgt)).flatten(0, 1)
    labels = rows(batch.labels, batch.tgt_lengths).flatten()
    F.cross_entropy(logits, labels, ignore_index=0, label_smoothing=0.1).backward()
    assert_close(packed, [p.grad for p in trainer.model.parameters()])


def test_accumulated_gradients_equal_those_of_one_large_batch(digits, begin_trainer):
    trainer = begin_trainer()
    large = Epoch(digits[1].pairs("train"), 512, 1, 0)[0]
    parts = large.part(0, 3), large.part(3, len(large.src_lengths))
    assert parts[0].tokens < parts[1].tokens / 2  # a mean of means would be another number
    assert_close(gradients_of(trainer, update_of(*parts)), gradients_of(trainer, update_of(large)))


def test_gradients_are_clipped_to_the_maximum_norm(digits, begin_trainer):
    batch = update_of(Epoch(digits[1].pairs("train"), 256, 1, 0)[0])
    free = gradients_of(begin_trainer(), batch)
    norm = float(nn.utils.get_total_norm(free[3:]))
    assert float(free[2]) == pytest.approx(norm)
    for clip in (norm / 3, norm * 3):
        trainer = begin_trainer(f"train.clip={clip}")
        assert float(gradients_of(trainer, batch)[2]) == pytest.approx(norm)
        taken = []
        trainer.optimizer.register_step_pre_hook(
            lambda *_, own=trainer, taken=taken: taken.extend(p.grad.clone() for p in own.model.parameters())
        )
        trainer.optimizer.zero_grad()
        take_step(trainer, 1, batch)
        assert_close(taken, [g * min(1.0, clip / norm) for g in free[3:]])


def test_an_update_is_the_papers_adam(digits, begin_trainer):
    """Two steps by hand: β 0.9 and 0.98, ε 1e-9, bias correction, and decoupled weight decay on matrices only."""
    trainer = begin_trainer("train.weight_decay=5.0")
    stream = trainer.stream()
    ours = {name: p.detach().double().clone() for name, p in trainer.model.named_parameters()}
    first = {name: torch.zeros_like(p) for name, p in ours.items()}
    second = {name: torch.zeros_like(p) for name, p in ours.items()}
    for step in (1, 2):
        update = next(stream)
        gradients_of(trainer, update)
        grads = {name: p.grad.double() for name, p in trainer.model.named_parameters()}
        trainer.optimizer.zero_grad()
        take_step(trainer, step, update)
        rate = 3e-3 * step / 10
        for name, p in ours.items():
            first[name] = 0.9 * first[name] + 0.1 * grads[name]
            second[name] = 0.98 * second[name] + 0.02 * grads[name] ** 2
            moved = first[name] / (1 - 0.9**step) / ((second[name] / (1 - 0.98**step)).sqrt() + 1e-9)
            ours[name] = p * (1 - rate * 5.0 * (p.dim() > 1)) - rate * moved
    for name, p in trainer.model.named_parameters():
        torch.testing.assert_close(p.detach().double(), ours[name], rtol=1e-4, atol=1e-5)


def test_r_drop_adds_the_divergence_of_two_passes(digits, begin_trainer):
    """With dropout the two passes differ. Without it the second pass changes nothing."""
    batch = update_of(Epoch(digits[1].pairs("train"), 256, 1, 0)[0])
    still, plain = (gradients_of(begin_trainer(f"train.r_drop={r}"), batch) for r in (3.0, 0.0))
    assert_close(still, plain)
    light, heavy = (gradients_of(begin_trainer("model.dropout=0.3", f"train.r_drop={r}"), batch) for r in (1.0, 3.0))
    torch.testing.assert_close(light[1], heavy[1])  # the same two passes
    assert heavy[0] > light[0] > light[1]


# --- from another model ---------------------------------------------------------------------------------------


def test_training_starts_from_a_model(digits, fit, tmp_path):
    first = fit("train.steps=4")
    onwards = fit("train.steps=1", "train.warmup=1000000", f"train.start_from={first}", name="onwards")
    before, after = read_model(first), read_model(onwards)
    for name, value in before.tensors.items():
        np.testing.assert_allclose(after.tensors[name], value, atol=1e-6)
    assert after.provenance["started_from"] == before.hash


def test_the_first_model_is_validated_before_the_first_step(fit, tmp_path):
    """A training that only makes the model worse ends with the model that it started from."""
    first = fit("train.steps=4")
    harm = ("train.steps=6", "train.validate_every=2", "train.warmup=1", "train.learning_rate=1.0", "train.patience=9")
    for _ in range(2):  # a second start finds no checkpoint after a kill before the first one, and begins again
        worse = fit(*harm, f"train.start_from={first}", name="worse")
        lines = [line for line in read_metrics(tmp_path / "worse" / "metrics.jsonl") if "valid_nll" in line]
        assert [line["step"] for line in lines] == [0, 2, 4, 6]
        assert min(lines, key=lambda line: line["valid_nll"])["step"] == 0
        before, after = read_model(first), read_model(worse)
        assert all((after.tensors[name] == value).all() for name, value in before.tensors.items())
        assert after.provenance["averaged_steps"] == [0]
        shutil.rmtree(tmp_path / "worse" / "checkpoints")


def test_an_incompatible_start_model_is_refused(digits, fit, tmp_path, model_file):
    first = fit("train.steps=1")
    with pytest.raises(RunError, match=r"has another shape than this model\. Give this one the same"):
        fit("train.steps=1", "model.d_ff=64", f"train.start_from={first}", name="other")
    with pytest.raises(RunError, match=r"has another tokenizer than the store\. Prepare the text with"):
        fit("train.steps=1", f"train.start_from={model_file}", name="other")


# --- exact resume ---------------------------------------------------------------------------------------------

RANDOM = {
    "plain": (),
    "all": ("model.dropout=0.1", "tokenizer.dropout=0.1", "train.accumulate=2", "train.ema=0.9", "train.r_drop=1.0"),
    "dropout": ("model.dropout=0.2",),
    "BPE-dropout": ("tokenizer.dropout=0.2",),
    "accumulation": ("train.accumulate=3",),
    "EMA": ("train.ema=0.9",),
    "R-Drop": ("model.dropout=0.2", "train.r_drop=1.0"),
    "bfloat16": ("model.dropout=0.2", "train.cpu_dtype=bfloat16"),
}
# "all" combines the others. Those tell which one is to blame.
STOPPED = [pytest.param(x, id=name, marks=() if name in ("plain", "all") else LONG_ONLY) for name, x in RANDOM.items()]


@pytest.mark.parametrize("changes", STOPPED)
def test_a_run_that_was_stopped_ends_with_the_same_bits(fit, tmp_path, changes):
    changes = ("train.average=2", "train.steps=28", "train.validate_every=6", *changes)
    fit(*changes, name="whole")
    with pytest.raises(Killed):
        fit(*changes, name="stopped", callback=kill_at(7))  # before the first checkpoint
    assert fit(*changes, name="stopped", callback=signal_at(13)) is None  # between two
    with pytest.raises(Killed):
        fit(*changes, name="stopped", callback=kill_at(22))
    assert fit(*changes, name="stopped") is not None
    assert_same_bits(tmp_path / "whole", tmp_path / "stopped")
    # Each step is reported once and in order.
    whole, stopped = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "stopped"))
    timeless = [[{k: v for k, v in x.items() if k not in TIMES} for x in lines] for lines in (whole, stopped)]
    assert timeless[0] == timeless[1]
    assert [x["step"] for x in stopped if "loss" in x] == list(range(1, 29))


TIMES = ("seconds", "tokens_per_second", "share_of_peak")


def test_each_randomised_setting_changes_the_result(fit, tmp_path):
    """Otherwise the equality of a stopped run would prove nothing."""
    results = set()
    for name, changes in RANDOM.items():
        fit("train.steps=3", *changes, name=name)
        results.add(state(tmp_path / name)["w.embedding.weight"].tobytes())
    assert len(results) == len(RANDOM) - 1  # EMA changes nothing in the weights themselves


def test_dropout_differs_in_each_step(digits, begin_trainer):
    trainer = begin_trainer("model.dropout=0.3")
    batch = update_of(Epoch(digits[1].pairs("train"), 256, 1, 0)[0])
    first, again, second = (float(trainer.step.gradients(step, batch)[0].objective) for step in (1, 1, 2))
    assert first == again != second


def test_a_run_with_more_steps_continues_bit_for_bit(fit, tmp_path):
    fit("train.steps=10")
    fit("train.steps=20")
    fit("train.steps=20", name="whole")
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


def test_a_finished_run_started_again_changes_nothing(fit, tmp_path):
    def content() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}

    fit()
    before = content()
    callback = RecordingCallback()
    assert fit(callback=callback) == tmp_path / "run" / "model.safetensors"
    assert callback.steps == callback.validations == []
    assert content() == before


def test_the_seed_determines_the_result(fit, tmp_path):
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        fit(f"train.seed={seed}", "train.steps=4", name=name)
    one, two, three = (state(tmp_path / name)["w.embedding.weight"] for name in ("one", "two", "three"))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, three)


# --- the exponential average, early stopping ------------------------------------------------------------------


def test_the_exponential_average_is_validated_and_becomes_the_result(fit, digits, tmp_path):
    seen = []

    def validator(model: Transformer) -> dict[str, float]:
        assert not model.training
        seen.append(model.embedding.weight.detach().clone().numpy())
        return {}

    file = fit("train.ema=0.8", "train.save_every=1", "train.keep=30", validator=validator)
    torch.manual_seed(digits[0].train.seed)
    fresh = Transformer(digits[0].model, Tokenizer(digits[1].tokenizer).vocab_size)
    expected = fresh.embedding.weight.detach().double().numpy()
    run = Run(tmp_path / "run")
    by_step = {}
    for step in range(1, 21):
        decay = min(0.8, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * run.weights(step)["embedding.weight"]
        by_step[step] = expected
    np.testing.assert_allclose(seen[0], by_step[10], atol=1e-5)
    np.testing.assert_allclose(seen[1], by_step[20], atol=1e-5)
    result = read_model(file)
    np.testing.assert_array_equal(result.weights()["embedding.weight"], seen[1])
    assert result.provenance["averaged_steps"] == [20]
    # Validation has put the trained weights back: the next step continued from them.
    fit("train.ema=0.8", "train.validate_every=99", name="unseen")
    unseen = Run(tmp_path / "unseen").latest().weights["embedding.weight"]
    assert np.array_equal(run.weights(20)["embedding.weight"], unseen)


def scripted_scores(monkeypatch, watch: str, values: list[float]):
    """Make validations return these values: a validator for BLEU, or a patched validation loss."""
    script = iter(values)
    if watch == "bleu":
        return lambda model: {"bleu": next(script), "samples": [("a", "b")]}
    monkeypatch.setattr(Validation, "loss", lambda self, budget: next(script))
    return None


EARLY = ("train.validate_every=2", "train.save_every=4", "train.patience=2")


@pytest.mark.parametrize(("watch", "values"), [("bleu", [1, 3, 3, 2]), ("loss", [5, 2, 2, 3])])
def test_early_stopping_keeps_the_best_validated_weights(fit, tmp_path, monkeypatch, watch, values):
    changes = (*EARLY, f"train.watch={watch}")
    callback = RecordingCallback()
    file = fit(*changes, callback=callback, validator=scripted_scores(monkeypatch, watch, values))
    assert callback.texts == [f"Finished early at step 8: no better {watch} in 2 validations."]
    assert Run(tmp_path / "run").latest().progress.step == 8
    before = file.read_bytes()
    # The second validation, at step 4, is the best one.
    best, at_step_4 = read_model(file), Run(tmp_path / "run").weights(4)
    assert best.provenance["averaged_steps"] == [4]
    assert all(np.array_equal(best.weights()[name], at_step_4[name]) for name in at_step_4)
    assert "samples" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    # Started again, the run stays finished unless its patience is raised.
    assert fit(*changes, validator=scripted_scores(monkeypatch, watch, [])) == file
    assert file.read_bytes() == before
    fit(*changes, "train.patience=3", "train.steps=12", validator=scripted_scores(monkeypatch, watch, [9, 1]))
    assert Run(tmp_path / "run").latest().progress.step == (12 if watch == "bleu" else 10)


@pytest.mark.parametrize("stop", [3, 5, 6])
def test_an_interruption_does_not_reset_patience(fit, tmp_path, monkeypatch, stop):
    values = [1.0, 3.0, 2.0, 2.0]
    changes = (*EARLY, "train.watch=bleu", "train.save_every=3")
    validator = scripted_scores(monkeypatch, "bleu", values)
    assert fit(*changes, callback=signal_at(stop), validator=validator) is None
    fit(*changes, validator=validator)
    assert Run(tmp_path / "run").latest().progress.step == 8


def test_a_stale_best_is_deleted_after_training_without_patience(fit, tmp_path, monkeypatch):
    """Without patience no best weights are kept, so earlier ones would be stale."""
    validator = scripted_scores(monkeypatch, "bleu", [1.0, 3.0, 4.0, 2.0, 2.0])
    changes = ("train.validate_every=2", "train.save_every=2", "train.watch=bleu", "train.average=1")
    fit(*changes, "train.patience=2", "train.steps=4", validator=validator)
    assert (tmp_path / "run" / "best.safetensors").exists()
    fit(*changes, "train.patience=0", "train.steps=6", validator=validator)
    file = fit(*changes, "train.patience=2", "train.steps=10", validator=validator)
    assert read_model(file).provenance["averaged_steps"] == [10]


def test_watching_bleu_without_measuring_it_is_refused(fit):
    with pytest.raises(RunError) as e:
        fit("train.watch=bleu")
    assert str(e.value) == "train.watch is bleu, but BLEU is not measured. Set train.watch=loss."


# --- errors ---------------------------------------------------------------------------------------------------


def test_a_nonfinite_loss_stops_the_run_before_the_weights_change(digits, begin_trainer):
    changes = ("train.learning_rate=1e30", "train.warmup=1", "train.save_every=1")
    trainer = begin_trainer(*changes)
    with pytest.raises(RunError) as e:
        trainer.fit()
    file = trainer.run.path / "not-finite-step-2.npz"
    assert str(e.value) == (
        f"The loss is nan and the gradient's norm nan at step 2 (epoch 0). The weights were not touched and the "
        f"batch is in {file}; train in another folder with a lower train.learning_rate or "
        "train.clip=1.0."
    )
    last = trainer.run.latest()
    assert last.progress.step == 1
    for name, p in trainer.model.named_parameters():
        assert np.array_equal(p.detach().numpy(), last.weights[name])
    expected = Epoch(digits[1].pairs("train"), 256, 1, 0)[1]
    with np.load(file) as kept:
        assert {name: kept[f"{name}_0"].tolist() for name in vars(expected)} == {
            name: array.tolist() for name, array in vars(expected).items()
        }


def test_a_nonfinite_gradient_stops_the_run_before_the_weights_change(fit, tmp_path, monkeypatch):
    norms = iter([1.0, 1.0, float("inf")])
    monkeypatch.setattr(nn.utils, "get_total_norm", lambda grads: torch.tensor(next(norms)))
    with pytest.raises(RunError, match=r"^The loss is \d\.\d+ and the gradient's norm inf at step 3 \(epoch 0\)\."):
        fit("train.save_every=1")
    assert Run(tmp_path / "run").steps() == [1, 2]


ON_GPU = torch.OutOfMemoryError("out of memory")
ON_CPU = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")


def limit_memory(monkeypatch, rows: int, error: RuntimeError = ON_GPU, *, training: bool = True) -> list[int]:
    """Raise `error` for more target rows than these, in training or in validation; return the sizes tried."""
    whole, tried = Objective.forward, []

    def forward(self, fed):
        if self.model.training == training:
            tried.append(len(fed.labels))
            if len(fed.labels) > rows:
                raise error
        return whole(self, fed)

    monkeypatch.setattr(Objective, "forward", forward)
    return tried


@pytest.mark.parametrize(("accumulate", "error"), [(1, ON_GPU), (2, ON_CPU)])
def test_a_step_that_runs_out_of_memory_is_split(fit, tmp_path, monkeypatch, accumulate, error):
    changes = ("train.steps=4", f"train.accumulate={accumulate}", "train.batch_tokens=200")
    fit(*changes, name="whole")
    tried, callback = limit_memory(monkeypatch, 60, error), RecordingCallback()
    fit(*changes, name="split", callback=callback)
    assert max(tried) > 120  # so the halves had to be split again
    assert "Step 1 did not fit into memory and was split into" in callback.texts[0]
    whole, split = (state(tmp_path / name) for name in ("whole", "split"))
    for name in whole:
        np.testing.assert_allclose(split[name], whole[name], rtol=1e-3, atol=2e-5, err_msg=name)
    metadata = Run(tmp_path / "split").metadata()
    assert sorted(set(metadata["split_at"])) == [1, 2, 3, 4]
    assert not Run(tmp_path / "split").latest().progress.exact
    assert Run(tmp_path / "whole").latest().progress.exact
    assert "split_at" not in Run(tmp_path / "whole").metadata()


def test_a_validation_that_does_not_fit_is_split_and_gives_the_same_loss(fit, monkeypatch):
    whole, split = RecordingCallback(), RecordingCallback()
    fit("train.steps=4", name="whole", callback=whole)
    tried = limit_memory(monkeypatch, 30, training=False)
    fit("train.steps=4", name="split", callback=split)
    assert max(tried) > 60
    assert split.validations[-1]["valid_nll"] == pytest.approx(whole.validations[-1]["valid_nll"], rel=1e-6)


def test_a_sentence_too_large_to_validate_is_reported(fit, monkeypatch):
    limit_memory(monkeypatch, 2, training=False)
    with pytest.raises(RunError) as e:
        fit("train.steps=4")
    assert str(e.value) == (
        "A validation does not fit into memory. Train in another folder with a smaller train.batch_tokens."
    )


def test_a_sentence_too_large_for_memory_ends_the_run(fit, monkeypatch):
    limit_memory(monkeypatch, 2)
    with pytest.raises(RunError) as e:
        fit()
    assert str(e.value) == (
        "Step 1 does not fit into memory. Train in another folder with a smaller train.batch_tokens."
    )


def test_a_measured_token_budget_is_recorded_and_reused(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_module, "max_token_budget", lambda *_: 192)
    callback = RecordingCallback()
    fit("train.batch_tokens=0", "train.steps=10", callback=callback)
    assert Run(tmp_path / "run").metadata()["batch_tokens"] == 192
    assert "Batches of 192 source and target tokens fit into memory." in callback.texts
    monkeypatch.setattr(trainer_module, "max_token_budget", lambda *_: 96)
    fit("train.batch_tokens=0")
    fit("train.batch_tokens=192", name="whole")
    one, two = (state(tmp_path / name) for name in ("run", "whole"))
    assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_and_exits(fit, tmp_path, number):
    before = signal.getsignal(number)
    callback = signal_at(7, number)
    assert fit(callback=callback) is None
    assert callback.texts[-1] == "Stopped at step 7; the same command resumes."
    assert Run(tmp_path / "run").latest().progress.step == 7
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert signal.getsignal(number) == before


def test_a_signal_during_epoch_preparation_saves_at_once(fit, digits, tmp_path, monkeypatch):
    """Re-segmenting a large corpus takes a while; the checkpoint does not wait for it."""
    original, save, enough, made = Trainer.pairs_of, Run.save, threading.Event(), []

    def slow(self, epoch: int):
        if epoch:
            enough.wait(60)
            made.append(epoch)
        return original(self, epoch)

    def saved(self, *arguments) -> None:
        assert made == []
        save(self, *arguments)
        if arguments[0].progress.step == last:
            enough.set()

    monkeypatch.setattr(Trainer, "pairs_of", slow)
    monkeypatch.setattr(Run, "save", saved)
    last = len(Epoch(digits[1].pairs("train"), 256, 1, 0))
    callback = signal_at(last, signal.SIGTERM)
    assert fit("train.steps=1000", "train.validate_every=1000", callback=callback) is None
    assert Run(tmp_path / "run").latest().progress.step == last


@pytest.mark.parametrize("file", ["weights", "optimizer"])
@pytest.mark.parametrize("damage", ["shape", "gone", "more"])
def test_a_checkpoint_of_another_model_is_a_one_line_error(fit, tmp_path, file, damage):
    """Its checksum is right, so only names and shapes reveal it."""
    fit("train.steps=4")
    path = Run(tmp_path / "run").folder(4) / f"{file}.safetensors"
    arrays = read_arrays(path)
    name = next(name for name, array in arrays.items() if array.ndim == 1)
    if damage == "shape":
        arrays[name] = arrays[name][:1]  # copying would broadcast it
    elif damage == "gone":
        del arrays[name]
    else:
        arrays["step.more" if file == "optimizer" else "more"] = arrays[name]
    write_arrays(arrays, path)
    with pytest.raises(
        RunError, match=rf"{file}\.safetensors cannot be read: its tensors are not those of the model\. D"
    ):
        fit("train.steps=6")


def test_a_run_resumes_after_a_full_disk(fit, tmp_path, monkeypatch):
    whole = checkpoint_arrays.save_file

    def full(arrays, file, metadata):
        if "step-00000020" in str(file):
            raise OSError(28, "No space left on device")
        whole(arrays, file, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_arrays, "save_file", full)
        with pytest.raises(RunError, match=r"No space left on device\. Free some space and start again"):
            fit()
    assert Run(tmp_path / "run").latest().progress.step == 10
    fit()
    fit(name="whole")
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


def test_a_changed_setting_is_refused_by_its_name(fit, tmp_path):
    fit("train.steps=3")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(
        RunError, match=r"was started with model\.dropout = 0\.0, but now it is 0\.5\. Train in another"
    ):
        fit("train.steps=3", "model.dropout=0.5")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_store_with_another_tokenizer_is_refused(fit, digits, tmp_path):
    fit("train.steps=3")
    settings = with_changes(digits[0], ["tokenizer.vocab_size=310"])
    other = prepare(settings, tmp_path / "store", root=digits[1].path.parent, processes=1)
    with pytest.raises(RunError, match=r"was started with another tokenizer than the store has\. Give the store of"):
        train(with_changes(digits[0], ["train.steps=3"]), other, tmp_path / "run", device="cpu")


def test_a_deleted_store_is_a_one_line_error(fit, digits, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(digits[1].path, store)
    settings = with_changes(digits[0], ["train.steps=100", "train.validate_every=999"])
    opened, callback = Store.open(store), RecordingCallback(12, lambda: shutil.rmtree(store))
    with pytest.raises(StoreError, match=r"^The token store .* lacks its file .*\. Make it again with"):
        train(settings, opened, tmp_path / "run", device="cpu", callback=callback)
    kept = Run(tmp_path / "run").latest()
    assert kept.progress.step >= 10
    train(settings, digits[1], tmp_path / "run", device="cpu", callback=RecordingCallback())
    assert Run(tmp_path / "run").latest().progress.step == 100


def test_sentences_longer_than_max_length_are_refused(fit):
    with pytest.raises(StoreError) as e:
        fit("model.max_length=10")
    longest = str(e.value).split()[6]
    assert str(e.value) == (
        f"The store has a sentence of {longest} tokens, and model.max_length is 10. "
        f"Set model.max_length={longest}, or prepare with data.longest=9."
    )


def test_sentences_longer_than_a_batch_are_refused(fit, digits):
    pairs = digits[1].pairs("train")
    longest = int(max(pairs.src_lengths.max(), pairs.tgt_lengths.max())) + 1
    with pytest.raises(StoreError) as e:
        fit(f"train.batch_tokens={longest - 1}")
    assert str(e.value) == (
        f"The store has a sentence of {longest} tokens, and train.batch_tokens is {longest - 1}. "
        f"Set train.batch_tokens to at least {longest}, or prepare with a smaller data.longest."
    )


def test_bpe_dropout_makes_no_sentence_longer_than_a_batch(digits):
    changes = ["tokenizer.dropout=0.1", "train.batch_tokens=25"]
    with closing(make_resegmenter(with_changes(digits[0], changes), digits[1])) as resegmenter:
        assert resegmenter.configuration[-1] == 24


def test_a_process_on_another_machine_must_see_the_run_folder(digits, tmp_path, monkeypatch):
    """Otherwise it would begin anew while the others go on."""
    monkeypatch.setattr(World, "parallelize", lambda self, objective, model, *, shard: objective)
    monkeypatch.setattr(World, "wait", lambda self: None)
    second = Trainer(digits[0], digits[1], Run(tmp_path / "elsewhere"), World(1, 2, CPU), Callbacks(), None)
    with pytest.raises(RunError) as e:
        second.begin()
    assert str(e.value) == (
        f"{tmp_path / 'elsewhere'} is not the same folder for every process. Put it on a disk that they share."
    )


# --- as a process ---------------------------------------------------------------------------------------------


def command(folder: Path, settings: Settings, store: Store, *more: str) -> list[str]:
    (folder / "settings.toml").write_text(settings_to_toml(settings))
    start = [sys.executable, "-m", "onehop", "train", str(folder / "settings.toml"), "--store", str(store.path)]
    return [*start, "-o", str(folder / "run"), "--device", "cpu", "--bleu-on", "0", *more]


def wait_for_step(folder: Path, step: int, process: "subprocess.Popen[str]") -> None:
    file = folder / "run" / "metrics.jsonl"
    while process.poll() is None and not (file.exists() and any(x["step"] >= step for x in read_metrics(file))):
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_killed_and_stopped_from_outside_ends_with_the_same_bits(digits, tmp_path):
    """kill -9, start again, SIGTERM, start again: each step is in the metrics once, and the bits are the same."""
    changes = ["model.dropout=0.1", "train.save_every=10"]
    settings = with_changes(digits[0], [*changes, "train.steps=9999"])  # however late this process looks, it still runs
    start = command(tmp_path, settings, digits[1])
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    wait_for_step(tmp_path, 15, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_step(tmp_path, 35, process)
    process.terminate()
    out, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert out == ""
    assert "the same command resumes." in said.splitlines()[-1]
    done = Run(tmp_path / "run").latest().progress.step
    assert done >= 35
    for name in ("run", "whole"):
        train(with_changes(settings, [f"train.steps={done + 5}"]), digits[1], tmp_path / name, device="cpu")
    steps = [x["step"] for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in x]
    assert steps == list(range(1, done + 6))
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_training_exits_with_the_status_of_its_signal(digits, tmp_path, monkeypatch, number, status):
    def stopped(*_, **__) -> None:
        with signals.stop_on_signals(signals.Stop()):
            signal.raise_signal(number)

    monkeypatch.setattr(workflow, "train", stopped)
    done = onehop(*command(tmp_path, digits[0], digits[1])[3:])
    assert (done.exit_code, done.output) == (status, "")


def test_errors_are_one_line_and_status_two(digits, tmp_path):
    gone = Store(tmp_path / "gone", digits[1].description)
    done = onehop(*command(tmp_path, digits[0], gone)[3:])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"onehop: There is no token store {tmp_path / 'gone'}.")


def test_fewer_steps_than_the_run_already_has_are_refused(fit, tmp_path):
    fit("train.steps=6")
    before = {file: file.read_bytes() for file in (tmp_path / "run").glob("*.*")}
    with pytest.raises(RunError, match=r"has 6 steps, but train\.steps is 4\. Train in another folder"):
        fit("train.steps=4")
    assert {file: file.read_bytes() for file in (tmp_path / "run").glob("*.*")} == before


COMPILED = """
import numpy as np
import torch
import onehop.model.attention as attention
from onehop.data.batches import Batch
from onehop.config import load_settings, with_changes
from onehop.training.dataloader import FixedShapes, to_device
from onehop.model.transformer import Transformer
from onehop.training.distributed import World
from onehop.training.optimizer import learning_rate, set_rate
from onehop.training.step import Objective

# The ragged kernel needs a GPU. This stand-in returns the same shape.
attention.padded_attention = lambda q, k, v, mask: attention.fused_attention(q, k, v)
ids, lengths = np.arange(4, 64) % 50, np.array([20, 10, 30])
batch, here = Batch(ids, lengths, ids, ids, lengths), World(0, 1, torch.device("cpu"))
fed = to_device(batch, here, FixedShapes(128, 8, 64), twice=True)
torch.manual_seed(0)
settings = with_changes(load_settings("tiny"), ["model.n_encoder_layers=1", "model.n_decoder_layers=1"])
objective = Objective(Transformer(settings.model, 50), 0.1, 1.0)
plain = objective(fed)[0]
compiled = torch.compile(objective, dynamic=False, fullgraph=True, backend="aot_eager")(fed)[0]
compiled.backward()
torch.testing.assert_close(plain, compiled)
assert all(p.grad is not None for p in objective.parameters())
"""


@pytest.mark.slow
def test_the_objective_compiles_as_one_graph():
    # In a separate process, because the tests' shape checks cannot be compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_continued_on_another_machine_records_both(fit, tmp_path, monkeypatch):
    """A finished run that is started elsewhere keeps its machine; a continued one records both."""
    file = fit("train.steps=6")
    before = file.read_bytes()
    monkeypatch.setattr(trainer_module, "device_name", lambda device: "another")
    fit("train.steps=6")
    assert file.read_bytes() == before
    callback = RecordingCallback()
    provenance = read_model(fit("train.steps=8", callback=callback)).provenance
    assert [(m["from_step"], m["device"]) for m in provenance["machines"]] == [(0, "cpu"), (6, "another")]
    assert not provenance["exact"]
    assert any("the last bits may differ" in text for text in callback.texts)


def test_a_run_continued_on_a_cpu_without_bfloat16_records_it(fit, monkeypatch):
    for steps, instructions in ((6, True), (8, False)):
        monkeypatch.setattr(step_module, "fast_bfloat16", lambda found=instructions: found)
        provenance = read_model(fit(f"train.steps={steps}", "train.cpu_dtype=auto")).provenance
    assert [(m["from_step"], m["device"]) for m in provenance["machines"]] == [(0, "cpu, bfloat16"), (6, "cpu")]
    assert not provenance["exact"]


def test_a_machine_change_is_recorded_even_if_killed_at_once(fit, tmp_path, monkeypatch):
    fit("train.steps=6")
    monkeypatch.setattr(trainer_module, "device_name", lambda device: "another")

    with pytest.raises(Killed):
        fit("train.steps=9", callback=kill_at(7))
    provenance = read_model(fit("train.steps=9")).provenance
    assert [(m["from_step"], m["device"]) for m in provenance["machines"]] == [(0, "cpu"), (6, "another")]
    assert not provenance["exact"]


@pytest.mark.parametrize(
    ("model", "fixed"),
    [
        (ModelSettings(), True),
        (ModelSettings(d_k=16), True),
        (ModelSettings(n_heads=2), True),
        (ModelSettings(n_heads=1), False),  # a head of 512, which no kernel for ragged rows takes
        (ModelSettings(d_v=320), False),
    ],
)
def test_only_a_step_of_fixed_shapes_is_compiled(model, fixed):
    assert trainer_module.has_fixed_shapes(model) is fixed


def test_two_signals_within_a_second_count_as_one(monkeypatch):
    """A process group gets a signal twice if its parent forwards it; a later signal is a second one."""
    now = iter([0.0, 0.5, 2.0])
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: next(now)))
    stop = signals.Stop()
    with signals.stop_on_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.reason == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
