"""The host's half of a search on a GPU: it writes down what the device chose and finds the same as `search`.

The device must not wait for the host, so nothing here runs once per hypothesis until a batch is over. A step stores its
tokens and parents as arrays. The ids of the few hypotheses that are returned are traced back at the end.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from torch import Tensor

from onehop.decoding.options import LONGEST_LOOP, Hypothesis, loop_span
from onehop.decoding.search import Task
from onehop.errors import OnehopError
from onehop.text.tokenizer import EOS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@runtime_checkable
class Log(Protocol):
    """Writes down what the device chose."""

    def read(self, answer: Tensor, place: int) -> None:
        """One step."""

    @property
    def over(self) -> bool:
        """Whether every sentence is done."""

    def found(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""


class LoopGuard:
    """Finds the same loops as `options.ends_in_loop`, from each slot's last ids and counts of equal ids."""

    def __init__(self, sentences: int, slots: int, repeats: int) -> None:
        lengths = range(1, LONGEST_LOOP + 1) if repeats else range(0)
        self.needed = np.array([loop_span(n, repeats) - n for n in lengths])
        self.recent: Ints = np.full((sentences, slots, len(lengths)), -1)  # the newest first
        self.equal: Ints = np.zeros((sentences, slots, len(lengths)), dtype=np.int64)

    def add(self, parents: Ints, tokens: Ints) -> Mask:
        """Append a token to each slot's parent; which slots end in a loop now."""
        if not len(self.needed):
            return np.zeros(tokens.shape, dtype=bool)
        recent, equal = (np.take_along_axis(x, parents[..., None], axis=1) for x in (self.recent, self.equal))
        self.equal = np.where(recent == tokens[..., None], equal + 1, 0)
        self.recent = np.concatenate([tokens[..., None], recent[..., :-1]], axis=-1)
        looped: Mask = np.any(self.equal >= self.needed, axis=-1)
        return looped

    def keep(self, sentences: Mask) -> None:
        """Go on with some of the sentences."""
        self.recent, self.equal = self.recent[sentences], self.equal[sentences]


@dataclass(frozen=True)
class Ended:
    """Hypotheses that ended together: their last ids lie in these slots, `length` ids from the beginning."""

    sentences: Ints
    slots: Ints
    lengths: Ints
    log_probs: Floats
    scores: Floats
    finished: Mask
    looped: Mask

    @classmethod
    def joined(cls, parts: list["Ended"]) -> "Ended":
        """All of them, in the order in which they were found."""
        return cls(*(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True)))

    def best(self, n: int) -> "Ended":
        """The n best of each sentence, best first, as `Task.ranked` has them."""
        order = np.lexsort((-self.scores, self.looped, self.sentences))
        sentences = self.sentences[order]
        rank = np.arange(len(order)) - np.searchsorted(sentences, sentences)
        return Ended(*(column[order[rank < n]] for column in vars(self).values()))


class BeamLog:
    """Of beam search: `search.Beam`, for a whole batch at a time."""

    def __init__(self, task: Task, vocab: int) -> None:
        self.task, self.options, self.vocab = task, task.options, vocab
        n, beam, longest = len(task.max_lengths), task.options.beam, int(task.max_lengths.max())
        self.sentences = np.arange(n)  # those that are not done
        self.tokens, self.parents = np.zeros((2, longest, n, beam), dtype=np.int64)
        self.guard = LoopGuard(n, beam, task.options.loop_repeats)
        self.ended: list[Ended] = []
        # Of the hypotheses that ended without a loop: how many there are, and the best scores.
        self.counts = np.zeros(n, dtype=np.int64)
        self.best_scores = np.full((n, task.options.n_best), -math.inf)

    def read(self, answer: Float64[Tensor, "two sentences *candidates"], place: int) -> None:
        """Extend the beams that are not done."""
        totals, parents, tokens = self.candidates(answer)
        is_end = tokens == EOS
        # Ended ones only from among the `beam` best: a beam of one then ends exactly where greedy does.
        ended = is_end & (totals > -math.inf)
        ended[:, self.options.beam :] = False
        self.put_aside(ended, parents, totals, place, finished=True)
        going_on = np.argsort(is_end, axis=1, kind="stable")[:, : self.options.beam]
        totals = np.take_along_axis(np.where(is_end, -math.inf, totals), going_on, axis=1)
        parents, tokens = (np.take_along_axis(x, going_on, axis=1) for x in (parents, tokens))
        self.tokens[place, self.sentences], self.parents[place, self.sentences] = tokens, parents
        self.drop_done(self.stopped(totals, parents, tokens, place))

    def candidates(self, answer: Float64[Tensor, "two sentences *candidates"]) -> tuple[Floats, Ints, Ints]:
        """The best continuations of each sentence: log-probability, parent's slot, token."""
        totals, codes = answer.numpy()[:, self.sentences]
        check_numbers(totals)
        return totals, *np.divmod(codes.astype(np.int64), self.vocab)

    def stopped(self, totals: Floats, parents: Ints, tokens: Ints, place: int) -> Floats:
        """The log-probabilities, without the slots that the loop guard or the greatest length stops."""
        looped = self.guard.add(parents, tokens)
        stop = looped | (self.task.max_lengths[self.sentences] == place + 1)[:, None]
        slots = np.broadcast_to(np.arange(totals.shape[1]), totals.shape)
        self.put_aside(stop & (totals > -math.inf), slots, totals, place + 1, finished=False, looped=looped)
        return np.where(stop, -math.inf, totals)

    def put_aside(
        self, chosen: Mask, slots: Ints, totals: Floats, length: int, *, finished: bool, looped: Mask | None = None
    ) -> None:
        """Note the hypotheses that ended in this step; `length` does not count the end token."""
        if not chosen.any():
            return
        looped = np.zeros_like(chosen) if looped is None else looped
        scores = self.options.score(totals, length + finished)
        sentences, log_probs = self.sentences[chosen.nonzero()[0]], totals[chosen]
        lengths, ends = np.full(len(sentences), length), np.full(len(sentences), finished)
        self.ended.append(Ended(sentences, slots[chosen], lengths, log_probs, scores[chosen], ends, looped[chosen]))
        sound = chosen & ~looped
        self.counts[self.sentences] += sound.sum(axis=1)
        known = np.concatenate([self.best_scores[self.sentences], np.where(sound, scores, -math.inf)], axis=1)
        self.best_scores[self.sentences] = -np.sort(-known, axis=1)[:, : self.options.n_best]

    def drop_done(self, totals: Floats) -> None:
        """Leave out the sentences that `search.Beam.is_done` would."""
        full = self.counts[self.sentences] >= self.options.patience * self.options.beam
        hope = self.options.score(totals.max(axis=1), self.task.max_lengths[self.sentences])
        goes_on = ~(full | (totals == -math.inf).all(axis=1) | (hope <= self.best_scores[self.sentences, -1]))
        if not goes_on.all():
            self.sentences = self.sentences[goes_on]
            self.guard.keep(goes_on)

    @property
    def over(self) -> bool:
        """Whether every sentence is done."""
        return not len(self.sentences)

    def found(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""
        found: list[list[Hypothesis]] = [[] for _ in self.task.max_lengths]
        if self.ended:
            best = Ended.joined(self.ended).best(self.options.n_best)
            each = zip(*(column.tolist() for column in vars(best).values()), self.traced(best), strict=True)
            for sentence, _, length, log_prob, score, finished, looped, ids in each:
                found[sentence].append(Hypothesis(tuple(ids[:length]), log_prob, score, finished, looped))
        return [self.task.ranked(hypotheses) for hypotheses in found]

    def traced(self, ended: Ended) -> list[list[int]]:
        """The ids of each hypothesis, followed from its last one back to the first, and zeros behind them."""
        ids = np.zeros((len(ended.slots), int(ended.lengths.max())), dtype=np.int64)
        slots = ended.slots.copy()
        for place in reversed(range(ids.shape[1])):
            rows = np.flatnonzero(ended.lengths > place)
            at = place, ended.sentences[rows], slots[rows]
            ids[rows, place], slots[rows] = self.tokens[at], self.parents[at]
        traced: list[list[int]] = ids.tolist()
        return traced


class PathLog(BeamLog):
    """Of greedy search: a beam of one, whose answers are the log-probabilities of the tokens."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, 0)
        self.totals = np.zeros(len(task.max_lengths))

    def candidates(self, answer: Float64[Tensor, "two sentences"]) -> tuple[Floats, Ints, Ints]:
        """The one continuation of each sentence."""
        values, tokens = answer.numpy()[:, self.sentences]
        check_numbers(values)
        self.totals[self.sentences] += values
        totals = self.totals[self.sentences][:, None]
        return totals, np.zeros(totals.shape, dtype=np.int64), tokens.astype(np.int64)[:, None]


def check_numbers(values: Floats) -> None:
    """Refuse NaN, before it is ranked as if it were a number."""
    if np.isnan(values).any():
        raise OnehopError("The model's log-probabilities are not numbers.", "Try float32, or another checkpoint.")
