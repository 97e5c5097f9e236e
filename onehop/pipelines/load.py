"""Loads stored models as torch models."""

from pathlib import Path

import torch

from onehop.errors import ModelFileError
from onehop.model import kernels
from onehop.model.device import pick_device
from onehop.model.transformer import Predictor, Transformer
from onehop.model.variants import model_for
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import read_model
from onehop.storage.model_label import check_kind
from onehop.storage.registry import named_model


def load_variant(path: str | Path, kind: str, device: str | None) -> tuple[Predictor, StoredModel]:
    """A model of one kind by its file, folder or name, in eval mode on the device, and the content of its file."""
    path = named_model(str(path))
    check_kind(path, kind)
    stored = read_model(path)
    return kernels.fuse(variant_of(path, stored).to(pick_device(device))), stored


def variant_of(path: str | Path, stored: StoredModel) -> Predictor:
    """A stored model of any kind, in eval mode."""
    weights = {name: torch.from_numpy(array) for name, array in stored.weights().items()}
    matrix = weights["embedding.weight" if "embedding.weight" in weights else "output.weight"]
    model = model_for(stored.settings.model, len(matrix))
    try:
        model.load_state_dict(weights)
    except RuntimeError as e:
        reason = " ".join(str(e).split())
        raise ModelFileError(f"{path} does not fit together: {reason}", "Make it again.") from None
    return model.eval()


def model_of(stored: StoredModel) -> Transformer:
    weights = stored.weights()
    model = Transformer(stored.settings.model, len(weights["embedding.weight"]))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return model
