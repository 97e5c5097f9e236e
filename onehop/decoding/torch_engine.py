"""The reference engine: `model.transformer` with the search of `search`.

It has every option on any device. On a GPU, `cuda_graph_search` does the usual searches, with the same results in less
time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from onehop.decoding.beam import History
from onehop.decoding.cuda_graph_search import MOST_SENTENCES, CapturedSearch
from onehop.decoding.cuda_graph_state import operations, round_down, source_width
from onehop.decoding.engine import EngineName, Settled, batches_by_length, max_output_lengths
from onehop.decoding.options import Hypothesis, Ids, SearchOptions, for_one_best
from onehop.decoding.request import LogProbs, RowIds, Step
from onehop.decoding.search import search
from onehop.model import kernels
from onehop.model.kv_cache import Cache
from onehop.model.taps import watch
from onehop.model.transformer import Tokens, Transformer
from onehop.storage.ctranslate2_format import alignment_layer
from onehop.text.tokenizer import BOS, EOS, PAD

BATCH_TOKENS = 4096
_SCORED_TOKENS = 1024  # each row holds logits over the whole vocabulary
# Nothing is copied between steps, and only many rows fill a GPU: 512 of up to 32 tokens, 384 of 48, 192 of 96.
_CAPTURED_BATCH_TOKENS = 18432


class CachedStep:
    """The model as a step function with a KV cache."""

    def __init__(self, model: Transformer, src: Int[Tensor, "sentences source"], capacity: int) -> None:
        self.model = model
        tokens = Tokens.padded(src, PAD)
        if bool((src != PAD).all()):
            tokens = replace(tokens, token_mask=None)  # attention is faster without a mask that is all True
        self.cache: Cache = model.init_cache(tokens, capacity)
        self.sentences = torch.arange(len(src), device=src.device)

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        if parents is not None:
            before, self.sentences = self.sentences, self.sentences[parents]
            self.cache = self.cache.select(parents, same_sources=torch.equal(before, self.sentences))
        return self.model.step(tokens[:, None], self.cache)[:, -1].float().log_softmax(-1)


class TorchEngine:
    """A torch model, on its device and in its dtype."""

    name: EngineName = "torch"

    def __init__(self, model: Transformer, *, capture: bool = True) -> None:
        self.model = kernels.fuse(model.eval())
        device = model.embedding.weight.device
        capture = capture and device.type == "cuda"
        self.captured = CapturedSearch(model, operations(device)) if capture else None

    @property
    def compute(self) -> str:
        return str(self.model.embedding.weight.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    @property
    def joins(self) -> bool:
        """Whether sentences may join between two steps (`continuous_batching`). A captured step has a fixed batch."""
        return self.captured is None

    def reaches(self, source: Ids) -> bool:
        """Always true: sinusoids have no limit, and a learned table has the same one in every engine."""
        return True

    def translate(
        self, sources: Sequence[Ids], options: SearchOptions, indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Translate batch by batch, the longest sentences first."""
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for batch in self.batches(sources):
            n_best = self.search([sources[i] for i in batch], options, [indices[i] for i in batch])
            for i, hypotheses in zip(batch, n_best, strict=True):
                results[i] = hypotheses
        return results

    def batches(self, sources: Sequence[Ids]) -> Iterator[list[int]]:
        if self.captured is None:
            yield from batches_by_length(sources, BATCH_TOKENS)
            return
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        while order:
            # A size that a graph exists for, so that only the last batch has empty rows.
            size = round_down(max(1, _CAPTURED_BATCH_TOKENS // source_width(len(sources[order[0]]))))
            size = min(size, MOST_SENTENCES)
            yield order[:size]
            order = order[size:]

    @torch.inference_mode()
    def search(self, sources: Sequence[Ids], options: SearchOptions, indices: Sequence[int]) -> list[list[Hypothesis]]:
        max_lengths = self.max_output_lengths(sources)
        if self.captured is not None and self.captured.supports(sources, max_lengths, options):
            return self.captured.search(sources, max_lengths, options)
        step = CachedStep(self.model, self.source_batch(sources), max(max_lengths))
        return search(step, max_lengths, options, indices=indices, device=self.device)

    @torch.inference_mode()
    def complete(self, source: Ids, prefixes: Sequence[Ids], options: SearchOptions) -> list[Hypothesis]:
        """All prefixes in one batch."""
        max_lengths = self.max_output_lengths([source]) * len(prefixes)
        step = CachedStep(self.model, self.source_batch([source] * len(prefixes)), max(max_lengths))
        results = search(step, max_lengths, for_one_best(options), prefixes=prefixes, device=self.device)
        return [n_best[0] for n_best in results]

    @torch.inference_mode()
    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """One forward pass with teacher forcing per batch."""
        results: list[list[float]] = [[] for _ in sources]
        longest = [max(pair, key=len) for pair in zip(sources, targets, strict=True)]
        for batch in batches_by_length(longest, _SCORED_TOKENS):
            src = self.source_batch([sources[i] for i in batch])
            labels = padded([targets[i] for i in batch]).to(self.device)
            tgt = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=BOS)
            self.model.ensure_length(src.shape[1], tgt.shape[1])
            scores = self.model.log_probabilities(Tokens.padded(src, PAD), Tokens.padded(tgt, PAD)).float()
            log_probs = scores.gather(-1, labels[..., None])[..., 0].tolist()
            for i, row in zip(batch, log_probs, strict=True):
                results[i] = row[: len(targets[i]) + 1]
        return results

    def align(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Any]:
        """Run one forward pass per pair, with a tap."""
        return list(map(self._align, sources, targets))

    @torch.inference_mode()
    def _align(self, source: Ids, target: Ids) -> Any:
        """The alignment layer's cross-attention, averaged over its heads: [target, source]."""
        layer = f"decoder.layers.{alignment_layer(self.model.settings)}.cross_attention.weights"
        weights = []

        def record(name: str, value: Tensor) -> Tensor:
            if name == layer:
                weights.append(value[0].mean(dim=0)[: len(target), : len(source)].float().cpu().numpy())
            return value

        tgt = torch.tensor([[BOS, *target]], device=self.device)
        watch(self.model, record)(Tokens.padded(self.source_batch([source]), PAD), Tokens.padded(tgt, PAD))
        return weights[0]

    @torch.inference_mode()
    def stream(
        self, source: Ids, options: SearchOptions, settled: Settled, *, prefix: Ids = (), index: int = 0
    ) -> list[Hypothesis]:
        """Search, and report the final prefix before each step."""
        max_lengths = self.max_output_lengths([source])
        history = None if options.sample else History()
        step = _ReportingStep(CachedStep(self.model, self.source_batch([source]), *max_lengths), history, settled)
        prefixes, device = [list(prefix)], self.device
        return search(step, max_lengths, options, prefixes=prefixes, indices=[index], history=history, device=device)[0]

    def max_output_lengths(self, sources: Sequence[Ids]) -> list[int]:
        return max_output_lengths(sources, self.model.settings.most_positions)

    def source_batch(self, sources: Sequence[Ids]) -> Int[Tensor, "sentences longest"]:
        """Sources as the model reads them, one row each: with EOS, or padding in its place."""
        return padded(sources, EOS if self.model.settings.source_end is not False else PAD).to(self.device)


def with_source_end(model: Transformer, ids: Ids) -> list[int]:
    """Source ids as the model reads them: with EOS, for most models."""
    return [*ids, EOS] if model.settings.source_end is not False else list(ids)


def padded(sequences: Sequence[Ids], end: int = EOS) -> Int[Tensor, "sentences longest"]:
    """Sequences with EOS, one row each. An empty one always has EOS."""
    rows = [torch.tensor([*ids, end if ids else EOS]) for ids in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


# --- the final prefix of a running search -------------------------------------------------------------------------


class _ReportingStep:
    """A step function that reports, before each step, the prefix that is final."""

    def __init__(self, step: Step, history: History | None, settled: Settled) -> None:
        self.step, self.history, self.settled = step, history, settled
        self.paths: list[list[int]] | None = None

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        if self.history is not None:
            self.settled(common_prefix_of_beam(self.history))
        else:
            self.paths = extended_paths(self.paths, tokens.tolist(), None if parents is None else parents.tolist())
            self.settled(_common_prefix(self.paths))
        return self.step(tokens, parents)


def extended_paths(paths: list[list[int]] | None, tokens: list[int], parents: list[int] | None) -> list[list[int]]:
    """Sampled paths with one more token each. The first call brings BOS, which is not part of them."""
    if paths is None:
        return [[]]
    return [[*paths[parent], token] for parent, token in zip(parents or range(len(tokens)), tokens, strict=True)]


def common_prefix_of_beam(history: History) -> list[int]:
    """The common prefix of all hypotheses that may still win: the unfinished ones and the best finished ones.

    Before the last step only loops are stopped, and those rank last.
    """
    steps = history.steps[0] if history.steps else []
    if not steps:
        return []
    candidates = [(kept, number, index) for number, step in enumerate(steps) for index, kept in enumerate(step)]
    finished = sorted((c for c in candidates if c[0].state == "finished"), key=lambda c: -c[0].score)[:1]
    ended = finished or [c for c in candidates if c[0].state == "stopped"]
    live = [c for c in candidates if c[1] == len(steps) - 1 and c[0].state == "live"]
    paths = [history.replay(0, number, index) for _, number, index in [*live, *ended]]
    return _common_prefix([[token for token in path if token != EOS] for path in paths])


def _common_prefix(paths: Sequence[Ids]) -> list[int]:
    return [column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*paths, strict=False))]
