"""The choice of device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from onehop.errors import SettingsError


def pick_device(name: str | None) -> torch.device:
    """The requested device, else this process's GPU, else the CPU."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown(name) from None
    if device.type not in ("cpu", "cuda"):
        raise unknown(name)
    gpus = torch.cuda.device_count()
    if device.type == "cuda" and device.index >= gpus:
        have = f"sees {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "sees no GPU"
        raise SettingsError(f"There is no device {name}: torch {have} here.", "Choose another, or cpu.")
    return device


def unknown(name: str) -> SettingsError:
    """The error for a device of an unknown kind."""
    return SettingsError(f"There is no device {name!r}.", "Choose cpu, cuda or cuda:N.")


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def is_out_of_memory(e: RuntimeError) -> bool:
    """Whether an error means out of memory, on a GPU or on the CPU, for which torch has no class."""
    return isinstance(e, torch.OutOfMemoryError) or "can't allocate memory" in str(e)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Use only deterministic algorithms within the block."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
