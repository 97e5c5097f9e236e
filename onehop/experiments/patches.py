"""Images with a vision model's predictions, and the attention of each patch in every layer and head."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.experiments.provenance import Json
from onehop.interpret.trace_fields import to_numpy
from onehop.interpret.trace_file import Named, pack
from onehop.model.taps import Recorder, watch
from onehop.model.variants import VisionTransformer

FILE = "patches.json"
_MISCLASSIFIED = 2


@torch.inference_mode()
def predict_with_attention(
    network: VisionTransformer, images: Int[np.ndarray, "images height width"]
) -> tuple[Float[Tensor, "images classes"], Float[Tensor, "images layer head query key"]]:
    """The probability of each class, and all attention weights; token 0 is the class token, the others are patches."""
    recorder = Recorder()
    gathered = watch(network, recorder).class_states(torch.from_numpy(images).to(next(network.parameters()).device))
    layers = range(len(network.encoder.layers))
    weights = torch.stack([recorder[f"encoder.layers.{i}.self_attention.weights"].value for i in layers], dim=1)
    return network.logits(gathered[None])[0, :, 1:].softmax(-1).cpu(), weights.cpu()


def chosen(predictions: Int[np.ndarray, " images"], digits: Int[np.ndarray, " images"]) -> list[int]:
    """The first image of each digit, and the first misclassified ones."""
    first = [int(np.flatnonzero(digits == digit)[0]) for digit in np.unique(digits)]
    wrong = [int(i) for i in np.flatnonzero(predictions != digits) if i not in first]
    return first + wrong[:_MISCLASSIFIED]


def patches(
    network: VisionTransformer,
    pixels: Int[np.ndarray, "images height width"],
    digits: Int[np.ndarray, " images"],
    indices: list[int],
) -> Json:
    """Some of the images with their predictions and attention."""
    probabilities, weights = predict_with_attention(network, pixels[indices])
    images = [
        {"place": i, "digit": int(digits[i]), "pixels": pixels[i].tolist(), "probabilities": p}
        for i, p in zip(indices, probabilities.tolist(), strict=True)
    ]
    axes = ("image", "layer", "head", "query", "key")
    facts = {"side": network.side, "patch": network.patch, "white": network.white}
    packed = pack({"weights": Named(axes, to_numpy(weights).astype(np.float16))})
    return {**facts, "heads": weights.shape[2], "layers": weights.shape[1], "images": images, **packed}
