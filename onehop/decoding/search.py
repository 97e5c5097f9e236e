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
from onehop.decoding.request import LogProbs, RowInts, RowMask, SearchRequest, Step, fetch
from onehop.errors import SettingsError
from onehop.text.tokenizer import BOS, EOS

_Choice: TypeAlias = tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]  # log-probability and id of a token


def search(
    step: Step,
    max_lengths: Sequence[int],
    options: SearchOptions | None = None,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    indices: Sequence[int] | None = None,
    history: History | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first. No sentence depends on its batch.

    `max_lengths` include EOS. `prefixes` are ids that the outputs must begin with. `indices` are the sentences'
    indices in their text: they seed the sampling, which so does not depend on the batch.
    """
    options = options or SearchOptions()
    request = SearchRequest.of(max_lengths, options, prefixes)
    if not len(max_lengths):
        return []
    if options.sample:
        if history is not None:
            raise SettingsError("The history shows a beam, but sampling has none.", "Set search.sample to false.")
        choose = _sampler(request, range(len(max_lengths)) if indices is None else indices)
        return _Paths(request, options.n_best, choose).follow(step, device)
    if options.is_greedy and history is None:
        greedy = _Paths(request, 1, lambda log_probs, rows, position: log_probs.max(dim=1))  # ties: the lowest id
        return greedy.follow(step, device)
    return Beam(request, history).search(step, device)


class _Paths:
    """Independent paths of each sentence; `choose` picks every row's next token."""

    def __init__(self, request: SearchRequest, paths: int, choose: Callable[[LogProbs, RowInts, int], _Choice]) -> None:
        self.request, self.paths, self.choose = request, paths, choose
        self.rows = np.arange(len(request.max_lengths) * paths)
        self.ids = np.zeros((len(self.rows), int(request.max_lengths.max())), dtype=np.int64)
        self.log_probs = np.zeros(len(self.rows))
        self.finished: list[list[Hypothesis]] = [[] for _ in request.max_lengths]

    def follow(self, step: Step, device: torch.device | str) -> list[list[Hypothesis]]:
        tokens, parents = torch.full((len(self.finished),), BOS, device=device), None
        position = 0
        while len(self.rows):
            log_probs = step(tokens, parents)
            if position == 0:
                log_probs = log_probs.repeat_interleave(self.paths, dim=0)
            log_probs = self.request.constrain(log_probs, self.rows // self.paths, position)
            values, tokens = self.choose(log_probs, self.rows, position)
            kept = np.flatnonzero(self.append(*fetch(values, tokens), position))
            self.rows, parents = self.rows[kept], None
            if len(kept) < len(log_probs) or (position == 0 and self.paths > 1):
                tokens = tokens[torch.from_numpy(kept).to(device)]
                parents = torch.from_numpy(kept if position else kept // self.paths).to(device)
            position += 1
        return list(map(self.request.ranked, self.finished))

    def append(self, values: Float[np.ndarray, " rows"], tokens: RowInts, position: int) -> RowMask:
        """Append a token to each path, and collect those that end. Returns which paths continue."""
        rows, sentences = self.rows, self.rows // self.paths
        self.ids[rows, position] = tokens
        self.log_probs[rows] += values
        possible, finished = values > -math.inf, tokens == EOS
        looped = ~finished & self.request.is_looped(self.ids[rows, : position + 1], sentences)
        ended: RowMask = finished | looped | (self.request.max_lengths[sentences] == position + 1)
        for i in np.flatnonzero(ended & possible):
            ids = tuple(self.ids[rows[i], : position + (not finished[i])].tolist())
            log_prob = float(self.log_probs[rows[i]])
            score = float(self.request.options.score(log_prob, position + 1))
            self.finished[sentences[i]].append(Hypothesis(ids, log_prob, score, bool(finished[i]), bool(looped[i])))
        live: RowMask = possible & ~ended
        return live


def _sampler(request: SearchRequest, indices: Sequence[int]) -> Callable[[LogProbs, RowInts, int], _Choice]:
    """Random choice; the random numbers depend on (seed, sentence, path) alone."""
    options, longest = request.options, int(request.max_lengths.max())
    seeds = [(options.seed, index, path) for index in indices for path in range(options.n_best)]
    uniforms = np.stack([np.random.default_rng(seed).random(longest, dtype=np.float32) for seed in seeds])

    def choose(log_probs: LogProbs, rows: RowInts, position: int) -> _Choice:
        return sample_tokens(log_probs, torch.from_numpy(uniforms[rows, position]).to(log_probs.device), options)

    return choose


def sample_tokens(log_probs: LogProbs, uniforms: Float[Tensor, " rows"], options: SearchOptions) -> _Choice:
    """The token where the cumulative probability of the allowed ones, most probable first, passes `uniforms`."""
    if 0 < options.top_k < log_probs.shape[1]:
        values, ids = log_probs.topk(options.top_k, dim=1)
    else:
        values, ids = log_probs.sort(dim=1, descending=True, stable=True)
    probs = torch.softmax(values.float() / options.temperature, dim=1)
    cumulative = probs.cumsum(dim=1)
    allowed = (cumulative - probs < options.top_p) & (probs > 0)
    threshold = uniforms[:, None] * (probs * allowed).sum(dim=1, keepdim=True)
    # Rounding must not move the choice past the last allowed token; if there is none, the first is taken.
    last = (allowed.sum(dim=1, keepdim=True) - 1).clamp(min=0)
    choice = torch.minimum((cumulative <= threshold).sum(dim=1, keepdim=True), last)
    return values.gather(1, choice)[:, 0], ids.gather(1, choice)[:, 0]
