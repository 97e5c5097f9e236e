"""Weights of sources: how often an epoch has each pair, for any seed and epoch."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onehop.data.batches import Epoch
from onehop.data.mixture import SourcePart, epoch_indices, quotas, source_name, weights_of
from onehop.data.store import Pairs, side_from_lists
from onehop.errors import SettingsError

weights = st.floats(0, 3.5, allow_nan=False) | st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 2.5])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("tatoeba.tsv.xz", "tatoeba"),
        ("train.{lang}", "train"),
        ("news.2013.{lang}.gz", "news.2013"),
        ("stdin", "stdin"),
        (".tsv", ".tsv"),
    ],
)
def test_a_source_is_named_after_its_file_without_endings(file, name):
    assert source_name(file) == name


def test_the_first_matching_name_or_pattern_counts():
    names = ["europarl-0", "europarl-1", "tatoeba", "chat"]
    table = {"europarl-1": 2.0, "europarl-*": 0.5, "tatoeba": 3}
    assert weights_of(names, table, "train.weights") == [0.5, 2.0, 3, 1.0]
    assert weights_of(names, None, "train.weights") == [1.0] * 4


def test_an_unknown_source_name_is_an_error_that_lists_the_sources():
    with pytest.raises(SettingsError) as e:
        weights_of(["tatoeba", "chat", "chat"], {"tatoba": 2.0}, "train.weights")
    assert str(e.value) == "train.weights names 'tatoba', which matches no source. There are: tatoeba, chat."


def test_all_weights_zero_is_refused():
    with pytest.raises(SettingsError) as e:
        weights_of(["tatoeba", "chat"], {"*": 0.0}, "train.weights")
    assert str(e.value) == "train.weights gives every source the weight 0. Give one of them a larger weight."


# --- the pairs of an epoch ------------------------------------------------------------------------------------


@given(st.integers(1, 40), weights, st.integers(0, 5), st.integers(0, 30))
def test_each_pair_occurs_as_often_as_its_weight(size, weight, seed, epoch):
    held = Counter(epoch_indices([SourcePart("a", 0, 7), SourcePart("b", 7, 7 + size, weight)], seed, epoch).tolist())
    assert all(held[i] == 1 for i in range(7))
    copies = [held[7 + i] for i in range(size)]
    assert set(copies) <= {int(weight), int(weight) + 1}
    assert abs(sum(copies) - weight * size) < 1


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5), st.integers(0, 20))
def test_a_source_of_weight_one_nth_is_complete_after_n_epochs(size, n, seed, first):
    part = SourcePart("a", 3, 3 + size, 1 / n)
    seen = Counter(np.concatenate([epoch_indices([part], seed, e) for e in range(first * n, (first + 1) * n)]).tolist())
    missed = size - len(seen)
    assert missed <= 1  # rounding may move one pair to the neighbouring epoch
    assert max(seen.values()) <= 2


def test_the_mixture_depends_on_seed_and_epoch_only():
    parts = [SourcePart("a", 0, 50, 0.5), SourcePart("b", 50, 100, 1.5)]
    np.random.seed(3)  # the global generator must not matter
    orders = {(seed, epoch): tuple(epoch_indices(parts, seed, epoch)) for seed in range(3) for epoch in range(2)}
    assert all(tuple(epoch_indices(parts, *key)) == order for key, order in orders.items())
    assert len(set(orders.values())) == 6
    assert not set(orders[1, 0][:25]) & set(orders[1, 1][:25])


# --- in batches -----------------------------------------------------------------------------------------------


def pairs_with(parts: list[SourcePart]) -> Pairs:
    side = side_from_lists([[5] * (1 + i % 7) for i in range(100)], np.dtype("<u2"))
    return Pairs(side, side, parts)


def test_an_epoch_follows_the_weights_and_any_batch_can_be_computed_directly():
    pairs = pairs_with([SourcePart("a", 0, 60, 0.0), SourcePart("b", 60, 100, 2.25)])
    epoch = Epoch(pairs, 50, 1, 4)
    assert Counter(Counter(epoch.order.tolist()).values()) == {2: 30, 3: 10}
    assert min(epoch.order) >= 60
    assert sum(len(batch.src_lengths) for batch in epoch) == 90
    assert epoch[3].src.tolist() == list(Epoch(pairs, 50, 1, 4))[3].src.tolist()


def test_weights_of_one_keep_the_unweighted_order():
    weighted = Epoch(pairs_with([SourcePart("a", 0, 60), SourcePart("b", 60, 100)]), 50, 1, 4)
    # Runs from before weights were introduced have this order.
    assert weighted.order.tolist() == np.random.default_rng([1, 4]).permutation(100).tolist()
    assert weighted.order.tolist() == Epoch(pairs_with([]), 50, 1, 4).order.tolist()


# --- in a sample ----------------------------------------------------------------------------------------------


def test_quotas_are_proportional_and_bounded_by_the_source():
    assert quotas([1000, 100], [0.1, 1.0], 100) == [50, 50]
    assert quotas([1000, 10], [1.0, 100.0], 1000) == [500, 10]
    assert quotas([1000, 10], [1.0, 0.0], 1000) == [1000, 0]
