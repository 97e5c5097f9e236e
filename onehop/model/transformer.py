"""The Transformer of the paper, figure 1 from the bottom to the top.

One `Layer` serves everywhere: without cross-attention it is the encoder's, or a decoder-only model's under a causal
mask; with it, the decoder's. Models with one stack alone are in `variants`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.errors import SettingsError
from onehop.model.attention import MultiHeadAttention
from onehop.model.kv_cache import Cache, Ids, LayerCache, MemoryMask
from onehop.model.loss import output_loss
from onehop.model.packing import AttentionMask, PackedMask, Packing, causal_mask
from onehop.model.taps import Tapped

Activations = Float[Tensor, "batch length d_model"]
Memory = Float[Tensor, "batch source d_model"]
SelfMask = Bool[Tensor, "#batch #heads #length past"] | PackedMask | None
Sublayer = Callable[[Activations], Activations]


@dataclass(frozen=True)
class Tokens:
    """The model's input: ids, positions, and the boundaries of the sentences.

    Padded: one sentence per row, `token_mask` False at the padding (None: there is none). Packed: all sentences end to
    end in one row, without padding.
    """

    ids: Ids
    positions: Ids
    token_mask: Bool[Tensor, "batch length"] | None = None
    packing: Packing | None = None
    segments: Ids | None = None

    @staticmethod
    def padded(ids: Ids, pad: int = 0) -> "Tokens":
        """One sentence per row."""
        return Tokens(ids, torch.arange(ids.shape[1], device=ids.device).expand_as(ids), token_mask=ids != pad)

    @staticmethod
    def packed(ids: Int[Tensor, " rows"], lengths: Int[Tensor, " sentences"], longest: int | None = None) -> "Tokens":
        """Sentences end to end."""
        packing = Packing.of(lengths, longest)
        positions = torch.arange(len(ids), device=ids.device) - packing.starts[packing.sentence_of_row]
        return Tokens(ids[None], positions[None], packing=packing)


def attention_mask(query: Tokens, key: Tokens, *, causal: bool = False) -> AttentionMask:
    """Which key tokens each query token may attend to."""
    if query.packing is not None and key.packing is not None:
        return PackedMask(query.packing, key.packing, causal)
    mask = None if key.token_mask is None else key.token_mask[:, None, None, :]
    if not causal:
        return mask
    past = causal_mask(query.ids.shape[1], query.ids.device)[None, None]
    return past if mask is None else mask & past


# --- input: embeddings and positions --------------------------------------------------------------------------


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same)."""
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class Input(Tapped):
    """Sections 3.4 and 3.5: embeddings times √d_model, plus positions, then dropout; segments and a norm on request."""

    positions: Tensor

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.d_model)
        self.learned = settings.positions == "learned"
        if self.learned:
            self.positions = nn.Parameter(torch.empty(settings.max_length, settings.d_model))
        else:
            self.register_buffer("positions", sinusoids(settings.max_length, settings.d_model), persistent=False)
        self.segment_embeddings = None
        if settings.segments:
            self.segment_embeddings = nn.Parameter(torch.empty(settings.segments, settings.d_model))
        self.norm = nn.LayerNorm(settings.d_model, settings.epsilon) if settings.input_norm else None
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, embeddings: Activations, positions: Ids, segments: Ids | None = None) -> Activations:
        """The stack's input. Without segments, all tokens have the first one."""
        scaled = self.tap("scaled", self.tap("embeddings", embeddings) * self.scale)
        added = scaled + self.positions[positions]
        if self.segment_embeddings is not None:
            added = added + self.segment_embeddings[torch.zeros_like(positions) if segments is None else segments]
        added = self.tap("positioned", added)
        if self.norm is not None:
            added = self.tap("norm", self.norm(added))
        dropped: Activations = self.dropout(added)
        return dropped

    def ensure_length(self, length: int) -> None:
        """Make sure that `length` positions exist. Sinusoids are extended; a learned table cannot be."""
        table = self.positions
        if length <= len(table):
            return
        if self.learned:
            raise SettingsError(
                f"A sentence of {length} tokens is longer than the {len(table)} learned positions.",
                "Split it, or train with a larger model.max_length.",
            )
        with torch.inference_mode(False):  # a tensor made in inference mode could not be trained with
            longer = sinusoids(2 * length, table.shape[1]).to(table)
        if len(longer) > len(self.positions):  # another thread may have been here
            self.positions = longer


# --- the layer ------------------------------------------------------------------------------------------------


# The paper uses ReLU; imported models use the others.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class FeedForward(Tapped):
    """Equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or with another activation than ReLU."""

    def __init__(self, d_model: int, d_ff: int, activation: str) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[activation]
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Activations) -> Activations:
        return self.tap("output", self.w_2(self.tap("hidden", self.activation(self.w_1(x)))))


class AddNorm(Tapped):
    """Sections 3.1 and 5.4: LayerNorm(x + Dropout(Sublayer(x))); pre-norm: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, d_model: int, dropout: float, order: Literal["post", "pre"], epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, epsilon)
        self.dropout = nn.Dropout(dropout)
        self.pre = order == "pre"

    def forward(self, x: Activations, sublayer: Sublayer) -> Activations:
        skip = self.tap("skip", x)
        if self.pre:
            return self.tap("residual", skip + self.dropout(sublayer(self.tap("norm", self.norm(x)))))
        return self.tap("norm", self.norm(self.tap("residual", skip + self.dropout(sublayer(x)))))


class Layer(nn.Module):
    """Figure 1: self-attention, cross-attention (decoder only) and feed-forward, each with add & norm."""

    def __init__(self, settings: ModelSettings, *, cross: bool) -> None:
        super().__init__()
        s = settings

        def heads() -> MultiHeadAttention:
            return MultiHeadAttention(s.d_model, s.n_heads, s.key_width, s.value_width, bias=s.attention_bias)

        def add_norm() -> AddNorm:
            return AddNorm(s.d_model, s.dropout, s.norm, s.epsilon)

        self.self_attention = heads()
        self.self_add_norm = add_norm()
        self.cross_attention = heads() if cross else None
        self.cross_add_norm = add_norm() if cross else None
        self.feed_forward = FeedForward(s.d_model, s.d_ff, s.activation)
        self.feed_add_norm = add_norm()

    def forward(
        self, x: Activations, mask: SelfMask, memory: Memory | None = None, memory_mask: MemoryMask = None
    ) -> Activations:
        for add_norm, sublayer in self.sublayers(mask, memory, memory_mask):
            x = add_norm(x, sublayer)
        return x

    def sublayers(
        self, mask: SelfMask, memory: Memory | None, memory_mask: MemoryMask
    ) -> list[tuple[AddNorm, Sublayer]]:
        """The sub-layers in order, each with the add & norm around it."""
        pairs: list[tuple[AddNorm, Sublayer]] = [(self.self_add_norm, lambda y: self.self_attention(y, y, mask))]
        if self.cross_attention is not None and self.cross_add_norm is not None:
            cross_attention = self.cross_attention
            pairs.append((self.cross_add_norm, lambda y: cross_attention(y, memory, memory_mask)))
        return [*pairs, (self.feed_add_norm, self.feed_forward)]

    def step(
        self, x: Activations, cache: LayerCache, length: int, mask: SelfMask, memory_mask: MemoryMask
    ) -> Activations:
        """`forward` in decoding, for new positions after `length` cached ones."""

        def attend_to_past(y: Activations) -> Activations:
            k, v = cache.append(*self.self_attention.keys_and_values(y), length)
            return self.self_attention.attend(self.self_attention.queries(y), k, v, mask)

        def attend_to_source(y: Activations) -> Activations:
            assert self.cross_attention is not None
            q = self.cross_attention.queries(y)
            return self.cross_attention.attend(q, cache.cross_keys, cache.cross_values, memory_mask)

        x = self.self_add_norm(x, attend_to_past)
        if self.cross_add_norm is not None:
            x = self.cross_add_norm(x, attend_to_source)
        out: Activations = self.feed_add_norm(x, self.feed_forward)
        return out


class Stack(Tapped):
    """N layers; in pre-norm order one more norm follows them."""

    def __init__(self, settings: ModelSettings, n_layers: int, *, cross: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(settings, cross=cross) for _ in range(n_layers))
        self.last_norm = nn.LayerNorm(settings.d_model, settings.epsilon) if settings.norm == "pre" else None

    def forward(
        self, x: Activations, mask: SelfMask, memory: Memory | None = None, memory_mask: MemoryMask = None
    ) -> Activations:
        for layer in self.layers:
            x = layer(x, mask, memory, memory_mask)
        return self.finish(x)

    def step(self, x: Activations, cache: Cache) -> Activations:
        """`forward` in decoding, for new positions after the cached ones, which are added to the cache."""
        new = x.shape[1]
        mask = None if new == 1 else causal_mask(cache.length + new, x.device)[None, None, -new:]
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            assert isinstance(layer, Layer)
            x = layer.step(x, layer_cache, cache.length, mask, cache.memory_mask)
        cache.length += new
        return self.finish(x)

    def finish(self, x: Activations) -> Activations:
        """The final norm of pre-norm."""
        return x if self.last_norm is None else self.tap("norm", self.last_norm(x))


# --- the model ------------------------------------------------------------------------------------------------


class Predictor(Tapped):
    """The base of every model. Training needs its `states` at each target position, and their logits.

    Initialisation, which the paper leaves open: Xavier-uniform for every projection, normal with standard deviation
    d_model^-0.5 for embeddings and learned positions (so that embeddings times √d_model have unit variance), zero
    for biases, one for the norms' gains.
    """

    embedding: nn.Embedding
    output: nn.Linear | None  # None: tied to the embedding
    output_bias: nn.Parameter | None
    output_loss = staticmethod(output_loss)  # `kernels.fuse` puts a kernel in its place

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.vocab_size = vocab_size

    def initialise(self) -> None:
        """Draw fresh weights from torch's generator."""
        for name, parameter in self.named_parameters():
            if "embedding" in name or "positions" in name:
                nn.init.normal_(parameter, std=self.settings.d_model**-0.5)
            elif parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.ones_(parameter)

    def forward(self, src: Tokens, tgt: Tokens) -> Float[Tensor, "batch length vocab"]:
        """Logits at each target position: teacher forcing, all positions at once."""
        return self.logits(self.states(src, tgt))

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        """The last hidden states, from which the logits are computed, at each target position."""
        raise NotImplementedError

    @property
    def output_weight(self) -> Float[Tensor, "vocab d_model"]:
        """The output projection, which is the embedding if tied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def logits(self, x: Activations) -> Float[Tensor, "batch length vocab"]:
        return self.tap("logits", F.linear(x, self.output_weight, self.output_bias))


class Transformer(Predictor):
    """Figure 1. Gives logits; `log_probabilities` gives their log-softmax.

    Examples:
        >>> import torch
        >>> from onehop import Transformer, load_settings
        >>> from onehop.model.transformer import Tokens
        >>> model = Transformer(load_settings("tiny").model, vocab_size=100)
        >>> src, tgt = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 8, 9]])
        >>> model(Tokens.padded(src), Tokens.padded(tgt)).shape  # sentences, target tokens, vocabulary
        torch.Size([1, 3, 100])
    """

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.embedding = nn.Embedding(vocab_size, settings.d_model)
        self.target_embedding = None if settings.tied else nn.Embedding(vocab_size, settings.d_model)
        self.output = None if settings.tied else nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.source_input = Input(settings)
        self.target_input = Input(settings)
        self.encoder = Stack(settings, settings.n_encoder_layers, cross=False)
        self.decoder = Stack(settings, settings.n_decoder_layers, cross=True)
        self.initialise()

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        return self.decode(tgt, self.encode(src), src)

    def encode(self, src: Tokens) -> Activations:
        """The encoder's output, z in the paper."""
        x = self.source_input(self.embedding(src.ids), src.positions)
        memory: Activations = self.encoder(x, attention_mask(src, src))
        return memory

    def decode(self, tgt: Tokens, memory: Memory, src: Tokens) -> Activations:
        """The decoder's output over whole target sentences, with the causal mask."""
        x = self.target_input(self.embed_target(tgt.ids), tgt.positions)
        out: Activations = self.decoder(x, attention_mask(tgt, tgt, causal=True), memory, attention_mask(tgt, src))
        return out

    def embed_target(self, ids: Ids) -> Activations:
        """The target embedding, which is the source's if tied."""
        table = self.embedding if self.target_embedding is None else self.target_embedding
        embedded: Activations = table(ids)
        return embedded

    def log_probabilities(self, src: Tokens, tgt: Tokens) -> Float[Tensor, "batch length vocab"]:
        """Log-probabilities of the token after each target token."""
        logits: Tensor = self(src, tgt)
        return logits.log_softmax(-1)

    def ensure_length(self, source: int, target: int) -> None:
        """Make sure that sentences of these lengths have positions."""
        self.source_input.ensure_length(source)
        self.target_input.ensure_length(target)

    def init_cache(self, src: Tokens, capacity: int) -> Cache:
        """Encode padded sentences and allocate a cache for `capacity` target tokens."""
        self.ensure_length(src.ids.shape[1], capacity)
        memory = self.encode(src)
        layers = []
        for layer in self.decoder.layers:
            assert isinstance(layer, Layer)
            assert layer.cross_attention is not None
            layers.append(LayerCache.allocate(*layer.cross_attention.keys_and_values(memory), capacity))
        return Cache(layers, None if src.token_mask is None else src.token_mask[:, None, None, :])

    def step(self, ids: Ids, cache: Cache) -> Float[Tensor, "batch length vocab"]:
        """Logits after each of these new target tokens, which are added to the cache."""
        x = self.target_input(self.embed_target(ids), cache.positions_of(ids))
        return self.logits(self.decoder.step(x, cache))


def parameter_count(model: nn.Module) -> int:
    """The number of parameters; a shared one counts once."""
    return sum(p.numel() for p in model.parameters())
