"""The limits and constraints of a search over torch log-probabilities, as arrays with a row per sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onehop.decoding.options import LONGEST_LOOP, Hypothesis, SearchOptions, loop_span
from onehop.errors import OnehopError, SettingsError
from onehop.text.tokenizer import EOS

LogProbs: TypeAlias = Float[Tensor, "rows vocab"]
RowIds: TypeAlias = Int[Tensor, " rows"]
RowInts: TypeAlias = Int[np.ndarray, " rows"]
RowMask: TypeAlias = Bool[np.ndarray, " rows"]


@runtime_checkable
class Step(Protocol):
    """A step function: log-probabilities of every row's next token. The implementation keeps the rows' cache."""

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        """Row i appends tokens[i] to row parents[i] of the previous call.

        `parents` is None at the first call, which has one BOS row per sentence, and if the rows keep their order.
        """


@dataclass(frozen=True)
class SearchRequest:
    """Maximum lengths and prefixes of a batch; `forced` is -1 where the choice is free."""

    options: SearchOptions
    max_lengths: Int[np.ndarray, " sentences"]
    forced: Int[np.ndarray, "sentences prefix"]

    @classmethod
    def of(
        cls, max_lengths: Sequence[int], options: SearchOptions, prefixes: Sequence[Sequence[int]] | None
    ) -> "SearchRequest":
        """Check and pad the caller's arguments."""
        prefixes = [()] * len(max_lengths) if prefixes is None else prefixes
        forced = np.full((len(max_lengths), max(map(len, prefixes), default=0)), -1)
        for row, prefix, longest in zip(forced, prefixes, max_lengths, strict=True):
            if len(prefix) >= longest:
                raise SettingsError(
                    f"A prefix of {len(prefix)} tokens leaves no room in {longest}, the maximum length.",
                    "Shorten the prefix or allow more tokens.",
                )
            if EOS in prefix:
                raise SettingsError("A prefix contains the end token.", "Remove it: the search continues the prefix.")
            row[: len(prefix)] = prefix
        return cls(options, np.array(max_lengths, dtype=np.int64), forced)

    def is_forced(self, sentences: RowInts, position: int) -> RowMask:
        """Whether a prefix determines each sentence's token at a position."""
        forced: RowMask = np.zeros(len(sentences), dtype=bool)
        return forced if position >= self.forced.shape[1] else self.forced[sentences, position] >= 0

    def constrain(self, log_probs: LogProbs, sentences: RowInts, position: int) -> LogProbs:
        """Mask tokens that the minimum length or a prefix forbids. It costs nothing if neither applies."""
        if position < self.options.min_length:
            log_probs = log_probs.index_fill(1, torch.tensor([EOS], device=log_probs.device), -math.inf)
        if self.is_forced(sentences, position).any():
            forced = torch.from_numpy(self.forced[sentences, position]).to(log_probs.device)[:, None]
            vocab = torch.arange(log_probs.shape[1], device=log_probs.device)
            log_probs = log_probs.masked_fill((forced >= 0) & (vocab != forced), -math.inf)
        return log_probs

    def is_looped(self, ids: Int[np.ndarray, "rows length"], sentences: RowInts) -> RowMask:
        """Whether each row ends in a loop that a prefix did not force."""
        looped: RowMask = ends_in_loop(ids, self.options.loop_repeats)
        looped &= ~self.is_forced(sentences, ids.shape[1] - 1)
        return looped

    def ranked(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """The hypotheses as the options rank them; if there is none, an empty one with probability 0."""
        return self.options.ranked(hypotheses) or [Hypothesis((), -math.inf, -math.inf, finished=False)]


def ends_in_loop(ids: Int[np.ndarray, "rows length"], repeats: int) -> RowMask:
    """Whether each row ends in an n-gram repeated that many times; 0: never. `options` defines a loop."""
    looped: RowMask = np.zeros(len(ids), dtype=bool)
    for n in range(1, LONGEST_LOOP + 1) if repeats else ():
        span = loop_span(n, repeats)
        if span <= ids.shape[1]:
            tail = ids[:, -span:]
            looped |= (tail[:, n:] == tail[:, :-n]).all(axis=1)
    return looped


class NaNError(OnehopError):
    """A log-probability is NaN."""


def refuse_nan(values: Float[np.ndarray, "..."]) -> None:
    if np.isnan(values).any():
        raise NaNError("The model's log-probabilities contain NaN.", "Try float32, or another checkpoint.")


def fetch(
    values: Float[Tensor, " rows *k"], ids: Int[Tensor, " rows *k"]
) -> tuple[Float[np.ndarray, " rows *k"], Int[np.ndarray, " rows *k"]]:
    """Copy log-probabilities and ids to the host in one transfer: float32 holds every id below 2^24."""
    values = values if values.dtype == torch.float64 else values.float()
    both = torch.stack([values, ids.to(values.dtype)]).cpu().numpy()
    refuse_nan(both[0])
    return both[0].astype(np.float64), both[1].astype(np.int64)
