"""The engine protocol: source ids and options in, hypotheses out.

There are two engines. torch with `search` has every option and runs on a GPU too. CTranslate2 has its own search and is
much faster on a CPU. This module has the shared interface, and the options that CTranslate2 lacks.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.errors import SettingsError

EngineName = Literal["torch", "ctranslate2"]
ComputeType = Literal["int8", "float32", "bfloat16", "float16"]
HALF = ("bfloat16", "float16")  # only torch has them, and it has no int8

# Section 6.1: how many tokens longer than the source the output may be.
MORE_THAN_SOURCE = 50


# Takes the ids that are final so far; it raises GivenUp to cancel the search.
Settled = Callable[[Sequence[int]], None]


class GivenUp(Exception):  # noqa: N818  # nothing went wrong
    """The search was cancelled."""


@runtime_checkable
class Engine(Protocol):
    """A model that is ready to translate ids."""

    name: EngineName

    @property
    def compute(self) -> str:
        """The dtype of the computation."""

    def reaches(self, source: Sequence[int]) -> bool:
        """Whether a sentence fits this engine's position table."""

    def translate(
        self, sources: Sequence[Sequence[int]], options: SearchOptions, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The n best of each source. Sources have no EOS and are not empty; `numbers` seed the sampling of each."""

    def complete(
        self, source: Sequence[int], prefixes: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[Hypothesis]:
        """The best translation of a source that begins with each prefix. Sampling options are ignored."""

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of each target's tokens and, last, of EOS."""

    def align(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Any]:
        """The alignment of each pair: a row per target token, without the weight on the source's EOS. None is empty."""

    def stream(
        self,
        source: Sequence[int],
        options: SearchOptions,
        settled: Settled,
        *,
        prefix: Sequence[int] = (),
        number: int = 0,
    ) -> list[Hypothesis]:
        """The n best of one sentence. `settled` is called with each longer prefix that is final."""


# For each option: when CTranslate2 cannot do it. For all others, both engines give the same. Reasons:
# docs/internals/engines.md.
CTRANSLATE2_LACKS: Mapping[str, Callable[[SearchOptions], bool]] = {
    "penalty": lambda o: o.penalty == "paper" and o.exponent > 0 and o.beam > 1,  # greedy search needs no ranking
    "min_length": lambda o: o.min_length > 0,
    "patience": lambda o: o.patience != 1,
    "sample": lambda o: o.sample,
}


def lacking(options: SearchOptions) -> list[str]:
    """The set options that only torch has."""
    return [name for name, lacks in CTRANSLATE2_LACKS.items() if lacks(options)]


def greatest_lengths(sources: Sequence[Sequence[int]], limit: float) -> list[int]:
    """The maximum length of each output, EOS included, within a learned position table."""
    for ids in sources:
        if len(ids) + 1 > limit:
            raise SettingsError(
                f"A sentence of {len(ids) + 1} tokens is longer than the {limit} learned positions.",
                "Split it, or train with a larger model.max_length.",
            )
    return [int(min(len(ids) + MORE_THAN_SOURCE, limit)) for ids in sources]


def batches_by_length(
    sources: Sequence[Sequence[int]], tokens: int, at_least: int = 1, apart: int = 0
) -> Iterator[list[int]]:
    """Indices of all sources, longest first, in batches of a maximum number of tokens, padding included.

    There are `at_least` this many batches, if there are enough sources, so that no worker is idle. Sources with fewer
    than `apart` tokens get batches of their own.
    """
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    most = math.ceil(len(sources) / at_least)
    batch: list[int] = []
    for i in order:
        longest = len(sources[batch[0]]) if batch else 0
        if batch and (len(batch) == most or (len(batch) + 1) * longest > tokens or len(sources[i]) < apart <= longest):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
