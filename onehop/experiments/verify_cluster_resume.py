"""The proof of exact resume on a cluster: kill workers at random, let Ray resume, compare the bits."""

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from onehop.cluster.connection import joined
from onehop.cluster.train import kill_worker, train_on_cluster
from onehop.config import load_settings
from onehop.errors import RunError
from onehop.experiments.verify_resume import Say, kill_steps, last_step, result_hash, set_up
from onehop.storage.run_folder import Run


def verify_cluster_resume(
    folder: Path | None, *, address: str, workers: int, kills: int, steps: int, seed: int, say: Say
) -> bool:
    """Whether a training with killed workers ends with the same bits as an undisturbed one.

    If the cluster has other machines, the folder must be on a disk that every node sees.
    """
    with tempfile.TemporaryDirectory() as temporary:
        work = (folder or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        for leftover in ("whole", "killed", "workers"):
            shutil.rmtree(work / leftover, ignore_errors=True)
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
        resumed = result_hash(work / "killed")
        say(f"killed {kills} times     {resumed}")
        say("The same to the last bit." if whole == resumed else "They differ.")
        return whole == resumed


@contextmanager
def _killing(work: Path, at_steps: list[int], workers: int, draw: random.Random, say: Say) -> Iterator[None]:
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
