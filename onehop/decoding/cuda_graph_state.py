"""The device's half of a search that never waits: the model, its caches in their places, and what was chosen so far."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.decoding import one_token
from onehop.decoding.options import LONGEST_LOOP, LOOP_SPAN, SearchOptions
from onehop.model import kernels
from onehop.model.transformer import AddNorm, Layer, Tokens, Transformer
from onehop.text.tokenizer import BOS, EOS, PAD

Values = Float[Tensor, "rows few"]
Ids = Int[Tensor, "rows few"]


@runtime_checkable
class Operations(Protocol):
    """The functions of `one_token`, plain or as kernels."""

    attend_past: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    attend_source: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    add_norm: Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
    best_of_rows: Callable[[Tensor, int, int, Tensor, Tensor], tuple[Tensor, Tensor]]
    keep_best: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, int], None]


def operations(device: torch.device) -> Operations:
    """Kernels where there is a GPU for them."""
    if device.type == "cuda" and kernels.usable():
        from onehop.model.kernels import one_token as fast

        return cast("Operations", fast)
    return cast("Operations", one_token)


@dataclass(frozen=True)
class Shape:
    """What a graph is recorded for. A batch takes the next larger one, so that few are needed."""

    sentences: int
    source: int
    capacity: int
    beam: int
    greedy: bool
    loop_repeats: int

    @classmethod
    def of(
        cls, sources: Sequence[Sequence[int]], most: Sequence[int], options: SearchOptions, model: ModelSettings
    ) -> "Shape":
        """The shape that holds a batch, no longer than a learned table of positions."""
        limit = model.max_length if model.positions == "learned" else math.inf
        return cls(
            sentences=round_up(len(sources)),
            source=int(min(limit, max(16, round_up(max(map(len, sources)) + 1)))),
            capacity=int(min(limit, -(-max(most) // 32) * 32)),
            beam=options.beam,
            greedy=options.is_greedy,
            loop_repeats=0 if options.is_greedy else options.loop_repeats,  # one path is stopped by the host
        )

    @property
    def rows(self) -> int:
        """Hypotheses."""
        return self.sentences * self.beam

    def bytes(self, model: Transformer) -> int:
        """Memory of keys and values, which is nearly all."""
        s = model.settings
        cells = self.rows * self.capacity + self.sentences * self.source
        return cells * s.n_decoder_layers * s.n_heads * (s.key_width + s.value_width) * model.embedding.weight.itemsize


def round_up(number: int) -> int:
    """The next power of two, or one and a half times one."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


# --- what the device remembers of the search ------------------------------------------------------------------


class Chosen:
    """One path a sentence: the most probable token, always."""

    few = 1

    def __init__(self, shape: Shape, vocab: int, device: torch.device, operations: Operations) -> None:
        self.tokens = torch.zeros(shape.rows, dtype=torch.int64, device=device)
        self.origins = own_rows(shape, device)
        self.answer = torch.zeros(2, shape.sentences, dtype=torch.float64, device=device)

    def begin(self) -> None:
        """One BOS a row."""
        self.tokens.fill_(BOS)

    def extend(self, values: Values, ids: Ids, position: Int[Tensor, ""]) -> None:
        """Go on with the best token of each row."""
        self.tokens.copy_(ids[:, 0])
        self.answer.copy_(torch.stack([values[:, 0].double(), ids[:, 0].double()]))


class Kept:
    """The beams: `search.Beam.extend` as far as the next step depends on it."""

    def __init__(self, shape: Shape, vocab: int, device: torch.device, operations: Operations) -> None:
        self.shape, self.vocab, self.few = shape, vocab, min(shape.beam + 2, vocab)
        self.keep_best = operations.keep_best
        rows, beam = shape.rows, shape.beam
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.totals = torch.zeros(shape.sentences, beam, dtype=torch.float64, device=device)
        self.own = own_rows(shape, device)
        self.origins = self.own.clone()
        self.parents = torch.zeros(rows, dtype=torch.int64, device=device)
        self.times = torch.arange(shape.capacity, device=device)
        self.left, self.right = (t.to(device) for t in loop_pairs(shape.loop_repeats))
        # Before the beginning stand numbers that are no ids, each only once, so that they repeat nothing.
        self.nothing = -1 - torch.arange(self.right.shape[1], device=device)
        self.recent = self.nothing.repeat(rows, 1)
        self.answer = torch.zeros(2, shape.sentences, self.candidates, dtype=torch.float64, device=device)

    @property
    def candidates(self) -> int:
        """How many the host needs to see: each hypothesis that ends makes room for one more."""
        return min(2 * self.shape.beam, self.shape.beam * self.few)

    def begin(self) -> None:
        """The first slot of each sentence holds BOS, the others nothing."""
        self.tokens.fill_(BOS)
        self.totals.fill_(-math.inf)
        self.totals[:, 0].fill_(0.0)
        self.recent.copy_(self.nothing.expand_as(self.recent))
        self.origins.copy_(self.own)

    def extend(self, values: Values, ids: Ids, position: Int[Tensor, ""]) -> None:
        """Keep the best that go on."""
        self.keep_best(values, ids, self.totals, self.tokens, self.parents, self.answer, EOS, self.vocab)
        past = self.origins[self.parents]
        self.origins.copy_(torch.where(self.times <= position, past, self.own))
        if self.shape.loop_repeats:
            self.empty_loops()

    def empty_loops(self) -> None:
        """Take out what the guard against loops stops."""
        self.recent.copy_(torch.cat([self.recent[self.parents, 1:], self.tokens[:, None]], dim=1))
        repeats = self.recent[:, self.left] == self.recent[:, self.right]
        self.totals.masked_fill_(repeats.all(-1).any(-1).view_as(self.totals), -math.inf)


def own_rows(shape: Shape, device: torch.device) -> Int[Tensor, "rows capacity"]:
    """A table of origins in which each row has written its own past."""
    return torch.arange(shape.rows, device=device)[:, None].repeat(1, shape.capacity)


def loop_pairs(repeats: int) -> tuple[Int[Tensor, "lengths pairs"], Int[Tensor, "lengths pairs"]]:
    """Which of the most recent tokens must be equal for a loop, for each length that its n-gram can have.

    The same as `options.ends_in_loop`; lines that need fewer pairs compare a token with itself.
    """
    if not repeats:
        return torch.zeros(0, 0, dtype=torch.int64), torch.zeros(0, 0, dtype=torch.int64)
    spans = {n: n * max(repeats, math.ceil(LOOP_SPAN / n)) for n in range(1, LONGEST_LOOP + 1)}
    width = max(spans.values())
    right = torch.arange(width).repeat(len(spans), 1)
    left = right.clone()
    for line, (n, span) in zip(left, spans.items(), strict=True):
        line[width - span + n :] -= n
    return left, right


# --- the model's half -----------------------------------------------------------------------------------------


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
    def of(cls, layer: Layer, model: Transformer, shape: Shape) -> "LayerSlots":
        """Room for a layer; zeros, since a number that is none would live on under a weight of nought."""
        s, like = model.settings, model.embedding.weight
        past, source = (shape.capacity, shape.rows), (shape.sentences, shape.source)
        out = s.n_heads * (2 * s.key_width + s.value_width)
        return cls(
            layer=layer,
            keys=like.new_zeros(*past, s.n_heads, s.key_width),
            values=like.new_zeros(*past, s.n_heads, s.value_width),
            source_keys=like.new_zeros(*source, s.n_heads, s.key_width),
            source_values=like.new_zeros(*source, s.n_heads, s.value_width),
            w_qkv=like.new_empty(out, s.d_model),
            b_qkv=like.new_empty(out) if s.attention_bias else None,
        )

    def begin(self, memory: Float[Tensor, "sentences source d_model"]) -> None:
        """Project the source, and read the weights: in training they change between two calls."""
        heads, across = self.layer.self_attention, self.layer.cross_attention
        assert across is not None
        projections = (heads.w_q, heads.w_k, heads.w_v)
        torch.cat([p.weight for p in projections], out=self.w_qkv)
        if self.b_qkv is not None:
            torch.cat([p.bias for p in projections], out=self.b_qkv)
        k, v = across.keys_and_values(memory)
        self.source_keys.copy_(k.transpose(1, 2))
        self.source_values.copy_(v.transpose(1, 2))


class Decoder:
    """The model over numbers in fixed places: `begin` for a batch of sources, then `logits` token after token."""

    def __init__(self, model: Transformer, shape: Shape, operations: Operations) -> None:
        model.source_input.reach(shape.source)
        model.target_input.reach(shape.capacity)
        self.model, self.operations = model, operations
        device = model.embedding.weight.device
        self.src = torch.full((shape.sentences, shape.source), EOS, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(shape.sentences, dtype=torch.int64, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.layers = [LayerSlots.of(cast("Layer", layer), model, shape) for layer in model.decoder.layers]
        # A longer table may take their place in the model; a graph goes on with those that it was recorded with.
        self.tables = (model.source_input.positions, model.target_input.positions)

    def begin(self) -> None:
        """Read the sources."""
        src = Tokens.padded(self.src, PAD)
        assert src.inside is not None
        memory = self.model.encode(src)
        self.lengths.copy_(src.inside.sum(1))
        self.position.zero_()
        for layer in self.layers:
            layer.begin(memory)

    def logits(
        self, tokens: Int[Tensor, " rows"], origins: Int[Tensor, "rows capacity"]
    ) -> Float[Tensor, "rows vocab"]:
        """Logits after one more token a row."""
        model = self.model
        x = model.target_input(model.embed_target(tokens[:, None]), self.position.expand(len(tokens), 1))[:, 0]
        for layer in self.layers:
            x = self.through(layer, x, origins)
        if model.decoder.last_norm is not None:
            x = model.decoder.last_norm(x)
        out = logits_in_float32(x, model.output_weight)
        return out if model.output_bias is None else out + model.output_bias

    def through(self, slots: LayerSlots, x: Tensor, origins: Tensor) -> Tensor:
        """One layer, as `Layer.step` has it."""
        layer, op = slots.layer, self.operations
        heads, across, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
        assert across is not None
        assert layer.cross_add_norm is not None

        def attend_to_past(y: Tensor) -> Tensor:
            qkv = F.linear(y, slots.w_qkv, slots.b_qkv)
            out: Tensor = heads.w_o(op.attend_past(qkv, slots.keys, slots.values, origins, self.position))
            return out

        def attend_to_source(y: Tensor) -> Tensor:
            found = op.attend_source(across.w_q(y), slots.source_keys, slots.source_values, self.lengths)
            out: Tensor = across.w_o(found)
            return out

        def feed_forward(y: Tensor) -> Tensor:
            out: Tensor = feed(y[None])[0]
            return out

        x = self.add_norm(layer.self_add_norm, x, attend_to_past)
        x = self.add_norm(layer.cross_add_norm, x, attend_to_source)
        return self.add_norm(layer.feed_add_norm, x, feed_forward)

    def add_norm(self, wrap: AddNorm, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Wrap a sub-layer."""
        norm: nn.LayerNorm = wrap.norm
        if wrap.pre:
            return x + sublayer(norm(x))
        return self.operations.add_norm(x, sublayer(x), norm.weight, norm.bias, norm.eps)


def logits_in_float32(x: Float[Tensor, "rows d_model"], weight: Float[Tensor, "vocab d_model"]) -> Tensor:
    """The product as it was added up: rounded to bfloat16, many of the best logits would be equal."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x, weight).float()
