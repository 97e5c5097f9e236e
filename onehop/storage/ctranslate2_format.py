"""What a translator needs of a converted model besides its weights; `ctranslate2_conversion` writes the files.

For a model in the cache, this module is enough, and NumPy is not imported.
"""

from typing import Literal

from onehop.config import ModelSettings
from onehop.text.tokenizer import Tokenizer

Compute = Literal["int8", "float32"]

CONVERTER = 5  # increases when the converted files change, so that cached ones are converted again
# CTranslate2 has a position table of fixed size: longer sentences go to torch.
_SHORTEST_TABLE = 1024

TOKENIZER_FILE = "tokenizer.model"
METADATA_FILE = "onehop.json"


def inexpressible(settings: ModelSettings) -> str | None:
    """Why CTranslate2 cannot express a model, or None."""
    s = settings
    if not s.key_width == s.value_width == s.d_model / s.n_heads:
        return f"d_k {s.key_width} and d_v {s.value_width} are not d_model / n_heads"
    return None


def positions_of(settings: ModelSettings) -> int:
    return settings.max_length if settings.positions == "learned" else max(_SHORTEST_TABLE, 2 * settings.max_length)


def vocabulary(tokenizer: bytes) -> list[str]:
    """The pieces in the order of their ids."""
    pieces = Tokenizer(tokenizer)
    return pieces.tokens(range(pieces.vocab_size))


def alignment_layer(model: ModelSettings) -> int:
    """The decoder layer whose cross-attention, averaged over its heads, is the word alignment."""
    return max(model.n_decoder_layers - 2, 0)
