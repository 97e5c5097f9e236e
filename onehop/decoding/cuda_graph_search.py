"""Greedy and beam search whose steps never leave the GPU: each is one CUDA graph, recorded once and played again.

The device knows what the next step needs: tokens, scores, which hypothesis goes on from which. What it chose at each
step goes to the host, some steps behind, and there the classes of `search` write it down: what has ended, what is
looped, who is done. So the answer is theirs, and the device never waits for it; at the end it has taken a few steps
too many. On a CPU the same steps are taken without a graph, which is how they are tested.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from onehop.decoding.cuda_graph_log import BeamLog, Log, PathLog
from onehop.decoding.cuda_graph_state import Chosen, Decoder, Kept, Operations, Shape
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.search import Task
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import EOS, PAD

MOST_SENTENCES = 512  # in a batch: from there on a step's time grows with its rows
MOST_BEAM = 16
MOST_BYTES = 8 << 30  # of keys and values, all graphs together; and no more than a quarter of what the GPU has
AHEAD = 4  # steps that the device may be ahead of the host
WARM_UP = 3  # runs before a graph is recorded: libraries and kernels make ready what a recording forbids

Pool = Any  # torch's handle of a pool of memory, which has no public name


class Station:
    """One shape's memory and its two graphs: one begins a batch, one takes a step."""

    def __init__(self, model: Transformer, shape: Shape, operations: Operations, pool: Pool) -> None:
        device = model.embedding.weight.device
        self.shape = shape
        self.decoder = Decoder(model, shape, operations)
        self.choice = (Chosen if shape.greedy else Kept)(shape, model.vocab_size, device, operations)
        self.min_length = torch.zeros((), dtype=torch.int64, device=device)
        gpu = device.type == "cuda"
        self.answers = torch.zeros(shape.capacity, *self.choice.answer.shape, dtype=torch.float64, pin_memory=gpu)
        self.arrived = [torch.cuda.Event() for _ in range(shape.capacity if gpu else 0)]  # type: ignore[no-untyped-call]
        self.begin, self.step = recorded([self.begin_plainly, self.step_plainly], device, pool)

    def begin_plainly(self) -> None:
        """Encode, and empty what was remembered."""
        self.decoder.begin()
        self.choice.begin()

    def step_plainly(self) -> None:
        """One token more for every row."""
        decoder, choice = self.decoder, self.choice
        logits = decoder.logits(choice.tokens, choice.origins)
        best = decoder.operations.best_of_rows(logits, choice.few, EOS, decoder.position, self.min_length)
        choice.extend(*best, decoder.position)
        decoder.position += 1

    def load(self, sources: Sequence[Sequence[int]], min_length: int) -> None:
        """A new batch; rows without a sentence get an empty one."""
        src = np.full(self.decoder.src.shape, PAD)
        src[:, 0] = EOS
        for row, ids in zip(src, sources, strict=False):
            row[: len(ids) + 1] = [*ids, EOS]
        self.decoder.src.copy_(torch.from_numpy(src))
        self.min_length.fill_(min_length)
        self.begin()

    def ask(self, place: int) -> None:
        """Start a step and the transfer of what it chose."""
        self.step()
        self.answers[place].copy_(self.choice.answer, non_blocking=True)
        if self.arrived:
            self.arrived[place].record()

    def answer(self, place: int) -> Float64[Tensor, "two sentences *candidates"]:
        """What a step chose, when it has come."""
        if self.arrived:
            self.arrived[place].synchronize()
        return self.answers[place]


def recorded(functions: Sequence[Callable[[], None]], device: torch.device, pool: Pool) -> list[Callable[[], None]]:
    """The same functions as CUDA graphs. Elsewhere than on a GPU, the functions themselves.

    All graphs may share one pool of memory: none leaves anything there that is needed after its end.
    """
    if device.type != "cuda":
        return list(functions)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            for function in functions:
                function()
    torch.cuda.current_stream(device).wait_stream(stream)
    graphs = []
    for function in functions:
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on using the GPU meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            function()
        graphs.append(graph.replay)
    return graphs


def follow(station: Station, log: Log, longest: int) -> list[list[Hypothesis]]:
    """Let the device go ahead by some steps and write down behind it, until every sentence is done."""
    asked = 0
    for place in range(longest):
        while asked < min(place + AHEAD, longest):
            station.ask(asked)
            asked += 1
        log.read(station.answer(place), place)
        if log.over:
            break
    return log.found()


class CapturedSearch:
    """The search of one model. Graphs are recorded when a shape is first seen; those not used for long make room."""

    def __init__(self, model: Transformer, operations: Operations) -> None:
        self.model, self.operations = model, operations
        self.stations: OrderedDict[Shape, Station] = OrderedDict()
        self.addresses = self.addresses_now()
        self.pool: Pool = None
        self.lock = threading.Lock()  # a station's memory holds one batch

    def suits(self, sources: Sequence[Sequence[int]], most: Sequence[int], options: SearchOptions) -> bool:
        """Whether a batch can be searched here; everything else is for `search`."""
        return (
            not options.sample
            and options.beam <= MOST_BEAM
            and 0 < len(sources) <= MOST_SENTENCES
            and not self.model.watched
            and not torch.is_autocast_enabled("cuda")
            and not any(PAD in ids for ids in sources)
            and Shape.of(sources, most, options, self.model.settings).bytes(self.model) <= self.most_bytes
        )

    def search(
        self, sources: Sequence[Sequence[int]], most: Sequence[int], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """The n best of each source; `most` says how long each output may become."""
        task = Task.of(most, options, None)
        with self.lock, on(self.model.embedding.weight.device):
            station = self.station(Shape.of(sources, most, options, self.model.settings))
            station.load(sources, options.min_length)
            log = PathLog(task) if station.shape.greedy else BeamLog(task, self.model.vocab_size)
            return follow(station, log, max(most))

    def station(self, shape: Shape) -> Station:
        """The one for a shape, made if need be."""
        if self.addresses != (now := self.addresses_now()):  # the weights have moved
            self.forget(len(self.stations))
            self.addresses = now
        if shape not in self.stations:
            self.make_room(shape)
            if not self.stations:  # torch takes a pool back when its last graph is gone, and refuses to fill it again
                self.pool = self.new_pool()
            self.stations[shape] = Station(self.model, shape, self.operations, self.pool)
        self.stations.move_to_end(shape)
        return self.stations[shape]

    @property
    def most_bytes(self) -> int:
        """Memory that the graphs may hold."""
        device = self.model.embedding.weight.device
        if device.type != "cuda":
            return MOST_BYTES
        return min(MOST_BYTES, torch.cuda.get_device_properties(device).total_memory // 4)

    def make_room(self, shape: Shape) -> None:
        """Forget what was not used for longest, as far as a new shape needs its memory."""
        while self.stations and sum(s.bytes(self.model) for s in (shape, *self.stations)) > self.most_bytes:
            self.forget(1)

    def forget(self, count: int) -> None:
        """Drop the graphs that were not used for longest, when the last steps asked of them are over."""
        if self.model.embedding.weight.is_cuda:
            torch.cuda.synchronize()
        for _ in range(count):
            self.stations.popitem(last=False)

    def new_pool(self) -> Pool:
        """Memory that graphs share."""
        return torch.cuda.graph_pool_handle() if self.model.embedding.weight.is_cuda else None

    def addresses_now(self) -> tuple[int, ...]:
        """Where the weights lie, which is all that a graph knows of them."""
        return tuple(p.data_ptr() for p in self.model.parameters())


@contextmanager
def on(device: torch.device) -> Iterator[None]:
    """Graphs are recorded on the current device."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield
