"""Distributed training: rank, device, and how weights are sharded and gathered.

Started by `torchrun`, every process works on its share of the same global batches and the gradients are averaged, so
N processes do what one does. Started alone, nothing of torch's distributed machinery is touched.
"""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from onehop.errors import RunError, SettingsError
from onehop.model.device import pick_device
from onehop.model.transformer import Layer

_PEER_SECONDS = "ONEHOP_PEER_SECONDS"


class LostPeerError(RunError):
    """Another process of the training has ended or cannot be reached."""


@dataclass(frozen=True)
class World:
    """This process among all of them."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints: rank 0."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        if self.size > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def min(self, value: int) -> int:
        """The minimum over all processes."""
        tensor = torch.tensor(value, device=self.device)
        if self.size > 1:
            distributed.all_reduce(tensor, distributed.ReduceOp.MIN)
        return int(tensor)

    def wait(self) -> None:
        """A barrier: return when every process is here."""
        if self.size > 1:
            distributed.barrier()

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def parallelize(self, objective: nn.Module, model: nn.Module, *, shard: bool) -> nn.Module:
        """Average the gradients over all processes; `shard`: each keeps a part of weights and optimizer state."""
        if self.size == 1:
            return objective
        if shard:
            _shard_layers(model)
            return objective
        with warnings.catch_warnings():
            # The option has a new name, which the oldest torch that is supported does not know.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(objective, broadcast_buffers=False)


@contextmanager
def world(device: str | None) -> Iterator[World]:
    """Join the processes that torchrun started, or be the only one."""
    own_device = pick_device(device)
    if own_device.type == "cuda":
        torch.cuda.set_device(own_device)
    if processes() == 1:
        yield World(0, 1, own_device)
        return
    joined_before = distributed.is_initialized()
    if not joined_before:
        with _lost_peer_errors():
            backend = "nccl" if own_device.type == "cuda" else "gloo"
            distributed.init_process_group(backend, timeout=_peer_timeout())
    try:
        with _lost_peer_errors():
            yield World(distributed.get_rank(), processes(), own_device)
    finally:
        if not joined_before:
            # Gloo's thread frees its last work under a lock and needs the GIL for that; a group destroyed
            # in that moment holds the GIL and needs Gloo's lock. Sleeping releases the GIL, which avoids the deadlock.
            time.sleep(0.1)
            distributed.destroy_process_group()


def _peer_timeout() -> timedelta | None:
    """How long a process waits for the others; None for torch's own limit."""
    seconds = os.environ.get(_PEER_SECONDS)
    if seconds is None:
        return None
    try:
        return timedelta(seconds=max(1.0, float(seconds)))
    except (ValueError, OverflowError):
        raise SettingsError(f"{_PEER_SECONDS} is {seconds!r}, not a number of seconds.", "Set it to 600.") from None


@contextmanager
def _lost_peer_errors() -> Iterator[None]:
    """Turn torch's errors about a lost process into a `LostPeerError`."""
    try:
        yield
    except RuntimeError as e:
        # Gloo raises plain RuntimeErrors.
        if not isinstance(e, distributed.DistError) and "gloo" not in str(e):
            raise
        reason = str(e).strip().splitlines()[0].rpartition("] ")[2].rstrip(".")[:200]
        raise LostPeerError(
            f"Another process of this training does not answer: {reason}.",
            "Start all of them again: they go on from the last checkpoint.",
        ) from e


def processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def exit_together(device: str | None) -> Iterator[None]:
    """After the block, one of several processes exits at once when all are done, without cleanup.

    Destroying the process group and unloading torch race with their threads, so a finished run would sometimes abort.
    The operating system frees everything. Exceptions propagate as usual.
    """
    if processes() == 1:
        yield
        return
    with world(device) as own_world:
        yield
        own_world.wait()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _shard_layers(model: nn.Module) -> None:
    """FSDP2: every layer's weights are sharded over the processes and gathered when it computes."""
    from torch.distributed.fsdp import fully_shard

    for module in model.modules():
        if isinstance(module, Layer):
            fully_shard(module)
    # By default FSDP keeps the root's weights gathered after a forward pass. After a validation, the model would then
    # hold these instead of the shards that the optimizer updates.
    fully_shard(model, reshard_after_forward=True)


def without_sync(module: nn.Module) -> AbstractContextManager[object]:
    """No all-reduce in this pass: a later one sends the gradients."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def gather(tensor: Tensor) -> Tensor:
    """The full tensor, on every process if it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(full: Tensor, example: Tensor) -> Tensor:
    """A full tensor with the sharding, dtype and device of another."""
    full = full.to(example.device, example.dtype)
    if isinstance(example, DTensor):
        return distribute_tensor(full, example.device_mesh, example.placements)
    return full
