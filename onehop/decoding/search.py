"""Greedy search, beam search and sampling over a step function; what computes the step is not known here.

Probabilities stay on their device. Each step fetches the few best candidates of every row in one transfer,
and the bookkeeping happens in numpy, in float64, for all sentences at once.
"""

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onehop.decoding.loops import ends_in_loop
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.errors import OnehopError, SettingsError
from onehop.text.tokenizer import BOS, EOS

LogProbs: TypeAlias = Float[Tensor, "rows vocab"]
Picked: TypeAlias = tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]  # log-probability and id of a token
RowInts: TypeAlias = Int[np.ndarray, " rows"]
RowMask: TypeAlias = Bool[np.ndarray, " rows"]
Slots: TypeAlias = Float[np.ndarray, "sentences slots"]
State: TypeAlias = Literal["live", "finished", "stopped"]
SlotInts: TypeAlias = Int[np.ndarray, "sentences slots"]


@runtime_checkable
class Step(Protocol):
    """The next token's log-probabilities for every row; whoever implements it keeps the rows' past."""

    def __call__(self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"] | None) -> LogProbs:
        """Row i appends tokens[i] to row parents[i] of the previous call.

        `parents` is None at the first call, which has one BOS row a sentence, and where the rows stay as they were.
        """


@dataclass(frozen=True)
class Kept:
    """One candidate that a step of the beam kept: `parent` is its place in the step before."""

    token: int
    parent: int
    log_prob: float
    score: float
    state: State


@dataclass
class History:
    """What each step of the beam kept: steps[sentence][step][place]."""

    steps: list[list[list[Kept]]] = field(default_factory=list)

    def replay(self, sentence: int, step: int, place: int) -> tuple[int, ...]:
        """The ids from the beginning up to one kept candidate, its end token included."""
        ids = []
        for kept in reversed(self.steps[sentence][: step + 1]):
            ids.append(kept[place].token)
            place = kept[place].parent
        return tuple(reversed(ids))


def search(
    step: Step,
    max_lengths: Sequence[int],
    options: SearchOptions | None = None,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    numbers: Sequence[int] | None = None,
    history: History | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first; no sentence depends on those beside it.

    `max_lengths` count the end token. `prefixes` are ids that the outputs must begin with. `numbers` name the
    sentences for the sampling's seed, so that a sentence may stand in any batch; else their places do.
    """
    options = options or SearchOptions()
    task = Task.of(max_lengths, options, prefixes)
    if not len(max_lengths):
        return []
    if options.sample:
        if history is not None:
            raise SettingsError("The history shows a beam, and sampling has none.", "Set search.sample to false.")
        choose = draws(task, range(len(max_lengths)) if numbers is None else numbers)
        return Paths(task, options.n_best, choose).follow(step, device)
    if options.is_greedy and history is None:
        return Paths(task, 1, most_probable).follow(step, device)
    return Beam(task, history).search(step, device)


# --- what is asked --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The request as arrays with a row for each sentence; `forced` is -1 where the choice is free."""

    options: SearchOptions
    max_lengths: Int[np.ndarray, " sentences"]
    forced: Int[np.ndarray, "sentences prefix"]

    @classmethod
    def of(cls, max_lengths: Sequence[int], options: SearchOptions, prefixes: Sequence[Sequence[int]] | None) -> "Task":
        """Check and pad what a caller gives."""
        prefixes = [()] * len(max_lengths) if prefixes is None else prefixes
        forced = np.full((len(max_lengths), max(map(len, prefixes), default=0)), -1)
        for row, prefix, longest in zip(forced, prefixes, max_lengths, strict=True):
            if len(prefix) >= longest:
                raise SettingsError(
                    f"A prefix of {len(prefix)} tokens leaves no room in {longest}, the greatest length.",
                    "Shorten the prefix or allow more tokens.",
                )
            if EOS in prefix:
                raise SettingsError("A prefix contains the end token.", "Leave it out: what follows is searched.")
            row[: len(prefix)] = prefix
        return cls(options, np.array(max_lengths, dtype=np.int64), forced)

    def is_forced(self, sentences: RowInts, place: int) -> RowMask:
        """Whether each sentence's token at a place was given."""
        forced: RowMask = np.zeros(len(sentences), dtype=bool)
        return forced if place >= self.forced.shape[1] else self.forced[sentences, place] >= 0

    def constrain(self, log_probs: LogProbs, sentences: RowInts, place: int) -> LogProbs:
        """Rule out what the minimum length or a prefix forbids; costs nothing where neither has a say."""
        if place < self.options.min_length:
            log_probs = log_probs.index_fill(1, torch.tensor([EOS], device=log_probs.device), -math.inf)
        if self.is_forced(sentences, place).any():
            wanted = torch.from_numpy(self.forced[sentences, place]).to(log_probs.device)[:, None]
            every = torch.arange(log_probs.shape[1], device=log_probs.device)
            log_probs = log_probs.masked_fill((wanted >= 0) & (every != wanted), -math.inf)
        return log_probs

    def is_looped(self, ids: Int[np.ndarray, "rows length"], sentences: RowInts) -> RowMask:
        """Whether each row ends in one n-gram over and over, and did not have to."""
        looped: RowMask = ends_in_loop(ids, self.options.loop_repeats)
        looped &= ~self.is_forced(sentences, ids.shape[1] - 1)
        return looped

    def ranked(self, found: list[Hypothesis]) -> list[Hypothesis]:
        """The n best; a looped one only for want of others. Equal scores stay in the order they were found."""
        best = sorted(found, key=lambda h: (h.looped, -h.score))[: self.options.n_best]
        return best or [Hypothesis((), -math.inf, -math.inf, finished=False)]


def fetch(
    values: Float[Tensor, " rows *few"], ids: Int[Tensor, " rows *few"]
) -> tuple[Float[np.ndarray, " rows *few"], Int[np.ndarray, " rows *few"]]:
    """Bring log-probabilities and ids to the host in one transfer: float32 holds every id below 2^24."""
    values = values if values.dtype == torch.float64 else values.float()
    both = torch.stack([values, ids.to(values.dtype)]).cpu().numpy()
    if np.isnan(both[0]).any():
        raise OnehopError("The model's log-probabilities are not numbers.", "Try float32, or another checkpoint.")
    return both[0].astype(np.float64), both[1].astype(np.int64)


# --- one path: greedy and sampling ----------------------------------------------------------------------------


class Paths:
    """Some single paths for each sentence, each followed to its end; `choose` picks every row's next token."""

    def __init__(self, task: Task, paths: int, choose: Callable[[LogProbs, RowInts, int], Picked]) -> None:
        self.task, self.paths, self.choose = task, paths, choose
        self.rows = np.arange(len(task.max_lengths) * paths)
        self.ids = np.zeros((len(self.rows), int(task.max_lengths.max())), dtype=np.int64)
        self.log_probs = np.zeros(len(self.rows))
        self.found: list[list[Hypothesis]] = [[] for _ in task.max_lengths]

    def follow(self, step: Step, device: torch.device | str) -> list[list[Hypothesis]]:
        """Choose token after token until no path is left."""
        tokens, parents = torch.full((len(self.found),), BOS, device=device), None
        place = 0
        while len(self.rows):
            log_probs = step(tokens, parents)
            if place == 0:
                log_probs = log_probs.repeat_interleave(self.paths, dim=0)
            log_probs = self.task.constrain(log_probs, self.rows // self.paths, place)
            values, tokens = self.choose(log_probs, self.rows, place)
            kept = np.flatnonzero(self.goes_on(*fetch(values, tokens), place))
            self.rows, parents = self.rows[kept], None
            if len(kept) < len(log_probs) or (place == 0 and self.paths > 1):
                tokens = tokens[torch.from_numpy(kept).to(device)]
                parents = torch.from_numpy(kept if place else kept // self.paths).to(device)
            place += 1
        return [self.task.ranked(found) for found in self.found]

    def goes_on(self, values: Float[np.ndarray, " rows"], tokens: RowInts, place: int) -> RowMask:
        """Append a token to each path, put aside those that end with it, and say which do not."""
        rows, sentences = self.rows, self.rows // self.paths
        self.ids[rows, place] = tokens
        self.log_probs[rows] += values
        possible, finished = values > -math.inf, tokens == EOS
        looped = ~finished & self.task.is_looped(self.ids[rows, : place + 1], sentences)
        ended: RowMask = finished | looped | (self.task.max_lengths[sentences] == place + 1)
        for i in np.flatnonzero(ended & possible):
            ids = tuple(self.ids[rows[i], : place + (not finished[i])].tolist())
            log_prob = float(self.log_probs[rows[i]])
            score = float(self.task.options.score(log_prob, place + 1))
            self.found[sentences[i]].append(Hypothesis(ids, log_prob, score, bool(finished[i]), bool(looped[i])))
        goes_on: RowMask = possible & ~ended
        return goes_on


def most_probable(log_probs: LogProbs, rows: RowInts, place: int) -> Picked:
    """Greedy choice; of equally probable tokens the lowest id."""
    values, ids = log_probs.max(dim=1)
    return values, ids


def draws(task: Task, numbers: Sequence[int]) -> Callable[[LogProbs, RowInts, int], Picked]:
    """Random choice, with random numbers that belong to (seed, sentence, path) and to nothing else."""
    options, longest = task.options, int(task.max_lengths.max())
    seeds = [(options.seed, number, path) for number in numbers for path in range(options.n_best)]
    uniforms = np.stack([np.random.default_rng(seed).random(longest, dtype=np.float32) for seed in seeds])

    def choose(log_probs: LogProbs, rows: RowInts, place: int) -> Picked:
        return drawn(log_probs, torch.from_numpy(uniforms[rows, place]).to(log_probs.device), options)

    return choose


def drawn(log_probs: LogProbs, uniforms: Float[Tensor, " rows"], options: SearchOptions) -> Picked:
    """The token where the cumulative probability of the allowed ones, most probable first, passes `uniforms`."""
    if 0 < options.top_k < log_probs.shape[1]:
        values, ids = log_probs.topk(options.top_k, dim=1)
    else:
        values, ids = log_probs.sort(dim=1, descending=True, stable=True)
    probs = torch.softmax(values.float() / options.temperature, dim=1)
    reached = probs.cumsum(dim=1)
    allowed = (reached - probs < options.top_p) & (probs > 0)
    goal = uniforms[:, None] * (probs * allowed).sum(dim=1, keepdim=True)
    # Rounding must not carry the choice past the last allowed token; where none is, the first one stands.
    last = (allowed.sum(dim=1, keepdim=True) - 1).clamp(min=0)
    choice = torch.minimum((reached <= goal).sum(dim=1, keepdim=True), last)
    return values.gather(1, choice)[:, 0], ids.gather(1, choice)[:, 0]


# --- many paths: the beam -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence's hypotheses, best first; of equals the better parent's, the lower id."""

    totals: Float[np.ndarray, "sentences candidates"]
    parents: Int[np.ndarray, "sentences candidates"]
    tokens: Int[np.ndarray, "sentences candidates"]

    @classmethod
    def best(cls, log_probs: LogProbs, so_far: Slots, beam: int) -> "Candidates":
        """Enough for a beam: what it keeps is among the best beam + 1 of its row, as only one of those can end."""
        few = min(beam + 2, log_probs.shape[1])
        values, ids = fetch(*log_probs.topk(few, dim=1))
        candidates = cls.ordered(values, ids, so_far)
        if few == beam + 2 and candidates.may_lack_an_equal(values, so_far, beam):
            values, ids = fetch(*(x[:, :few] for x in log_probs.sort(dim=1, descending=True, stable=True)))
            candidates = cls.ordered(values, ids, so_far)
        return candidates

    @classmethod
    def ordered(
        cls, values: Float[np.ndarray, "rows few"], ids: Int[np.ndarray, "rows few"], so_far: Slots
    ) -> "Candidates":
        """Put all rows of a sentence into one order."""
        n, slots = so_far.shape
        totals = (so_far.reshape(-1, 1) + values).reshape(n, -1)
        tokens = ids.reshape(n, -1)
        parents = np.broadcast_to(np.repeat(np.arange(slots), values.shape[1]), tokens.shape)
        order = np.lexsort((tokens, parents, -totals))
        return cls(*(np.take_along_axis(x, order, axis=1) for x in (totals, parents, tokens)))

    def may_lack_an_equal(self, values: Float[np.ndarray, "rows few"], so_far: Slots, beam: int) -> bool:
        """Whether `topk` cut a row among equals that matter: which of them it keeps is not defined."""
        cut = (values[:, -2] == values[:, -1]) & (values[:, -1] > -math.inf)
        if not cut.any():
            return False
        going_on = np.sort(np.where(self.tokens == EOS, -math.inf, self.totals), axis=1)
        worst_kept = going_on[:, -min(beam, going_on.shape[1])]
        reach = so_far + values[:, -1].reshape(so_far.shape)
        return bool((cut.reshape(so_far.shape) & (reach >= worst_kept[:, None])).any())


class Beam:
    """The beams of all sentences that are not done: rows are sentences × slots, an empty slot has -inf."""

    def __init__(self, task: Task, history: History | None) -> None:
        self.task, self.options, self.history = task, task.options, history
        self.sentences = np.arange(len(task.max_lengths))
        self.ids = np.zeros((len(self.sentences), 1, 0), dtype=np.int64)
        self.log_probs = np.zeros((len(self.sentences), 1))
        self.found: list[list[Hypothesis]] = [[] for _ in self.sentences]
        self.costs: list[list[float]] = [[] for _ in self.sentences]  # their negated scores in order, no loops
        if history is not None:
            history.steps[:] = [[] for _ in self.sentences]

    def search(self, step: Step, device: torch.device | str) -> list[list[Hypothesis]]:
        """Extend all beams token by token until every sentence is done."""
        tokens, parents = torch.full((len(self.sentences),), BOS, device=device), None
        while len(self.sentences):
            slots, place = self.ids.shape[1:]
            log_probs = self.task.constrain(step(tokens, parents), self.sentences.repeat(slots), place)
            rows = self.extend(Candidates.best(log_probs, self.log_probs, self.options.beam))
            unchanged = np.array_equal(rows, np.arange(len(log_probs)))
            tokens = torch.from_numpy(self.ids[:, :, -1].reshape(-1)).to(device)
            parents = None if unchanged else torch.from_numpy(rows).to(device)
        return [self.task.ranked(found) for found in self.found]

    def extend(self, candidates: Candidates) -> RowInts:
        """Put aside what ends, keep the best that go on, drop the sentences that are done; each new row's parent."""
        (n, slots), beam = self.ids.shape[:2], self.options.beam
        is_end = candidates.tokens == EOS
        # Ended ones only from among the `beam` best: a beam of one then ends exactly where greedy does.
        ended = is_end & (candidates.totals > -math.inf) & (np.arange(is_end.shape[1]) < beam)
        self.put_aside(ended, candidates.parents, candidates.totals, finished=True)
        best = np.argsort(is_end, axis=1, kind="stable")[:, :beam]
        parents, tokens = (np.take_along_axis(x, best, axis=1) for x in (candidates.parents, candidates.tokens))
        totals = np.take_along_axis(np.where(is_end, -math.inf, candidates.totals), best, axis=1)
        self.ids = np.concatenate([self.ids[np.arange(n)[:, None], parents], tokens[:, :, None]], axis=2)
        self.log_probs = self.stop(totals)
        if self.history is not None:
            self.record(self.history, candidates, ended, totals, parents)
        keep = ~self.is_done()
        self.sentences, self.ids, self.log_probs = self.sentences[keep], self.ids[keep], self.log_probs[keep]
        rows: RowInts = (np.arange(n)[:, None] * slots + parents)[keep].reshape(-1)
        return rows

    def put_aside(
        self,
        chosen: Bool[np.ndarray, "sentences candidates"],
        slots: Int[np.ndarray, "sentences candidates"],
        totals: Float[np.ndarray, "sentences candidates"],
        *,
        finished: bool,
        looped: Bool[np.ndarray, "sentences candidates"] | None = None,
    ) -> None:
        """Take hypotheses, or their continuation by the end token, out of the beams."""
        places = chosen.nonzero()[0]
        ids, log_probs = self.ids[places, slots[chosen]], totals[chosen]
        scores = self.options.score(log_probs, ids.shape[1] + finished)
        loops = (looped if looped is not None else np.zeros_like(chosen))[chosen]
        each = zip(self.sentences[places].tolist(), *(x.tolist() for x in (log_probs, scores, loops)), strict=True)
        for own, (sentence, log_prob, score, loop) in zip(ids, each, strict=True):
            self.keep_aside(sentence, own, log_prob, score, finished, loop)
            if not loop:
                insort(self.costs[sentence], -score)

    def keep_aside(
        self, sentence: int, ids: RowInts, log_prob: float, score: float, finished: bool, looped: bool
    ) -> None:
        """One hypothesis that is out."""
        self.found[sentence].append(Hypothesis(tuple(ids.tolist()), log_prob, score, finished, looped))

    def stop(self, totals: Slots) -> Slots:
        """Empty the slots that the loop guard or the greatest length stops, and put their hypotheses aside."""
        n, slots, length = self.ids.shape
        looped = self.task.is_looped(self.ids.reshape(-1, length), self.sentences.repeat(slots)).reshape(n, slots)
        last = (self.task.max_lengths[self.sentences] == length)[:, None]
        stopped = (totals > -math.inf) & (looped | last)
        own = np.broadcast_to(np.arange(slots), stopped.shape)
        self.put_aside(stopped, own, totals, finished=False, looped=looped)
        return np.where(looped | last, -math.inf, totals)

    def is_done(self) -> Bool[np.ndarray, " sentences"]:
        """Which sentences have enough ended hypotheses, none that goes on, or none that could become better."""
        enough = self.options.patience * self.options.beam
        full = np.array([len(self.costs[s]) >= enough for s in self.sentences], dtype=bool)
        empty = (self.log_probs == -math.inf).all(axis=1)
        done: Bool[np.ndarray, " sentences"] = full | empty | self.cannot_improve()
        return done

    def cannot_improve(self) -> Bool[np.ndarray, " sentences"]:
        """Which sentences' best unfinished hypothesis stays behind the n-th found, however it goes on.

        Log-probabilities only fall with the length and penalties only grow: at best, all that is to come is
        certain and the length the greatest.
        """
        n, costs = self.options.n_best, (self.costs[s] for s in self.sentences)
        to_beat = np.array([-c[n - 1] if len(c) >= n else -math.inf for c in costs])
        hope = self.options.score(self.log_probs.max(axis=1), self.task.max_lengths[self.sentences])
        hopeless: Bool[np.ndarray, " sentences"] = hope <= to_beat
        return hopeless

    def record(
        self,
        history: History,
        candidates: Candidates,
        ended: Bool[np.ndarray, "sentences candidates"],
        totals: Slots,
        parents: SlotInts,
    ) -> None:
        """Write this step into the history: the slots in their order, then what ended."""
        score, length = self.options.score, self.ids.shape[2]
        for s, sentence in enumerate(self.sentences):
            there, ends = totals[s] > -math.inf, ended[s]
            tokens = self.ids[s, there, -1].tolist() + [EOS] * int(ends.sum())
            origins = parents[s, there].tolist() + candidates.parents[s, ends].tolist()
            sums = totals[s, there].tolist() + candidates.totals[s, ends].tolist()
            states = np.where(self.log_probs[s, there] > -math.inf, "live", "stopped").tolist()
            states += ["finished"] * int(ends.sum())
            each = zip(tokens, origins, sums, states, strict=True)
            history.steps[sentence].append([Kept(t, p, x, score(x, length), state) for t, p, x, state in each])
