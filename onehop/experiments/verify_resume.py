"""The proof of exact resume: train, kill -9 at random, resume, compare the bits."""

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from onehop.config import settings_to_toml, with_changes
from onehop.data.prepare import prepare
from onehop.errors import RunError
from onehop.experiments.reverse import digit_strings, in_words, reverse_settings, write_pairs
from onehop.model.device import pick_device
from onehop.storage.model_io import read_model
from onehop.storage.run_folder import Run, read_metrics

Say = Callable[[str], None]


# A GPU records only a step of one batch as a CUDA graph, so single and accumulated batches are verified separately.
_ACCUMULATED = ["model.norm=post", "train.accumulate=2"]
_SINGLE_BATCH = ["model.norm=pre", "train.accumulate=1"]


def verify_resume(folder: Path | None, *, kills: int, steps: int, seed: int, say: Say, device: str = "cpu") -> bool:
    """Whether repeatedly killed runs end with the same bits as undisturbed ones.

    A CPU has one proof, post-norm with accumulated batches. Other devices also have pre-norm with one batch per step.
    """
    pick_device(device)
    if device == "cpu":
        return _verify(folder, _ACCUMULATED, kills=kills, steps=steps, seed=seed, say=say, device=device)
    same = True
    for name, changes in (("post-norm, two batches", _ACCUMULATED), ("pre-norm, one batch", _SINGLE_BATCH)):
        say(f"{name} per step:")
        work = folder and folder / name.split(",")[0]
        same &= _verify(work, changes, kills=kills, steps=steps, seed=seed, say=say, device=device)
    return same


def _verify(
    folder: Path | None, changes: list[str], *, kills: int, steps: int, seed: int, say: Say, device: str
) -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        work = folder or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for leftover in ("whole", "killed"):  # results of an earlier call would prove nothing
            shutil.rmtree(work / leftover, ignore_errors=True)
        command = set_up(work, steps, device, changes)
        whole = train_whole(command, work / "whole")
        say(f"never stopped      {whole}")
        draw = random.Random(seed)
        resumed = train_killed(command, work / "killed", kill_steps(kills, steps, draw), draw, say)
        say(f"killed {kills} times     {resumed}")
        say("The same to the last bit." if whole == resumed else "They differ.")
        return whole == resumed


def set_up(work: Path, steps: int, device: str, changes: Sequence[str] = _ACCUMULATED) -> list[str]:
    """Data, settings with all randomness on, and the training command.

    A CPU is deterministic by default; other devices need train.deterministic.
    """
    write_pairs(work / "digits.tsv", in_words(digit_strings(3000)))  # a digit would be one token without merges to drop
    changes = [
        *changes,
        f"train.steps={steps}",
        "train.save_every=10",
        "train.validate_every=15",
        "train.report_every=1",
        "train.average=3",
        "train.batch_tokens=512",
        "model.dropout=0.1",
        "tokenizer.dropout=0.1",
        "tokenizer.vocab_size=340",
        "train.label_smoothing=0.1",
        f"train.deterministic={'false' if device == 'cpu' else 'true'}",
    ]
    settings = with_changes(reverse_settings(), changes)
    (work / "settings.toml").write_text(settings_to_toml(settings), encoding="utf-8")
    prepare(settings, work / "store", root=work, processes=1)
    store = ["--store", str(work / "store"), "--bleu-on", "0", "--device", device]
    return [sys.executable, "-m", "onehop", "train", str(work / "settings.toml"), *store, "-o"]


def train_whole(command: list[str], run: Path) -> str:
    """Train without interruption; returns the hash of the result."""
    process = subprocess.run([*command, str(run)], capture_output=True, text=True, check=False)
    if process.returncode:
        message = (process.stderr.strip().splitlines() or ["it said nothing."])[-1]
        raise RunError(f"The training failed: {message}", f"See why with: {' '.join([*command, str(run)])}")
    return result_hash(run)


def kill_steps(kills: int, steps: int, draw: random.Random) -> list[int]:
    """A random step in each of `kills` equal parts of the run; never the last step."""
    return [
        draw.randint(steps * i // kills + 1, max(steps * i // kills + 1, steps * (i + 1) // kills - 2))
        for i in range(kills)
    ]


def train_killed(command: list[str], run: Path, at_steps: list[int], draw: random.Random, say: Say) -> str:
    """Train, killed at a random time after each of these steps, even while saving; returns the hash of the result."""
    for step in at_steps:
        process = subprocess.Popen([*command, str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_step(process, run, step)
            time.sleep(draw.uniform(0.0, 0.05))
        finally:  # after Ctrl-C too, or the child would continue training
            process.kill()
            process.wait()
        if process.returncode != -signal.SIGKILL:
            raise RunError(f"The training ended before it could be killed in step {step}.", "Give more --steps.")
        say(f"killed after step {last_step(run)}, with a checkpoint of step {max(Run(run).steps(), default=0)}")
    return train_whole(command, run)


def wait_for_step(process: "subprocess.Popen[bytes]", run: Path, step: int) -> None:
    """Wait until the run has finished a step, or has ended."""
    while process.poll() is None and last_step(run) < step:
        time.sleep(0.002)


def last_step(run: Path) -> int:
    file = run / "metrics.jsonl"
    return max((line["step"] for line in read_metrics(file)), default=0) if file.exists() else 0


def result_hash(run: Path) -> str:
    """A hash of the model file's weights and the last checkpoint with its optimizer state."""
    last = Run(run).latest()
    assert last is not None, "a training that ends well leaves a checkpoint"
    digest = hashlib.sha256()
    for arrays in (read_model(run / "model.safetensors").weights(), last.weights, last.optimizer):
        for name in sorted(arrays):
            digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()
