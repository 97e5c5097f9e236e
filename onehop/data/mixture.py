"""Weights of sources. A source is one training file, named without its endings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from onehop.data.corpus import FORMATS, PACKED
from onehop.errors import SettingsError

_ENDINGS = (".{lang}", ".tsv", ".txt", *FORMATS, *PACKED)

Weights = Mapping[str, float]


@dataclass(frozen=True)
class SourcePart:
    """The pairs first … last - 1 of a store, which have one source, and their weight."""

    name: str
    first: int
    last: int
    weight: float = 1.0


def source_name(file: str) -> str:
    """The name by which a file's pairs are weighted: `tatoeba` for `tatoeba.tsv.xz`."""
    while ending := next((e for e in _ENDINGS if file.endswith(e) and file != e), None):
        file = file.removesuffix(ending)
    return file


def weights_of(names: Sequence[str], weights: Weights | None, setting: str) -> list[float]:
    """The weight of each source: that of the first matching name or pattern, else 1."""
    table = dict(weights or {})
    for pattern in table:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(dict.fromkeys(names))
            raise SettingsError(f"{setting} names {pattern!r}, which matches no source.", f"There are: {known}.")
    result = [next((w for pattern, w in table.items() if fnmatchcase(name, pattern)), 1.0) for name in names]
    if not any(result):
        raise SettingsError(f"{setting} gives every source the weight 0.", "Give one of them a larger weight.")
    return result


def epoch_indices(parts: Sequence[SourcePart], seed: int, epoch: int) -> NDArray[np.int64]:
    """The pairs of an epoch, in the order of the store: each pair ⌊w⌋ times, and a share of w - ⌊w⌋ once more.

    This share is the next part of a permutation that depends only on the seed. So a source of weight 0.5 is seen
    completely in every two epochs, and an epoch can be computed without the others.
    """
    return np.concatenate([_indices_of_part(part, i, seed, epoch) for i, part in enumerate(parts)])


def _indices_of_part(part: SourcePart, index: int, seed: int, epoch: int) -> NDArray[np.int64]:
    size, whole = part.last - part.first, int(part.weight)
    rest = part.weight - whole
    indices = np.repeat(np.arange(part.first, part.last), whole)
    start, end = int(epoch * rest * size), int((epoch + 1) * rest * size)
    if start == end:
        return indices
    # The third number makes the seed differ from those of the epochs, which have two.
    order = np.random.default_rng([seed, index, 1]).permutation(size)
    return np.concatenate([indices, part.first + order[np.arange(start, end) % size]])


def quotas(sizes: Sequence[int], weights: Sequence[float], count: int) -> list[int]:
    """The number of sentences from each source, in proportion to size times weight, at most its size."""
    shares = np.array(sizes, np.float64) * np.array(weights, np.float64)
    return [min(size, int(count * share)) for size, share in zip(sizes, shares / shares.sum(), strict=True)]
