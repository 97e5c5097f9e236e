"""The hypotheses of a search that stays on the device: unfinished, finished, and which sentences are done.

All tensors have fixed addresses on the device and no step waits for the host, so a step can be captured as a CUDA
graph. The results equal those of `search`. At the end of a batch, one transfer brings tokens and parents to the host,
and the ids of the returned hypotheses are traced back.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from onehop.decoding.cuda_graph_state import Operations, Shape
from onehop.decoding.options import LONGEST_LOOP, Hypothesis, loop_span
from onehop.decoding.request import SearchRequest, refuse_nan
from onehop.text.tokenizer import BOS, EOS

_Values = Float[Tensor, "rows k"]
_TopIds = Int[Tensor, "rows k"]
_Position = Int[Tensor, ""]
_Host = dict[str, NDArray[Any]]

# A looped hypothesis ranks behind all others. Scaling its score by a power of two is exact, and the subtracted number
# is below every other score.
_LOOPED_FACTOR, _LOOPED_OFFSET = 2.0**500, 2.0**400


class Limits:
    """The options of a batch, on the device, so that one graph serves all options."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.device = device
        self.max_lengths = torch.zeros(shape.sentences, dtype=torch.int64, device=device)  # 0: no sentence
        self.penalties = torch.ones(shape.capacity + 2, dtype=torch.float64, device=device)
        self.loop_counts = torch.zeros(LONGEST_LOOP, dtype=torch.int64, device=device)
        self.enough = torch.zeros((), dtype=torch.float64, device=device)
        self.last_best = torch.zeros(1, dtype=torch.int64, device=device)

    def load(self, request: SearchRequest) -> None:
        options = request.options
        max_lengths = np.zeros(len(self.max_lengths), dtype=np.int64)
        max_lengths[: len(request.max_lengths)] = request.max_lengths
        self.max_lengths.copy_(torch.from_numpy(max_lengths))
        lengths = np.arange(1, len(self.penalties), dtype=np.float64)
        self.penalties[1:].copy_(torch.from_numpy(options.length_penalty(lengths)))
        repeats = options.loop_repeats
        never = len(self.penalties)  # more repetitions than possible
        spans = [loop_span(n, repeats) - n if repeats else never for n in range(1, LONGEST_LOOP + 1)]
        self.loop_counts.copy_(torch.tensor(spans))
        self.enough.fill_(options.patience * options.beam)
        self.last_best.fill_(options.n_best - 1)


class LoopCounts:
    """Finds the same loops as `request.ends_in_loop`, from each row's last ids and counts of equal ids."""

    def __init__(self, rows: int, limits: Limits) -> None:
        self.needed = limits.loop_counts
        self.recent = torch.zeros(rows, LONGEST_LOOP, dtype=torch.int64, device=limits.device)  # the newest first
        self.equal = torch.zeros_like(self.recent)

    def reset(self) -> None:
        self.recent.fill_(-1)
        self.equal.zero_()

    def append(self, parents: Int64[Tensor, " rows"] | None, tokens: Int64[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
        """Append a token to each row's parent, or to the row itself. Returns which rows end in a loop."""
        recent, equal = (self.recent, self.equal) if parents is None else (self.recent[parents], self.equal[parents])
        new = tokens[:, None]
        self.equal.copy_((equal + 1).masked_fill_(recent != new, 0))
        self.recent.copy_(torch.cat([new, recent[:, :-1]], dim=1))
        return (self.equal >= self.needed).any(1)


class _DeviceHypotheses:
    """What greedy and beam search share. Greedy search is a beam of one, so its rows are its sentences."""

    k: int  # tokens that are needed of each row

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        self.limits = Limits(shape, device)
        self.loops = LoopCounts(shape.rows, self.limits)
        self.tokens = torch.zeros(shape.rows, dtype=torch.int64, device=device)
        self.origins = torch.arange(shape.rows, device=device)[:, None].repeat(1, shape.capacity)  # each row's own past
        self.live = torch.zeros(shape.sentences, dtype=torch.bool, device=device)
        self.unfinished = torch.zeros((), dtype=torch.int64, device=device)  # the number of live sentences

    def reset(self) -> None:
        """Start a batch: BOS in each row."""
        self.tokens.fill_(BOS)
        self.loops.reset()
        torch.gt(self.limits.max_lengths, 0, out=self.live)


class DevicePaths(_DeviceHypotheses):
    """Greedy search: one path per sentence, as in `search`."""

    k = 1

    def __init__(self, shape: Shape, vocab: int, device: torch.device, operations: Operations) -> None:
        super().__init__(shape, device)
        self.chosen = torch.zeros(shape.capacity, shape.rows, dtype=torch.int32, device=device)
        self.totals = torch.zeros(shape.rows, dtype=torch.float64, device=device)
        self.ends = torch.zeros(shape.rows, dtype=torch.int64, device=device)

    def reset(self) -> None:
        super().reset()
        self.totals.zero_()
        self.ends.fill_(-1)

    def extend(self, values: _Values, ids: _TopIds, position: _Position) -> None:
        """Append a token to each path."""
        tokens, value, live = ids[:, 0], values[:, 0].double(), self.live
        self.tokens.copy_(tokens)
        self.chosen.index_copy_(0, position[None], tokens[None].int())
        finished = tokens == EOS
        looped = self.loops.append(None, tokens) & ~finished
        ended = finished | looped | (self.limits.max_lengths == position + 1)
        # -inf ends a path without a hypothesis. NaN stays in the total, where it is detected.
        possible = live & (value > -math.inf)
        self.totals.add_(value.masked_fill(~live, 0.0))
        length = position + 1 - finished.long()
        self.ends.copy_(torch.where(possible & ended, _packed(length, finished, looped), self.ends))
        self.live.copy_(possible & ~ended)
        self.unfinished.copy_(self.live.sum())

    def results(self, steps: int) -> dict[str, Tensor]:
        """The tensors that the host needs after `steps` steps; `n_best` reads them there."""
        return {"chosen": self.chosen[:steps], "totals": self.totals, "ends": self.ends}

    def n_best(self, request: SearchRequest, host: _Host) -> list[list[Hypothesis]]:
        n = len(request.max_lengths)
        totals, ends = host["totals"][:n], host["ends"][:n]
        refuse_nan(totals)
        lengths, finished, looped = _unpacked(ends)
        scores = request.options.score(totals, np.maximum(lengths + finished, 1))
        columns = (x.tolist() for x in (host["chosen"].T[:n], ends, lengths, totals, scores, finished, looped))
        return [
            request.ranked([Hypothesis(tuple(ids[:length]), *fields)] if end >= 0 else [])
            for ids, end, length, *fields in zip(*columns, strict=True)
        ]


def _packed(
    index: Int64[Tensor, "..."], finished: Bool[Tensor, "..."] | bool, looped: Bool[Tensor, "..."] | bool
) -> Int64[Tensor, "..."]:
    """An index and two flags as one number."""
    return (index * 2 + finished) * 2 + looped


def _unpacked(
    numbers: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    return numbers // 4, numbers // 2 % 2 == 1, numbers % 2 == 1


class DeviceBeams(_DeviceHypotheses):
    """The beams, extended as in `beam.Beam`, with the best finished hypotheses."""

    def __init__(self, shape: Shape, vocab: int, device: torch.device, operations: Operations) -> None:
        super().__init__(shape, device)
        self.vocab, self.k = vocab, min(shape.beam + 2, vocab)
        self.keep_best = operations.keep_best
        n, beam, rows = shape.sentences, shape.beam, shape.rows
        self.parents = torch.zeros(rows, dtype=torch.int64, device=device)
        self.totals = torch.zeros(n, beam, dtype=torch.float64, device=device)
        # Each finished hypothesis makes room for one more candidate.
        candidates = min(2 * beam, beam * self.k)
        self.best = torch.zeros(2, n, candidates, dtype=torch.float64, device=device)
        self.own_rows = self.origins.clone()
        self.times = torch.arange(shape.capacity, device=device)
        self.slots = torch.arange(beam, device=device)
        self.chosen = torch.zeros(shape.capacity, 2, rows, dtype=torch.int32, device=device)  # tokens, parents
        self.has_nan = torch.zeros(n, dtype=torch.bool, device=device)
        # The finished hypotheses: how many have no loop, and the best.
        self.counts = torch.zeros(n, dtype=torch.int64, device=device)
        self.keys = torch.zeros(n, beam, dtype=torch.float64, device=device)
        self.log_probs = torch.zeros(n, beam, dtype=torch.float64, device=device)
        self.ends = torch.zeros(n, beam, dtype=torch.int64, device=device)

    def reset(self) -> None:
        """Put BOS into the first slot of each sentence; the others are empty."""
        super().reset()
        self.totals.fill_(-math.inf)
        self.totals[:, 0].fill_(0.0)
        self.origins.copy_(self.own_rows)
        self.has_nan.zero_()
        self.counts.zero_()
        self.keys.fill_(-math.inf)
        self.ends.fill_(-1)

    def extend(self, values: _Values, ids: _TopIds, position: _Position) -> None:
        """Collect finished hypotheses, keep the best others, and drop finished sentences."""
        self.keep_best(values, ids, self.totals, self.tokens, self.parents, self.best, EOS, self.vocab)
        self.chosen.index_copy_(0, position[None], torch.stack([self.tokens, self.parents])[None].int())
        past = self.origins[self.parents]
        self.origins.copy_(torch.where(self.times <= position, past, self.own_rows))
        looped = self.loops.append(self.parents, self.tokens).view_as(self.totals)
        stop = looped | (self.limits.max_lengths == position + 1)[:, None]
        self.collect(looped, stop, position)
        self.totals.masked_fill_(stop, -math.inf)
        self._drop_done()

    def collect(
        self, looped: Bool[Tensor, "sentences beam"], stop: Bool[Tensor, "sentences beam"], position: _Position
    ) -> None:
        """Collect the hypotheses that finished in this step, and keep the best."""
        # Only the `beam` best candidates may finish, so that a beam of one ends exactly where greedy search does.
        best, codes = self.best[0, :, : self.shape.beam], self.best[1, :, : self.shape.beam].long()
        self.has_nan.logical_or_(self.live & best[:, 0].isnan())
        finished = codes % self.vocab == EOS
        ended = torch.cat([finished, stop], dim=1) & self.live[:, None]
        log_probs = torch.cat([best, self.totals], dim=1)
        ended &= log_probs > -math.inf
        loops = torch.cat([torch.zeros_like(looped), looped], dim=1)
        # Finished by EOS, or stopped after one more token: both have the same number of ids.
        length = position + 1
        keys = log_probs / self.limits.penalties.index_select(0, length[None])
        keys = torch.where(loops, keys * _LOOPED_FACTOR - _LOOPED_OFFSET, keys).masked_fill(~ended, -math.inf)
        with_end = _packed(position * self.shape.beam + codes // self.vocab, True, False)
        stopped = _packed(length * self.shape.beam + self.slots, False, looped)
        ranked = torch.cat([self.keys, keys], dim=1).sort(dim=1, descending=True, stable=True)
        keys, order = (x[:, : self.shape.beam] for x in ranked)
        self.log_probs.copy_(torch.cat([self.log_probs, log_probs], dim=1).gather(1, order))
        self.ends.copy_(torch.cat([self.ends, with_end, stopped], dim=1).gather(1, order))
        self.keys.copy_(keys)
        self.counts.add_((ended & ~loops).sum(1))

    def _drop_done(self) -> None:
        """Drop the sentences for which `beam.Beam.is_done` is true."""
        last = self.keys.index_select(1, self.limits.last_best)[:, 0]
        to_beat = last.masked_fill(last <= -_LOOPED_OFFSET, -math.inf)
        # A sentence without unfinished hypotheses cannot improve.
        bound = self.totals.amax(1) / self.limits.penalties[self.limits.max_lengths]
        self.live.logical_and_((self.counts < self.limits.enough) & (bound > to_beat))
        self.unfinished.copy_(self.live.sum())

    def results(self, steps: int) -> dict[str, Tensor]:
        best = {"keys": self.keys, "log_probs": self.log_probs, "ends": self.ends}
        return {"chosen": self.chosen[:steps], "has_nan": self.has_nan, **best}

    def n_best(self, request: SearchRequest, host: _Host) -> list[list[Hypothesis]]:
        n, n_best, beam = len(request.max_lengths), request.options.n_best, self.shape.beam
        refuse_nan(np.where(host["has_nan"][:n], np.nan, 0.0))
        keys, log_probs, ends = (host[name][:n, :n_best] for name in ("keys", "log_probs", "ends"))
        sentences, ranks = np.nonzero(keys > -math.inf)
        log_probs = log_probs[sentences, ranks]
        indices, finished, looped = _unpacked(ends[sentences, ranks])
        lengths, slots = np.divmod(indices, beam)
        scores = request.options.score(log_probs, lengths + finished)
        ids = _traced(host["chosen"], sentences * beam + slots, lengths)
        columns = (x.tolist() for x in (ids, sentences, lengths, log_probs, scores, finished, looped))
        hypotheses: list[list[Hypothesis]] = [[] for _ in range(n)]
        for tokens, sentence, length, *fields in zip(*columns, strict=True):
            hypotheses[sentence].append(Hypothesis(tuple(tokens[:length]), *fields))
        return list(map(request.ranked, hypotheses))


def _traced(chosen: NDArray[np.int32], rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """The ids of hypotheses, traced from their last rows back to the first. Entries past the end are arbitrary."""
    ids = np.zeros((len(rows), int(lengths.max(initial=0))), dtype=np.int32)
    for position in reversed(range(ids.shape[1])):
        tokens, parents = chosen[position]
        ids[:, position] = tokens[rows]
        rows = np.where(lengths > position, parents[rows], rows)
    return ids
