"""`onehop demo digits`: train a Transformer to recognise handwritten digits.

The images are scikit-learn's: 1,797 of 8 × 8 pixels with 17 levels of grey. A fifth is held out for the test at the
end, and a tenth of the rest is for validation.
"""

import json
import shutil
import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from onehop.atomic import write_whole
from onehop.config import Settings, load_settings, with_changes
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
from onehop.experiments.patches import FILE, chosen, looks, patches
from onehop.experiments.provenance import made
from onehop.interpret.attention_svg import Panel, heatmap_svg
from onehop.model.variants import VisionTransformer
from onehop.pipelines.load import load_member
from onehop.storage.model_label import describe
from onehop.text.tokenizer import Classes
from onehop.training.trainer import train

_SEED, HELD_OUT, _VALID = 0, 5, 10  # one in this many images
_PICTURE = "attention.svg"


@dataclass(frozen=True)
class Images:
    """Images of grey levels, and their digits."""

    pixels: Int[np.ndarray, "images height width"]
    digits: Int[np.ndarray, " images"]

    def __len__(self) -> int:
        return len(self.digits)

    def take(self, places: NDArray[np.int64]) -> "Images":
        return Images(self.pixels[places], self.digits[places])


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

    found = load_digits()
    every = Images(found.images.astype(np.int64), found.target.astype(np.int64))
    order = np.random.default_rng(_SEED).permutation(len(every))
    held, rest = np.split(order, [len(order) // HELD_OUT])
    valid, fit = np.split(rest, [len(rest) // _VALID])
    return every.take(fit), every.take(valid), every.take(held)


def write_store(folder: Path, fit: Images, valid: Images) -> Store:
    """Images as a token store: the pixels are the source, the class is the target."""
    folder.mkdir(parents=True)
    classes = Classes([str(digit) for digit in range(10)])
    write_whole(folder / TOKENIZER, classes.model)
    for split, images in (("train", fit), ("valid", valid)):
        with closing(PairsWriter(folder, split)) as writer:
            writer.write(_as_pairs(images))
        for side in ("src", "tgt"):
            write_whole(folder / f"{split}.{side}.txt", b"")
    description = {
        "holds": "images",
        "source": "pixels",
        "target": "digit",
        "id_type": id_type(classes.vocab_size).str,
        "pairs": {"train": len(fit), "valid": len(valid)},
        "tokenizer_hash": tokenizer_hash(classes.model),
        "made_from": {"files": {"train": [["scikit-learn's digits", ""]]}, "data": {}, "tokenizer": {}},
        "report": report_to_dict(FilterReport(train=len(fit), valid=len(valid))),
    }
    write_description(folder, description)
    return Store.open(folder)


def _as_pairs(images: Images) -> Pairs:
    """The grey levels row by row, and the digit's id."""
    ids = id_type(256)
    pixels = images.pixels.reshape(len(images), -1).tolist()
    return Pairs(side_from_lists(pixels, ids), side_from_lists([[1 + int(d)] for d in images.digits], ids))


def run(
    folder: Path | None = None, changes: list[str] | None = None, *, device: str | None = None
) -> DigitsOutcome | None:
    """Train on the digits, or resume; then classify the held-out images. Returns None if the training was stopped."""
    settings = with_changes(load_settings("digits"), changes or [])
    fit, valid, held = split_digits()
    with ExitStack() as closing:
        kept = folder is not None
        if folder is None:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        model = trained(settings, fit, valid, folder, device, kept=kept)
        if model is None:
            return None
        network = loaded(model, device)
        digits = read(network, held)
        outcome = DigitsOutcome(int((digits == held.digits).sum()), len(held), model, folder / _PICTURE, folder / FILE)
        outcome.picture.write_text(attention_picture(network, held, 0), encoding="utf-8")
        shown = patches(network, held.pixels, held.digits, chosen(digits, held.digits))
        write_whole(outcome.patches, json.dumps({**provenance(outcome), **shown}).encode())
        return outcome


def provenance(outcome: DigitsOutcome) -> dict[str, Any]:
    """The provenance of the page's images."""
    model = {"name": "digits", "hash": describe(outcome.model).hash}
    return {**made("patches", "onehop demo digits"), "model": model, "right": outcome.right, "of": outcome.of}


def trained(
    settings: Settings, fit: Images, valid: Images, folder: Path, device: str | None, *, kept: bool = True
) -> Path | None:
    """Train, and return the model file."""
    if not (folder / "run" / "run.json").exists():
        shutil.rmtree(folder / "store", ignore_errors=True)
        write_store(folder / "store", fit, valid)
    with TrainDisplay(every=settings.train.report_every, kept=kept) as shown:
        return train(settings, Store.open(folder / "store"), folder / "run", device=device, callback=shown)


def loaded(model: Path, device: str | None = None) -> VisionTransformer:
    """The network of a model file."""
    network, _ = load_member(model, "vision", device)
    assert isinstance(network, VisionTransformer)
    return network


@torch.inference_mode()
def read(network: VisionTransformer, images: Images) -> Int[np.ndarray, " images"]:
    """The predicted digit of each image."""
    device = next(network.parameters()).device
    logits = network.logits(network.gathered(torch.from_numpy(images.pixels).to(device))[None])[0]
    digits: NDArray[Any] = logits[:, 1:].argmax(-1).cpu().numpy()
    return digits


# --- attention ------------------------------------------------------------------------------------------------


def patch_weights(network: VisionTransformer, image: Int[np.ndarray, "height width"]) -> Tensor:
    """The attention weights of the class token over the patches: layer, head, row, column."""
    weights, side = looks(network, image[None])[1][0], network.side // network.patch
    return weights[:, :, 0, 1:].reshape(*weights.shape[:2], side, side)


def attention_picture(network: VisionTransformer, images: Images, place: int) -> str:
    """One image, and the attention of each head of the last layer over its patches."""
    image = images.pixels[place]
    weights = patch_weights(network, image)[-1]
    blank = [" "] * weights.shape[-1]
    panels = [Panel("the image", torch.from_numpy(image / network.white).float(), [" "] * 8, [" "] * 8)]
    panels += [
        Panel(f"head {i + 1}: {float(head.sum()):.2f}", head / head.max(), blank, blank)
        for i, head in enumerate(weights)
    ]
    caption = f"A {images.digits[place]}, and where each head of the last layer looks for it"
    return heatmap_svg(panels, len(panels), caption)
