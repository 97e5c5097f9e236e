"""The family: the paper's blocks in other subsets. Each member is one thin file; `docs/family.md` compares them."""

from onehop.config import ModelSettings
from onehop.family.decoder import DecoderOnly
from onehop.family.encoder import EncoderOnly
from onehop.family.vision import VisionTransformer
from onehop.model import Predictor, Transformer

MEMBERS: dict[str | None, type[Predictor]] = {
    None: Transformer,
    "decoder": DecoderOnly,
    "encoder": EncoderOnly,
    "vision": VisionTransformer,
}


def model_for(settings: ModelSettings, vocab_size: int) -> Predictor:
    """A fresh model of the kind that the settings name."""
    return MEMBERS[settings.kind](settings, vocab_size)
