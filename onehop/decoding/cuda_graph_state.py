"""The model in a search that stays on the device: batch shapes, and the decoder over caches with fixed addresses."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.decoding import one_token
from onehop.decoding.options import Ids, SearchOptions
from onehop.decoding.split_products import FEWEST_ROWS, SplitProducts
from onehop.model import kernels
from onehop.model.transformer import AddNorm, Layer, Tokens, Transformer
from onehop.text.tokenizer import EOS, PAD


@runtime_checkable
class Operations(Protocol):
    """The functions of `one_token`, plain or as kernels."""

    attend_past: Callable[..., Tensor]
    attend_source: Callable[..., Tensor]
    add_norm: Callable[..., Tensor]
    relu: Callable[[Tensor, Tensor], Tensor]
    best_of_rows: Callable[[Tensor, int, int, Tensor, Tensor], tuple[Tensor, Tensor]]
    keep_best: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, int], None]
    split: Callable[[Tensor, Tensor, bool], None]


def operations(device: torch.device) -> Operations:
    """Kernels on a GPU, else the plain functions."""
    if device.type == "cuda" and kernels.available():
        from onehop.model.kernels import one_token as fast

        return cast("Operations", fast)
    return cast("Operations", one_token)


@dataclass(frozen=True)
class Shape:
    """The shape of a graph. A batch is rounded up to the next shape, so that few are needed."""

    sentences: int
    source: int
    capacity: int
    beam: int
    greedy: bool

    @classmethod
    def of(
        cls, sources: Sequence[Ids], max_lengths: Sequence[int], options: SearchOptions, model: ModelSettings
    ) -> "Shape":
        """The shape that holds a batch, within a learned position table."""
        limit = model.most_positions
        longest = max(map(len, sources))
        source = int(min(limit, source_width(longest)))
        # It has room for every batch of one source width, so that a sorted text needs few shapes.
        capacity = max(max_lengths) + source - 1 - longest
        return cls(
            sentences=round_up(len(sources)),
            source=source,
            capacity=int(min(limit, -(-capacity // 32) * 32)),
            beam=options.beam,
            greedy=options.is_greedy,
        )

    @property
    def rows(self) -> int:
        return self.sentences * self.beam

    def elements(self, model: Transformer) -> int:
        """The number of elements of the keys and values: nearly all of the memory."""
        s = model.settings
        cells = self.rows * self.capacity + self.sentences * self.source
        return cells * s.n_decoder_layers * s.n_heads * (s.key_width + s.value_width)

    def bytes(self, model: Transformer) -> int:
        return self.elements(model) * model.embedding.weight.itemsize


def round_up(number: int) -> int:
    """The next power of two, or 1.5 times one."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def round_down(number: int) -> int:
    """The largest size that `round_up` leaves as it is and that is no more than a number of at least 1."""
    power = 1 << (number.bit_length() - 1)
    return power * 3 // 2 if power >= 2 and number >= power * 3 // 2 else power


def source_width(longest: int) -> int:
    """The columns of a batch whose longest source has this many ids."""
    return max(16, round_up(longest + 1))


@dataclass
class LayerSlots:
    """One layer's keys and values, and its three projections side by side."""

    layer: Layer
    keys: Float[Tensor, "capacity rows heads d_k"]
    values: Float[Tensor, "capacity rows heads d_v"]
    source_keys: Float[Tensor, "sentences source heads d_k"]
    source_values: Float[Tensor, "sentences source heads d_v"]
    w_qkv: Float[Tensor, "out d_model"]
    b_qkv: Float[Tensor, " out"] | None

    @classmethod
    def of(cls, layer: Layer, model: Transformer, shape: Shape, memory: Float[Tensor, " elements"]) -> "LayerSlots":
        """The slots of a layer, as views of a memory block of exactly their size."""
        s, weight = model.settings, model.embedding.weight
        past, source = (shape.capacity, shape.rows, s.n_heads), (shape.sentences, shape.source, s.n_heads)
        sizes = [(*past, s.key_width), (*past, s.value_width), (*source, s.key_width), (*source, s.value_width)]
        parts = torch.split(memory, [math.prod(size) for size in sizes])
        keys, values, source_keys, source_values = (part.view(size) for part, size in zip(parts, sizes, strict=True))
        out = s.n_heads * (2 * s.key_width + s.value_width)
        w_qkv, b_qkv = weight.new_empty(out, s.d_model), weight.new_empty(out) if s.attention_bias else None
        return cls(layer, keys, values, source_keys, source_values, w_qkv, b_qkv)

    def begin(self, memory: Float[Tensor, "sentences source d_model"]) -> None:
        """Project the source, and read the weights: in training they change between two calls."""
        attention, cross = self.layer.self_attention, self.layer.cross_attention
        assert cross is not None
        projections = (attention.w_q, attention.w_k, attention.w_v)
        torch.cat([p.weight for p in projections], out=self.w_qkv)
        if self.b_qkv is not None:
            torch.cat([p.bias for p in projections], out=self.b_qkv)
        k, v = cross.keys_and_values(memory)
        self.source_keys.copy_(k.transpose(1, 2))
        self.source_values.copy_(v.transpose(1, 2))

    def step_weights(self) -> list[Tensor]:
        layer, cross = self.layer, self.layer.cross_attention
        assert cross is not None
        feed = layer.feed_forward
        linears = (layer.self_attention.w_o, cross.w_q, cross.w_o, feed.w_1, feed.w_2)
        return [self.w_qkv, *(linear.weight for linear in linears)]


class Decoder:
    """The model over fixed addresses: `begin` for a batch of sources, then `logits` for each token."""

    def __init__(
        self,
        model: Transformer,
        shape: Shape,
        operations: Operations,
        memory: Float[Tensor, " elements"],
        products: SplitProducts | None,
    ) -> None:
        """`memory` holds keys and values. It must be finite, zeros or values of other batches: 0 × NaN is NaN."""
        model.ensure_length(shape.source, shape.capacity)
        self.model, self.operations = model, operations
        self.products = products if shape.rows >= FEWEST_ROWS else None
        device = model.embedding.weight.device
        self.src = torch.full((shape.sentences, shape.source), EOS, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(shape.sentences, dtype=torch.int64, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        layers = [cast("Layer", layer) for layer in model.decoder.layers]
        parts = memory[: shape.elements(model)].chunk(len(layers))
        self.layers = [LayerSlots.of(layer, model, shape, part) for layer, part in zip(layers, parts, strict=True)]
        # The model may replace them by longer tables; a graph keeps the captured ones.
        self.tables = (model.source_input.positions, model.target_input.positions)

    def begin(self) -> None:
        src = Tokens.padded(self.src, PAD)
        assert src.token_mask is not None
        with self.products or nullcontext():
            memory = self.model.encode(src)
            self.lengths.copy_(src.token_mask.sum(1))
            self.position.zero_()
            for layer in self.layers:
                layer.begin(memory)
        if self.products is not None:
            weights = chain.from_iterable(layer.step_weights() for layer in self.layers)
            self.products.prepare([*weights, self.model.output_weight])

    def logits(
        self, tokens: Int[Tensor, " rows"], origins: Int[Tensor, "rows capacity"]
    ) -> Float[Tensor, "rows vocab"]:
        """Logits after one more token per row."""
        model = self.model
        with self.products or nullcontext():
            x = model.target_input(model.embed_target(tokens[:, None]), self.position.expand(len(tokens), 1))[:, 0]
            for layer in self.layers:
                x = self._layer_step(layer, x, origins)
            if model.decoder.last_norm is not None:
                x = model.decoder.last_norm(x)
            out = _logits_in_float32(x, model.output_weight)
            return out if model.output_bias is None else out + model.output_bias

    def _layer_step(self, slots: LayerSlots, x: Tensor, origins: Tensor) -> Tensor:
        """One layer, as `Layer.step` has it."""
        layer, op, cross = slots.layer, self.operations, slots.layer.cross_attention
        assert cross is not None
        assert layer.cross_add_norm is not None
        width = cross.w_o.in_features

        def attend_to_past(y: Tensor) -> Tensor:
            qkv = F.linear(y, slots.w_qkv, slots.b_qkv)
            past = (slots.keys, slots.values, origins, self.position)
            out: Tensor = layer.self_attention.w_o(self.run(op.attend_past, width, qkv, *past))
            return out

        def attend_to_source(y: Tensor) -> Tensor:
            source = (slots.source_keys, slots.source_values, self.lengths)
            out: Tensor = cross.w_o(self.run(op.attend_source, width, cross.w_q(y), *source))
            return out

        def feed_forward(y: Tensor) -> Tensor:
            out: Tensor = layer.feed_forward(y[None])[0]
            return out

        x = self.add_norm(layer.self_add_norm, x, attend_to_past)
        x = self.add_norm(layer.cross_add_norm, x, attend_to_source)
        return self.add_norm(layer.feed_add_norm, x, feed_forward)

    def add_norm(self, wrap: AddNorm, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        norm: nn.LayerNorm = wrap.norm
        if wrap.pre:
            return x + sublayer(norm(x))
        return self.run(self.operations.add_norm, x.shape[1], x, sublayer(x), norm.weight, norm.bias, norm.eps)

    def run(self, operation: Callable[..., Tensor], width: int, x: Tensor, *rest: Any) -> Tensor:
        """An operation, whose result has this width. A split product reads the result next."""
        if self.products is None:
            return operation(x, *rest)
        return self.products.run(operation, len(x), width, x, *rest)


def _logits_in_float32(x: Float[Tensor, "rows d_model"], weight: Float[Tensor, "vocab d_model"]) -> Tensor:
    """The product in float32: rounded to bfloat16, many of the best logits would be equal."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x, weight).float()
