"""Batches from the store to the device, prefetched by a thread.

The stream depends on (seed, epoch, batch) alone, so a resumed run continues it exactly.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from onehop.config import Settings
from onehop.data.batches import Batch, Epoch
from onehop.data.objectives import TrainingTask
from onehop.data.store import Pairs
from onehop.model.packing import Packing
from onehop.model.transformer import Tokens
from onehop.text.tokenizer import PAD
from onehop.training.distributed import World

_EpochPairs = Callable[[int], Pairs]


@dataclass(frozen=True)
class FixedShapes:
    """The shapes that every batch is padded to, for a compiled graph."""

    rows: int
    sentences: int
    longest: int

    def match(self, batch: "DeviceBatch", copies: int = 1) -> bool:
        """Whether a batch has these shapes. A batch that is too large does not."""
        packing = batch.tgt.packing
        same_sentences = packing is not None and len(packing.starts) == copies * self.sentences + 1
        return same_sentences and len(batch.labels) == copies * self.rows


@dataclass(frozen=True)
class DeviceBatch:
    """One batch on the device. Sentences are packed end to end in one row."""

    src: Tokens
    tgt: Tokens
    labels: Int[Tensor, " rows"]


@dataclass(frozen=True)
class Update:
    """The batches of one update, its labelled tokens over all processes, and the next position."""

    batches: list[Batch]
    tokens: int
    src_tokens: int
    epoch: int
    next_batch: int

    @property
    def tgt_tokens(self) -> int:
        """All target tokens, including those without a loss."""
        return sum(len(b.tgt) for b in self.batches)


def updates(
    pairs_of: _EpochPairs, settings: Settings, budget: int, epoch: int, batch: int, task: TrainingTask | None = None
) -> Iterator[Update]:
    """Yield all updates from a position on, without end."""
    seed, accumulate = settings.train.seed, settings.train.accumulate
    current = Epoch(pairs_of(epoch), budget, seed, epoch)
    while True:
        batches: list[Batch] = []
        while len(batches) < accumulate:
            while batch >= len(current):  # small fractions of few pairs may leave an epoch empty
                epoch, batch = epoch + 1, 0
                current = Epoch(pairs_of(epoch), budget, seed, epoch)
            batches.append(task(current[batch], seed, epoch, batch) if task else current[batch])
            batch += 1
        tokens, src_tokens = sum(b.tokens for b in batches), sum(len(b.src) for b in batches)
        yield Update(batches, tokens, src_tokens, epoch, batch)


_Item = TypeVar("_Item")


class Prefetch(Iterator[_Item]):
    """The items of an iterator, of which one thread makes `depth` in advance; `peek` shows the next one."""

    def __init__(self, items: Iterator[_Item], depth: int, until: Callable[[], bool], thread: Executor) -> None:
        self.items, self.until, self.thread = items, until, thread
        self.pending = deque(self._submit() for _ in range(depth))

    def _submit(self) -> Future[_Item | None]:
        return self.thread.submit(next, self.items, None)

    def peek(self) -> _Item | None:
        """The next item; None at the end."""
        while not self.until():
            if wait([self.pending[0]], timeout=0.2).done:
                return self.pending[0].result()
        return None

    def __next__(self) -> _Item:
        item = self.peek()
        if item is None:
            raise StopIteration
        self.pending.popleft()
        self.pending.append(self._submit())
        return item


@contextmanager
def prefetch(
    items: Iterator[_Item], depth: int = 4, until: Callable[[], bool] = lambda: False
) -> Iterator[Prefetch[_Item]]:
    """The same items, of which a thread makes up to `depth` in advance.

    The iteration ends at once when `until` is true: making a new epoch may take a minute, too long after Ctrl-C.
    Leaving the block joins the thread. A thread that still runs when the interpreter ends can abort the process.
    """
    thread = ThreadPoolExecutor(1, "onehop-prefetch")
    try:
        yield Prefetch(items, depth, until, thread)
    finally:
        thread.shutdown(cancel_futures=True)


def to_device(batch: Batch, world: World, shapes: FixedShapes | None = None, *, twice: bool = False) -> DeviceBatch:
    """This process's share of a batch, on its device; `twice` repeats it for R-Drop's second pass."""
    if world.size > 1:
        global_batch, batch = batch, batch.share(world.rank, world.size)
        if len(batch.src) == 0:
            # More processes than sentences: this one still takes part in the all-reduce, with zero gradients.
            first = global_batch.part(0, 1)
            batch = replace(first, labels=np.full_like(first.labels, PAD))
    if shapes is not None:
        batch = batch.filled(shapes.rows, shapes.sentences, shapes.longest)
    if twice:
        batch = batch.twice()
    longest = shapes.longest if shapes else None
    src = _tokens(batch.src, batch.src_lengths, longest, world.device)
    tgt = _tokens(batch.tgt, batch.tgt_lengths, longest, world.device)
    return DeviceBatch(src, tgt, _copy(batch.labels, world.device))


def tensors_of(batch: DeviceBatch) -> list[Tensor]:
    """The tensors of a batch, in a fixed order."""
    sides = (batch.src, batch.tgt)
    packings = [side.packing for side in sides if side.packing is not None]
    return [
        *(x for side in sides for x in (side.ids, side.positions)),
        *(x for packing in packings for x in (packing.starts, packing.sentence_of_row)),
        batch.labels,
    ]


def _tokens(ids: NDArray[np.int64], lengths: NDArray[np.int64], longest: int | None, device: torch.device) -> Tokens:
    """Packed sentences as the model's input. Positions are counted here, on the host."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    sentence_of_row = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    positions = np.arange(len(ids)) - starts[sentence_of_row]
    longest = int(lengths.max(initial=1)) if longest is None else longest
    packing = Packing(_copy(starts, device), _copy(sentence_of_row, device), longest)
    return Tokens(_copy(ids, device)[None], _copy(positions, device)[None], packing=packing)


def _copy(array: NDArray[np.int64] | NDArray[np.int32], device: torch.device) -> Tensor:
    """Copy an array, without waiting where the device allows it."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
