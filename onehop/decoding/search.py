"""Greedy search, beam search and sampling over a step function.

Probabilities stay on their device. Each step fetches the few best candidates of every row in one transfer. The
hypotheses are kept in NumPy, in float64, for all sentences at once.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.decoding.beam import Beam, History
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.request import LogProbs, Request, RowInts, RowMask, Step, fetch
from onehop.errors import SettingsError
from onehop.text.tokenizer import BOS, EOS

_Picked: TypeAlias = tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]  # log-probability and id of a token


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
    """The n best hypotheses of each sentence, best first. No sentence depends on its batch.

    `max_lengths` include EOS. `prefixes` are ids that the outputs must begin with. `numbers` seed the sampling of each
    sentence, whatever its batch; without them its index does.
    """
    options = options or SearchOptions()
    request = Request.of(max_lengths, options, prefixes)
    if not len(max_lengths):
        return []
    if options.sample:
        if history is not None:
            raise SettingsError("The history shows a beam, but sampling has none.", "Set search.sample to false.")
        choose = _draws(request, range(len(max_lengths)) if numbers is None else numbers)
        return _Paths(request, options.n_best, choose).follow(step, device)
    if options.is_greedy and history is None:
        return _Paths(request, 1, _most_probable).follow(step, device)
    return Beam(request, history).search(step, device)


class _Paths:
    """Independent paths of each sentence; `choose` picks every row's next token."""

    def __init__(self, request: Request, paths: int, choose: Callable[[LogProbs, RowInts, int], _Picked]) -> None:
        self.request, self.paths, self.choose = request, paths, choose
        self.rows = np.arange(len(request.max_lengths) * paths)
        self.ids = np.zeros((len(self.rows), int(request.max_lengths.max())), dtype=np.int64)
        self.log_probs = np.zeros(len(self.rows))
        self.found: list[list[Hypothesis]] = [[] for _ in request.max_lengths]

    def follow(self, step: Step, device: torch.device | str) -> list[list[Hypothesis]]:
        """Choose token after token until no path is left."""
        tokens, parents = torch.full((len(self.found),), BOS, device=device), None
        place = 0
        while len(self.rows):
            log_probs = step(tokens, parents)
            if place == 0:
                log_probs = log_probs.repeat_interleave(self.paths, dim=0)
            log_probs = self.request.constrain(log_probs, self.rows // self.paths, place)
            values, tokens = self.choose(log_probs, self.rows, place)
            kept = np.flatnonzero(self.goes_on(*fetch(values, tokens), place))
            self.rows, parents = self.rows[kept], None
            if len(kept) < len(log_probs) or (place == 0 and self.paths > 1):
                tokens = tokens[torch.from_numpy(kept).to(device)]
                parents = torch.from_numpy(kept if place else kept // self.paths).to(device)
            place += 1
        return [self.request.ranked(found) for found in self.found]

    def goes_on(self, values: Float[np.ndarray, " rows"], tokens: RowInts, place: int) -> RowMask:
        """Append a token to each path, and collect those that end. Returns which paths continue."""
        rows, sentences = self.rows, self.rows // self.paths
        self.ids[rows, place] = tokens
        self.log_probs[rows] += values
        possible, finished = values > -math.inf, tokens == EOS
        looped = ~finished & self.request.is_looped(self.ids[rows, : place + 1], sentences)
        ended: RowMask = finished | looped | (self.request.max_lengths[sentences] == place + 1)
        for i in np.flatnonzero(ended & possible):
            ids = tuple(self.ids[rows[i], : place + (not finished[i])].tolist())
            log_prob = float(self.log_probs[rows[i]])
            score = float(self.request.options.score(log_prob, place + 1))
            self.found[sentences[i]].append(Hypothesis(ids, log_prob, score, bool(finished[i]), bool(looped[i])))
        goes_on: RowMask = possible & ~ended
        return goes_on


def _most_probable(log_probs: LogProbs, rows: RowInts, place: int) -> _Picked:
    """Greedy choice. Ties: the lowest id."""
    values, ids = log_probs.max(dim=1)
    return values, ids


def _draws(request: Request, numbers: Sequence[int]) -> Callable[[LogProbs, RowInts, int], _Picked]:
    """Random choice; the random numbers depend on (seed, sentence, path) alone."""
    options, longest = request.options, int(request.max_lengths.max())
    seeds = [(options.seed, number, path) for number in numbers for path in range(options.n_best)]
    uniforms = np.stack([np.random.default_rng(seed).random(longest, dtype=np.float32) for seed in seeds])

    def choose(log_probs: LogProbs, rows: RowInts, place: int) -> _Picked:
        return drawn(log_probs, torch.from_numpy(uniforms[rows, place]).to(log_probs.device), options)

    return choose


def drawn(log_probs: LogProbs, uniforms: Float[Tensor, " rows"], options: SearchOptions) -> _Picked:
    """The token where the cumulative probability of the allowed ones, most probable first, passes `uniforms`."""
    if 0 < options.top_k < log_probs.shape[1]:
        values, ids = log_probs.topk(options.top_k, dim=1)
    else:
        values, ids = log_probs.sort(dim=1, descending=True, stable=True)
    probs = torch.softmax(values.float() / options.temperature, dim=1)
    reached = probs.cumsum(dim=1)
    allowed = (reached - probs < options.top_p) & (probs > 0)
    goal = uniforms[:, None] * (probs * allowed).sum(dim=1, keepdim=True)
    # Rounding must not move the choice past the last allowed token; if there is none, the first is taken.
    last = (allowed.sum(dim=1, keepdim=True) - 1).clamp(min=0)
    choice = torch.minimum((reached <= goal).sum(dim=1, keepdim=True), last)
    return values.gather(1, choice)[:, 0], ids.gather(1, choice)[:, 0]
