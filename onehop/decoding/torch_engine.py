"""The reference engine: `model.transformer` with the search of `search`.

It has every option on any device. On a GPU, `cuda_graph_search` does the usual searches, with the same results in less
time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.decoding.beam import History
from onehop.decoding.cuda_graph_search import MOST_SENTENCES, CapturedSearch
from onehop.decoding.cuda_graph_state import operations, round_down, source_width
from onehop.decoding.engine import EngineName, Settled, batches_by_length, greatest_lengths
from onehop.decoding.options import Hypothesis, SearchOptions, beam_of
from onehop.decoding.search import search
from onehop.decoding.settled import HeardStep
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

    def __call__(
        self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"] | None
    ) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities of each row's next token."""
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
        use = capture and device.type == "cuda"
        self.captured = CapturedSearch(model, operations(device)) if use else None

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

    def reaches(self, source: Sequence[int]) -> bool:
        """Always true: sinusoids have no limit, and a learned table has the same one in every engine."""
        return True

    def translate(
        self, sources: Sequence[Sequence[int]], options: SearchOptions, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Translate batch by batch, the longest sentences first."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for batch in self.batches(sources):
            best = self.search([sources[i] for i in batch], options, [numbers[i] for i in batch])
            for i, hypotheses in zip(batch, best, strict=True):
                found[i] = hypotheses
        return found

    def batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of the sources of each batch."""
        if self.captured is None:
            yield from batches_by_length(sources, BATCH_TOKENS)
            return
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        while order:
            # A size that a graph exists for, so that only the last batch has empty rows.
            size = round_down(max(1, _CAPTURED_BATCH_TOKENS // source_width(len(sources[order[0]]))))
            batch, order = order[: min(size, MOST_SENTENCES)], order[min(size, MOST_SENTENCES) :]
            yield batch

    @torch.inference_mode()
    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        most = self.greatest_lengths(sources)
        if self.captured is not None and self.captured.suits(sources, most, options):
            return self.captured.search(sources, most, options)
        step = CachedStep(self.model, source_rows(self.model, sources).to(self.device), max(most))
        return search(step, most, options, numbers=numbers, device=self.device)

    @torch.inference_mode()
    def complete(
        self, source: Sequence[int], prefixes: Sequence[Sequence[int]], options: SearchOptions
    ) -> list[Hypothesis]:
        """All prefixes in one batch."""
        most = self.greatest_lengths([source]) * len(prefixes)
        step = CachedStep(self.model, source_rows(self.model, [source] * len(prefixes)).to(self.device), max(most))
        found = search(step, most, beam_of(options), prefixes=prefixes, device=self.device)
        return [best[0] for best in found]

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of each target's tokens and, last, of EOS, by teacher forcing."""
        found: list[list[float]] = [[] for _ in sources]
        longest = [max(pair, key=len) for pair in zip(sources, targets, strict=True)]
        for batch in batches_by_length(longest, _SCORED_TOKENS):
            src = source_rows(self.model, [sources[i] for i in batch]).to(self.device)
            labels = padded([targets[i] for i in batch]).to(self.device)
            tgt = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=BOS)
            self.model.source_input.ensure_length(src.shape[1])
            self.model.target_input.ensure_length(tgt.shape[1])
            scores = self.model.log_probabilities(Tokens.padded(src, PAD), Tokens.padded(tgt, PAD)).float()
            each = scores.gather(-1, labels[..., None])[..., 0].tolist()
            for i, row in zip(batch, each, strict=True):
                found[i] = row[: len(targets[i]) + 1]
        return found

    def align(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Any]:
        """Run one forward pass per pair, with a tap."""
        return list(map(self._align, sources, targets))

    @torch.inference_mode()
    def _align(self, source: Sequence[int], target: Sequence[int]) -> Any:
        wanted, kept = f"decoder.layers.{alignment_layer(self.model.settings)}.cross_attention.weights", {}

        def keep(name: str, value: Tensor) -> Tensor:
            if name == wanted:
                kept[name] = value[0].mean(dim=0)[: len(target), : len(source)].float().cpu().numpy()
            return value

        src = source_rows(self.model, [source]).to(self.device)
        tgt = torch.tensor([[BOS, *target]], device=self.device)
        watch(self.model, keep)(Tokens.padded(src, PAD), Tokens.padded(tgt, PAD))
        return kept[wanted]

    @torch.inference_mode()
    def stream(
        self,
        source: Sequence[int],
        options: SearchOptions,
        settled: Settled,
        *,
        prefix: Sequence[int] = (),
        number: int = 0,
    ) -> list[Hypothesis]:
        """Search, and report the final prefix before each step."""
        most = self.greatest_lengths([source])
        history = None if options.sample else History()
        src = source_rows(self.model, [source]).to(self.device)
        step = HeardStep(CachedStep(self.model, src, max(most)), history, settled)
        numbers, prefixes = [number], [list(prefix)]
        return search(step, most, options, prefixes=prefixes, numbers=numbers, history=history, device=self.device)[0]

    def greatest_lengths(self, sources: Sequence[Sequence[int]]) -> list[int]:
        return greatest_lengths(sources, self.model.settings.most_positions)


def source_rows(model: Transformer, sources: Sequence[Sequence[int]]) -> Int[Tensor, "sentences longest"]:
    """Sources as the model reads them, one row each: with EOS, or padding in its place."""
    return padded(sources, EOS if model.settings.source_end is not False else PAD)


def padded(sequences: Sequence[Sequence[int]], end: int = EOS) -> Int[Tensor, "sentences longest"]:
    """Sequences with EOS, one row each. An empty one always has EOS."""
    rows = [torch.tensor([*ids, end if ids else EOS]) for ids in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
