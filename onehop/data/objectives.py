"""The training objective of each model kind: next token, masked tokens, or an image's class.

A batch is packed for a translator: source, target shifted right, target. The other kinds change these arrays. Random
choices depend only on the given seeds, so a resumed run makes the same ones.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onehop.config import ModelSettings
from onehop.data.batches import Batch
from onehop.shapes import Int
from onehop.text.tokenizer import EOS, PAD, UNK

# The mask is the unknown token, which byte fallback leaves unused.
MASK = UNK
N_SPECIAL = 4  # the special tokens have the first ids
# Devlin et al. 2019: the share of tokens to predict; of these, the shares that are masked and replaced at random.
_SELECTED, _MASKED, _REPLACED = 0.15, 0.8, 0.1


@dataclass(frozen=True)
class TrainingTask:
    """Turns batches into the inputs and labels of a model kind."""

    model: ModelSettings
    vocab_size: int

    def __call__(self, batch: Batch, *seeds: int) -> Batch:
        """The batch for the model's kind. Random choices depend only on the seeds."""
        rng = np.random.default_rng(seeds)
        if self.model.kind == "encoder":
            return masked(batch, self.vocab_size, rng)
        if self.model.kind == "vision":
            return _shifted(classified(batch), self.model.image or 0, rng)
        return _without_source_ends(batch) if self.model.source_end is False else batch

    def for_validation(self, batch: Batch, number: int) -> Batch:
        """The batch for validation: the same random choices each time, and images not shifted."""
        return classified(batch) if self.model.kind == "vision" else self(batch, number)


def masked(batch: Batch, vocab_size: int, rng: np.random.Generator) -> Batch:
    """Select some tokens for prediction, and mask most of them."""
    text = batch.labels
    candidates = np.flatnonzero((text != PAD) & (text != EOS))
    selected = candidates[rng.random(len(candidates)) < _SELECTED]
    if len(selected) == 0:
        fallback = candidates if len(candidates) else np.flatnonzero(text != PAD)
        selected = fallback[:1]  # a batch needs at least one label
    draw = rng.random(len(selected))
    inputs, labels = text.copy(), np.full_like(text, PAD)
    inputs[selected[draw < _MASKED]] = MASK
    replaced = selected[(draw >= _MASKED) & (draw < _MASKED + _REPLACED)]
    inputs[replaced] = rng.integers(N_SPECIAL, vocab_size, len(replaced))
    labels[selected] = text[selected]
    return replace(batch, tgt=inputs, labels=labels)


def _without_source_ends(batch: Batch) -> Batch:
    """Sources without EOS, as OpenNMT's models read them."""
    ends = np.cumsum(batch.src_lengths) - 1
    return replace(batch, src=np.delete(batch.src, ends), src_lengths=batch.src_lengths - 1)


def classified(batch: Batch) -> Batch:
    """Pixels without EOS, with each image's class as its only label."""
    first, one = np.cumsum(batch.tgt_lengths) - batch.tgt_lengths, np.ones_like(batch.tgt_lengths)
    return replace(_without_source_ends(batch), tgt=0 * one, labels=batch.labels[first], tgt_lengths=one)


def black_images(pixels: int, side: int) -> Batch:
    """Black images of about this many pixels together."""
    count = max(1, pixels // side**2)
    one = np.ones(count, dtype=np.int64)
    return Batch(np.zeros(count * side**2, dtype=np.int64), one * side**2, 0 * one, one, one)


def _shifted(batch: Batch, side: int, rng: np.random.Generator) -> Batch:
    """Each image shifted at random by at most one pixel in each direction, filled with black."""
    images = batch.src.reshape(-1, side, side)
    offsets = rng.integers(-1, 2, (len(images), 2))
    shifted = np.stack([roll(image, *move) for image, move in zip(images, offsets.tolist(), strict=True)])
    return replace(batch, src=shifted.reshape(-1))


def roll(image: NDArray[np.int64], down: int, across: int) -> Int[np.ndarray, "height width"]:
    """One image shifted by at most one pixel in each direction."""
    height, width = image.shape
    around = np.pad(image, 1)
    return around[1 - down : 1 - down + height, 1 - across : 1 - across + width]
