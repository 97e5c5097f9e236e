"""Continuous batching: sentences join and leave a search between two steps, so that none waits for another.

All live sentences take each step together, at whatever length their translations are. A row's keys and values start at
the first column, as if it were alone, and a mask hides the columns beyond its length. The beams are those of `search`,
so each answer equals that of `TorchEngine.translate`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from onehop.decoding.beam import Beam
from onehop.decoding.options import Hypothesis, Ids, SearchOptions
from onehop.decoding.request import RowInts, SearchRequest
from onehop.decoding.torch_engine import TorchEngine
from onehop.model.kv_cache import LayerCache, RaggedLayerCache
from onehop.model.transformer import Layer, Tokens, Transformer
from onehop.text.tokenizer import BOS, PAD

# --- on the device: keys and values -----------------------------------------------------------------------------


@dataclass
class _Rows:
    """The decoder's cache for all live hypotheses."""

    layers: list[LayerCache]
    token_mask: Bool[Tensor, "rows source"]

    @classmethod
    def encode(cls, model: Transformer, src: Int[Tensor, "sentences source"], capacity: int) -> "_Rows":
        """Encode new sentences, one row each."""
        layers = model.init_cache(Tokens.padded(src, PAD), capacity).layers
        for layer in layers:
            layer.keys.zero_()
            layer.values.zero_()
        return cls(layers, src != PAD)

    def concat(self, new: "_Rows") -> "_Rows":
        layers = [
            LayerCache(**{name: _concat(x, getattr(added, name)) for name, x in vars(layer).items()})
            for layer, added in zip(self.layers, new.layers, strict=True)
        ]
        return _Rows(layers, _concat(self.token_mask[..., None], new.token_mask[..., None])[..., 0])

    def select(self, rows: Int[Tensor, " kept"], length: int, capacity: int, source: int | None) -> "_Rows":
        """These rows in this order, with other sizes. `source` None: every row keeps its source, as within a beam."""
        same = source is None
        layers = [c.select(rows, length, capacity, same_sources=same, source=source) for c in self.layers]
        return _Rows(layers, self.token_mask if same else self.token_mask[rows, :source])

    def step(
        self, model: Transformer, tokens: Int[Tensor, " rows"], positions: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities after each row's new token, which is at the row's own position."""
        last = int(positions.max())
        past = torch.arange(last + 1, device=positions.device) <= positions[:, None]
        # Attention is faster without a mask that is all True.
        mask, memory_mask = (None if bool(m.all()) else m[:, None, None] for m in (past, self.token_mask))
        x = model.target_input(model.embed_target(tokens[:, None]), positions[:, None])
        for layer, cache in zip(model.decoder.layers, self.layers, strict=True):
            assert isinstance(layer, Layer)
            x = layer.step(x, RaggedLayerCache(**vars(cache), positions=positions), last, mask, memory_mask)
        return model.logits(model.decoder.finish(x))[:, -1].float().log_softmax(-1)


def _concat(above: Tensor, below: Tensor) -> Tensor:
    """Concatenate rows, padded to the same number of columns (second-to-last dimension)."""
    columns = max(above.shape[-2], below.shape[-2])
    return torch.cat([F.pad(x, (0, 0, 0, columns - x.shape[-2])) for x in (above, below)])


# --- on the host: beams -----------------------------------------------------------------------------------------


class _Cohort:
    """Sentences that joined together with the same options, and so have the same length."""

    def __init__(
        self, tickets: Sequence[int], sources: Sequence[Ids], max_lengths: Sequence[int], options: SearchOptions
    ) -> None:
        self.beam = Beam(SearchRequest.of(max_lengths, options, None), None)
        self.all_tickets = np.array(tickets)
        self.source_lengths = np.array([len(ids) + 1 for ids in sources])

    @property
    def tickets(self) -> Int[np.ndarray, " live"]:
        """Tickets of the unfinished sentences."""
        live: Int[np.ndarray, " live"] = self.all_tickets[self.beam.sentences]
        return live

    @property
    def row_tickets(self) -> RowInts:
        return self.tickets.repeat(self.beam.ids.shape[1])

    @property
    def position(self) -> int:
        return self.beam.ids.shape[2]

    @property
    def tokens(self) -> RowInts:
        """The last token of each row."""
        ids = self.beam.ids
        return ids[:, :, -1].reshape(-1) if self.position else np.full(len(ids), BOS)

    @property
    def capacity(self) -> int:
        """The maximum output length of the unfinished sentences."""
        return int(self.beam.request.max_lengths[self.beam.sentences].max())

    @property
    def longest_source(self) -> int:
        return int(self.source_lengths[self.beam.sentences].max())

    def drop(self, tickets: Collection[int]) -> Int[np.ndarray, " kept"]:
        """Drop some sentences. Returns the rows that stay."""
        kept = ~np.isin(self.tickets, list(tickets))
        rows: Int[np.ndarray, " kept"] = np.flatnonzero(kept.repeat(self.beam.ids.shape[1]))
        self.beam.keep(kept)
        return rows

    def n_best(self, ticket: int) -> list[Hypothesis]:
        (sentence,) = np.flatnonzero(self.all_tickets == ticket)
        return self.beam.request.ranked(self.beam.finished[sentence])


# --- the batch --------------------------------------------------------------------------------------------------


class ContinuousBatch:
    """The live sentences of one engine. After an error in `step`, make a new one."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self.cohorts: list[_Cohort] = []
        self.rows: _Rows | None = None
        self.counter = count()

    @torch.inference_mode()
    def join(self, sources: Sequence[Ids], options: SearchOptions) -> list[int]:
        """Encode some sentences and return their tickets. They take part from the next step on.

        Greedy search is a beam of one. Sampling is not supported here.
        """
        assert not options.sample, "sampling is not joined"
        max_lengths = self.engine.max_output_lengths(sources)
        tickets = [next(self.counter) for _ in sources]
        new = _Rows.encode(self.engine.model, self.engine.source_batch(sources), max(max_lengths))
        self.rows = new if self.rows is None else self.rows.concat(new)
        self.cohorts.append(_Cohort(tickets, sources, max_lengths, options))
        return tickets

    @torch.inference_mode()
    def leave(self, tickets: Collection[int]) -> None:
        """Drop cancelled sentences."""
        if tickets:
            before = self.row_tickets
            self._select(before, [cohort.drop(tickets) for cohort in self.cohorts])

    @torch.inference_mode()
    def step(self) -> dict[int, list[Hypothesis]]:
        """Extend every live hypothesis by one token. Returns the n best of each finished sentence."""
        if self.rows is None:
            return {}
        cohorts, before, device = self.cohorts, self.row_tickets, self.engine.device
        sizes = list(map(len, before))
        tokens = torch.from_numpy(np.concatenate([cohort.tokens for cohort in cohorts])).to(device)
        positions = torch.from_numpy(np.repeat([cohort.position for cohort in cohorts], sizes)).to(device)
        log_probs = torch.split(self.rows.step(self.engine.model, tokens, positions), sizes)
        self._select(before, [cohort.beam.advance(x) for cohort, x in zip(cohorts, log_probs, strict=True)])
        return {
            ticket: cohort.n_best(ticket)
            for cohort, tickets in zip(cohorts, before, strict=True)
            for ticket in set(tickets.tolist()) - set(cohort.tickets.tolist())
        }

    @property
    def row_tickets(self) -> list[Int[np.ndarray, " _"]]:
        return [cohort.row_tickets for cohort in self.cohorts]

    def _select(self, before: list[Int[np.ndarray, " _"]], parents: list[Int[np.ndarray, " _"]]) -> None:
        """Reorder the rows as the beams did: each new row copies its parent, an index within its cohort."""
        starts = np.cumsum([0, *map(len, before)])
        rows = np.concatenate([start + own for start, own in zip(starts[:-1], parents, strict=True)])
        self.cohorts = live = [cohort for cohort in self.cohorts if len(cohort.tickets)]
        if not live or self.rows is None:
            self.rows = None
        elif not np.array_equal(rows, np.arange(starts[-1])):
            same_sources = np.array_equal(np.concatenate(before), np.concatenate(self.row_tickets))
            self.rows = self.rows.select(
                torch.from_numpy(rows).to(self.engine.device),
                length=max(cohort.position for cohort in live),
                capacity=max(cohort.capacity for cohort in live),
                source=None if same_sources else max(cohort.longest_source for cohort in live),
            )
