"""Attention masks, and sentences packed end to end in one row without padding."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

Mask = Bool[Tensor, "#batch #heads #query key"]

_GROUPS = 8  # more groups leave less padding, but need more kernel launches


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "length length"]:
    """The lower triangle: each position may attend to itself and to earlier ones."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class Packing:
    """The boundaries of a packed row: sentence i is rows starts[i] to starts[i + 1].

    The last entry is the row's length, so that every position belongs to a sentence, and `sentence_of_row` says to
    which. `longest` is a plain int and may be an upper bound, so that shapes that depend on it stay the same in every
    batch.
    """

    starts: Int[Tensor, " sentences_and_end"]
    sentence_of_row: Int[Tensor, " rows"]
    longest: int

    @staticmethod
    def of(lengths: Int[Tensor, " sentences"], longest: int | None = None) -> "Packing":
        starts = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        numbers = torch.arange(len(lengths), dtype=torch.int32, device=lengths.device)
        return Packing(starts, numbers.repeat_interleave(lengths), int(lengths.max()) if longest is None else longest)

    @property
    def token_mask(self) -> Bool[Tensor, "sentences longest"]:
        """Which cells of the padded form hold a token."""
        lengths = self.starts.diff()
        return torch.arange(self.longest, device=lengths.device) < lengths[:, None]

    def groups(self) -> list["Packing"]:
        """The packings of a few runs of neighbouring sentences, each with its own longest."""
        sentences = len(self.starts) - 1
        size = max(16, -(-sentences // _GROUPS))
        runs = [self.starts[first : first + size + 1].diff() for first in range(0, sentences, size)]
        return [Packing.of(lengths, max(1, int(lengths.max()))) for lengths in runs]


@dataclass(frozen=True)
class PackedMask:
    """Attention within each sentence of a packed row; `causal`: only to itself and to earlier positions."""

    query: Packing
    key: Packing
    causal: bool = False

    @property
    def dense(self) -> Mask:
        """The same as a boolean mask over the whole row."""
        same = self.query.sentence_of_row[:, None] == self.key.sentence_of_row
        return (same & causal_mask(len(same), same.device) if self.causal else same)[None, None]


AttentionMask = Mask | PackedMask | None
