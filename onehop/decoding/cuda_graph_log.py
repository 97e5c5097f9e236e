"""The host's half of a search on a GPU: it writes down what the device chose, with the classes of `search`."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from onehop.decoding.options import Hypothesis
from onehop.decoding.search import Beam, Candidates, Paths, RowInts, Task, fetch, most_probable


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


class PathLog:
    """Of greedy search."""

    def __init__(self, task: Task) -> None:
        self.task, self.paths = task, Paths(task, 1, most_probable)

    def read(self, answer: Float64[Tensor, "two sentences"], place: int) -> None:
        """Append a token to each path that goes on."""
        rows = self.paths.rows
        values, tokens = answer[:, torch.from_numpy(rows)]
        self.paths.rows = rows[self.paths.goes_on(*fetch(values, tokens.long()), place)]

    @property
    def over(self) -> bool:
        """Whether no path goes on."""
        return not len(self.paths.rows)

    def found(self) -> list[list[Hypothesis]]:
        """The path of each sentence."""
        return [self.task.ranked(found) for found in self.paths.found]


@dataclass
class Ended:
    """A hypothesis that has ended, its ids still in their array."""

    ids: Int[np.ndarray, " length"]
    log_prob: float
    score: float
    finished: bool
    looped: bool

    def hypothesis(self) -> Hypothesis:
        """As the search gives it."""
        return Hypothesis(tuple(self.ids.tolist()), self.log_prob, self.score, self.finished, self.looped)


class HastyBeam(Beam):
    """A beam that turns into hypotheses only what it gives back: where all sentences end at once, the GPU waits."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, None)
        self.ended: list[list[Ended]] = [[] for _ in task.max_lengths]
        n, slots = len(task.max_lengths), task.options.beam
        self.ids = np.zeros((n, slots, 0), dtype=np.int64)
        self.log_probs = np.where(np.arange(slots) > 0, -math.inf, np.zeros((n, slots)))

    def keep_aside(
        self, sentence: int, ids: RowInts, log_prob: float, score: float, finished: bool, looped: bool
    ) -> None:
        """One hypothesis that is out."""
        self.ended[sentence].append(Ended(ids, log_prob, score, finished, looped))

    def best(self) -> list[list[Hypothesis]]:
        """The n best of each sentence, by `Task.ranked`."""
        n = self.options.n_best
        few = [sorted(ended, key=lambda e: (e.looped, -e.score))[:n] for ended in self.ended]
        return [self.task.ranked([e.hypothesis() for e in ended]) for ended in few]


class BeamLog:
    """Of beam search."""

    def __init__(self, task: Task, vocab: int) -> None:
        self.vocab, self.beam = vocab, HastyBeam(task)

    def read(self, answer: Float64[Tensor, "two sentences candidates"], place: int) -> None:
        """Extend the beams that are not done."""
        totals, codes = answer[:, torch.from_numpy(self.beam.sentences)]
        sums, parents_and_tokens = fetch(totals, codes.long())
        self.beam.extend(Candidates(sums, *np.divmod(parents_and_tokens, self.vocab)))

    @property
    def over(self) -> bool:
        """Whether every sentence is done."""
        return not len(self.beam.sentences)

    def found(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""
        return self.beam.best()
