"""Greedy and beam search that stay on the GPU: each step is one CUDA graph, captured once and replayed.

The device has the whole state of the search: tokens, scores, parents, finished hypotheses (`cuda_graph_hypotheses`).
The host launches the steps and reads, some steps later, whether a sentence is left. So the device takes a few steps too
many at the end. One transfer per batch brings the hypotheses to the host. On a CPU the same steps run without a graph,
which is how they are tested.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onehop.decoding.cuda_graph_hypotheses import DeviceBeams, DevicePaths
from onehop.decoding.cuda_graph_state import Decoder, Operations, Shape
from onehop.decoding.options import Hypothesis, Ids, SearchOptions
from onehop.decoding.request import NaNError, SearchRequest
from onehop.decoding.split_products import SplitProducts
from onehop.model.kernels.cuda_graph import CudaGraph, warm_up
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import EOS, PAD

MOST_SENTENCES = 512  # rows in a batch; from there on the time of a step grows with its rows
_MANY = 64  # sentences in a batch from which on the text counts as long
_MOST_BEAM = 16
MOST_BYTES = 8 << 30  # for keys and values; at most a quarter of the GPU's memory
MOST_GRAPHS = 64  # shapes; a text that is sorted by length has about ten
AHEAD = 4  # steps that the device may be ahead of the host
_WARM_UP = 3  # warm-up runs before a capture

_Pool = Any  # torch's handle of a memory pool, which has no public type


class ShapeGraphs:
    """The two graphs of one shape: start of a batch, and one step. Their memory holds one batch."""

    def __init__(
        self,
        model: Transformer,
        shape: Shape,
        operations: Operations,
        pool: _Pool,
        memory: Tensor,
        products: SplitProducts | None,
    ) -> None:
        device = model.embedding.weight.device
        self.shape, self.memory = shape, memory
        self.decoder = Decoder(model, shape, operations, memory, products)
        search: type[DevicePaths | DeviceBeams] = DevicePaths if shape.greedy else DeviceBeams
        self.hypotheses = search(shape, model.vocab_size, device, operations)
        self.min_length = torch.zeros((), dtype=torch.int64, device=device)
        self.pinned = device.type == "cuda"
        self.src = torch.full(self.decoder.src.shape, PAD, pin_memory=self.pinned)
        self.unfinished = torch.zeros(shape.capacity, dtype=torch.int64, pin_memory=self.pinned)  # after each step
        # A waiting host must not occupy a core: several processes may share the device.
        self.arrived = [torch.cuda.Event(blocking=True) for _ in range(shape.capacity if self.pinned else 0)]  # type: ignore[no-untyped-call]
        results = self.hypotheses.results(shape.capacity).items()
        self.results = {name: torch.zeros(x.shape, dtype=x.dtype, pin_memory=self.pinned) for name, x in results}
        self.begin, self.step = _capture([self._begin_eagerly, self.step_eagerly], device, pool)

    def _begin_eagerly(self) -> None:
        """Encode, and reset the state."""
        self.decoder.begin()
        self.hypotheses.reset()

    def step_eagerly(self) -> None:
        """Extend every row by one token."""
        decoder, hypotheses = self.decoder, self.hypotheses
        logits = decoder.logits(hypotheses.tokens, hypotheses.origins)
        best = decoder.operations.best_of_rows(logits, hypotheses.k, EOS, decoder.position, self.min_length)
        hypotheses.extend(*best, decoder.position)
        decoder.position += 1

    def search(self, sources: Sequence[Ids], request: SearchRequest) -> list[list[Hypothesis]]:
        self.load(sources, request)
        steps = self.run(int(request.max_lengths.max()), before=max(map(len, sources)) // 2)
        for name, tensor in self.hypotheses.results(steps).items():
            self.results[name][: len(tensor)].copy_(tensor, non_blocking=True)
        if self.pinned:
            torch.cuda.current_stream().synchronize()
        host = {name: tensor.numpy() for name, tensor in self.results.items()}
        return self.hypotheses.n_best(request, {**host, "chosen": host["chosen"][:steps]})

    def load(self, sources: Sequence[Ids], request: SearchRequest) -> None:
        """Load a new batch; rows without a sentence get an empty one."""
        lengths = np.zeros(self.shape.sentences, dtype=np.int64)
        lengths[: len(sources)] = [len(ids) for ids in sources]
        columns, src = np.arange(self.shape.source), self.src.numpy()
        src[:] = np.where(columns == lengths[:, None], EOS, PAD)
        src[columns < lengths[:, None]] = np.fromiter(chain.from_iterable(sources), np.int64, int(lengths.sum()))
        self.decoder.src.copy_(self.src, non_blocking=True)
        self.hypotheses.limits.load(request)
        self.min_length.fill_(request.options.min_length)
        self.begin()

    def run(self, longest: int, before: int) -> int:
        """Run steps until every sentence is done, at most `longest`. Returns the number of steps.

        The device is some steps ahead of the count of unfinished sentences that the host reads. The host first reads
        after the step `before`: hardly any batch ends sooner, and until then a slow host costs nothing.
        """
        launched, checked = 0, max(0, min(before, longest) - AHEAD)
        while True:
            while launched < min(checked + AHEAD, longest):
                self.launch(launched)
                launched += 1
            if checked == longest or self.wait_for(checked) == 0:
                return launched
            checked += 1

    def launch(self, number: int) -> None:
        """Launch a step, and the transfer of the number of unfinished sentences."""
        self.step()
        self.unfinished[number].copy_(self.hypotheses.unfinished, non_blocking=True)
        if self.arrived:
            self.arrived[number].record()

    def wait_for(self, number: int) -> int:
        """The number of unfinished sentences after a step, when it has arrived."""
        if self.arrived:
            self.arrived[number].synchronize()
        return int(self.unfinished[number])


def _capture(functions: Sequence[Callable[[], None]], device: torch.device, pool: _Pool) -> list[Callable[[], None]]:
    """The functions as CUDA graphs; without a GPU, the functions themselves.

    All graphs may share one memory pool, because none leaves results there.
    """
    if device.type != "cuda":
        return list(functions)
    warm_up(lambda: [function() for function in functions], _WARM_UP, device)
    return [CudaGraph(function, pool).replay for function in functions]


class CapturedSearch:
    """The search of one model. A graph is captured when its shape is first seen; the least recently used go."""

    def __init__(self, model: Transformer, operations: Operations) -> None:
        self.model, self.operations = model, operations
        self.graphs: OrderedDict[Shape, ShapeGraphs] = OrderedDict()
        self.addresses = self._weight_addresses()
        self.products = self._new_products()
        self.pool: _Pool = None
        self.memory: Tensor | None = None
        self.lock = threading.Lock()  # the memory holds one batch

    def supports(self, sources: Sequence[Ids], max_lengths: Sequence[int], options: SearchOptions) -> bool:
        """Whether this search supports a batch; otherwise `search` takes it."""
        return (
            not options.sample
            and self.model.settings.source_end is not False
            and options.beam <= _MOST_BEAM
            and 0 < len(sources) <= MOST_SENTENCES
            and not self.model.watched
            and not torch.is_autocast_enabled("cuda")
            and not any(PAD in ids for ids in sources)
            and Shape.of(sources, max_lengths, options, self.model.settings).bytes(self.model) <= self.most_bytes
        )

    def search(
        self, sources: Sequence[Ids], max_lengths: Sequence[int], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        request = SearchRequest.of(max_lengths, options, None)
        device = self.model.embedding.weight.device
        with self.lock, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            shape = Shape.of(sources, max_lengths, options, self.model.settings)
            try:
                return self.graphs_for(shape).search(sources, request)
            except NaNError:
                if self.products is None:
                    raise
            # Perhaps a number was beyond float16's range. The cache may hold NaN now.
            self.products = self.memory = None
            self.evict(len(self.graphs))
            return self.graphs_for(shape).search(sources, request)

    def graphs_for(self, shape: Shape) -> ShapeGraphs:
        """The graphs of a shape, captured if needed."""
        if self.addresses != (addresses := self._weight_addresses()):  # the weights have moved
            self.evict(len(self.graphs))
            self.memory = None  # dtype or device may have changed
            self.products = self._new_products()
            self.addresses = addresses
        if shape not in self.graphs:
            memory = self.memory_for(shape)
            if not self.graphs:  # torch frees a pool with its last graph, and refuses to reuse it
                self.pool = self.new_pool()
            self.graphs[shape] = ShapeGraphs(self.model, shape, self.operations, self.pool, memory, self.products)
        self.graphs.move_to_end(shape)
        return self.graphs[shape]

    @property
    def most_bytes(self) -> int:
        """Memory that the graphs may hold."""
        device = self.model.embedding.weight.device
        if device.type != "cuda":
            return MOST_BYTES
        return min(MOST_BYTES, torch.cuda.get_device_properties(device).total_memory // 4)

    def memory_for(self, shape: Shape) -> Tensor:
        """Memory for keys and values, which all shapes share: one batch is searched at a time."""
        if len(self.graphs) >= MOST_GRAPHS:
            self.evict(1)
        needed = shape.elements(self.model)
        if shape.sentences >= _MANY:  # a sorted text starts with its longest sentences; larger batches follow
            largest = replace(shape, sentences=MOST_SENTENCES, source=48, capacity=96)
            if largest.bytes(self.model) <= self.most_bytes:
                needed = max(needed, largest.elements(self.model))
        if self.memory is None or self.memory.numel() < needed:
            held = {id(graphs.memory): graphs.memory.nbytes for graphs in self.graphs.values()}
            self.memory = None
            if sum(held.values()) + needed * self.model.embedding.weight.itemsize > self.most_bytes:
                self.evict(len(self.graphs))
            self.memory = self.model.embedding.weight.new_zeros(needed)
        return self.memory

    def evict(self, count: int) -> None:
        """Drop the least recently used graphs, after their last steps have finished."""
        if self.model.embedding.weight.is_cuda:
            torch.cuda.synchronize()
        for _ in range(count):
            self.graphs.popitem(last=False)

    def _new_products(self) -> SplitProducts | None:
        """float32 products on a GPU are split."""
        weight = self.model.embedding.weight
        splits = weight.is_cuda and weight.dtype == torch.float32
        return SplitProducts(self.operations.split, self.operations.relu) if splits else None

    def new_pool(self) -> _Pool:
        return torch.cuda.graph_pool_handle() if self.model.embedding.weight.is_cuda else None

    def _weight_addresses(self) -> tuple[int, ...]:
        """The addresses of the weights: a graph knows nothing else of them."""
        return tuple(p.data_ptr() for p in self.model.parameters())
