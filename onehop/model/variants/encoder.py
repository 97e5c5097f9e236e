"""Encoder-only, BERT's place: the stack that looks both ways, alone. Fills gaps, and turns sentences into vectors."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.model.transformer import Activations, Input, Predictor, Stack, Tokens, pattern


class EncoderOnly(Predictor):
    """Gives the logits of the token at each place, its own or the one that a mask hides."""

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.embedding = nn.Embedding(vocab_size, settings.d_model)
        self.output = None if settings.tied else nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.source_input = Input(settings)
        self.encoder = Stack(settings, settings.n_encoder_layers, cross=False)
        self.initialise()

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        """The stack's output over the text in which words are hidden."""
        return self.encode(tgt)

    def encode(self, text: Tokens) -> Activations:
        """The stack's output over a text."""
        x = self.source_input(self.embedding(text.ids), text.positions, text.segments)
        out: Activations = self.encoder(x, pattern(text, text))
        return out

    @property
    def output_weight(self) -> Float[Tensor, "vocab d_model"]:
        """The output projection: the embedding matrix once more when tied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def sentence_vectors(self, text: Tokens) -> Float[Tensor, "batch d_model"]:
        """One vector of length 1 for each padded sentence: the mean over its tokens."""
        states = self.encode(text)
        if text.inside is None:
            return F.normalize(states.mean(1), dim=-1)
        inside = text.inside[:, :, None].to(states.dtype)
        return F.normalize((states * inside).sum(1) / inside.sum(1), dim=-1)
