"""The choice of CPU or GPU, and what torch reports about it."""

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
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingsError(f"There is no device {name!r}.", "Choose cpu, cuda or cuda:N.")
    gpus = torch.cuda.device_count()
    if device.type == "cuda" and device.index >= gpus:
        visible = f"{gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "no GPU"
        raise SettingsError(f"There is no device {name}: torch sees {visible} here.", "Choose another, or cpu.")
    return device


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def fast_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 products: AVX-512's or AMX's. Others were never measured."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def is_out_of_memory(e: RuntimeError) -> bool:
    """Whether an error means out of memory, on a GPU or on the CPU, for which torch has no class."""
    return isinstance(e, torch.OutOfMemoryError) or "can't allocate memory" in str(e)


@contextmanager
def deterministic(enabled: bool) -> Iterator[None]:
    """Set `torch.use_deterministic_algorithms` within the block."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(enabled)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
