"""Greedy and beam search whose steps never leave the GPU: each is one CUDA graph, recorded once and played again.

The device knows what the next step needs: tokens, scores, which hypothesis goes on from which. What it chose at each
step goes to the host, some steps behind, and there the classes of `search` write it down: what has ended, what is
looped, who is done. So the answer is theirs, and the device never waits for it; at the end it has taken a few steps
too many. On a CPU the same steps are taken without a graph, which is how they are tested.
"""

import math
import threading
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn
from torch.nn import functional as F

from onehop import kernels
from onehop.config import ModelSettings
from onehop.engines import one_token
from onehop.model import AddNorm, Layer, Tokens, Transformer
from onehop.options import LONGEST_LOOP, LOOP_SPAN, Hypothesis, SearchOptions
from onehop.search import Beam, Candidates, Paths, RowInts, Task, fetch, most_probable
from onehop.tokenizer import BOS, EOS, PAD

MOST_SENTENCES = 512  # in a batch: from there on a step's time grows with its rows
MOST_BEAM = 16
MOST_BYTES = 8 << 30  # of keys and values, all graphs together; and no more than a quarter of what the GPU has
AHEAD = 4  # steps that the device may be ahead of the host
WARM_UP = 3  # runs before a graph is recorded: libraries and kernels make ready what a recording forbids

Values = Float[Tensor, "rows few"]
Ids = Int[Tensor, "rows few"]
Pool = Any  # torch's handle of a pool of memory, which has no public name


@runtime_checkable
class Operations(Protocol):
    """The functions of `one_token`, plain or as kernels."""

    attend_past: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    attend_source: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    add_norm: Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
    best_of_rows: Callable[[Tensor, int, int, Tensor, Tensor], tuple[Tensor, Tensor]]
    keep_best: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, int], None]


def operations(device: torch.device) -> Operations:
    """Kernels where there is a GPU for them."""
    if device.type == "cuda" and kernels.usable():
        from onehop.kernels import one_token as fast

        return cast("Operations", fast)
    return cast("Operations", one_token)


@dataclass(frozen=True)
class Shape:
    """What a graph is recorded for. A batch takes the next larger one, so that few are needed."""

    sentences: int
    source: int
    capacity: int
    beam: int
    greedy: bool
    loop_repeats: int

    @classmethod
    def of(
        cls, sources: Sequence[Sequence[int]], most: Sequence[int], options: SearchOptions, model: ModelSettings
    ) -> "Shape":
        """The shape that holds a batch, no longer than a learned table of positions."""
        limit = model.max_length if model.positions == "learned" else math.inf
        return cls(
            sentences=round_up(len(sources)),
            source=int(min(limit, max(16, round_up(max(map(len, sources)) + 1)))),
            capacity=int(min(limit, -(-max(most) // 32) * 32)),
            beam=options.beam,
            greedy=options.is_greedy,
            loop_repeats=0 if options.is_greedy else options.loop_repeats,  # one path is stopped by the host
        )

    @property
    def rows(self) -> int:
        """Hypotheses."""
        return self.sentences * self.beam

    def bytes(self, model: Transformer) -> int:
        """Memory of keys and values, which is nearly all."""
        s = model.settings
        cells = self.rows * self.capacity + self.sentences * self.source
        return cells * s.n_decoder_layers * s.n_heads * (s.key_width + s.value_width) * model.embedding.weight.itemsize


def round_up(number: int) -> int:
    """The next power of two, or one and a half times one."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


# --- what the device remembers of the search ------------------------------------------------------------------


class Chosen:
    """One path a sentence: the most probable token, always."""

    few = 1

    def __init__(self, shape: Shape, vocab: int, device: torch.device, operations: Operations) -> None:
        self.tokens = torch.zeros(shape.rows, dtype=torch.int64, device=device)
        self.origins = own_rows(shape, device)
        self.answer = torch.zeros(2, shape.sentences, dtype=torch.float64, device=device)

    def begin(self) -> None:
        """One BOS a row."""
        self.tokens.fill_(BOS)

    def extend(self, values: Values, ids: Ids, position: Int[Tensor, ""]) -> None:
        """Go on with the best token of each row."""
        self.tokens.copy_(ids[:, 0])
        self.answer.copy_(torch.stack([values[:, 0].double(), ids[:, 0].double()]))


class Kept:
    """The beams: `search.Beam.extend` as far as the next step depends on it."""

    def __init__(self, shape: Shape, vocab: int, device: torch.device, operations: Operations) -> None:
        self.shape, self.vocab, self.few = shape, vocab, min(shape.beam + 2, vocab)
        self.keep_best = operations.keep_best
        rows, beam = shape.rows, shape.beam
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.totals = torch.zeros(shape.sentences, beam, dtype=torch.float64, device=device)
        self.own = own_rows(shape, device)
        self.origins = self.own.clone()
        self.parents = torch.zeros(rows, dtype=torch.int64, device=device)
        self.times = torch.arange(shape.capacity, device=device)
        self.left, self.right = (t.to(device) for t in loop_pairs(shape.loop_repeats))
        # Before the beginning stand numbers that are no ids, each only once, so that they repeat nothing.
        self.nothing = -1 - torch.arange(self.right.shape[1], device=device)
        self.recent = self.nothing.repeat(rows, 1)
        self.answer = torch.zeros(2, shape.sentences, self.candidates, dtype=torch.float64, device=device)

    @property
    def candidates(self) -> int:
        """How many the host needs to see: each hypothesis that ends makes room for one more."""
        return min(2 * self.shape.beam, self.shape.beam * self.few)

    def begin(self) -> None:
        """The first slot of each sentence holds BOS, the others nothing."""
        self.tokens.fill_(BOS)
        self.totals.fill_(-math.inf)
        self.totals[:, 0].fill_(0.0)
        self.recent.copy_(self.nothing.expand_as(self.recent))
        self.origins.copy_(self.own)

    def extend(self, values: Values, ids: Ids, position: Int[Tensor, ""]) -> None:
        """Keep the best that go on."""
        self.keep_best(values, ids, self.totals, self.tokens, self.parents, self.answer, EOS, self.vocab)
        past = self.origins[self.parents]
        self.origins.copy_(torch.where(self.times <= position, past, self.own))
        if self.shape.loop_repeats:
            self.empty_loops()

    def empty_loops(self) -> None:
        """Take out what the guard against loops stops."""
        self.recent.copy_(torch.cat([self.recent[self.parents, 1:], self.tokens[:, None]], dim=1))
        repeats = self.recent[:, self.left] == self.recent[:, self.right]
        self.totals.masked_fill_(repeats.all(-1).any(-1).view_as(self.totals), -math.inf)


def own_rows(shape: Shape, device: torch.device) -> Int[Tensor, "rows capacity"]:
    """A table of origins in which each row has written its own past."""
    return torch.arange(shape.rows, device=device)[:, None].repeat(1, shape.capacity)


def loop_pairs(repeats: int) -> tuple[Int[Tensor, "lengths pairs"], Int[Tensor, "lengths pairs"]]:
    """Which of the most recent tokens must be equal for a loop, for each length that its n-gram can have.

    The same as `options.ends_in_loop`; lines that need fewer pairs compare a token with itself.
    """
    if not repeats:
        return torch.zeros(0, 0, dtype=torch.int64), torch.zeros(0, 0, dtype=torch.int64)
    spans = {n: n * max(repeats, math.ceil(LOOP_SPAN / n)) for n in range(1, LONGEST_LOOP + 1)}
    width = max(spans.values())
    right = torch.arange(width).repeat(len(spans), 1)
    left = right.clone()
    for line, (n, span) in zip(left, spans.items(), strict=True):
        line[width - span + n :] -= n
    return left, right


# --- the model's half -----------------------------------------------------------------------------------------


@dataclass
class LayerSlots:
    """One layer's keys and values, and its three projections side by side."""

    layer: Layer
    keys: Float[Tensor, "capacity rows heads d_k"]
    values: Float[Tensor, "capacity rows heads d_v"]
    source_keys: Float[Tensor, "sentences source heads d_k"]
    source_values: Float[Tensor, "sentences source heads d_v"]
    w_qkv: Float[Tensor, "out d_model"]
    b_qkv: Float[Tensor, " out"] | None

    @classmethod
    def of(cls, layer: Layer, model: Transformer, shape: Shape) -> "LayerSlots":
        """Room for a layer; zeros, since a number that is none would live on under a weight of nought."""
        s, like = model.settings, model.embedding.weight
        past, source = (shape.capacity, shape.rows), (shape.sentences, shape.source)
        out = s.n_heads * (2 * s.key_width + s.value_width)
        return cls(
            layer=layer,
            keys=like.new_zeros(*past, s.n_heads, s.key_width),
            values=like.new_zeros(*past, s.n_heads, s.value_width),
            source_keys=like.new_zeros(*source, s.n_heads, s.key_width),
            source_values=like.new_zeros(*source, s.n_heads, s.value_width),
            w_qkv=like.new_empty(out, s.d_model),
            b_qkv=like.new_empty(out) if s.attention_bias else None,
        )

    def begin(self, memory: Float[Tensor, "sentences source d_model"]) -> None:
        """Project the source, and read the weights: in training they change between two calls."""
        heads, across = self.layer.self_attention, self.layer.cross_attention
        assert across is not None
        projections = (heads.w_q, heads.w_k, heads.w_v)
        torch.cat([p.weight for p in projections], out=self.w_qkv)
        if self.b_qkv is not None:
            torch.cat([p.bias for p in projections], out=self.b_qkv)
        k, v = across.keys_and_values(memory)
        self.source_keys.copy_(k.transpose(1, 2))
        self.source_values.copy_(v.transpose(1, 2))


class Decoder:
    """The model over numbers in fixed places: `begin` for a batch of sources, then `logits` token after token."""

    def __init__(self, model: Transformer, shape: Shape, operations: Operations) -> None:
        model.source_input.reach(shape.source)
        model.target_input.reach(shape.capacity)
        self.model, self.operations = model, operations
        device = model.embedding.weight.device
        self.src = torch.full((shape.sentences, shape.source), EOS, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(shape.sentences, dtype=torch.int64, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.layers = [LayerSlots.of(cast("Layer", layer), model, shape) for layer in model.decoder.layers]
        # A longer table may take their place in the model; a graph goes on with those that it was recorded with.
        self.tables = (model.source_input.positions, model.target_input.positions)

    def begin(self) -> None:
        """Read the sources."""
        src = Tokens.padded(self.src, PAD)
        assert src.inside is not None
        memory = self.model.encode(src)
        self.lengths.copy_(src.inside.sum(1))
        self.position.zero_()
        for layer in self.layers:
            layer.begin(memory)

    def logits(
        self, tokens: Int[Tensor, " rows"], origins: Int[Tensor, "rows capacity"]
    ) -> Float[Tensor, "rows vocab"]:
        """Logits after one more token a row."""
        model = self.model
        x = model.target_input(model.embed_target(tokens[:, None]), self.position.expand(len(tokens), 1))[:, 0]
        for layer in self.layers:
            x = self.through(layer, x, origins)
        if model.decoder.last_norm is not None:
            x = model.decoder.last_norm(x)
        out = logits_in_float32(x, model.output_weight)
        return out if model.output_bias is None else out + model.output_bias

    def through(self, slots: LayerSlots, x: Tensor, origins: Tensor) -> Tensor:
        """One layer, as `Layer.step` has it."""
        layer, op = slots.layer, self.operations
        heads, across, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
        assert across is not None
        assert layer.cross_add_norm is not None

        def attend_to_past(y: Tensor) -> Tensor:
            qkv = F.linear(y, slots.w_qkv, slots.b_qkv)
            out: Tensor = heads.w_o(op.attend_past(qkv, slots.keys, slots.values, origins, self.position))
            return out

        def attend_to_source(y: Tensor) -> Tensor:
            found = op.attend_source(across.w_q(y), slots.source_keys, slots.source_values, self.lengths)
            out: Tensor = across.w_o(found)
            return out

        def feed_forward(y: Tensor) -> Tensor:
            out: Tensor = feed.w_2(feed.hidden(y[None])[0])
            return out

        x = self.add_norm(layer.self_add_norm, x, attend_to_past)
        x = self.add_norm(layer.cross_add_norm, x, attend_to_source)
        return self.add_norm(layer.feed_add_norm, x, feed_forward)

    def add_norm(self, wrap: AddNorm, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Wrap a sub-layer."""
        norm: nn.LayerNorm = wrap.norm
        if wrap.pre:
            return x + sublayer(norm(x))
        return self.operations.add_norm(x, sublayer(x), norm.weight, norm.bias, norm.eps)


def logits_in_float32(x: Float[Tensor, "rows d_model"], weight: Float[Tensor, "vocab d_model"]) -> Tensor:
    """The product as it was added up: rounded to bfloat16, many of the best logits would be equal."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x, weight).float()


# --- both together, recorded ----------------------------------------------------------------------------------


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


# --- the host's half ------------------------------------------------------------------------------------------


@runtime_checkable
class Log(Protocol):
    """Writes down what the device chose."""

    def read(self, answer: Tensor, place: int) -> None:
        """One step."""

    @property
    def over(self) -> bool:
        """Whether every sentence is done."""

    def found(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""


class PathLog:
    """Of greedy search."""

    def __init__(self, task: Task) -> None:
        self.task, self.paths = task, Paths(task, 1, most_probable)

    def read(self, answer: Float64[Tensor, "two sentences"], place: int) -> None:
        """Append a token to each path that goes on."""
        rows = self.paths.rows
        values, tokens = answer[:, torch.from_numpy(rows)]
        self.paths.rows = rows[self.paths.goes_on(*fetch(values, tokens.long()), place)]

    @property
    def over(self) -> bool:
        """Whether no path goes on."""
        return not len(self.paths.rows)

    def found(self) -> list[list[Hypothesis]]:
        """The path of each sentence."""
        return [self.task.ranked(found) for found in self.paths.found]


@dataclass
class Ended:
    """A hypothesis that has ended, its ids still in their array."""

    ids: Int[np.ndarray, " length"]
    log_prob: float
    score: float
    finished: bool
    looped: bool

    def hypothesis(self) -> Hypothesis:
        """As the search gives it."""
        return Hypothesis(tuple(self.ids.tolist()), self.log_prob, self.score, self.finished, self.looped)


class HastyBeam(Beam):
    """A beam that turns into hypotheses only what it gives back: where all sentences end at once, the GPU waits."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, None)
        self.ended: list[list[Ended]] = [[] for _ in task.max_lengths]
        n, slots = len(task.max_lengths), task.options.beam
        self.ids = np.zeros((n, slots, 0), dtype=np.int64)
        self.log_probs = np.where(np.arange(slots) > 0, -math.inf, np.zeros((n, slots)))

    def put_aside(
        self, s: int | np.int64, ids: RowInts, log_prob: float, length: int, finished: bool, looped: bool = False
    ) -> None:
        """Take a hypothesis out of the beam of the sentence at place `s`."""
        sentence, log_prob = int(self.sentences[s]), float(log_prob)
        score = float(self.options.score(log_prob, length))
        self.ended[sentence].append(Ended(ids, log_prob, score, finished, looped))
        if not looped:
            insort(self.costs[sentence], -score)

    def best(self) -> list[list[Hypothesis]]:
        """The n best of each sentence, by `Task.ranked`."""
        n = self.options.n_best
        few = [sorted(ended, key=lambda e: (e.looped, -e.score))[:n] for ended in self.ended]
        return [self.task.ranked([e.hypothesis() for e in ended]) for ended in few]


class BeamLog:
    """Of beam search."""

    def __init__(self, task: Task, vocab: int) -> None:
        self.vocab, self.beam = vocab, HastyBeam(task)

    def read(self, answer: Float64[Tensor, "two sentences candidates"], place: int) -> None:
        """Extend the beams that are not done."""
        totals, codes = answer[:, torch.from_numpy(self.beam.sentences)]
        sums, parents_and_tokens = fetch(totals, codes.long())
        self.beam.extend(Candidates(sums, *np.divmod(parents_and_tokens, self.vocab)))

    @property
    def over(self) -> bool:
        """Whether every sentence is done."""
        return not len(self.beam.sentences)

    def found(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""
        return self.beam.best()


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
        self.pool: Pool = torch.cuda.graph_pool_handle() if model.embedding.weight.is_cuda else None
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
