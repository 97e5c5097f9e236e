"""The KV cache of decoding, in three layouts.

`LayerCache`: all rows have the same length, and reordering the hypotheses of a beam copies keys and values.
`RaggedLayerCache`: each row has its own length, so that sentences can join and leave between two steps.
`decoding.cuda_graph_state.LayerSlots`: fixed addresses, as a CUDA graph needs, and reordering copies nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onehop.model.packing import PackedMask

Ids = Int[Tensor, "batch length"]
MemoryMask = Bool[Tensor, "#batch #heads #length source"] | PackedMask | None


@dataclass
class LayerCache:
    keys: Float[Tensor, "batch heads capacity d_k"]
    values: Float[Tensor, "batch heads capacity d_v"]
    cross_keys: Float[Tensor, "batch heads source d_k"]
    cross_values: Float[Tensor, "batch heads source d_v"]

    @classmethod
    def allocate(
        cls,
        cross_keys: Float[Tensor, "batch heads source d_k"],
        cross_values: Float[Tensor, "batch heads source d_v"],
        capacity: int,
    ) -> "LayerCache":
        """An empty cache for `capacity` target positions, given the projected source."""
        keys, values = (x.new_empty(*x.shape[:2], capacity, x.shape[3]) for x in (cross_keys, cross_values))
        return cls(keys, values, cross_keys, cross_values)

    def append(
        self, k: Float[Tensor, "batch heads new d_k"], v: Float[Tensor, "batch heads new d_v"], length: int
    ) -> tuple[Float[Tensor, "batch heads past d_k"], Float[Tensor, "batch heads past d_v"]]:
        """Append new positions after the first `length`, and return all of them so far."""
        end = length + k.shape[2]
        assert end <= self.keys.shape[2], "the cache is full"  # torch would silently drop a single position
        self.keys[:, :, length:end] = k
        self.values[:, :, length:end] = v
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(
        self, rows: Int[Tensor, " rows"], length: int, capacity: int, *, same_sources: bool, source: int | None = None
    ) -> "LayerCache":
        """The cache of these rows of the batch, in this order. Only the first `length` positions are copied.

        `same_sources`: the rows keep their sources, which are then not copied. Otherwise `source` cuts their length.
        """

        def copy(filled: Float[Tensor, "batch heads positions d"]) -> Float[Tensor, "rows heads capacity d"]:
            out = filled.new_empty(len(rows), filled.shape[1], capacity, filled.shape[3])
            out[:, :, :length] = filled[rows, :, :length]
            return out

        cross_keys, cross_values = self.cross_keys, self.cross_values
        if not same_sources:
            cross_keys, cross_values = (x[:, :, :source].index_select(0, rows) for x in (cross_keys, cross_values))
        return LayerCache(copy(self.keys), copy(self.values), cross_keys, cross_values)


@dataclass
class RaggedLayerCache(LayerCache):
    """A layer's cache in which each row has its own length."""

    positions: Int[Tensor, " batch"]

    def append(
        self, k: Float[Tensor, "batch heads 1 d_k"], v: Float[Tensor, "batch heads 1 d_v"], length: int
    ) -> tuple[Float[Tensor, "batch heads past d_k"], Float[Tensor, "batch heads past d_v"]]:
        """Write one position per row; `length` is the largest. Returns all columns up to it."""
        rows = torch.arange(len(k), device=k.device)
        for past, new in ((self.keys, k), (self.values, v)):
            past[:, :, length] = 0  # masked for shorter rows, but 0 × NaN is NaN: the column must be finite
            past[rows, :, self.positions] = new[:, :, 0]
        return self.keys[:, :, : length + 1], self.values[:, :, : length + 1]


@dataclass
class Cache:
    """The KV cache of all decoder layers; the source's keys and values are projected once."""

    layers: list[LayerCache]
    memory_mask: MemoryMask
    length: int = 0

    def positions_of(self, ids: Ids) -> Ids:
        """Positions of new tokens after the cached ones."""
        return torch.arange(self.length, self.length + ids.shape[1], device=ids.device).expand_as(ids)

    def select(self, rows: Int[Tensor, " rows"], *, same_sources: bool = False) -> "Cache":
        """The cache of these hypotheses, in this order.

        `same_sources`: each row keeps its source, as when a beam only reorders the hypotheses of a sentence. The
        source's keys and values are then not copied.
        """
        mask = self.memory_mask
        if isinstance(mask, Tensor) and not same_sources:
            mask = mask.index_select(0, rows)
        layers = [c.select(rows, self.length, c.keys.shape[2], same_sources=same_sources) for c in self.layers]
        return Cache(layers, mask, self.length)
