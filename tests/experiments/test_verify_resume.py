"""`onehop verify-resume` passes, and detects an inexact resume."""

import random
import shutil
import sys

import pytest
import torch
from command_line import onehop
from safetensors.numpy import load_file, save_file

from onehop.config import load_settings
from onehop.errors import RunError
from onehop.experiments import verify_resume as verify_module
from onehop.experiments.verify_resume import (
    kill_steps,
    result_hash,
    set_up,
    train_killed,
    train_whole,
    verify_resume,
)
from onehop.storage.run_folder import Run
from onehop.training import trainer as trainer_module

STEPS = 30  # a checkpoint after every tenth


def test_kill_steps_are_sorted_and_within_the_run():
    for kills in (1, 2, 3, 7):
        for seed in range(50):
            found = kill_steps(kills, 60, random.Random(seed))
            assert len(found) == kills
            assert found == sorted(found)
            assert found[0] >= 1
            assert found[-1] < 60
    assert len({tuple(kill_steps(3, 60, random.Random(seed))) for seed in range(50)}) > 40


def test_the_exit_status_is_that_of_the_comparison(monkeypatch):
    for same in (True, False):
        monkeypatch.setattr(verify_module, "verify_resume", lambda *a, same=same, **k: same)
        assert onehop("verify-resume").exit_code == (0 if same else 1)


@pytest.mark.parametrize(("device", "asked"), [("cpu", False), ("cuda:1", True)])
def test_deterministic_kernels_are_requested_only_on_a_gpu(tmp_path, device, asked):
    command = set_up(tmp_path, 20, device)
    assert command[command.index("--device") + 1] == device
    assert load_settings(command[command.index("train") + 1]).train.deterministic is asked


@pytest.mark.parametrize(("broken", "same"), [(None, True), ("post-norm", False), ("pre-norm", False)])
def test_on_a_gpu_accumulated_and_single_batches_are_both_verified(tmp_path, monkeypatch, broken, same):
    trained = []

    def whole(command, run):
        train, model = (
            getattr(load_settings(command[command.index("train") + 1]), table) for table in ("train", "model")
        )
        trained.append((model.norm, train.accumulate))
        return "a"

    monkeypatch.setattr(verify_module, "pick_device", lambda device: None)
    monkeypatch.setattr(verify_module, "train_whole", whole)
    monkeypatch.setattr(verify_module, "train_killed", lambda _, run, *rest: "b" if run.parent.name == broken else "a")
    output = []
    assert verify_resume(tmp_path, kills=1, steps=20, seed=1, say=output.append, device="cuda") is same
    assert trained == [("post", 2), ("pre", 1)]
    assert output[0] == "post-norm, two batches per step:"
    assert "pre-norm, one batch per step:" in output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_device_is_named():
    done = onehop("verify-resume", "--device", "cuda", "--steps", "10")
    assert done.exit_code == 2
    assert done.output.startswith("onehop: There is no device cuda:0")
    assert "sees no GPU" in done.output


def test_a_failed_training_is_an_error(tmp_path):
    fails = [sys.executable, "-c", "import sys; sys.exit('It broke.')"]
    with pytest.raises(RunError, match=r"^The training failed: It broke\. See why with: "):
        train_whole(fails, tmp_path)
    with pytest.raises(
        RunError, match=r"^The training ended before it could be killed in step 5\. Give more --steps\.$"
    ):
        train_killed(fails, tmp_path, [5], random.Random(1), print)


def test_an_interruption_stops_the_training(tmp_path, monkeypatch):
    seen = []

    def interrupted(process, run, step) -> None:
        seen.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(verify_module, "wait_for_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_killed([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, [5], random.Random(1), print)
    assert seen[0].returncode is not None


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    """The folder and the outcome of `onehop verify-resume`, which both tests below need."""
    folder = tmp_path_factory.mktemp("proof")

    def train_here(command, run):
        """The uninterrupted run needs no process of its own."""
        if run.name != "whole":
            return train_whole(command, run)
        trained = onehop(*command[command.index("train") :], run)
        assert trained.exit_code == 0, trained.output
        return result_hash(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_module, "train_whole", train_here)
        patch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
        options = ["--steps", str(STEPS), "--kills", "1", "--seed", "5", "-o", str(folder)]
        return folder, onehop("verify-resume", *options)


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(proof):
    _, done = proof
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.startswith("killed after step") for line in lines] == [False, True, False, False]
    assert lines[0].split()[-1] == lines[2].split()[-1]
    assert len(lines[0].split()[-1]) == 64
    assert lines[-1] == "The same to the last bit."


@pytest.mark.slow
def test_an_inexact_resume_is_detected(proof, tmp_path, monkeypatch):
    """One bit of one of Adam's moments changes before the run resumes."""
    folder, _ = proof
    output = []

    def tampered(command, run, *_):
        """Resume the killed run from its second to last checkpoint, with a changed bit."""
        shutil.copytree(folder / "killed", run)
        *_, before, last = Run(run).steps()
        shutil.rmtree(Run(run).folder(last))
        file = Run(run).folder(before) / "optimizer.safetensors"
        arrays = load_file(file)
        arrays["exp_avg.encoder.layers.0.feed_forward.w_1.weight"].view("uint32")[0, 0] ^= 1 << 20
        save_file(arrays, file)
        return train(command, run)

    train = verify_module.train_whole
    monkeypatch.setattr(verify_module, "train_whole", lambda *_: result_hash(folder / "whole"))
    monkeypatch.setattr(verify_module, "train_killed", tampered)
    assert not verify_resume(tmp_path, kills=1, steps=STEPS, seed=1, say=output.append)
    assert output[-1] == "They differ."
