"""The engine protocol: source ids and options in, hypotheses out.

There are two engines. torch with `search` has every option and runs on a GPU too. CTranslate2 has its own search and is
much faster on a CPU. This module has the shared interface, and the options that CTranslate2 lacks.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from onehop.decoding.options import Hypothesis, Ids, SearchOptions
from onehop.errors import SettingsError

EngineName = Literal["torch", "ctranslate2"]
ComputeType = Literal["int8", "float32", "bfloat16", "float16"]
HALF = ("bfloat16", "float16")  # only torch has them, and it has no int8

# Section 6.1: how many tokens longer than the source the output may be.
MORE_THAN_SOURCE = 50


# A callback that takes the ids that are final so far. It raises SearchCancelled to end the search.
Settled = Callable[[Ids], None]


class SearchCancelled(Exception):  # noqa: N818  # nothing went wrong
    """The caller has cancelled the search."""


@runtime_checkable
class Engine(Protocol):
    """A model that is ready to translate ids."""

    name: EngineName

    @property
    def compute(self) -> str:
        """The dtype of the computation."""

    def reaches(self, source: Ids) -> bool:
        """Whether a sentence fits this engine's position table."""

    def translate(
        self, sources: Sequence[Ids], options: SearchOptions, indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The n best of each source. Sources have no EOS and are not empty. `indices` seed the sampling of each."""

    def complete(self, source: Ids, prefixes: Sequence[Ids], options: SearchOptions) -> list[Hypothesis]:
        """The best translation of a source that begins with each prefix. Sampling options are ignored."""

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """Log-probabilities of each target's tokens and, last, of EOS."""

    def align(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Any]:
        """Cross-attention of each pair, [target, source], without EOS. No sequence may be empty."""

    def stream(
        self, source: Ids, options: SearchOptions, settled: Settled, *, prefix: Ids = (), index: int = 0
    ) -> list[Hypothesis]:
        """The n best of one sentence. `settled` is called with each longer prefix that is final."""


# For each option: when CTranslate2 cannot do it. For all others, both engines give the same. Reasons:
# docs/internals/decoding.md.
CTRANSLATE2_LACKS: Mapping[str, Callable[[SearchOptions], bool]] = {
    "penalty": lambda o: o.penalty == "paper" and o.exponent > 0 and o.beam > 1,  # greedy search needs no ranking
    "min_length": lambda o: o.min_length > 0,
    "patience": lambda o: o.patience != 1,
    "sample": lambda o: o.sample,
}


def lacking(options: SearchOptions) -> list[str]:
    """The set options that only torch has."""
    return [name for name, lacks in CTRANSLATE2_LACKS.items() if lacks(options)]


def max_output_lengths(sources: Sequence[Ids], limit: float) -> list[int]:
    """The maximum length of each output, EOS included, within a learned position table."""
    for ids in sources:
        if len(ids) + 1 > limit:
            raise SettingsError(
                f"A sentence of {len(ids) + 1} tokens is longer than the {limit} learned positions.",
                "Split it, or train with a larger model.max_length.",
            )
    return [int(min(len(ids) + MORE_THAN_SOURCE, limit)) for ids in sources]


def batches_by_length(
    sources: Sequence[Ids], max_tokens: int, min_batches: int = 1, short: int = 0
) -> Iterator[list[int]]:
    """Indices of all sources, longest first, in batches of at most `max_tokens`, padding included.

    There are at least `min_batches`, if there are enough sources, so that no worker is idle. Sources with fewer than
    `short` tokens get batches of their own.
    """
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    size = math.ceil(len(sources) / min_batches)
    batch: list[int] = []
    for i in order:
        longest = len(sources[batch[0]]) if batch else 0
        too_large = len(batch) == size or (len(batch) + 1) * longest > max_tokens
        if batch and (too_large or len(sources[i]) < short <= longest):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
