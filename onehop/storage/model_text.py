"""A model file and its card as text, for `onehop models show`."""

import json
import math
from pathlib import Path

from onehop.config import settings_to_toml
from onehop.storage.model_io import read_model
from onehop.storage.model_label import find_head
from onehop.storage.number_formats import Int8Rows
from onehop.storage.registry import CARD, SEARCH, card, default_alpha


def model_to_text(path: Path) -> str:
    """The description and the card of a model file, whose hash is verified."""
    stored = read_model(path)
    parameters = sum(math.prod(tensor.shape) for tensor in stored.tensors.values())
    dtypes = {"int8" if isinstance(tensor, Int8Rows) else tensor.dtype.name for tensor in stored.tensors.values()}
    formats = sorted("bfloat16" if dtype == "uint16" else dtype for dtype in dtypes)  # stored as its bits
    if (alpha := default_alpha(path)) is None:
        penalty = f"the default α: no {find_head(path).with_suffix(SEARCH).name} is beside the model"
    else:
        penalty = f"α = {alpha:g} unless --alpha says otherwise"
    parts = [
        f"{path}\n{stored.source} → {stored.target}, {parameters:,} parameters as {' and '.join(formats)}\n"
        f"SHA-256 {stored.hash}, as the file says\nlength penalty: {penalty}",
        settings_to_toml(stored.settings, explained=False).rstrip(),
        f"provenance: {json.dumps(dict(stored.provenance), ensure_ascii=False, indent=1)}",
        (card(find_head(path)) or f"No model card ({CARD}) lies beside it.").rstrip(),
    ]
    return "\n\n".join(parts) + "\n"
