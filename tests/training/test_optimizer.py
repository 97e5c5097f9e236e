"""The learning rate against the paper's equation 3."""

import math
from itertools import pairwise

import pytest

from onehop.config import TrainSettings
from onehop.training.optimizer import learning_rate

PAPER = TrainSettings()


@pytest.mark.parametrize("step", [1, 2, 100, 3999, 4000, 4001, 10_000, 100_000, 300_000])
def test_the_rate_follows_the_papers_formula(step):
    assert learning_rate(step, PAPER, 512) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-12)


def test_the_peak_is_at_the_end_of_the_warm_up():
    rates = [learning_rate(step, PAPER, 512) for step in range(1, 9000)]
    assert max(rates) == rates[3999] == pytest.approx((512 * 4000) ** -0.5)
    assert learning_rate(4000, PAPER, 512) == pytest.approx(6.9877e-4, rel=1e-4)


@pytest.mark.parametrize("decay", ["sqrt", "cosine"])
def test_a_configured_peak_is_reached_without_a_jump(decay):
    settings = TrainSettings(learning_rate=3e-3, warmup=50, steps=1000, decay=decay)
    rates = [learning_rate(step, settings, 64) for step in range(1, 1001)]
    assert rates[49] == 3e-3
    assert rates[0] == pytest.approx(3e-3 / 50)
    assert all(a < b for a, b in pairwise(rates[:50]))
    assert all(a > b for a, b in pairwise(rates[49:]))
    assert max(abs(a - b) for a, b in pairwise(rates)) <= 3e-3 / 50 * 1.001


def test_cosine_ends_at_zero_and_stays_there():
    settings = TrainSettings(learning_rate=1.0, warmup=100, steps=1100, decay="cosine")
    assert learning_rate(600, settings, 64) == pytest.approx(0.5)
    assert learning_rate(350, settings, 64) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate(1100, settings, 64) == pytest.approx(0.0, abs=1e-12)
    assert learning_rate(2000, settings, 64) == pytest.approx(0.0, abs=1e-12)


def test_warm_up_may_last_the_whole_run():
    settings = TrainSettings(learning_rate=1.0, warmup=100, steps=100, decay="cosine")
    assert learning_rate(100, settings, 64) == 1.0
