"""Triton kernels for the GPU. Each is specified by a plain function of the model, which runs anywhere."""

import importlib.util
from functools import cache
from typing import TypeVar

import torch
from torch import nn

__all__ = ["FLASH_MAX_WIDTH", "applicable", "available", "fuse", "matmul_dtype", "to_matmul_dtype"]

Model = TypeVar("Model", bound=nn.Module)
FLASH_MAX_WIDTH = 256  # the widest head that the flash kernel takes


@cache
def available() -> bool:
    """Whether this machine can run them: Triton and an NVIDIA GPU. Other GPUs were never tried."""
    return importlib.util.find_spec("triton") is not None and torch.cuda.is_available() and torch.version.hip is None


def matmul_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype of matrix products with this tensor."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def applicable(x: torch.Tensor) -> bool:
    """Whether kernels may be used: on a GPU, with products in bfloat16 or float16."""
    return x.is_cuda and matmul_dtype(x) in (torch.float16, torch.bfloat16)


def to_matmul_dtype(x: torch.Tensor) -> torch.Tensor:
    """The tensor cast to the dtype of the matrix products, which halves the memory traffic."""
    return x.to(matmul_dtype(x)) if applicable(x) else x


def fuse(model: Model) -> Model:
    """Replace a model's modules by fused ones wherever kernels apply, in place; without a GPU nothing changes."""
    if torch.cuda.is_available():
        from onehop.model.kernels.fused import swap_modules

        swap_modules(model)
    return model
