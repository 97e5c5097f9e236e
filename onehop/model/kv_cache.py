"""The KV cache of decoding."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onehop.model.packing import Packed

Ids = Int[Tensor, "batch length"]
WhoAcross = Bool[Tensor, "#batch #heads #length source"] | Packed | None


@dataclass
class LayerCache:
    """The cached keys and values of one decoder layer."""

    keys: Float[Tensor, "batch heads capacity d_k"]
    values: Float[Tensor, "batch heads capacity d_v"]
    cross_keys: Float[Tensor, "batch heads source d_k"]
    cross_values: Float[Tensor, "batch heads source d_v"]

    def append(
        self, k: Float[Tensor, "batch heads new d_k"], v: Float[Tensor, "batch heads new d_v"], length: int
    ) -> tuple[Float[Tensor, "batch heads past d_k"], Float[Tensor, "batch heads past d_v"]]:
        """Append new positions after the first `length`, and return all of them so far."""
        end = length + k.shape[2]
        assert end <= self.keys.shape[2], "the cache is full"  # torch would silently drop a single position
        self.keys[:, :, length:end] = k
        self.values[:, :, length:end] = v
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows: Int[Tensor, " rows"], length: int, *, same_sources: bool) -> "LayerCache":
        """The cache of these rows of the batch, in this order. Only filled positions are copied."""
        keys, values = (_selected(t, rows, length) for t in (self.keys, self.values))
        if same_sources:
            return LayerCache(keys, values, self.cross_keys, self.cross_values)
        return LayerCache(keys, values, self.cross_keys.index_select(0, rows), self.cross_values.index_select(0, rows))


def _selected(
    filled: Float[Tensor, "batch heads capacity d"], rows: Int[Tensor, " rows"], length: int
) -> Float[Tensor, "rows heads capacity d"]:
    """These rows with the same capacity; the first `length` positions are filled."""
    out = filled.new_empty(len(rows), *filled.shape[1:])
    out[:, :, :length] = filled[rows, :, :length]
    return out


@dataclass
class Cache:
    """The KV cache of all decoder layers; the source's keys and values are projected once."""

    layers: list[LayerCache]
    who_across: WhoAcross
    length: int = 0

    def positions_of(self, ids: Ids) -> Ids:
        """Positions of new tokens after the cached ones."""
        return torch.arange(self.length, self.length + ids.shape[1], device=ids.device).expand_as(ids)

    def select(self, rows: Int[Tensor, " rows"], *, same_sources: bool = False) -> "Cache":
        """The cache of these hypotheses, in this order.

        `same_sources`: each row keeps its source, as when a beam only reorders the hypotheses of a sentence. The
        source's keys and values are then not copied.
        """
        who = self.who_across
        if isinstance(who, Tensor) and not same_sources:
            who = who.index_select(0, rows)
        layers = [layer.select(rows, self.length, same_sources=same_sources) for layer in self.layers]
        return Cache(layers, who, self.length)
