"""`onehop train --ray`: Ray Train runs the same trainer in each worker, and restarts all when one dies.

The run folder and the store are on a disk that every node sees. A restart resumes from the last checkpoint there.
"""

import json
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from onehop.atomic import write_json
from onehop.cluster.connection import ClusterError, alive_nodes, error_line, joined
from onehop.config import Settings
from onehop.console import TrainDisplay
from onehop.errors import OnehopError, RunError
from onehop.storage.run_folder import Run, read_metrics

_MAX_RESTARTS = 100
_REFUSED = ".refused.json"
_STARTS = ".ray-starts"  # one byte per start of the workers
_POLL_SECONDS = 1.0
_RELEASE_SECONDS = 300.0


def train_on_cluster(
    settings: Settings,
    out: Path,
    *,
    address: str,
    workers: int,
    store: Path | None = None,
    data: Path | None = None,
    device: str | None = None,
    threads: int | None = None,
    bleu_on: int = 500,
    tensorboard: bool = False,
    pids: Path | None = None,
) -> Path | None:
    """Train with `workers` workers in the run folder `out`, or resume; returns the model file, or None if stopped.

    If a worker or node dies, all workers restart from the last checkpoint. Each worker writes its node and process
    id into the folder `pids`, if given, for `kill_worker`.
    """
    from onehop.training import workflow

    Run(out).check_overwrites_nothing()
    if store is None:
        store = workflow.open_store(settings, out, None, data).path
    gpu, threads = (device or "").startswith("cuda"), threads or 1
    with joined(address):
        _check_capacity(workers, threads, gpu=gpu)
        arguments = {
            "settings": settings,
            "out": out.absolute(),
            "store": store.absolute(),
            "device": "cuda" if gpu else device,  # each worker sees one GPU
            "bleu_on": bleu_on,
            "tensorboard": tensorboard,
        }
        out.mkdir(parents=True, exist_ok=True)
        with _Watch(out, settings):
            _fit({"train": arguments, "pids": pids and pids.absolute()}, workers, threads, gpu=gpu)
    model = out / "model.safetensors"
    return model if model.exists() else None


def _check_capacity(workers: int, threads: int, *, gpu: bool) -> None:
    """Refuse more workers than the cluster can run: Ray would wait for nodes."""
    name, per_worker = ("GPU", 1) if gpu else ("CPU", threads)
    room = sum(int(node.get(name, 0) // per_worker) for node in alive_nodes())
    if room < workers:
        remedy = f"Give --workers {room}, or add nodes." if room else "Add nodes."
        raise ClusterError(f"The cluster has room for {room} of {workers} workers.", remedy)


def _fit(config: dict[str, Any], workers: int, threads: int, *, gpu: bool) -> None:
    """Run the workers to the end, and raise a user's error that a worker has met."""
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")  # Ray Train reads it on import
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    out, name = config["train"]["out"], f".ray-{secrets.token_hex(4)}"
    (out / _REFUSED).unlink(missing_ok=True)
    resources: dict[str, float] = {"CPU": 1, "GPU": 1} if gpu else {"CPU": threads}
    trainer = TorchTrainer(
        _worker,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu, resources_per_worker=resources),
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        run_config=RunConfig(
            name=name, storage_path=str(out), failure_config=FailureConfig(max_failures=_MAX_RESTARTS)
        ),
    )
    try:
        trainer.fit()
    except Exception as e:  # Ray wraps errors of workers in classes of several modules
        what = f"The training on the cluster failed: {error_line(e, -1)}"
        raise ClusterError(what, f"The same command resumes from the last checkpoint in {out}.") from e
    finally:
        shutil.rmtree(out / name, ignore_errors=True)
    if (out / _REFUSED).exists():
        what, remedy = json.loads((out / _REFUSED).read_bytes())
        (out / _REFUSED).unlink()
        raise RunError(what, remedy)


class _Watch:
    """Shows the metrics that the first worker writes, and reports restarts."""

    def __init__(self, out: Path, settings: Settings) -> None:
        self.run, self.starts, self.started = Run(out), out / _STARTS, 0
        self.file, self.steps, self.every = out / "metrics.jsonl", settings.train.steps, settings.train.report_every
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self.starts.unlink(missing_ok=True)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.starts.unlink(missing_ok=True)

    def _watch(self) -> None:
        displayed = len(read_metrics(self.file)) if self.file.exists() else 0
        with TrainDisplay(every=self.every) as display:
            display.last = self.steps
            while True:
                stopped = self.stop.wait(_POLL_SECONDS)
                self._report_restart(display)
                reports = read_metrics(self.file) if self.file.exists() else []
                displayed = min(displayed, len(reports))  # a restart drops the reports after its checkpoint
                for report in reports[displayed:]:
                    (display.validated if "valid_nll" in report else display.stepped)(report)
                displayed = len(reports)
                if stopped:
                    return

    def _report_restart(self, display: TrainDisplay) -> None:
        started = self.starts.stat().st_size if self.starts.exists() else 0
        if started > self.started > 0:
            step = max(self.run.steps(), default=0)
            display.said(f"A worker died. All workers resume from the checkpoint of step {step}.")
        self.started = started


def _worker(config: Mapping[str, Any]) -> None:
    """The main function of a worker, the same as of a torchrun process.

    An error that a restart cannot fix is written to a file, and the workers of the next start exit at once.
    """
    import ray.train

    from onehop.training import workflow
    from onehop.training.distributed import LostPeerError

    rank, out = ray.train.get_context().get_world_rank(), config["train"]["out"]
    if config["pids"]:
        node = ray.get_runtime_context().get_node_id()
        write_json(config["pids"] / f"{rank}.json", [node, os.getpid()])
    refused = out / _REFUSED
    if refused.exists():
        return
    if rank == 0:
        _note_start(out)
    try:
        workflow.train(**config["train"])
    except LostPeerError:
        raise  # Ray restarts all workers
    except OnehopError as e:
        write_json(refused, [e.what, e.remedy])
        raise


def _note_start(out: Path) -> None:
    """Count a start of the workers; a restart waits until the previous process has released the run folder."""
    with (out / _STARTS).open("ab") as starts:
        restarted = starts.tell() > 0
        starts.write(b".")
    if restarted:  # on a disconnected node that process may live on for a while
        with suppress(Timeout), FileLock(out / ".lock", timeout=_RELEASE_SECONDS):
            pass


def kill_worker(pids: Path, rank: int) -> None:
    """Kill a worker with SIGKILL, on whichever node it runs."""
    import ray

    node, pid = json.loads((pids / f"{rank}.json").read_bytes())
    on_that_node: Any = {"num_cpus": 0, "label_selector": {"ray.io/node-id": node}}
    ray.get(ray.remote(**on_that_node)(lambda: os.kill(pid, signal.SIGKILL)).remote())
