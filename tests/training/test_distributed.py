"""Two processes on a CPU do what one does: the same batches, the same losses to rounding, the same files once."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop.config import settings_to_toml, with_changes
from onehop.storage.run_folder import Run, read_metrics
from onehop.training import trainer as trainer_module
from onehop.training.distributed import World, whole, without_sync, world
from onehop.training.trainer import train

STEPS = 24
# Everything that has to be the same on both sides of a split; no dropout, which each process draws for itself.
CHANGES = (
    "train.accumulate=2",
    "train.clip=1.0",
    "train.label_smoothing=0.1",
    "train.ema=0.9",
    "train.save_every=12",
    "train.validate_every=12",
)


def test_alone_nothing_is_distributed():
    with world("cpu") as here:
        assert here == World(0, 1, torch.device("cpu"))
        assert here.leads
        assert here.sum(torch.tensor(3.0)) == 3.0
        assert here.least(7) == 7
        assert here.any(True)
        assert not here.any(False)
        here.wait()
        module = torch.nn.Linear(1, 1)
        assert here.spread(module, module, shard=True) is module
        with without_sync(module):
            pass
        assert whole(module.weight) is module.weight
    assert not torch.distributed.is_initialized()


# --- two processes --------------------------------------------------------------------------------------------


def torchrun(*command: str) -> "subprocess.CompletedProcess[str]":
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    # Should it die of a signal, it says where.
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(start, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def trained(digits, tmp_path, monkeypatch):
    """Train in a folder, with one process here or two outside."""
    monkeypatch.setattr(trainer_module, "measured_peak", lambda device: 1e10)

    def run(name: str, processes: int, steps: int = STEPS, *changes: str) -> "subprocess.CompletedProcess[str] | None":
        settings = with_changes(digits[0], [*CHANGES, f"train.steps={steps}", *changes])
        if processes == 1:
            train(settings, digits[1], tmp_path / name, device="cpu")
            return None
        file = tmp_path / f"{name}.toml"
        file.write_text(settings_to_toml(settings))
        options = ["--store", str(digits[1].path), "-o", str(tmp_path / name), "--device", "cpu", "--bleu-on", "4"]
        return torchrun("-m", "onehop", "train", str(file), *options)

    return run


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


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["false", "true"], ids=["DDP", "FSDP2"])
def test_two_processes_agree_with_one_and_a_run_moves_between_them(trained, tmp_path, shard):
    trained("one", 1)
    done = trained("two", 2, STEPS, f"train.shard={shard}")
    assert_agree(tmp_path / "one", tmp_path / "two")
    # Only the first of them talks and writes.
    assert done.stdout == f"{tmp_path / 'two' / 'model.safetensors'}\n"
    assert sum("parameters" in line for line in done.stderr.splitlines()) == 1
    assert sum(f"step {STEPS}/{STEPS}" in line for line in done.stderr.splitlines()) == 1
    assert "Warning" not in done.stderr
    assert processes_of(tmp_path / "two") == [2]

    trained("one then two", 1, STEPS // 2)
    trained("one then two", 2, STEPS, f"train.shard={shard}")
    assert_agree(tmp_path / "one", tmp_path / "one then two")

    trained("two then one", 2, STEPS // 2, f"train.shard={shard}")
    trained("two then one", 1)
    assert_agree(tmp_path / "one", tmp_path / "two then one")
    assert processes_of(tmp_path / "two then one") == [2, 1]


def processes_of(run: Path) -> list[int]:
    return [machine["processes"] for machine in Run(run).facts()["machines"]]


SCRIPT = """
import os, signal, sys
from pathlib import Path

from onehop.training import trainer as trainer_module
from onehop.config import load_settings
from onehop.data.store import Store
from onehop.training.trainer import train

rank = int(os.environ["RANK"])
settings, store, folder = load_settings(sys.argv[1]), Store.open(sys.argv[2]), Path(sys.argv[3])
trainer_module.budget_that_fits = lambda *_: 64 - 8 * rank

def validator(model):
    if rank == 1:  # the first process is told nothing
        os.kill(os.getpid(), signal.SIGTERM)
    return {}

found = train(settings, store, folder, device="cpu", validator=validator)
os.write(1, f"{rank} {found}\\n".encode())  # as a whole: the other process talks too
"""


@pytest.mark.slow
def test_processes_agree_on_the_budget_and_on_stopping(digits, trained, tmp_path):
    """The smallest budget counts, batches of one sentence leave a process without work, one signal stops all."""
    settings = with_changes(digits[0], [*CHANGES, "train.steps=24", "train.batch_tokens=0", "train.accumulate=1"])
    (tmp_path / "settings.toml").write_text(settings_to_toml(settings))
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = [str(tmp_path / "settings.toml"), str(digits[1].path), str(tmp_path / "two")]
    done = torchrun(str(tmp_path / "script.py"), *arguments)
    assert sorted(done.stdout.splitlines()) == ["0 None", "1 None"]
    assert Run(tmp_path / "two").latest().progress.step == 12
    assert Run(tmp_path / "two").facts()["batch_tokens"] == 56
    trained("two", 1, 24, "train.batch_tokens=0", "train.accumulate=1")
    trained("one", 1, 24, "train.batch_tokens=56", "train.accumulate=1")
    assert_agree(tmp_path / "one", tmp_path / "two")
