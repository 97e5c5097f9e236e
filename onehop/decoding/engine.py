"""What translates: an engine takes source ids and options and gives hypotheses.

Two of them: torch through `search`, which has every option and runs on a GPU too, and CTranslate2 with a search of
its own, which is much faster on a CPU. This module says what they share, and which options CTranslate2 lacks.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.errors import SettingsError

EngineName = Literal["torch", "ctranslate2"]
ComputeType = Literal["int8", "float32", "bfloat16", "float16"]
HALF = ("bfloat16", "float16")  # torch has them alone, and it has no int8

# Section 6.1: the output may be so many tokens longer than the source.
MORE_THAN_SOURCE = 50


# Takes the ids settled so far; to give the search up, it raises GivenUp.
Settled = Callable[[Sequence[int]], None]


class GivenUp(Exception):  # noqa: N818  # nothing went wrong
    """Nobody waits for this search any more."""


@runtime_checkable
class Engine(Protocol):
    """A model that is ready to translate ids."""

    name: EngineName
    shortlist: bool  # whether it looks for translations in a part of the vocabulary alone

    @property
    def compute(self) -> str:
        """The number format that it computes in."""

    def reaches(self, source: Sequence[int]) -> bool:
        """Whether a sentence is not too long for this engine."""

    def translate(
        self, sources: Sequence[Sequence[int]], options: SearchOptions, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The n best of each source, which has no end mark and is not empty; `numbers` name them for the sampling."""

    def complete(
        self, source: Sequence[int], prefixes: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[Hypothesis]:
        """The best translation of a source that begins with each prefix; options for sampling are passed over."""

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of each target's tokens and, last, of its end mark."""

    def align(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Any]:
        """For each pair a row for every target token; what the source's end mark draws is left out. None is empty."""

    def stream(
        self,
        source: Sequence[int],
        options: SearchOptions,
        settled: Settled,
        *,
        prefix: Sequence[int] = (),
        number: int = 0,
    ) -> list[Hypothesis]:
        """The n best of one sentence; `settled` hears of each longer beginning that they will share."""


# The one table: for each option, when CTranslate2 lacks what it asks for. Where none is listed, both engines do the
# same. The reasons stand in docs/internals/engines.md.
CTRANSLATE2_LACKS: Mapping[str, Callable[[SearchOptions], bool]] = {
    "penalty": lambda o: o.penalty == "paper" and o.exponent > 0 and o.beam > 1,  # one path needs no ranking
    "min_length": lambda o: o.min_length > 0,
    "patience": lambda o: o.patience != 1,
    "sample": lambda o: o.sample,
}


def lacking(options: SearchOptions) -> list[str]:
    """The options, as they are set, that only torch has."""
    return [name for name, lacks in CTRANSLATE2_LACKS.items() if lacks(options)]


def greatest_lengths(sources: Sequence[Sequence[int]], limit: float) -> list[int]:
    """How long each output may become, end mark included, under the limit of a learned table of positions."""
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
    """Places of all sources, longest first, in batches of at most so many tokens with padding.

    `at_least` so many batches, if there are as many sources, so that no worker stands idle. Sources of fewer than
    `apart` tokens are in no batch with others.
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
