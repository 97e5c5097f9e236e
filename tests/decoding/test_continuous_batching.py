"""Sentences join a running search and leave it when they are done. Each gets the result of a search of its own."""

import math
import random

import pytest
import torch
from hypotheses import assert_same
from long_tests import LONG

from onehop.config import ModelSettings
from onehop.decoding import engine as engine_module
from onehop.decoding.continuous_batching import ContinuousBatch
from onehop.decoding.options import SearchOptions
from onehop.decoding.torch_engine import TorchEngine
from onehop.errors import OnehopError, SettingsError
from onehop.model.transformer import Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.registry import installed
from onehop.text.tokenizer import EOS

VOCAB = 60
REAL = [
    "The committee decided yesterday that the new bridge will be built next to the old railway station.",
    "Thank you!",
    "When the doctor came back, she told us that nobody had been hurt.",
    "How much does it cost?",
    "In 2019 the company sold more than three million bicycles in Europe, twice as many as the year before.",
    "The cat sat because it was sleepy.",
    "Please close the window.",
    "He said that he would call me, but he never did.",
]
GREEDY, BEAM = SearchOptions(beam=1, loop_repeats=0), SearchOptions(beam=4, n_best=3)


def engine(**changes):
    """Random weights, and EOS probable enough for outputs of different lengths."""
    torch.manual_seed(2)
    shape = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 4, "max_length": 128}
    model = Transformer(ModelSettings(**{**shape, "output_bias": True, **changes}), VOCAB)
    with torch.no_grad():
        model.output_bias.zero_()
        model.output_bias[EOS] = 1
    return TorchEngine(model, capture=False)


@pytest.fixture(autouse=True)
def short_outputs(monkeypatch, request):
    if "slow" not in request.keywords:
        monkeypatch.setattr(engine_module, "MORE_THAN_SOURCE", 10)


@pytest.fixture(scope="module")
def random_engine():
    return engine()


def random_sources(count, longest=12, seed=1):
    draw = random.Random(seed)
    return [[draw.randrange(4, VOCAB) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def translate_alone(engine, source, options):
    return engine.translate([source], options, [0])[0]


def join_over_time(running, arrivals):
    """Let each arrival (step, sources, options) join at its step; return (source, options, result, last step)."""
    found, requests, step = {}, {}, 0
    arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
    while arrivals or len(found) < len(requests):
        while arrivals and arrivals[0][0] <= step:
            _, sources, options = arrivals.pop(0)
            requests.update(zip(running.join(sources, options), [(s, options) for s in sources], strict=True))
        found.update({ticket: (best, step) for ticket, best in running.step().items()})
        step += 1
    return [(*requests[ticket], *found[ticket]) for ticket in requests]


@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"positions": "learned", "tied": False}])
@pytest.mark.parametrize("options", [GREEDY, BEAM])
def test_a_result_does_not_depend_on_when_a_sentence_joins(changes, options):
    one, draw = engine(**changes), random.Random(5)
    waiting = random_sources(24)
    arrivals = []
    while waiting:
        size = draw.randint(1, 4)
        arrivals.append((draw.randint(0, 15), waiting[:size], options))
        waiting = waiting[size:]
    answers = join_over_time(ContinuousBatch(one), arrivals)
    assert len(answers) == 24
    alone = one.translate([source for source, *_ in answers], options, range(24))
    for (_, _, found, _), expected in zip(answers, alone, strict=True):
        assert_same([found], [expected], abs=1e-4)
    assert len({found[0].ids for _, _, found, _ in answers}) > 5
    assert len({step for _, _, _, step in answers}) > 10


@pytest.fixture(scope="module")
def translator():
    if "en-de" not in installed():
        pytest.skip("the model en-de is not in this checkout")
    return SentenceTranslator.load(installed()["en-de"], "cpu", engine="torch", threads=1)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("texts", "options"),
    [
        pytest.param(REAL if LONG else REAL[::2], SearchOptions(beam=1), id="greedy"),
        pytest.param(REAL if LONG else REAL[1::2], SearchOptions(), id="beam"),
    ],
)
def test_real_sentences_do_not_depend_on_when_they_join(translator, texts, options):
    encoded = translator.tokenizer.encode_batch(texts)
    arrivals = [(4 * i, [source], options) for i, source in enumerate(encoded)]
    answers = join_over_time(ContinuousBatch(translator.reference), arrivals)
    for (_, _, found, _), text in zip(answers, texts, strict=True):
        assert translator.tokenizer.decode(found[0].ids) == translator.translate([text], options)[0].text


def test_sentences_with_different_options_run_together(random_engine):
    kinds = [
        GREEDY,
        BEAM,
        SearchOptions(beam=2, alpha=0.0, min_length=5),
        SearchOptions(beam=3, penalty="paper", patience=2.0),
        SearchOptions(beam=1),
    ]
    arrivals = [(3 * i, [source], kinds[i % len(kinds)]) for i, source in enumerate(random_sources(15))]
    for source, options, found, _ in join_over_time(ContinuousBatch(random_engine), arrivals):
        assert_same([found], [translate_alone(random_engine, source, options)], abs=1e-4)


def test_a_short_sentence_that_joins_later_is_answered_first(random_engine):
    long, short = random_sources(1, seed=3)[0] * 4, [5]
    unending = SearchOptions(beam=2, min_length=200, loop_repeats=0)
    first, second = join_over_time(ContinuousBatch(random_engine), [(0, [long], unending), (10, [short], BEAM)])
    assert first[3] > second[3] + 5
    assert_same([second[2]], [translate_alone(random_engine, short, BEAM)], abs=1e-4)


def test_a_cancelled_sentence_leaves_the_others_unchanged(random_engine):
    running, requests = ContinuousBatch(random_engine), random_sources(6)
    first = running.join(requests[:4], BEAM)
    found = {}
    found.update(running.step())
    running.leave([first[0], first[2]])
    second = running.join(requests[4:], GREEDY)
    running.leave(second[:1])
    while running.cohorts:
        found.update(running.step())
    assert set(found) == {first[1], first[3], second[1]}
    assert_same([found[first[1]]], [translate_alone(random_engine, requests[1], BEAM)], abs=1e-4)
    assert_same([found[first[3]]], [translate_alone(random_engine, requests[3], BEAM)], abs=1e-4)
    assert_same([found[second[1]]], [translate_alone(random_engine, requests[5], GREEDY)], abs=1e-4)


def test_stale_cache_memory_does_not_change_results(random_engine, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *size: self.new_full(size, math.nan))
    wordy = SearchOptions(beam=4, min_length=8)
    arrivals = [(4 * i, [source], wordy) for i, source in enumerate(random_sources(4))]
    for source, options, found, _ in join_over_time(ContinuousBatch(random_engine), arrivals):
        assert_same([found], [translate_alone(random_engine, source, options)], abs=1e-4)


def test_the_cache_shrinks_when_a_long_sentence_leaves(random_engine):
    running = ContinuousBatch(random_engine)
    long, short = running.join([[7] * 90], BEAM), running.join([[7, 8]], BEAM)
    running.step()
    assert running.rows.token_mask.shape == (8, 91)
    running.leave(long)
    assert running.rows.token_mask.shape == (4, 3)
    assert running.rows.layers[0].keys.shape[2] == 12
    running.leave(short)
    assert (running.rows, running.step()) == (None, {})


def test_a_sentence_that_is_too_long_to_join_leaves_the_others_unchanged():
    one = engine(positions="learned", max_length=64)
    running, requests = ContinuousBatch(one), random_sources(1)[0]
    (ticket,) = running.join([requests], BEAM)
    running.step()
    with pytest.raises(SettingsError, match="longer than the 64 learned positions"):
        running.join([[7] * 80], BEAM)
    found = {}
    while running.cohorts:
        found.update(running.step())
    assert_same([found[ticket]], [translate_alone(one, requests, BEAM)], abs=1e-4)


def test_nan_logits_are_an_error(random_engine):
    one = engine()
    running = ContinuousBatch(one)
    running.join(random_sources(1), GREEDY)
    with torch.no_grad():
        one.model.output_bias.fill_(float("nan"))
    with pytest.raises(OnehopError, match="contain NaN"):
        running.step()


def test_a_sampling_request_cannot_join(random_engine):
    with pytest.raises(AssertionError, match="sampling is not joined"):
        ContinuousBatch(random_engine).join([[5]], SearchOptions(sample=True))
