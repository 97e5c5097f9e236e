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

from onehop.decoding.beam import Beam, Candidates
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.request import Request, RowInts
from onehop.decoding.torch_engine import TorchEngine, source_rows
from onehop.model.kv_cache import LayerCache
from onehop.model.transformer import Layer, Tokens, Transformer
from onehop.text.tokenizer import BOS, PAD

# --- the device's half: keys and values ---------------------------------------------------------------------------


@dataclass
class _PlacedCache(LayerCache):
    """A decoder layer's keys and values; every row has its own position."""

    places: Int[Tensor, " batch"]

    def append(
        self, k: Float[Tensor, "batch heads 1 d_k"], v: Float[Tensor, "batch heads 1 d_v"], length: int
    ) -> tuple[Float[Tensor, "batch heads past d_k"], Float[Tensor, "batch heads past d_v"]]:
        """Write one position per row; `length` is the largest. Returns all columns up to it."""
        rows = torch.arange(len(k), device=k.device)
        for past, new in ((self.keys, k), (self.values, v)):
            past[:, :, length] = 0  # masked for shorter rows, but 0 × NaN is NaN: the column must be finite
            past[rows, :, self.places] = new[:, :, 0]
        return self.keys[:, :, : length + 1], self.values[:, :, : length + 1]


@dataclass
class _Rows:
    """The decoder's cache for all live hypotheses."""

    layers: list[LayerCache]
    inside: Bool[Tensor, "rows source"]

    @classmethod
    def begin(cls, model: Transformer, src: Int[Tensor, "sentences source"], capacity: int) -> "_Rows":
        """Encode new sentences, one row each."""
        tokens = Tokens.padded(src, PAD)
        layers = model.init_cache(tokens, capacity).layers
        for layer in layers:
            layer.keys.zero_()
            layer.values.zero_()
        return cls(layers, src != PAD)

    def above(self, new: "_Rows") -> "_Rows":
        """Concatenate these rows and the new ones."""
        layers = [
            LayerCache(
                _stacked(old.keys, fresh.keys),
                _stacked(old.values, fresh.values),
                _stacked(old.cross_keys, fresh.cross_keys),
                _stacked(old.cross_values, fresh.cross_values),
            )
            for old, fresh in zip(self.layers, new.layers, strict=True)
        ]
        return _Rows(layers, _stacked(self.inside[:, None, :, None], new.inside[:, None, :, None])[:, 0, :, 0])

    def select(self, rows: Int[Tensor, " kept"], filled: int, capacity: int, source: int | None) -> "_Rows":
        """These rows in this order: `filled` columns of what was written, and so many of the sources; None: they stay
        as they are, for hypotheses have only changed places within their sentences."""

        def past(written: Float[Tensor, "rows heads columns d"]) -> Float[Tensor, "kept heads capacity d"]:
            out = written.new_empty(len(rows), written.shape[1], capacity, written.shape[3])
            out[:, :, :filled] = written[rows, :, :filled]
            return out

        def across(sources: Float[Tensor, "rows heads source d"]) -> Float[Tensor, "kept heads columns d"]:
            return sources if source is None else sources[rows, :, :source]

        layers = [
            LayerCache(past(c.keys), past(c.values), across(c.cross_keys), across(c.cross_values)) for c in self.layers
        ]
        return _Rows(layers, self.inside if source is None else self.inside[rows, :source])

    def step(
        self, model: Transformer, tokens: Int[Tensor, " rows"], places: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities after each row's new token, which is at the row's own position."""
        last = int(places.max())
        # Attention is faster without a mask that is all True.
        past = None if bool((places == last).all()) else _behind(places, last)[:, None, None]
        source = None if bool(self.inside.all()) else self.inside[:, None, None]
        x = model.target_input(model.embed_target(tokens[:, None]), places[:, None])
        for layer, cache in zip(model.decoder.layers, self.layers, strict=True):
            assert isinstance(layer, Layer)
            placed = _PlacedCache(cache.keys, cache.values, cache.cross_keys, cache.cross_values, places)
            x = layer.step(x, placed, last, past, source)
        return model.logits(model.decoder.finish(x))[:, -1].float().log_softmax(-1)


def _behind(places: Int[Tensor, " rows"], last: int) -> Bool[Tensor, "rows columns"]:
    """The mask of each row: columns up to its own position."""
    return torch.arange(last + 1, device=places.device) <= places[:, None]


def _stacked(above: Tensor, below: Tensor) -> Tensor:
    """Concatenate rows, padded to the same number of columns (second-to-last dimension)."""
    columns = max(above.shape[-2], below.shape[-2])
    return torch.cat([F.pad(x, (0, 0, 0, columns - x.shape[-2])) for x in (above, below)])


# --- the host's half: beams ---------------------------------------------------------------------------------------


class _Cohort:
    """Sentences that joined together with the same options, and so have the same length."""

    def __init__(
        self, tickets: Sequence[int], sources: Sequence[Sequence[int]], most: Sequence[int], options: SearchOptions
    ) -> None:
        self.beam = Beam(Request.of(most, options, None), None)
        self.every = np.array(tickets)
        self.lengths = np.array([len(ids) + 1 for ids in sources])

    @property
    def tickets(self) -> Int[np.ndarray, " live"]:
        """Tickets of the unfinished sentences."""
        live: Int[np.ndarray, " live"] = self.every[self.beam.sentences]
        return live

    @property
    def owners(self) -> RowInts:
        """The ticket of each row."""
        return self.tickets.repeat(self.beam.ids.shape[1])

    @property
    def place(self) -> int:
        """The position of the next token."""
        return self.beam.ids.shape[2]

    @property
    def tokens(self) -> RowInts:
        """The last token of each row."""
        ids = self.beam.ids
        return ids[:, :, -1].reshape(-1) if self.place else np.full(len(ids), BOS)

    @property
    def capacity(self) -> int:
        """The maximum output length of the unfinished sentences."""
        return int(self.beam.request.max_lengths[self.beam.sentences].max())

    @property
    def source(self) -> int:
        """The longest source of the unfinished sentences."""
        return int(self.lengths[self.beam.sentences].max())

    def extend(self, log_probs: Float[Tensor, "rows vocab"]) -> Int[np.ndarray, " kept"]:
        """One step of the search. Returns the parents of the new rows."""
        beam = self.beam
        sentences = beam.sentences.repeat(beam.ids.shape[1])
        allowed = beam.request.constrain(log_probs, sentences, self.place)
        return beam.extend(Candidates.best(allowed, beam.log_probs, beam.options.beam))

    def without(self, gone: Collection[int]) -> Int[np.ndarray, " kept"]:
        """Drop some sentences. Returns the rows that stay."""
        beam = self.beam
        stay = ~np.isin(self.tickets, list(gone))
        rows: Int[np.ndarray, " kept"] = np.flatnonzero(stay.repeat(beam.ids.shape[1]))
        beam.sentences, beam.ids, beam.log_probs = beam.sentences[stay], beam.ids[stay], beam.log_probs[stay]
        return rows

    def found(self, ticket: int) -> list[Hypothesis]:
        """The n best of a finished sentence."""
        (sentence,) = np.flatnonzero(self.every == ticket)
        return self.beam.request.ranked(self.beam.found[sentence])


# --- the batch ----------------------------------------------------------------------------------------------------


class Joining:
    """The live sentences of one engine. After an error in `step`, make a new one."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self.cohorts: list[_Cohort] = []
        self.rows: _Rows | None = None
        self.numbers = count()

    @torch.inference_mode()
    def join(self, sources: Sequence[Sequence[int]], options: SearchOptions) -> list[int]:
        """Encode some sentences and return their tickets. They take part from the next step on.

        Greedy search is a beam of one. Sampling is not supported here.
        """
        assert not options.sample, "sampling is not joined"
        most = self.engine.greatest_lengths(sources)
        tickets = [next(self.numbers) for _ in sources]
        new = _Rows.begin(self.engine.model, source_rows(self.engine.model, sources).to(self.engine.device), max(most))
        self.rows = new if self.rows is None else self.rows.above(new)
        self.cohorts.append(_Cohort(tickets, sources, most, options))
        return tickets

    @torch.inference_mode()
    def leave(self, tickets: Collection[int]) -> None:
        """Drop cancelled sentences."""
        if tickets:
            before = self.owners
            self._keep(before, [cohort.without(tickets) for cohort in self.cohorts])

    @torch.inference_mode()
    def step(self) -> dict[int, list[Hypothesis]]:
        """Extend every live hypothesis by one token. Returns the n best of each finished sentence."""
        if self.rows is None:
            return {}
        cohorts, before, device = self.cohorts, self.owners, self.engine.device
        sizes = list(map(len, before))
        tokens = torch.from_numpy(np.concatenate([cohort.tokens for cohort in cohorts])).to(device)
        places = torch.from_numpy(np.repeat([cohort.place for cohort in cohorts], sizes)).to(device)
        log_probs = self.rows.step(self.engine.model, tokens, places)
        parts = torch.split(log_probs, sizes)
        self._keep(before, [cohort.extend(part) for cohort, part in zip(cohorts, parts, strict=True)])
        found = {}
        for cohort, owners in zip(cohorts, before, strict=True):
            found.update(
                {ticket: cohort.found(ticket) for ticket in set(owners.tolist()) - set(cohort.tickets.tolist())}
            )
        return found

    @property
    def owners(self) -> list[Int[np.ndarray, " _"]]:
        """The tickets of each cohort's rows."""
        return [cohort.owners for cohort in self.cohorts]

    def _keep(self, before: list[Int[np.ndarray, " _"]], parents: list[Int[np.ndarray, " _"]]) -> None:
        """Reorder the rows as the beams did: each new row copies its parent, an index within its cohort."""
        starts = np.cumsum([0, *map(len, before)])
        rows = np.concatenate([start + own for start, own in zip(starts[:-1], parents, strict=True)])
        self.cohorts = live = [cohort for cohort in self.cohorts if len(cohort.tickets)]
        if not live or self.rows is None:
            self.rows = None
        elif not np.array_equal(rows, np.arange(starts[-1])):
            same = np.array_equal(np.concatenate(before), np.concatenate(self.owners))
            self.rows = self.rows.select(
                torch.from_numpy(rows).to(self.engine.device),
                filled=max(cohort.place for cohort in live),
                capacity=max(cohort.capacity for cohort in live),
                source=None if same else max(cohort.source for cohort in live),
            )
