"""The proof of "as if never stopped": train, kill -9 at random moments, go on, compare the bits."""

import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from onehop.config import settings_to_toml, with_changes
from onehop.demo import demo_settings, digit_strings, write_pairs
from onehop.errors import RunError
from onehop.prepare import prepare
from onehop.runs import Run

Say = Callable[[str], None]


def verify_resume(folder: Path | None, *, kills: int, steps: int, seed: int, say: Say) -> bool:
    """Whether a run that was killed again and again ends with the same bits as one that was not."""
    with tempfile.TemporaryDirectory() as temporary:
        work = folder or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        command = set_up(work, steps)
        whole = train_whole(command, work / "whole")
        say(f"never stopped      {whole}")
        again = train_killed(command, work / "killed", kills, random.Random(seed), say)
        say(f"killed {kills} times     {again}")
        say("The same to the last bit." if whole == again else "They differ.")
        return whole == again


def set_up(work: Path, steps: int) -> list[str]:
    """Data, settings with everything random switched on, and the command that trains with them."""
    write_pairs(work / "digits.tsv", digit_strings(3000))
    changes = [
        f"train.steps={steps}",
        "train.save_every=20",
        "train.validate_every=30",
        "train.average=3",
        "train.ema=0.0",
        "train.batch_tokens=512",
        "train.accumulate=2",
        "model.dropout=0.1",
        "tokenizer.dropout=0.1",
        "train.label_smoothing=0.1",
    ]
    settings = with_changes(demo_settings(), changes)
    (work / "settings.toml").write_text(settings_to_toml(settings), encoding="utf-8")
    prepare(settings, work / "store", root=work, processes=1)
    store = ["--store", str(work / "store"), "--bleu-on", "0", "--device", "cpu"]
    return [sys.executable, "-m", "onehop", "train", str(work / "settings.toml"), *store, "-o"]


def train_whole(command: list[str], run: Path) -> str:
    """Train in one go; the hash of the result."""
    done = subprocess.run([*command, str(run)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"The training failed: {done.stderr.strip().splitlines()[-1]}.", "Run it by itself to see why.")
    return result_hash(run)


def train_killed(command: list[str], run: Path, kills: int, draw: random.Random, say: Say) -> str:
    """Train, killed at random moments between two checkpoints or in the middle of one; the hash of the result."""
    for _ in range(kills):
        process = subprocess.Popen([*command, str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_progress(process, run)
        time.sleep(draw.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        say(f"killed after the checkpoint of step {Run(run).steps()[-1]}")
    return train_whole(command, run)


def wait_for_progress(process: "subprocess.Popen[bytes]", run: Path) -> None:
    """Until the run has a checkpoint that it did not have before, or is over."""
    before = Run(run).steps()
    while process.poll() is None and Run(run).steps() == before:
        time.sleep(0.01)


def result_hash(run: Path) -> str:
    """A hash over the model file's weights and the last checkpoint with its optimiser."""
    last = Run(run).latest()
    if last is None:
        raise RunError(f"{run} has no checkpoint.", "Train longer.")
    digest = hashlib.sha256()
    averaged, _ = Run(run).averaged(3)
    for arrays in (last.weights, last.optimizer, averaged):
        for name in sorted(arrays):
            digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()
