"""Sentences that join a running search and leave it: each is answered as if it were alone, when it is done."""

import math
import random

import pytest
import torch
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
    """Random weights, with an end mark as probable as it takes for sentences to end here and there."""
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
def usual():
    return engine()


def sources(count, longest=12, seed=1):
    draw = random.Random(seed)
    return [[draw.randrange(4, VOCAB) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def offline(engine, source, options):
    return engine.translate([source], options, [0])[0]


def assert_same(found, expected):
    assert [(h.ids, h.finished, h.looped) for h in found] == [(h.ids, h.finished, h.looped) for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)


def staggered(joining, arrivals):
    """Let (step, sources, options) join when it is time; what was found for each, and at which step it came."""
    found, asked, step = {}, {}, 0
    arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
    while arrivals or len(found) < len(asked):
        while arrivals and arrivals[0][0] <= step:
            _, sources, options = arrivals.pop(0)
            asked.update(zip(joining.join(sources, options), [(s, options) for s in sources], strict=True))
        found.update({ticket: (best, step) for ticket, best in joining.step().items()})
        step += 1
    return [(*asked[ticket], *found[ticket]) for ticket in asked]


@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"positions": "learned", "tied": False}])
@pytest.mark.parametrize("options", [GREEDY, BEAM])
def test_each_sentence_gets_what_it_gets_offline_whenever_it_joins(changes, options):
    one, draw = engine(**changes), random.Random(5)
    waiting = sources(24)
    arrivals = []
    while waiting:
        size = draw.randint(1, 4)
        arrivals.append((draw.randint(0, 15), waiting[:size], options))
        waiting = waiting[size:]
    answers = staggered(ContinuousBatch(one), arrivals)
    assert len(answers) == 24
    alone = one.translate([source for source, *_ in answers], options, range(24))
    for (_, _, found, _), expected in zip(answers, alone, strict=True):
        assert_same(found, expected)
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
    answers = staggered(ContinuousBatch(translator.reference), arrivals)
    for (_, _, found, _), text in zip(answers, texts, strict=True):
        assert translator.tokenizer.decode(found[0].ids) == translator.translate([text], options)[0].text


def test_options_of_every_kind_run_side_by_side(usual):
    kinds = [
        GREEDY,
        BEAM,
        SearchOptions(beam=2, alpha=0.0, min_length=5),
        SearchOptions(beam=3, penalty="paper", patience=2.0),
        SearchOptions(beam=1),
    ]
    arrivals = [(3 * i, [source], kinds[i % len(kinds)]) for i, source in enumerate(sources(15))]
    for source, options, found, _ in staggered(ContinuousBatch(usual), arrivals):
        assert_same(found, offline(usual, source, options))


def test_a_short_sentence_that_came_later_is_answered_first(usual):
    long, short = sources(1, seed=3)[0] * 4, [5]
    unending = SearchOptions(beam=2, min_length=200, loop_repeats=0)
    first, second = staggered(ContinuousBatch(usual), [(0, [long], unending), (10, [short], BEAM)])
    assert first[3] > second[3] + 5
    assert_same(second[2], offline(usual, short, BEAM))


def test_a_cancelled_sentence_leaves_the_others_unchanged(usual):
    joining, asked = ContinuousBatch(usual), sources(6)
    first = joining.join(asked[:4], BEAM)
    found = {}
    found.update(joining.step())
    joining.leave([first[0], first[2]])
    second = joining.join(asked[4:], GREEDY)
    joining.leave(second[:1])
    while joining.cohorts:
        found.update(joining.step())
    assert set(found) == {first[1], first[3], second[1]}
    assert_same(found[first[1]], offline(usual, asked[1], BEAM))
    assert_same(found[first[3]], offline(usual, asked[3], BEAM))
    assert_same(found[second[1]], offline(usual, asked[5], GREEDY))


def test_stale_cache_memory_does_not_change_results(usual, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *size: self.new_full(size, math.nan))
    wordy = SearchOptions(beam=4, min_length=8)
    arrivals = [(4 * i, [source], wordy) for i, source in enumerate(sources(4))]
    for source, options, found, _ in staggered(ContinuousBatch(usual), arrivals):
        assert_same(found, offline(usual, source, options))


def test_memory_is_given_back_when_a_long_sentence_has_left(usual):
    joining = ContinuousBatch(usual)
    long, short = joining.join([[7] * 90], BEAM), joining.join([[7, 8]], BEAM)
    joining.step()
    assert joining.rows.token_mask.shape == (8, 91)
    joining.leave(long)
    assert joining.rows.token_mask.shape == (4, 3)
    assert joining.rows.layers[0].keys.shape[2] == 12
    joining.leave(short)
    assert (joining.rows, joining.step()) == (None, {})


def test_a_sentence_that_cannot_join_leaves_the_others_as_they_were():
    one = engine(positions="learned", max_length=64)
    joining, asked = ContinuousBatch(one), sources(1)[0]
    (ticket,) = joining.join([asked], BEAM)
    joining.step()
    with pytest.raises(SettingsError, match="longer than the 64 learned positions"):
        joining.join([[7] * 80], BEAM)
    found = {}
    while joining.cohorts:
        found.update(joining.step())
    assert_same(found[ticket], offline(one, asked, BEAM))


def test_nan_logits_are_an_error_for_the_sentence(usual):
    one = engine()
    joining = ContinuousBatch(one)
    joining.join(sources(1), GREEDY)
    with torch.no_grad():
        one.model.output_bias.fill_(float("nan"))
    with pytest.raises(OnehopError, match="not numbers"):
        joining.step()


def test_sampling_does_not_join(usual):
    with pytest.raises(AssertionError, match="sampling is not joined"):
        ContinuousBatch(usual).join([[5]], SearchOptions(sample=True))
