"""The proof of exact resume: train, kill -9 at random, resume, compare the bits; also with workers of a cluster."""

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from onehop.cluster.connection import joined
from onehop.cluster.train import kill_worker, train_on_cluster
from onehop.config import load_settings, settings_to_toml, with_changes
from onehop.data.prepare import prepare
from onehop.errors import RunError
from onehop.experiments.reverse import digit_strings, in_words, reverse_settings, write_pairs
from onehop.model.device import pick_device
from onehop.storage.model_io import read_model
from onehop.storage.run_folder import Run, read_metrics

_Say = Callable[[str], None]


# A GPU records only a step of one batch as a CUDA graph, so single and accumulated batches are verified separately.
_ACCUMULATED = ["model.norm=post", "train.accumulate=2"]
_SINGLE_BATCH = ["model.norm=pre", "train.accumulate=1"]


def verify_resume(folder: Path | None, *, kills: int, steps: int, seed: int, say: _Say, device: str = "cpu") -> bool:
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
    folder: Path | None, changes: list[str], *, kills: int, steps: int, seed: int, say: _Say, device: str
) -> bool:
    with _emptied(folder) as work:
        command = set_up(work, steps, device, changes)
        whole = train_whole(command, work / "whole")
        say(f"never stopped      {whole}")
        draw = random.Random(seed)
        resumed = train_killed(command, work / "killed", kill_steps(kills, steps, draw), draw, say)
        return _is_same(whole, resumed, kills, say)


@contextmanager
def _emptied(folder: Path | None) -> Iterator[Path]:
    """A folder for the runs, without results of an earlier call, which would prove nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        work = (folder or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        for leftover in ("whole", "killed", "workers"):
            shutil.rmtree(work / leftover, ignore_errors=True)
        yield work


def _is_same(whole: str, resumed: str, kills: int, say: _Say) -> bool:
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


def train_killed(command: list[str], run: Path, at_steps: list[int], draw: random.Random, say: _Say) -> str:
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


# --- on a cluster -------------------------------------------------------------------------------------------------


def verify_cluster_resume(
    folder: Path | None, *, address: str, workers: int, kills: int, steps: int, seed: int, say: _Say
) -> bool:
    """Whether a training with killed workers, which Ray resumes, ends with the same bits as an undisturbed one.

    If the cluster has other machines, the folder must be on a disk that every node sees.
    """
    with _emptied(folder) as work:
        (work / "workers").mkdir()
        set_up(work, steps, "cpu")
        settings, draw = load_settings(str(work / "settings.toml")), random.Random(seed)
        train = partial(
            train_on_cluster, settings, address=address, workers=workers, store=work / "store", device="cpu"
        )
        with joined(address):
            train(work / "whole", bleu_on=0)
            whole = result_hash(work / "whole")
            say(f"never stopped      {whole}")
            with _killing(work, kill_steps(kills, steps, draw), workers, draw, say):
                train(work / "killed", pids=work / "workers")
        return _is_same(whole, result_hash(work / "killed"), kills, say)


@contextmanager
def _killing(work: Path, at_steps: list[int], workers: int, draw: random.Random, say: _Say) -> Iterator[None]:
    """Kill a random worker after each of these steps, from a thread that ends with the block."""
    over, killed = threading.Event(), list[int]()

    def kill() -> None:
        for step in at_steps:
            while last_step(work / "killed") < step and not over.wait(0.002):
                pass
            if over.is_set():
                return
            time.sleep(draw.uniform(0.0, 0.05))
            rank = draw.randrange(workers)
            kill_worker(work / "workers", rank)
            killed.append(step)
            checkpoint = max(Run(work / "killed").steps(), default=0)
            say(f"killed worker {rank} after step {last_step(work / 'killed')}, with a checkpoint of step {checkpoint}")

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if len(killed) < len(at_steps):  # otherwise equal bits would prove nothing
        raise RunError(f"Only {len(killed)} of {len(at_steps)} kills happened.", "Give more --steps.")
