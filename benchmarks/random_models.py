"""Models with random weights that never end a sentence before the maximum length, so that every output is as long."""

import numpy as np
import torch

from onehop.config import ModelSettings, Settings, TokenizerSettings
from onehop.model.transformer import Transformer
from onehop.storage.model_file import StoredModel
from onehop.text.tokenizer import EOS, Tokenizer


def endless(settings: ModelSettings, vocab_size: int) -> Transformer:
    """Return a random model whose last norm adds a direction to every output that suppresses EOS alone."""
    model = Transformer(settings, vocab_size)
    with torch.no_grad():
        direction = torch.nn.functional.normalize(torch.randn(settings.d_model), dim=0)
        model.decoder.layers[-1].feed_add_norm.norm.bias.copy_(10 * direction)
        model.embedding.weight[EOS] = -10 * direction
    return model


def random_words() -> list[str]:
    draw = np.random.default_rng(1)
    return ["".join(map(chr, draw.integers(97, 123, n))) for n in draw.integers(2, 9, 60_000)]


def endless_base() -> StoredModel:
    """Return an endless model of the paper's base shape, with 16,000 tokens learned from the random words."""
    words = random_words()
    texts = [" ".join(words[i : i + 20]) for i in range(0, len(words), 20)]
    tokenizer = Tokenizer.learn(texts, TokenizerSettings(vocab_size=16_000))
    torch.manual_seed(1)
    model = endless(ModelSettings(), tokenizer.vocab_size)
    return StoredModel(
        settings=Settings(model=model.settings),
        tokenizer=tokenizer.model,
        source="en",
        target="de",
        provenance={},
        tensors={name: p.detach().numpy() for name, p in model.named_parameters()},
    )
