"""Decoder-only, GPT's place: the causal stack of figure 1 without cross-attention. Continues a text."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onehop.config import ModelSettings
from onehop.model.kv_cache import Cache, Ids, LayerCache
from onehop.model.transformer import Activations, Input, Predictor, Stack, Tokens, pattern


class DecoderOnly(Predictor):
    """Gives the logits of the token after each token."""

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.embedding = nn.Embedding(vocab_size, settings.d_model)
        self.output = None if settings.tied else nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.target_input = Input(settings)
        self.decoder = Stack(settings, settings.n_decoder_layers, cross=False)
        self.initialise()

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        """The stack's output; there is no source to look at."""
        x = self.target_input(self.embedding(tgt.ids), tgt.positions, tgt.segments)
        out: Activations = self.decoder(x, pattern(tgt, tgt, causal=True))
        return out

    @property
    def output_weight(self) -> Float[Tensor, "vocab d_model"]:
        """The output projection: the embedding matrix once more when tied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def begin(self, rows: int, capacity: int) -> Cache:
        """Make room for `capacity` tokens in each of so many texts."""
        self.target_input.reach(capacity)
        return Cache([self._room(rows, capacity) for _ in self.decoder.layers], None)

    def _room(self, rows: int, capacity: int) -> LayerCache:
        s, like = self.settings, self.embedding.weight
        keys, values = (like.new_empty(rows, s.n_heads, capacity, d) for d in (s.key_width, s.value_width))
        return LayerCache(keys, values, keys[:, :, :0], values[:, :, :0])

    def step(self, ids: Ids, cache: Cache) -> Float[Tensor, "batch length vocab"]:
        """Logits after each of these new tokens, given all cached ones; the cache grows by them."""
        x = self.target_input(self.embedding(ids), cache.positions_of(ids))
        return self.logits(self.decoder.step(x, cache))
