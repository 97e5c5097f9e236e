"""Vision, ViT's place: an image cut into patches, each a token; one more token in front gathers the answer."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from onehop.config import ModelSettings
from onehop.model.transformer import Activations, Input, Predictor, Stack, Tokens


class VisionTransformer(Predictor):
    """Gives the logits of each image's class. An image is its pixels row by row, as steps of grey from 0."""

    def __init__(self, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.side, self.patch = settings.image or 0, settings.patch or 0  # the settings see to it that they are there
        self.white = (settings.levels or 0) - 1
        self.projection = nn.Linear(self.patch**2, settings.d_model)
        self.answer_embedding = nn.Parameter(torch.empty(settings.d_model))
        self.output = nn.Linear(settings.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.empty(vocab_size)) if settings.output_bias else None
        self.source_input = Input(settings)
        self.encoder = Stack(settings, settings.n_encoder_layers, cross=False)
        self.source_input.reach(1 + (self.side // self.patch) ** 2)
        self.initialise()
        if settings.positions == "learned":
            nn.init.normal_(self.source_input.positions)  # as strong as the patches, or it learns slowly where they are

    def states(self, src: Tokens, tgt: Tokens) -> Activations:
        """What was gathered of each image; its class is all that is asked, so a target has one position."""
        return self.gathered(src.ids.view(-1, self.side, self.side))[None]

    def gathered(self, images: Int[Tensor, "images height width"]) -> Float[Tensor, "images d_model"]:
        """The stack's output at the token in front of the patches."""
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

    @property
    def output_weight(self) -> Float[Tensor, "vocab d_model"]:
        """The output projection."""
        return self.output.weight
