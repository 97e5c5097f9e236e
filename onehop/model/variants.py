"""The paper's blocks in other subsets: decoder-only as in GPT, encoder-only as in BERT, and ViT for images."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.model.kv_cache import Cache, Ids, LayerCache
from onehop.model.transformer import Activations, Input, Predictor, Stack, Tokens, Transformer, attention_mask


class DecoderOnly(Predictor):
    """GPT: a causal stack without cross-attention, which gives the logits of the next token."""

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.embedding = nn.Embedding(vocab_size, settings.d_model)
        self.output = None if settings.tied else nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.target_input = Input(settings)
        self.decoder = Stack(settings, settings.n_decoder_layers, cross=False)
        self.initialise()

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        x = self.target_input(self.embedding(tgt.ids), tgt.positions, tgt.segments)
        out: Activations = self.decoder(x, attention_mask(tgt, tgt, causal=True))
        return out

    def init_cache(self, rows: int, capacity: int) -> Cache:
        """An empty cache for `capacity` tokens of each text. There is no source."""
        self.target_input.ensure_length(capacity)
        s, weight = self.settings, self.embedding.weight
        no_keys, no_values = (weight.new_empty(rows, s.n_heads, 0, d) for d in (s.key_width, s.value_width))
        return Cache([LayerCache.allocate(no_keys, no_values, capacity) for _ in self.decoder.layers], None)

    def step(self, ids: Ids, cache: Cache) -> Float[Tensor, "batch length vocab"]:
        """Logits after each of these new tokens, which are added to the cache."""
        x = self.target_input(self.embedding(ids), cache.positions_of(ids))
        return self.logits(self.decoder.step(x, cache))


class EncoderOnly(Predictor):
    """BERT: a bidirectional stack, which gives the logits of the token at each position, masked or not."""

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.embedding = nn.Embedding(vocab_size, settings.d_model)
        self.output = None if settings.tied else nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.source_input = Input(settings)
        self.encoder = Stack(settings, settings.n_encoder_layers, cross=False)
        self.initialise()

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        return self.encode(tgt)

    def encode(self, text: Tokens) -> Activations:
        x = self.source_input(self.embedding(text.ids), text.positions, text.segments)
        out: Activations = self.encoder(x, attention_mask(text, text))
        return out

    def sentence_vectors(self, text: Tokens) -> Float[Tensor, "batch d_model"]:
        """One vector of length 1 for each padded sentence: the mean over its tokens."""
        states = self.encode(text)
        if text.token_mask is None:
            return F.normalize(states.mean(1), dim=-1)
        mask = text.token_mask[:, :, None].to(states.dtype)
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


class VisionTransformer(Predictor):
    """ViT: gives the logits of each image's class. An image is its pixels row by row, as grey levels from 0."""

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.side, self.patch = settings.image or 0, settings.patch or 0  # settings of kind vision have them
        self.white = (settings.levels or 0) - 1
        self.projection = nn.Linear(self.patch**2, settings.d_model)
        self.answer_embedding = nn.Parameter(torch.empty(settings.d_model))
        self.output = nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.source_input = Input(settings)
        self.encoder = Stack(settings, settings.n_encoder_layers, cross=False)
        self.source_input.ensure_length(1 + (self.side // self.patch) ** 2)
        self.initialise()
        if settings.positions == "learned":
            # The scale of the patches: smaller positions are learned slowly.
            nn.init.normal_(self.source_input.positions)

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        """The class token's state of each image; a target has one position."""
        return self.class_states(src.ids.view(-1, self.side, self.side))[None]

    def class_states(self, images: Int[Tensor, "images height width"]) -> Float[Tensor, "images d_model"]:
        """The stack's output at the class token."""
        patches: Tensor = self.projection(self.patches(images))
        x = torch.cat([self.answer_embedding.expand(len(patches), 1, -1), patches], dim=1)
        positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        states: Tensor = self.encoder(self.source_input(x, positions), None)
        return states[:, 0]

    def patches(self, images: Int[Tensor, "images height width"]) -> Float[Tensor, "images patches pixels"]:
        """Squares row by row, each as its pixels from 0, black, to 1, white."""
        n, p = self.side // self.patch, self.patch
        squares = images.view(-1, n, p, n, p).transpose(2, 3).reshape(-1, n * n, p * p)
        return squares.to(self.projection.weight.dtype) / self.white


VARIANTS: dict[str | None, type[Predictor]] = {
    None: Transformer,
    "decoder": DecoderOnly,
    "encoder": EncoderOnly,
    "vision": VisionTransformer,
}


def model_for(settings: ModelSettings, vocab_size: int) -> Predictor:
    """A fresh model of `settings.kind`."""
    return VARIANTS[settings.kind](settings, vocab_size)
