"""A search under taps that records every step's candidates and the path to its result."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock

import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.decoding.beam import History, Kept
from onehop.decoding.engine import max_output_lengths
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.request import LogProbs, RowIds
from onehop.decoding.search import search
from onehop.decoding.torch_engine import CachedStep, with_source_end
from onehop.errors import OnehopError, SettingsError
from onehop.interpret.ablations import EditTap
from onehop.model.attention import untapped
from onehop.model.taps import Tap, watch
from onehop.model.transformer import Tokens, Transformer
from onehop.text.tokenizer import BOS, EOS


class TappedModel:
    """A model with an exchangeable tap. Copying the modules for every run would take longer than a run."""

    def __init__(self, model: Transformer) -> None:
        self._tap: Tap = untapped
        self._in_use = Lock()
        self._model = watch(model, lambda name, value: self._tap(name, value))

    @contextmanager
    def tapped(self, *taps: Tap) -> Iterator[Transformer]:
        """The model under these taps; each receives the value that the previous one returned."""

        def chained(name: str, value: Tensor) -> Tensor:
            for tap in taps:
                value = tap(name, value)
            return value

        with self._in_use:
            self._tap = chained
            try:
                yield self._model
            finally:
                self._tap = untapped


class _RerunStep:
    """A decoder step without a cache, for edits that let later tokens change earlier states."""

    def __init__(self, model: Transformer, src: Tokens, capacity: int) -> None:
        self.model, self.src = model, src
        model.ensure_length(src.ids.shape[1], capacity)
        self.memory = model.encode(src)
        self.past = src.ids.new_empty(1, 0)

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        past = self.past if parents is None else self.past[parents]
        self.past = torch.cat([past, tokens[:, None]], dim=1)
        tgt, memory = unpadded(self.past), self.memory.expand(len(tokens), -1, -1)
        return self.model.logits(self.model.decode(tgt, memory, self.src)[:, -1:])[:, -1].float().log_softmax(-1)


OnStep = Callable[[int], None]


class StepRecorder:
    """A tap that records each step's logits, and each row's cross-attention averaged over heads.

    `on_step` is called after every step with the number of steps so far. An exception that it raises stops the search.
    """

    def __init__(self, on_step: OnStep | None) -> None:
        self._on_step = on_step
        self.logits: list[Float[Tensor, "rows vocab"]] = []
        self.attention: list[list[Float[Tensor, "rows source"]]] = []
        self._layers: list[Float[Tensor, "rows source"]] = []

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if name.endswith("cross_attention.weights"):
            self._layers.append(value[:, :, -1].mean(1))
        elif name == "logits":
            self.logits.append(value[:, -1].float())
            self.attention.append(self._layers)
            self._layers = []
            if self._on_step is not None:
                self._on_step(len(self.logits))
        return value


@dataclass(frozen=True)
class RecordedSearch:
    """The result of a recorded search, and its row in every step of the beam."""

    best: Hypothesis
    steps: list[list[Kept]]
    recorded: StepRecorder
    path: list[int]

    @property
    def outputs(self) -> list[int]:
        """The ids of the translation, with EOS if there is one."""
        return [*self.best.ids, EOS] if self.best.finished else list(self.best.ids)


def recorded_search(
    tapped_model: TappedModel,
    ids: Sequence[int],
    options: SearchOptions,
    tap: EditTap,
    on_step: OnStep | None = None,
) -> RecordedSearch:
    """Translate under edits and record the steps of the search."""
    if options.sample:
        raise SettingsError("A trace shows a beam, and sampling has none.", "Set search.sample to false.")
    recorded, history = StepRecorder(on_step), History()
    with tapped_model.tapped(tap, recorded) as model:
        (longest,) = max_output_lengths([ids], model.settings.most_positions)
        device = next(model.parameters()).device
        src = torch.tensor([with_source_end(model, ids)], device=device)
        step = _RerunStep(model, unpadded(src), longest) if tap.changes_the_past else CachedStep(model, src, longest)
        best = search(step, [longest], options, history=history, device=device)[0][0]
    if best.log_prob == -math.inf:
        raise OnehopError("No translation has a probability above zero.", "Leave out an edit.")
    return RecordedSearch(best, history.steps[0], recorded, _path_to(best, history))


def _path_to(best: Hypothesis, history: History) -> list[int]:
    """The row of a hypothesis in each step of the beam."""
    outputs = (*best.ids, EOS) if best.finished else best.ids
    last = len(outputs) - 1
    steps = history.steps[0][: last + 1]
    row = next(
        i for i, kept in enumerate(steps[last]) if kept.state != "live" and history.replay(0, last, i) == outputs
    )
    path = [row]
    for kept in reversed(steps[1:]):
        path.append(kept[path[-1]].parent)
    return path[::-1]


def teacher_forced(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Float[Tensor, "1 step vocab"]:
    """The logits of one forward pass in which the decoder reads BOS and `target`."""
    device = next(model.parameters()).device
    sides = (with_source_end(model, source), [BOS, *target])
    src, tgt = (unpadded(torch.tensor([ids], device=device)) for ids in sides)
    model.ensure_length(src.ids.shape[1], tgt.ids.shape[1])
    logits: Tensor = model(src, tgt)
    return logits


def unpadded(ids: Int[Tensor, "batch length"]) -> Tokens:
    """Tokens without padding, whatever their ids."""
    return replace(Tokens.padded(ids), token_mask=None)
