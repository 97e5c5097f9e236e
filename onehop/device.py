"""Where the arithmetic happens: the device asked for, if this machine has it."""

import os

import torch

from onehop.errors import SettingsError


def pick_device(name: str | None) -> torch.device:
    """The device asked for, else this process's GPU, else the CPU."""
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
