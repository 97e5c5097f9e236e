"""The family: the paper's blocks in other subsets. Each member is one thin file; `docs/family.md` compares them."""

from onehop.config import ModelSettings
from onehop.model.transformer import Predictor, Transformer
from onehop.model.variants.decoder import DecoderOnly
from onehop.model.variants.encoder import EncoderOnly
from onehop.model.variants.vision import VisionTransformer

MEMBERS: dict[str | None, type[Predictor]] = {
    None: Transformer,
    "decoder": DecoderOnly,
    "encoder": EncoderOnly,
    "vision": VisionTransformer,
}


def model_for(settings: ModelSettings, vocab_size: int) -> Predictor:
    """A fresh model of the kind that the settings name."""
    return MEMBERS[settings.kind](settings, vocab_size)
