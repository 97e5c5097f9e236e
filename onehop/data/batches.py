"""Batches of sentence pairs packed end to end, limited by source and target tokens.

An epoch is a permutation of all pairs that depends only on the seed and the epoch's number. A batch ends when one of
the two budgets is full. So every pair occurs exactly once, or as often as its source's weight says, and any batch of
any epoch can be computed directly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onehop.data.mixture import epoch_indices
from onehop.data.store import Pairs, Side
from onehop.errors import SettingsError
from onehop.shapes import Int
from onehop.text.tokenizer import BOS, EOS, PAD

Ids = Int[np.ndarray, " rows"]
Lengths = Int[np.ndarray, " sentences"]
_PADDING_LENGTH = 64  # tokens of a padding sentence


@dataclass(frozen=True)
class Batch:
    """Packed pairs: sources with EOS, targets shifted right (`tgt`), and the labels."""

    src: Int[np.ndarray, " src_rows"]
    src_lengths: Lengths
    tgt: Int[np.ndarray, " tgt_rows"]
    labels: Int[np.ndarray, " tgt_rows"]
    tgt_lengths: Lengths

    @property
    def tokens(self) -> int:
        """The number of target tokens to predict."""
        return int((self.labels != PAD).sum())

    def part(self, first: int, last: int) -> "Batch":
        """The sentences first … last - 1 as a batch."""
        src = np.concatenate([[0], np.cumsum(self.src_lengths)])
        tgt = np.concatenate([[0], np.cumsum(self.tgt_lengths)])
        return Batch(
            self.src[src[first] : src[last]],
            self.src_lengths[first:last],
            self.tgt[tgt[first] : tgt[last]],
            self.labels[tgt[first] : tgt[last]],
            self.tgt_lengths[first:last],
        )

    def halves(self) -> tuple["Batch", "Batch"]:
        middle = len(self.src_lengths) // 2
        return self.part(0, middle), self.part(middle, len(self.src_lengths))

    def share(self, rank: int, of: int) -> "Batch":
        """The part of one of N processes: consecutive sentences with about 1/N of the target tokens."""
        ends = np.cumsum(self.tgt_lengths)
        cuts = np.searchsorted(ends - self.tgt_lengths / 2, [rank * ends[-1] / of, (rank + 1) * ends[-1] / of])
        return self.part(int(cuts[0]), int(cuts[1]))

    def twice(self) -> "Batch":
        """The batch twice, for R-Drop."""
        return Batch(*(np.concatenate([x, x]) for x in vars(self).values()))

    def filled(self, rows: int, sentences: int, longest: int) -> "Batch":
        """The batch padded to fixed shapes, so that every step uses the same compiled graph.

        Both sides are filled to `rows` with padding sentences, and to `sentences` with empty ones. A padding sentence
        has at most `longest` tokens, since a kernel may rely on that bound. Larger batches are unchanged.
        """
        missing = sentences - len(self.src_lengths)
        src_padding, tgt_padding = (padding_lengths(rows - len(ids), missing, longest) for ids in (self.src, self.tgt))
        most = max(missing, len(src_padding), len(tgt_padding))
        return Batch(
            np.pad(self.src, (0, sum(src_padding))),
            np.concatenate([self.src_lengths, _padded(src_padding, most)]),
            np.pad(self.tgt, (0, sum(tgt_padding))),
            np.pad(self.labels, (0, sum(tgt_padding))),
            np.concatenate([self.tgt_lengths, _padded(tgt_padding, most)]),
        )


def padding_lengths(rows: int, sentences: int, longest: int) -> list[int]:
    """Lengths of padding sentences that fill this many rows.

    They are short: attention over a long padding sentence would cost time on a GPU.
    """
    rows = max(0, rows)
    length = min(longest, max(_PADDING_LENGTH, -(-rows // max(1, sentences))))
    whole, rest = divmod(rows, length)
    return [length] * whole + [rest] * (rest > 0)


def _padded(lengths: list[int], count: int) -> Lengths:
    """The lengths, padded with zeros to `count`."""
    return np.array(lengths + [0] * (count - len(lengths)), dtype=np.int64)


def pack(pairs: Pairs, indices: NDArray[np.int64]) -> Batch:
    """Pack these pairs end to end, with BOS and EOS."""
    src, src_lengths = _gather(pairs.source, indices)
    tgt, tgt_lengths = _gather(pairs.target, indices)
    return Batch(
        _with_special_token(src, src_lengths, EOS, before=False),
        src_lengths + 1,
        _with_special_token(tgt, tgt_lengths, BOS, before=True),
        _with_special_token(tgt, tgt_lengths, EOS, before=False),
        tgt_lengths + 1,
    )


def _gather(side: Side, indices: NDArray[np.int64]) -> tuple[Ids, Lengths]:
    """The ids of these sentences, packed end to end, and their lengths."""
    lengths = side.lengths[indices].astype(np.int64)
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1]) + np.repeat(side.ends[indices] - ends, lengths)
    return side.ids[rows].astype(np.int64), lengths


def _with_special_token(ids: Ids, lengths: Lengths, token: int, *, before: bool) -> Int[np.ndarray, " more_rows"]:
    ends = np.cumsum(lengths + 1)
    result = np.full(ends[-1], token)
    is_text = np.ones(len(result), dtype=bool)
    is_text[ends - 1 - lengths if before else ends - 1] = False
    result[is_text] = ids
    return result


class Epoch:
    """One pass over all pairs, or over the weighted pairs, in batches."""

    def __init__(self, pairs: Pairs, batch_tokens: int, seed: int, number: int, *, shuffle: bool = True) -> None:
        self.pairs = pairs
        indices = epoch_indices(pairs.parts, seed, number) if pairs.parts else np.arange(len(pairs))
        self.order = np.random.default_rng([seed, number]).permutation(indices) if shuffle else indices
        src = np.cumsum(pairs.src_lengths[self.order].astype(np.int64) + 1)
        tgt = np.cumsum(pairs.tgt_lengths[self.order].astype(np.int64) + 1)
        self.bounds = batch_bounds(src, tgt, batch_tokens)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, i: int) -> Batch:
        chosen = self.order[self.bounds[i] : self.bounds[i + 1]]
        # Order within a batch is free: neighbours of similar length need the least padding in attention.
        by_length = np.argsort(self.pairs.src_lengths[chosen] + self.pairs.tgt_lengths[chosen], kind="stable")
        return pack(self.pairs, chosen[by_length])

    def __iter__(self) -> Iterator[Batch]:
        return (self[i] for i in range(len(self)))

    @property
    def most_sentences(self) -> int:
        return int(np.diff(self.bounds).max(initial=0))


def batch_bounds(src: NDArray[np.int64], tgt: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    """The first index of each batch and, last, the number of pairs, from the cumulative lengths of both sides."""
    bounds = [0]
    while bounds[-1] < len(src):
        start = bounds[-1]
        before_src, before_tgt = (src[start - 1], tgt[start - 1]) if start else (0, 0)
        end = min(
            np.searchsorted(src, before_src + budget, side="right"),
            np.searchsorted(tgt, before_tgt + budget, side="right"),
        )
        if end == start:
            longest = max(src[start] - before_src, tgt[start] - before_tgt)
            raise SettingsError(
                f"A sentence of {longest} tokens does not fit into train.batch_tokens {budget}.",
                f"Set train.batch_tokens to at least {longest}, or prepare with a smaller data.longest.",
            )
        bounds.append(int(end))
    return np.array(bounds)
