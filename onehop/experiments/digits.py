"""`onehop demo digits`: train a Transformer to recognise handwritten digits.

The images are scikit-learn's: 1,797 of 8 × 8 pixels with 17 levels of grey. A fifth is held out for the test at the
end, and a tenth of the rest is for validation.
"""

import json
import shutil
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from onehop.atomic import write_whole
from onehop.config import load_settings, with_changes
from onehop.console import TrainDisplay
from onehop.data.filters import FilterReport, report_to_dict
from onehop.data.store import (
    TOKENIZER,
    Pairs,
    PairsWriter,
    Store,
    id_type,
    side_from_lists,
    tokenizer_hash,
    write_description,
)
from onehop.errors import require
from onehop.experiments.provenance import Json, origin
from onehop.interpret.attention_svg import Panel, heatmap_svg
from onehop.interpret.trace_fields import to_numpy
from onehop.interpret.trace_file import Named, pack
from onehop.model.taps import Recorder, watch
from onehop.model.variants import VisionTransformer
from onehop.pipelines.load import load_variant
from onehop.storage.model_label import describe
from onehop.text.tokenizer import Classes
from onehop.training.trainer import train

_SEED, _HELD_OUT, _VALID = 0, 5, 10  # one in this many images
_PICTURE, _PATCHES = "attention.svg", "patches.json"
_MISCLASSIFIED = 2


@dataclass(frozen=True)
class Images:
    pixels: Int[np.ndarray, "images height width"]
    digits: Int[np.ndarray, " images"]

    def __len__(self) -> int:
        return len(self.digits)

    def take(self, indices: NDArray[np.int64]) -> "Images":
        return Images(self.pixels[indices], self.digits[indices])


@dataclass(frozen=True)
class DigitsOutcome:
    """The result of a training: the correct held-out images, the model, and two attention pictures."""

    right: int
    of: int
    model: Path
    picture: Path
    patches: Path

    @property
    def share(self) -> float:
        return self.right / self.of


def split_digits() -> tuple[Images, Images, Images]:
    """Training, validation and held-out images; the split is fixed."""
    require("sklearn")
    from sklearn.datasets import load_digits

    dataset = load_digits()
    images = Images(dataset.images.astype(np.int64), dataset.target.astype(np.int64))
    order = np.random.default_rng(_SEED).permutation(len(images))
    held_out, rest = np.split(order, [len(order) // _HELD_OUT])
    valid, training = np.split(rest, [len(rest) // _VALID])
    return images.take(training), images.take(valid), images.take(held_out)


def write_store(folder: Path, training: Images, valid: Images) -> Store:
    """Images as a token store: the pixels are the source, the class is the target."""
    folder.mkdir(parents=True)
    classes = Classes([str(digit) for digit in range(10)])
    write_whole(folder / TOKENIZER, classes.model)
    for split, images in (("train", training), ("valid", valid)):
        with closing(PairsWriter(folder, split)) as writer:
            ids = id_type(256)
            source = side_from_lists(images.pixels.reshape(len(images), -1).tolist(), ids)
            writer.write(Pairs(source, side_from_lists([[1 + int(digit)] for digit in images.digits], ids)))
        for side in ("src", "tgt"):
            write_whole(folder / f"{split}.{side}.txt", b"")
    description = {
        "holds": "images",
        "source": "pixels",
        "target": "digit",
        "id_type": id_type(classes.vocab_size).str,
        "pairs": {"train": len(training), "valid": len(valid)},
        "tokenizer_hash": tokenizer_hash(classes.model),
        "made_from": {"files": {"train": [["scikit-learn's digits", ""]]}, "data": {}, "tokenizer": {}},
        "report": report_to_dict(FilterReport(train=len(training), valid=len(valid))),
    }
    write_description(folder, description)
    return Store.open(folder)


def run(
    folder: Path | None = None, changes: list[str] | None = None, *, device: str | None = None
) -> DigitsOutcome | None:
    """Train on the digits, or resume; then classify the held-out images. Returns None if the training was stopped."""
    settings = with_changes(load_settings("digits"), changes or [])
    training, valid, held_out = split_digits()
    with tempfile.TemporaryDirectory() as temporary:
        work = folder or Path(temporary)
        if not (work / "run" / "run.json").exists():
            shutil.rmtree(work / "store", ignore_errors=True)
            write_store(work / "store", training, valid)
        with TrainDisplay(every=settings.train.report_every, kept=folder is not None) as display:
            model = train(settings, Store.open(work / "store"), work / "run", device=device, callback=display)
        if model is None:
            return None
        network = load_network(model, device)
        digits = _classify(network, held_out)
        right = int((digits == held_out.digits).sum())
        outcome = DigitsOutcome(right, len(held_out), model, work / _PICTURE, work / _PATCHES)
        first = _attention_picture(network, held_out.pixels[0], int(held_out.digits[0]))
        outcome.picture.write_text(first, encoding="utf-8")
        facts = {
            "name": "patches",
            **origin("onehop demo digits"),
            "model": {"name": "digits", "hash": describe(model).hash},
            "right": right,
            "of": len(held_out),
        }
        samples = patches(network, held_out.pixels, held_out.digits, chosen(digits, held_out.digits))
        write_whole(outcome.patches, json.dumps({**facts, **samples}).encode())
        return outcome


def load_network(model: Path, device: str | None = None) -> VisionTransformer:
    network, _ = load_variant(model, "vision", device)
    assert isinstance(network, VisionTransformer)
    return network


@torch.inference_mode()
def _classify(network: VisionTransformer, images: Images) -> Int[np.ndarray, " images"]:
    device = next(network.parameters()).device
    logits = network.logits(network.class_states(torch.from_numpy(images.pixels).to(device))[None])[0]
    digits: NDArray[Any] = logits[:, 1:].argmax(-1).cpu().numpy()
    return digits


def patch_weights(network: VisionTransformer, image: Int[np.ndarray, "height width"]) -> Tensor:
    """The attention weights of the class token over the patches: layer, head, row, column."""
    weights, side = _predict_with_attention(network, image[None])[1][0], network.side // network.patch
    return weights[:, :, 0, 1:].reshape(*weights.shape[:2], side, side)


def _attention_picture(network: VisionTransformer, image: Int[np.ndarray, "height width"], digit: int) -> str:
    """One image, and the attention of each head of the last layer over its patches."""
    weights = patch_weights(network, image)[-1]
    blank = [" "] * weights.shape[-1]
    panels = [Panel("the image", torch.from_numpy(image / network.white).float(), [" "] * 8, [" "] * 8)]
    panels += [
        Panel(f"head {i + 1}: {float(head.sum()):.2f}", head / head.max(), blank, blank)
        for i, head in enumerate(weights)
    ]
    caption = f"A {digit}, and where each head of the last layer looks for it"
    return heatmap_svg(panels, len(panels), caption)


# --- the images that the explorer shows ---------------------------------------------------------------------------


@torch.inference_mode()
def _predict_with_attention(
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
    probabilities, weights = _predict_with_attention(network, pixels[indices])
    images = [
        {"place": i, "digit": int(digits[i]), "pixels": pixels[i].tolist(), "probabilities": p}
        for i, p in zip(indices, probabilities.tolist(), strict=True)
    ]
    axes = ("image", "layer", "head", "query", "key")
    facts = {"side": network.side, "patch": network.patch, "white": network.white}
    packed = pack({"weights": Named(axes, to_numpy(weights).astype(np.float16))})
    return {**facts, "heads": weights.shape[2], "layers": weights.shape[1], "images": images, **packed}
