"""Matrix products of float32 numbers on tensor cores, as three products of float16 halves.

A float32 number is the sum of a high and a low float16, to 22 of its 24 bits. Then x · w is nearly low · high + high ·
low + high · high: one float16 product of three times the depth, with float32 sums. It takes a fraction of the time of
a float32 product, which uses no tensor cores.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float, Float16
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

FEWEST_ROWS = 128  # measured from here on; with few rows a product only reads its weights, and halves have more bytes


class SplitProducts(TorchFunctionMode):
    """Within this context each `F.linear` is computed in halves. A number beyond float16's range gives NaN."""

    def __init__(self, split: Callable[[Tensor, Tensor, bool], None], relu: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.split, self.relu = split, relu
        self.prepared = WeakTensorKeyDictionary()  # weights to their halves, which captured steps read
        self.last: tuple[Tensor, Tensor] | None = None  # projections of the same rows split them once

    def prepare(self, weights: Iterable[Tensor]) -> None:
        """Split weights in advance. Their halves keep their addresses."""
        for weight in weights:
            if weight not in self.prepared:
                self.prepared[weight] = _room_for(weight)
            self.split(weight, self.prepared[weight], True)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.relu:
            x = args[0].contiguous()
            return self.run(self.relu, x.numel() // x.shape[-1], x.shape[-1], x)
        return (self.linear if func is F.linear else func)(*args, **(kwargs or {}))

    def run(self, operation: Callable[..., Tensor], rows: int, width: int, *arguments: Any) -> Tensor:
        """An operation that writes the halves of its result, too. The next product reads them."""
        halves = torch.empty(rows, 3 * width, dtype=torch.float16, device=arguments[0].device)
        out = operation(*arguments, halves)
        self.last = (out, halves)
        return out

    def __exit__(self, *error: Any) -> None:
        self.last = None
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def linear(
        self, x: Float[Tensor, "*rows width"], weight: Float[Tensor, "out width"], bias: Tensor | None = None
    ) -> Float[Tensor, "*rows out"]:
        if self.last is None or self.last[0] is not x:
            self.last = (x, self._halves(x.reshape(-1, x.shape[-1]), False))
        halves = self.prepared[weight] if weight in self.prepared else self._halves(weight, True)
        out = _product(self.last[1], halves).view(*x.shape[:-1], len(weight))
        return out if bias is None else out.add_(bias)

    def _halves(self, x: Float[Tensor, "rows width"], is_weight: bool) -> Float16[Tensor, "rows depth"]:
        halves = _room_for(x)
        self.split(x.contiguous(), halves, is_weight)
        return halves


def _room_for(x: Float[Tensor, "rows width"]) -> Float16[Tensor, "rows depth"]:
    return torch.empty(len(x), 3 * x.shape[1], dtype=torch.float16, device=x.device)


def _product(x: Float16[Tensor, "rows depth"], weight: Float16[Tensor, "out depth"]) -> Float[Tensor, "rows out"]:
    if x.is_cuda:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return x.float() @ weight.float().t()  # products of two float16 are exact in float32
