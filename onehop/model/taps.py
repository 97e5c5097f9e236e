"""Taps: every named quantity of the forward pass goes through one, where it is defined.

Off, a tap returns its value and compiles away. On, it is a function (name, value) → value: a recorder keeps the value,
an edit returns another one. There is no second model for inspection: `watch` returns the same model, on the same
parameters, with a tap in it. The original is unchanged.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from torch import Tensor, nn

Tap = Callable[[str, Tensor], Tensor]

# The axes of each quantity, by the last part of its name. Layers put their path in front:
# `decoder.layers.2.cross_attention.weights`.
AXES: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("batch", "token", "d_model"),
    "scaled": ("batch", "token", "d_model"),
    "positioned": ("batch", "token", "d_model"),
    "q": ("batch", "head", "query", "d_k"),
    "k": ("batch", "head", "key", "d_k"),
    "v": ("batch", "head", "key", "d_v"),
    "scores": ("batch", "head", "query", "key"),
    "scaled_scores": ("batch", "head", "query", "key"),
    "masked_scores": ("batch", "head", "query", "key"),
    "weights": ("batch", "head", "query", "key"),
    "head_outputs": ("batch", "head", "query", "d_v"),
    "concatenation": ("batch", "query", "h_d_v"),
    "projection": ("batch", "query", "d_model"),
    "skip": ("batch", "token", "d_model"),
    "residual": ("batch", "token", "d_model"),
    "norm": ("batch", "token", "d_model"),
    "hidden": ("batch", "token", "d_ff"),
    "output": ("batch", "token", "d_model"),
    "logits": ("batch", "token", "vocabulary"),
}


class Tapped(nn.Module):
    """A module with named quantities."""

    _tap: Tap | None = None
    _path = ""

    @property
    def watched(self) -> bool:
        """Whether a tap is on. Attention then runs unfused, so that its scores and weights exist."""
        return self._tap is not None

    def tap(self, name: str, value: Tensor) -> Tensor:
        """Pass a value through the tap, named with the module's path; without a tap, the value itself."""
        if self._tap is None:
            return value
        return self._tap(f"{self._path}.{name}" if self._path else name, value)


Model = TypeVar("Model", bound=nn.Module)


def watch(model: Model, tap: Tap) -> Model:
    """The same model with a tap in it: a copy of the modules around the same parameters and buffers."""
    shared = {id(t): t for t in chain(model.parameters(), model.buffers())}
    watched = copy.deepcopy(model, shared)
    for path, module in watched.named_modules():
        if isinstance(module, Tapped):
            module._tap, module._path = tap, path
    return watched


@dataclass(frozen=True)
class Recorded:
    axes: tuple[str, ...]
    value: Tensor


class Recorder(dict[str, Recorded]):
    """A tap that keeps every quantity of a forward pass by its full name, in the order of computation.

    recorder = Recorder()
    watch(model, recorder)(src, tgt)
    recorder["encoder.layers.0.self_attention.weights"].value
    """

    def __call__(self, name: str, value: Tensor) -> Tensor:
        self[name] = Recorded(AXES[name.rpartition(".")[2]], value.detach().clone())
        return value
