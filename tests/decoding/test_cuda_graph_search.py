"""The search that stays on the device gives the results of `search`. Most tests run its steps without a graph."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypotheses import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.config import ModelSettings
from onehop.decoding import cuda_graph_search, engine, one_token
from onehop.decoding.cuda_graph_hypotheses import DeviceBeams, DevicePaths, Limits, LoopCounts
from onehop.decoding.cuda_graph_search import AHEAD, CapturedSearch
from onehop.decoding.cuda_graph_state import Shape, operations, round_down, round_up, source_width
from onehop.decoding.options import Hypothesis, SearchOptions
from onehop.decoding.request import SearchRequest, ends_in_loop
from onehop.decoding.search import search
from onehop.decoding.torch_engine import TorchEngine
from onehop.errors import OnehopError
from onehop.model.taps import Recorder, watch
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import BOS, EOS

CPU = torch.device("cpu")
SHAPE = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 2, "max_length": 64}
VOCAB = 40


# --- hypotheses, with a table of logits instead of a model ----------------------------------------------------


class Table:
    """Logits that depend on the sentence and on all ids so far. Coarse ones have many ties."""

    def __init__(self, seed: int, vocab: int, coarse: bool) -> None:
        self.seed, self.vocab, self.coarse = seed, vocab, coarse

    def log_probs(self, past: list[tuple[int, ...]]) -> torch.Tensor:
        logits = np.stack([np.random.default_rng((self.seed, *ids)).normal(0, 1.5, self.vocab) for ids in past])
        logits = logits.round() if self.coarse else logits
        return torch.from_numpy(logits).float().log_softmax(-1)


class TableStep:
    """The table as the step function of `search`."""

    def __init__(self, table: Table, sentences: int) -> None:
        self.table, self.past = table, [(s,) for s in range(sentences)]
        self.begun = False

    def __call__(self, tokens, parents):
        if self.begun:
            origins = range(len(self.past)) if parents is None else parents.tolist()
            self.past = [(*self.past[p], t) for p, t in zip(origins, tokens.tolist(), strict=True)]
        self.begun = True
        return self.table.log_probs(self.past).log_softmax(-1)


def device_search(table: Table, most: list[int], options: SearchOptions, spare: int) -> list[list[Hypothesis]]:
    """The device's search over a table, in a batch with `spare` unused sentences."""
    shape = Shape.of([[4]] * len(most), most, options, ModelSettings(**SHAPE))
    shape = replace(shape, sentences=len(most) + spare)
    hypotheses = (DevicePaths if shape.greedy else DeviceBeams)(shape, table.vocab, CPU, one_token)
    request = SearchRequest.of(most, options, None)
    hypotheses.limits.load(request)
    hypotheses.reset()
    assert hypotheses.tokens.tolist() == [BOS] * shape.rows
    past = [(row // options.beam,) for row in range(shape.rows)]
    least, steps = torch.tensor(options.min_length), 0
    for place in range(max(most)):
        now = torch.tensor(place)
        best = one_token.best_of_rows(table.log_probs(past), hypotheses.k, EOS, now, least)
        hypotheses.extend(*best, now)
        parents = range(shape.rows) if shape.greedy else hypotheses.parents.tolist()
        past = [(*past[p], t) for p, t in zip(parents, hypotheses.tokens.tolist(), strict=True)]
        steps = place + 1
        if not hypotheses.unfinished:
            break
    return hypotheses.n_best(request, {name: x.numpy() for name, x in hypotheses.results(steps).items()})


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocab=st.integers(4, 9),
    beam=st.integers(1, 5),
    n_best=st.integers(1, 5),
    most=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    kind=st.sampled_from(["paper", "power"]),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    min_length=st.integers(0, 6),
    patience=st.sampled_from([1.0, 1.5, math.inf]),
    loop_repeats=st.sampled_from([0, 2, 4]),
    coarse=st.booleans(),
)
def test_the_device_search_equals_the_plain_search(
    seed, vocab, beam, n_best, most, kind, alpha, min_length, patience, loop_repeats, coarse
):
    options = SearchOptions(
        beam=beam,
        n_best=min(n_best, beam),
        penalty=kind,
        alpha=alpha,
        min_length=min_length,
        patience=patience,
        loop_repeats=loop_repeats,
    )
    table = Table(seed, vocab, coarse)
    expected = search(TableStep(table, len(most)), most, options)
    assert_same(device_search(table, most, options, spare=seed % 2), expected, rel=1e-5)


class Loops(Table):
    """Prefers to alternate between two ids."""

    def log_probs(self, past):
        log_probs = super().log_probs(past)
        for row, (_, *ids) in zip(log_probs, past, strict=True):
            row[4 + len(ids) % 2] += 4.0
        return log_probs.log_softmax(-1)


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("repeats", [2, 4])
def test_the_device_search_stops_the_same_loops(beam, repeats):
    options = SearchOptions(beam=beam, n_best=beam, loop_repeats=repeats, patience=math.inf)
    table, most = Loops(5, 8, coarse=False), [40, 33, 20]
    expected = search(TableStep(table, 3), most, options)
    assert expected != search(TableStep(table, 3), most, replace(options, loop_repeats=0))
    assert_same(device_search(table, most, options, spare=1), expected, rel=1e-5)


@settings(max_examples=50, deadline=None)
@given(repeats=st.sampled_from([0, 2, 3, 4, 6]), ids=st.lists(st.integers(0, 2), max_size=40), cycle=st.integers(1, 7))
def test_loop_counts_equal_ends_in_loop(repeats, ids, cycle):
    row = [*ids, *(i % cycle for i in range(cycle * repeats + 12))]
    limits = Limits(Shape.of([[4]], [len(row)], SearchOptions(), ModelSettings(**SHAPE)), CPU)
    limits.load(SearchRequest.of([len(row)], SearchOptions(loop_repeats=repeats), None))
    loops = LoopCounts(2, limits)
    loops.reset()
    for place, token in enumerate(row):
        # Both rows continue the first one, so they are equal.
        found = loops.append(torch.tensor([0, 0]), torch.tensor([token, token]))
        expected = ends_in_loop(np.array([row[: place + 1]], dtype=np.int64), repeats)[0]
        assert found.tolist() == [expected] * 2


# --- with a model ---------------------------------------------------------------------------------------------


def model_of(seed: int = 0, **changes: object) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(ModelSettings(**{**SHAPE, **changes}), VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that biases are not 0 and gains not 1
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.embedding.weight.mul_(3.0)  # sharper distributions
    return model


def sources(count: int, longest: int = 14, seed: int = 1) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(4, VOCAB) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def plain_and_captured(model: Transformer) -> tuple[TorchEngine, TorchEngine]:
    plain, fast = TorchEngine(model, capture=False), TorchEngine(model)
    fast.captured = CapturedSearch(model, one_token)
    return plain, fast


OPTIONS = [
    SearchOptions(beam=1),
    SearchOptions(beam=1, loop_repeats=0, min_length=3),
    SearchOptions(),
    SearchOptions(beam=4, n_best=4, penalty="paper", alpha=1.0, min_length=5),
    SearchOptions(beam=3, n_best=2, loop_repeats=2, patience=2.0),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_translations_equal_the_plain_engines(options):
    plain, fast = plain_and_captured(model_of())
    texts = sources(21)
    expected = plain.translate(texts, options, range(21))
    assert_same(fast.translate(texts, options, range(21)), expected, rel=1e-5)
    assert len({best[0].ids for best in expected}) > 5


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"positions": "learned", "max_length": 24},
        {"tied": False, "output_bias": True},
        {"attention_bias": True, "activation": "swish"},
        {"d_k": 5, "d_v": 7, "activation": "gelu"},
    ],
)
def test_translations_equal_the_plain_engines_for_every_model_option(changes):
    plain, fast = plain_and_captured(model_of(3, **changes))
    texts = sources(6)
    for options in (SearchOptions(beam=1, min_length=4), SearchOptions(beam=3, n_best=3)):
        assert_same(fast.translate(texts, options, range(6)), plain.translate(texts, options, range(6)), rel=1e-5)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("options", [SearchOptions(beam=1), SearchOptions(beam=2, n_best=2, min_length=3)])
def test_translations_with_kernels_equal_the_plain_engines(monkeypatch, options):
    pytest.importorskip("triton")
    from onehop.model.kernels import one_token as kernels

    monkeypatch.setattr(engine, "MORE_THAN_SOURCE", 3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain, fast = plain_and_captured(model_of().to(device))
    fast.captured = CapturedSearch(fast.model, kernels)
    texts = [[5, 6], [7, 8, 9]]
    assert_same(fast.translate(texts, options, range(2)), plain.translate(texts, options, range(2)), rel=1e-5)


def test_without_a_gpu_operations_are_plain_torch():
    assert operations(CPU) is one_token


def test_a_recorded_graph_is_reused_with_changed_weights():
    model = model_of()
    plain, fast = plain_and_captured(model)
    options = SearchOptions(beam=2)
    for seed in (1, 2):
        texts = sources(4, seed=seed)
        assert_same(fast.translate(texts, options, range(4)), plain.translate(texts, options, range(4)), rel=1e-5)
    before = plain.translate(texts, options, range(4))
    with torch.no_grad():
        model.decoder.layers[0].self_attention.w_q.weight.mul_(-2.0)
        model.decoder.layers[1].cross_attention.w_v.weight.mul_(-2.0)
    after = plain.translate(texts, options, range(4))
    assert [h[0].ids for h in before] != [h[0].ids for h in after]
    assert_same(fast.translate(texts, options, range(4)), after, rel=1e-5)
    assert len(fast.captured.graphs) == 1


def test_replaced_weights_are_recorded_again():
    model = model_of()
    plain, fast = plain_and_captured(model)
    fast.translate(sources(2), SearchOptions(beam=1), range(2))
    (old,) = fast.captured.graphs.values()
    model.load_state_dict({k: v.clone() + 0.01 for k, v in model.state_dict().items()}, assign=True)
    expected = plain.translate(sources(2), SearchOptions(beam=1), range(2))
    assert_same(fast.translate(sources(2), SearchOptions(beam=1), range(2)), expected, rel=1e-5)
    assert old not in fast.captured.graphs.values()


def test_steps_ahead_of_the_finished_check_are_bounded(monkeypatch):
    model = model_of()
    fast = CapturedSearch(model, one_token)
    with torch.no_grad():
        model.embedding.weight[EOS] = 0.0
        model.decoder.layers[-1].feed_add_norm.norm.bias.copy_(20 * torch.nn.functional.one_hot(torch.tensor(0), 16))
        model.embedding.weight[EOS, 0] = 5.0  # every output is empty
    asked = []
    launch = cuda_graph_search.ShapeGraphs.launch
    launches = lambda self, number: (asked.append(number), launch(self, number))  # noqa: E731
    monkeypatch.setattr(cuda_graph_search.ShapeGraphs, "launch", launches)
    with torch.inference_mode():
        found = fast.search(sources(3, longest=6), [50, 60, 70], SearchOptions(beam=1))
    assert all(h.ids == () and h.finished for (h,) in found)
    assert asked == list(range(AHEAD))
    asked.clear()
    with torch.inference_mode():
        fast.search([[5] * 20], [70], SearchOptions(beam=1))
    assert asked == list(range(10))  # no check before half of the source's length
    asked.clear()
    with torch.inference_mode():
        fast.search(sources(3), [2, 1, 2], SearchOptions(beam=1, min_length=9))
    assert asked == [0, 1]


@pytest.mark.parametrize("beam", [1, 3])
def test_nan_logits_are_an_error(beam):
    model = model_of()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.w_1.bias[0] = math.nan
    _, fast = plain_and_captured(model)
    with pytest.raises(OnehopError, match=r"^The model's log-probabilities contain NaN\. Try float32"):
        fast.translate(sources(2), SearchOptions(beam=beam), range(2))


# --- shapes and memory of graphs ------------------------------------------------------------------------------


def test_shapes_are_rounded_up_by_at_most_half():
    sizes = [round_up(n) for n in range(1, 600)]
    assert all(n <= size <= max(n + 1, 1.5 * n) for n, size in enumerate(sizes, 1))
    assert len(set(sizes)) == 19
    assert round_up(512) == 512
    shape = Shape.of([[5] * 28] * 9, [78] * 9, SearchOptions(), ModelSettings())
    assert (shape.sentences, shape.source, shape.capacity, shape.rows) == (12, 32, 96, 48)
    assert {round_up(round_down(n)) == round_down(n) <= n for n in range(1, 600)} == {True}
    assert [round_down(n) for n in (1, 2, 5, 6, 383, 384)] == [1, 2, 4, 6, 256, 384]
    assert [source_width(n) for n in (1, 15, 16, 47, 48)] == [16, 16, 24, 48, 64]
    learned = ModelSettings(positions="learned", max_length=30)
    shape = Shape.of([[5] * 28] * 9, [30] * 9, SearchOptions(), learned)
    assert (shape.source, shape.capacity) == (30, 30)


def test_batches_of_one_width_share_a_graph_for_any_loop_repeats():
    shapes = {
        Shape.of([[5] * n], [n + 50], SearchOptions(beam=2, loop_repeats=repeats), ModelSettings())
        for n in range(24, 32)
        for repeats in (0, 4)
    }
    assert [(s.source, s.capacity) for s in shapes] == [(32, 96)]


def test_shapes_share_memory_and_the_least_recently_used_is_evicted(monkeypatch):
    model = model_of()
    _, fast = plain_and_captured(model)
    captured = fast.captured
    shapes = [Shape.of([[5]] * n, [17] * n, SearchOptions(beam=2), model.settings) for n in (4, 2, 1, 8)]
    assert shapes[2].bytes(model) == (2 * 32 + 16) * 2 * 2 * (8 + 8) * 4
    monkeypatch.setattr(cuda_graph_search, "MOST_GRAPHS", 2)
    first, second = (captured.graphs_for(shape) for shape in shapes[:2])
    assert first.memory is second.memory
    captured.graphs_for(shapes[2])
    assert list(captured.graphs) == shapes[1:3]
    larger = captured.graphs_for(shapes[3])
    assert larger.memory.nbytes == shapes[3].bytes(model) == 2 * first.memory.nbytes
    assert list(captured.graphs) == shapes[2:]
    monkeypatch.setattr(cuda_graph_search, "MOST_BYTES", larger.memory.nbytes + 1)
    captured.graphs_for(replace(shapes[3], sentences=12))
    assert len(captured.graphs) == 1


def test_memory_of_the_first_batch_suffices_for_all_later_ones():
    model = model_of()
    _, fast = plain_and_captured(model)
    texts = [[5] * n for n in (60, 40, 20) for _ in range(512)]
    shapes = [
        Shape.of([texts[i] for i in batch], [len(texts[i]) + 50 for i in batch], SearchOptions(), model.settings)
        for batch in fast.batches(texts)
    ]
    assert len({fast.captured.memory_for(shape).data_ptr() for shape in shapes}) == 1
    assert fast.captured.memory_for(shapes[0]).numel() >= max(shape.elements(model) for shape in shapes)


def test_batch_sizes_are_those_of_graphs():
    _, fast = plain_and_captured(model_of())
    texts = [[5] * n for n in (100, 60, 40, 20) for _ in range(600)]
    batches = list(fast.batches(texts))
    assert sorted(i for batch in batches for i in batch) == list(range(len(texts)))
    assert all(round_up(len(batch)) == len(batch) for batch in batches[:-1])
    assert [len(batch) for batch in batches[:5]] == [128] * 5
    widths = [source_width(max(len(texts[i]) for i in batch)) for batch in batches]
    sizes = list(zip(widths, map(len, batches), strict=True))
    assert set(sizes[:-1]) == {(128, 128), (64, 256), (48, 384)}
    assert sizes[-1] == (24, 224)


def test_a_memory_pool_is_not_reused_after_its_last_graph_is_evicted(monkeypatch):
    """Otherwise torch fails with an internal error."""
    pools = iter(range(10))
    monkeypatch.setattr(cuda_graph_search.CapturedSearch, "new_pool", lambda self: next(pools))
    model = model_of()
    fast = cuda_graph_search.CapturedSearch(model, operations(CPU))
    shapes = [Shape.of([[5]] * n, [20] * n, SearchOptions(beam=2), model.settings) for n in (1, 2)]
    for shape in shapes:
        fast.graphs_for(shape)
    fast.evict(1)
    fast.graphs_for(shapes[0])
    assert fast.pool == 0
    fast.evict(2)
    fast.graphs_for(shapes[0])
    assert fast.pool == 1
    fast.evict(1)
    with monkeypatch.context() as patch:
        patch.setattr(cuda_graph_search, "ShapeGraphs", lambda *_: pytest.fail("no memory"))
        with pytest.raises(pytest.fail.Exception):
            fast.graphs_for(shapes[0])
    fast.graphs_for(shapes[0])
    assert fast.pool == 3


def test_unsupported_options_use_the_plain_search(monkeypatch):
    model = model_of()
    fast = CapturedSearch(model, one_token)
    suits = fast.supports
    assert suits([[5, 6]], [52], SearchOptions(beam=16))
    assert not suits([[5, 6]], [52], SearchOptions(beam=17))
    assert not suits([[5, 6]], [52], SearchOptions(sample=True))
    assert not suits([[5, 0, 6]], [52], SearchOptions())
    assert not suits([[5]] * 513, [52] * 513, SearchOptions())
    assert not suits([], [], SearchOptions())
    assert not CapturedSearch(watch(model, Recorder()), one_token).supports([[5]], [51], SearchOptions())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
        assert not suits([[5, 6]], [52], SearchOptions())
    monkeypatch.setattr(cuda_graph_search, "MOST_BYTES", 1000)
    assert not suits([[5, 6]], [52], SearchOptions())
    plain, fast_engine = plain_and_captured(model)
    options = SearchOptions(sample=True, seed=3)
    texts = sources(5)
    assert fast_engine.translate(texts, options, range(5)) == plain.translate(texts, options, range(5))


def test_the_engine_captures_only_on_a_gpu_and_limits_its_batches(monkeypatch):
    plain, fast = plain_and_captured(model_of())
    assert plain.captured is None
    assert [len(batch) for batch in fast.batches([[5]] * 1200)] == [512, 512, 176]
    assert [len(batch) for batch in plain.batches([[5]] * 1200)] == [1200]
    monkeypatch.setattr(engine, "MORE_THAN_SOURCE", 1)
    found = fast.translate([[5]] * 520, SearchOptions(beam=1), range(520))
    assert len({h.ids for (h,) in found}) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", OPTIONS)
def test_cuda_graphs_give_the_plain_engines_translations(options):
    model = model_of().cuda()
    texts = sources(33)
    expected = TorchEngine(model, capture=False).translate(texts, options, range(33))
    fast = TorchEngine(model)
    for _ in range(2):
        assert_same(fast.translate(texts, options, range(33)), expected, rel=1e-5)
