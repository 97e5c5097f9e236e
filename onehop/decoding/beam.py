"""Beam search (section 6.1): the beams of all sentences at once, and the history of what each step kept."""

import math
from bisect import insort
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from onehop.decoding.options import Hypothesis
from onehop.decoding.request import LogProbs, RowInts, SearchRequest, Step, fetch
from onehop.text.tokenizer import BOS, EOS

_Slots: TypeAlias = Float[np.ndarray, "sentences slots"]
_SlotInts: TypeAlias = Int[np.ndarray, "sentences slots"]
_State: TypeAlias = Literal["live", "finished", "stopped"]


@dataclass(frozen=True)
class Kept:
    """One candidate that a step of the beam kept; `parent` is its index in the previous step."""

    token: int
    parent: int
    log_prob: float
    score: float
    state: _State


@dataclass
class History:
    """What each step of the beam kept: steps[sentence][step][index]."""

    steps: list[list[list[Kept]]] = field(default_factory=list)

    def replay(self, sentence: int, step: int, index: int) -> tuple[int, ...]:
        """The ids from the start up to one kept candidate, EOS included."""
        ids = []
        for kept in reversed(self.steps[sentence][: step + 1]):
            ids.append(kept[index].token)
            index = kept[index].parent
        return tuple(reversed(ids))


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence's hypotheses, best first. Ties: the better parent, then the lower id."""

    totals: Float[np.ndarray, "sentences candidates"]
    parents: Int[np.ndarray, "sentences candidates"]
    tokens: Int[np.ndarray, "sentences candidates"]

    @classmethod
    def best(cls, log_probs: LogProbs, so_far: _Slots, beam: int) -> "Candidates":
        """Enough candidates for a beam: the best beam + 1 of each row, since only one of them can be EOS."""
        k = min(beam + 2, log_probs.shape[1])
        values, ids = fetch(*log_probs.topk(k, dim=1))
        candidates = cls.ordered(values, ids, so_far)
        if k == beam + 2 and candidates.may_lack_an_equal(values, so_far, beam):
            values, ids = fetch(*(x[:, :k] for x in log_probs.sort(dim=1, descending=True, stable=True)))
            candidates = cls.ordered(values, ids, so_far)
        return candidates

    @classmethod
    def ordered(
        cls, values: Float[np.ndarray, "rows k"], ids: Int[np.ndarray, "rows k"], so_far: _Slots
    ) -> "Candidates":
        """Sort the candidates of all rows of a sentence together."""
        n, slots = so_far.shape
        totals = (so_far.reshape(-1, 1) + values).reshape(n, -1)
        tokens = ids.reshape(n, -1)
        parents = np.broadcast_to(np.repeat(np.arange(slots), values.shape[1]), tokens.shape)
        order = np.lexsort((tokens, parents, -totals))
        return cls(*(np.take_along_axis(x, order, axis=1) for x in (totals, parents, tokens)))

    def may_lack_an_equal(self, values: Float[np.ndarray, "rows k"], so_far: _Slots, beam: int) -> bool:
        """Whether `topk` cut a row within a tie that matters: it is undefined which of them it keeps."""
        tied = (values[:, -2] == values[:, -1]) & (values[:, -1] > -math.inf)
        if not tied.any():
            return False
        unfinished = np.sort(np.where(self.tokens == EOS, -math.inf, self.totals), axis=1)
        worst_kept = unfinished[:, -min(beam, unfinished.shape[1])]
        last_totals = so_far + values[:, -1].reshape(so_far.shape)
        return bool((tied.reshape(so_far.shape) & (last_totals >= worst_kept[:, None])).any())


class Beam:
    """The beams of all unfinished sentences: rows are sentences × slots, an empty slot has -inf."""

    def __init__(self, request: SearchRequest, history: History | None) -> None:
        self.request, self.options, self.history = request, request.options, history
        self.sentences = np.arange(len(request.max_lengths))
        self.ids = np.zeros((len(self.sentences), 1, 0), dtype=np.int64)
        self.log_probs = np.zeros((len(self.sentences), 1))
        self.finished: list[list[Hypothesis]] = [[] for _ in self.sentences]
        self.costs: list[list[float]] = [[] for _ in self.sentences]  # their negated scores, ascending, no loops
        if history is not None:
            history.steps[:] = [[] for _ in self.sentences]

    def search(self, step: Step, device: torch.device | str) -> list[list[Hypothesis]]:
        tokens, parents = torch.full((len(self.sentences),), BOS, device=device), None
        while len(self.sentences):
            old_rows = np.arange(self.log_probs.size)
            rows = self.advance(step(tokens, parents))
            tokens = torch.from_numpy(self.ids[:, :, -1].reshape(-1)).to(device)
            parents = None if np.array_equal(rows, old_rows) else torch.from_numpy(rows).to(device)
        return list(map(self.request.ranked, self.finished))

    def advance(self, log_probs: LogProbs) -> Int[np.ndarray, " new_rows"]:
        """One step of all beams. Returns each new row's parent."""
        slots, position = self.ids.shape[1:]
        log_probs = self.request.constrain(log_probs, self.sentences.repeat(slots), position)
        return self.extend(Candidates.best(log_probs, self.log_probs, self.options.beam))

    def extend(self, candidates: Candidates) -> RowInts:
        """Collect finished hypotheses, keep the best others, drop finished sentences. Returns each new row's parent."""
        (n, slots), beam = self.ids.shape[:2], self.options.beam
        is_end = candidates.tokens == EOS
        # Only the `beam` best candidates may finish, so that a beam of one ends exactly where greedy search does.
        ended = is_end & (candidates.totals > -math.inf) & (np.arange(is_end.shape[1]) < beam)
        self.collect(ended, candidates.parents, candidates.totals, finished=True)
        best = np.argsort(is_end, axis=1, kind="stable")[:, :beam]
        parents, tokens = (np.take_along_axis(x, best, axis=1) for x in (candidates.parents, candidates.tokens))
        totals = np.take_along_axis(np.where(is_end, -math.inf, candidates.totals), best, axis=1)
        self.ids = np.concatenate([self.ids[np.arange(n)[:, None], parents], tokens[:, :, None]], axis=2)
        self.log_probs = self.stop(totals)
        if self.history is not None:
            self.record(self.history, candidates, ended, totals, parents)
        kept = ~self.is_done()
        self.keep(kept)
        rows: RowInts = (np.arange(n)[:, None] * slots + parents)[kept].reshape(-1)
        return rows

    def keep(self, kept: Bool[np.ndarray, " sentences"]) -> None:
        """Drop all other sentences."""
        self.sentences, self.ids, self.log_probs = self.sentences[kept], self.ids[kept], self.log_probs[kept]

    def collect(
        self,
        chosen: Bool[np.ndarray, "sentences candidates"],
        slots: Int[np.ndarray, "sentences candidates"],
        totals: Float[np.ndarray, "sentences candidates"],
        *,
        finished: bool,
        looped: Bool[np.ndarray, "sentences candidates"] | None = None,
    ) -> None:
        """Move hypotheses, or their continuation by EOS, from the beams to the finished ones."""
        rows = chosen.nonzero()[0]
        ids, log_probs = self.ids[rows, slots[chosen]], totals[chosen]
        scores = self.options.score(log_probs, ids.shape[1] + finished)
        loops = (looped if looped is not None else np.zeros_like(chosen))[chosen]
        columns = (x.tolist() for x in (self.sentences[rows], ids, log_probs, scores, loops))
        for sentence, tokens, log_prob, score, loop in zip(*columns, strict=True):
            self.finished[sentence].append(Hypothesis(tuple(tokens), log_prob, score, finished, loop))
            if not loop:
                insort(self.costs[sentence], -score)

    def stop(self, totals: _Slots) -> _Slots:
        """Empty the slots that the loop guard or the maximum length stops, and collect their hypotheses."""
        n, slots, length = self.ids.shape
        looped = self.request.is_looped(self.ids.reshape(-1, length), self.sentences.repeat(slots)).reshape(n, slots)
        last = (self.request.max_lengths[self.sentences] == length)[:, None]
        stopped = (totals > -math.inf) & (looped | last)
        own_slots = np.broadcast_to(np.arange(slots), stopped.shape)
        self.collect(stopped, own_slots, totals, finished=False, looped=looped)
        return np.where(looped | last, -math.inf, totals)

    def is_done(self) -> Bool[np.ndarray, " sentences"]:
        """Which sentences have enough finished hypotheses, no unfinished one, or none that could become better."""
        enough = self.options.patience * self.options.beam
        full = np.array([len(self.costs[s]) >= enough for s in self.sentences], dtype=bool)
        empty = (self.log_probs == -math.inf).all(axis=1)
        done: Bool[np.ndarray, " sentences"] = full | empty | self.cannot_improve()
        return done

    def cannot_improve(self) -> Bool[np.ndarray, " sentences"]:
        """Which sentences' best unfinished hypothesis cannot overtake the n-th finished one.

        Log-probabilities only fall with the length, and penalties only grow. So the upper bound has probability 1 for
        all further tokens and the maximum length.
        """
        n, costs = self.options.n_best, (self.costs[s] for s in self.sentences)
        to_beat = np.array([-c[n - 1] if len(c) >= n else -math.inf for c in costs])
        bound = self.options.score(self.log_probs.max(axis=1), self.request.max_lengths[self.sentences])
        hopeless: Bool[np.ndarray, " sentences"] = bound <= to_beat
        return hopeless

    def record(
        self,
        history: History,
        candidates: Candidates,
        ended: Bool[np.ndarray, "sentences candidates"],
        totals: _Slots,
        parents: _SlotInts,
    ) -> None:
        """Append this step to the history: the slots in order, then the finished hypotheses."""
        score, length = self.options.score, self.ids.shape[2]
        for s, sentence in enumerate(self.sentences):
            filled, ends = totals[s] > -math.inf, ended[s]
            tokens = self.ids[s, filled, -1].tolist() + [EOS] * int(ends.sum())
            origins = parents[s, filled].tolist() + candidates.parents[s, ends].tolist()
            log_probs = totals[s, filled].tolist() + candidates.totals[s, ends].tolist()
            states = np.where(self.log_probs[s, filled] > -math.inf, "live", "stopped").tolist()
            states += ["finished"] * int(ends.sum())
            columns = zip(tokens, origins, log_probs, states, strict=True)
            history.steps[sentence].append([Kept(t, p, x, score(x, length), state) for t, p, x, state in columns])
