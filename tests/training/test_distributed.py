"""Two processes on a CPU do what one does: the same batches, the same losses to rounding, the same files once."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop.config import Settings, settings_to_toml, with_changes
from onehop.errors import SettingsError
from onehop.storage.run_folder import Run, read_metrics
from onehop.training import trainer as trainer_module
from onehop.training.distributed import LostPeerError, World, gather, without_sync, world
from onehop.training.trainer import train

STEPS = 12
# Everything that two processes must do like one. No dropout: each process draws its own masks.
CHANGES = (
    "train.accumulate=2",
    "train.clip=1.0",
    "train.label_smoothing=0.1",
    "train.ema=0.9",
    f"train.save_every={STEPS // 2}",
    f"train.validate_every={STEPS // 2}",
)


def test_a_single_process_is_not_distributed():
    with world("cpu") as here:
        assert here == World(0, 1, torch.device("cpu"))
        assert here.is_main
        assert here.sum(torch.tensor(3.0)) == 3.0
        assert here.min(7) == 7
        assert here.any(True)
        assert not here.any(False)
        here.wait()
        module = torch.nn.Linear(1, 1)
        assert here.parallelize(module, module, shard=True) is module
        with without_sync(module):
            pass
        assert gather(module.weight) is module.weight
    assert not torch.distributed.is_initialized()


def test_a_lost_process_is_a_one_line_error(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    gloo = "[/build/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 60000ms for recv operation to complete"
    for error in (RuntimeError(gloo), torch.distributed.DistNetworkError("Broken pipe\nframe 0")):
        with pytest.raises(LostPeerError) as told, world("cpu"):
            raise error
        assert "\n" not in str(told.value)
        assert "does not answer: " + ("Timed out" if "gloo" in str(error) else "Broken pipe") in str(told.value)
    with pytest.raises(RuntimeError, match="shapes"), world("cpu"):
        raise RuntimeError("shapes differ")


def test_the_peer_timeout_is_a_number_of_seconds(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ONEHOP_PEER_SECONDS", "soon")
    with pytest.raises(SettingsError, match="ONEHOP_PEER_SECONDS is 'soon', not a number of seconds"), world("cpu"):
        pass


# --- two processes --------------------------------------------------------------------------------------------


def torchrun(*command: str) -> "subprocess.CompletedProcess[str]":
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    # A process that dies of a signal prints where.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(start, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def train_alone(digits, folder):
    """Train with one process, in a folder that the runs of this module share."""

    def run(name: str, steps: int = STEPS, *changes: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
            train(changed(digits[0], steps, *changes), digits[1], folder / name, device="cpu")

    run("one")
    return run


def changed(settings: Settings, steps: int, *changes: str) -> Settings:
    return with_changes(settings, [*CHANGES, f"train.steps={steps}", *changes])


def assert_agree(one: Path, two: Path) -> None:
    """Losses, gradients' norms, validations and the whole state, to rounding."""
    first, second = (read_metrics(folder / "metrics.jsonl") for folder in (one, two))
    assert [x["step"] for x in second if "loss" in x] == list(range(1, STEPS + 1))
    for a, b in zip(first, second, strict=True):
        assert a["step"] == b["step"]
        for key in a.keys() & {"loss", "nll", "gradient", "valid_nll", "epoch", "learning_rate"}:
            assert b[key] == pytest.approx(a[key], rel=2e-4), (a["step"], key)
    a, b = Run(one).latest(), Run(two).latest()
    assert a.progress.step == b.progress.step == STEPS
    assert (a.progress.epoch, a.progress.batch) == (b.progress.epoch, b.progress.batch)
    for old, new in ((a.weights, b.weights), (a.optimizer, b.optimizer)):
        assert old.keys() == new.keys()
        for name in old:
            assert old[name].shape == new[name].shape
            np.testing.assert_allclose(new[name], old[name], rtol=0.02, atol=1e-4, err_msg=name)


def processes_of(run: Path) -> list[int]:
    return [machine["processes"] for machine in Run(run).metadata()["machines"]]


@pytest.mark.slow
def test_two_processes_agree_with_one_and_only_the_first_prints_and_writes(digits, train_alone, folder):
    (folder / "two.toml").write_text(settings_to_toml(changed(digits[0], STEPS)))
    options = ["--store", str(digits[1].path), "-o", str(folder / "two"), "--device", "cpu", "--bleu-on", "4"]
    done = torchrun("-m", "onehop", "train", str(folder / "two.toml"), *options)
    assert_agree(folder / "one", folder / "two")
    assert done.stdout == f"{folder / 'two' / 'model.safetensors'}\n"
    assert sum("parameters" in line for line in done.stderr.splitlines()) == 1
    assert sum(f"step {STEPS}/{STEPS}" in line for line in done.stderr.splitlines()) == 1
    assert "Warning" not in done.stderr
    assert processes_of(folder / "two") == [2]


SCRIPT = """
import os, signal, sys
from pathlib import Path

from onehop.config import load_settings
from onehop.data.store import Store
from onehop.training import trainer as trainer_module
from onehop.training.distributed import exit_together
from onehop.training.trainer import train

store, folder, *names = sys.argv[1:]
rank = int(os.environ["RANK"])
trainer_module.measured_peak = lambda *_: 1e10
trainer_module.max_token_budget = lambda *_: 64 - 8 * rank

def told(model):
    os.kill(os.getpid(), signal.SIGTERM)
    return {}

with exit_together("cpu"):
    for name in names:
        settings = load_settings(Path(folder, f"{name}.toml"))
        # The last run is stopped by a signal that only the second process gets.
        validator = told if name == names[-1] and rank == 1 else lambda model: {}
        found = train(settings, Store.open(store), Path(folder, name), device="cpu", validator=validator)
    os.write(1, f"{rank} {found}\\n".encode())  # in one call, because the other process writes too
"""
SHARD = pytest.mark.parametrize("shard", ["DDP", "FSDP2"])
FOUND = ("train.batch_tokens=0", "train.accumulate=1")


@pytest.fixture(scope="module")
def pair(digits, train_alone, folder):
    """All runs with two processes in one pair of them, because starting a pair takes longer than training."""
    runs = {"FSDP2": changed(digits[0], STEPS, "train.shard=true")}
    for name, shard in (("DDP", "false"), ("FSDP2", "true")):
        train_alone(f"one then {name}", STEPS // 2)
        runs[f"one then {name}"] = changed(digits[0], STEPS, f"train.shard={shard}")
        runs[f"{name} then one"] = changed(digits[0], STEPS // 2, f"train.shard={shard}")
    runs["stopped"] = changed(digits[0], STEPS, *FOUND)
    for name, settings in runs.items():
        (folder / f"{name}.toml").write_text(settings_to_toml(settings))
    (folder / "script.py").write_text(SCRIPT)
    done = torchrun(str(folder / "script.py"), str(digits[1].path), str(folder), *runs)
    assert "Warning" not in done.stderr
    return done


@pytest.mark.slow
def test_two_processes_with_sharded_weights_agree_with_one(pair, folder):
    assert_agree(folder / "one", folder / "FSDP2")
    assert processes_of(folder / "FSDP2") == [2]


@pytest.mark.slow
@SHARD
def test_a_run_moves_from_one_process_to_two(pair, folder, shard):
    assert_agree(folder / "one", folder / f"one then {shard}")
    assert processes_of(folder / f"one then {shard}") == [1, 2]


@pytest.mark.slow
@SHARD
def test_a_run_moves_from_two_processes_to_one(pair, train_alone, folder, shard):
    train_alone(f"{shard} then one")
    assert_agree(folder / "one", folder / f"{shard} then one")
    assert processes_of(folder / f"{shard} then one") == [2, 1]


@pytest.mark.slow
def test_processes_share_the_smallest_budget_and_stop_together(pair, train_alone, folder):
    """Batches of one sentence leave a process without work, and one signal stops both processes."""
    assert sorted(pair.stdout.splitlines()) == ["0 None", "1 None"]
    assert Run(folder / "stopped").latest().progress.step == STEPS // 2
    assert Run(folder / "stopped").metadata()["batch_tokens"] == 56
    train_alone("stopped", STEPS, *FOUND)
    train_alone("small batches", STEPS, "train.batch_tokens=56", "train.accumulate=1")
    assert_agree(folder / "small batches", folder / "stopped")
