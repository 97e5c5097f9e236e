"""Options and results of a search, the same for every engine. No torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from onehop.errors import SettingsError
from onehop.setting_fields import check_fields, setting

Ids: TypeAlias = Sequence[int]

BEAM = 4
ALPHA = 0.6  # the paper's, for models that say nothing
LONGEST_LOOP = 6  # ids in the longest n-gram whose repetition counts as a loop
LOOP_SPAN = 12  # the minimum length of a loop in ids, so that "...." and "ha ha ha ha" may be said


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search. The defaults are the paper's, except for the penalty: every engine has |Y|^α."""

    beam: int = setting(BEAM, "hypotheses followed at a time; 1: greedy", least=1, most=1000)
    # None: the one that suits the model, or ALPHA.
    alpha: float | None = setting(None, "α of the length penalty; 0: none", least=0.0, most=100.0)
    penalty: Literal["paper", "power"] = setting("power", "divide by ((5+|Y|)/6)^α or by |Y|^α")
    n_best: int = setting(1, "hypotheses returned for a sentence", least=1)
    min_length: int = setting(0, "tokens before the end token may come", least=0)
    patience: float = setting(1.0, "a sentence is done with patience · beam ended hypotheses", least=1.0)
    loop_repeats: int = setting(4, "an n-gram so often in a row is a loop and stopped; 0: never", least=0)
    sample: bool = setting(False, "draw tokens at random, with no beam")
    temperature: float = setting(1.0, "in sampling: below 1 sharper, above 1 flatter", least=0.01)
    top_k: int = setting(0, "in sampling: only the k most probable tokens; 0: all", least=0)
    top_p: float = setting(1.0, "in sampling: only the fewest tokens that reach this share", least=0.0, most=1.0)
    seed: int = setting(1, "of the sampling", least=0)

    def __post_init__(self) -> None:
        check_fields("search", self)
        if self.loop_repeats == 1:
            raise SettingsError("search.loop_repeats is 1.", "Nothing repeats once: take 2 or more, or 0 for never.")
        if not self.sample and self.n_best > self.beam:
            raise SettingsError(
                f"search.n_best is {self.n_best}, but search.beam is {self.beam}.",
                f"A beam finds as many as it is wide: set search.beam to {self.n_best} or more.",
            )
        for name, off in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0)):
            if not self.sample and getattr(self, name) != off:
                raise SettingsError(
                    f"search.{name} is {getattr(self, name)}, but nothing is sampled.", "Set search.sample to true."
                )

    @property
    def is_greedy(self) -> bool:
        return self.beam == 1 and self.patience == 1

    def score(self, log_prob: Any, length: Any) -> Any:
        """Log-probability over length penalty, for numbers or arrays; |Y| includes EOS."""
        return log_prob / self.length_penalty(length)

    def length_penalty(self, length: Any) -> Any:
        """The divisor of a log-probability."""
        return ((5 + length) / 6 if self.penalty == "paper" else length) ** self.exponent

    def ranked(self, hypotheses: Sequence["Hypothesis"]) -> list["Hypothesis"]:
        """The n best; looped ones come last. Equal scores keep their order."""
        return sorted(hypotheses, key=lambda h: (h.looped, -h.score))[: self.n_best]

    @property
    def exponent(self) -> float:
        """α, or the default if it is not set."""
        return ALPHA if self.alpha is None else self.alpha


@dataclass(frozen=True)
class Hypothesis:
    """One output. `finished`: the model ended it with EOS, not the maximum length or the loop guard."""

    ids: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool
    looped: bool = False


def for_one_best(options: SearchOptions) -> SearchOptions:
    """A beam search for the best translation alone, under the same penalty."""
    return SearchOptions(
        beam=options.beam, alpha=options.alpha, penalty=options.penalty, loop_repeats=options.loop_repeats
    )


def allowing(options: SearchOptions, source: Ids) -> SearchOptions:
    """The options for a source that repeats an n-gram itself: its output may repeat one twice as often."""
    # Most sources have too few duplicates for loops of most lengths: r times an n-gram has r n - n of them.
    duplicates = len(source) - len(set(source))
    lengths = [n for n in range(1, LONGEST_LOOP + 1) if options.loop_repeats * n - n <= duplicates]
    repeats = max((_max_repeats(source, n) for n in lengths), default=1)
    return replace(options, loop_repeats=2 * repeats) if 0 < options.loop_repeats <= repeats else options


def _max_repeats(ids: Ids, n: int) -> int:
    """The maximum number of consecutive repetitions of an n-gram."""
    longest = span = n
    for i in range(n, len(ids)):
        span = span + 1 if ids[i] == ids[i - n] else n
        longest = max(longest, span)
    return longest // n


@lru_cache
def loop_span(n: int, repeats: int) -> int:
    """The number of consecutive ids that a repeated n-gram must cover to be a loop."""
    return n * max(repeats, math.ceil(LOOP_SPAN / n))
