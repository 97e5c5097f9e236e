"""Measurements without a trained model: softmax by dimension, gradients by distance, costs of layers."""

import statistics

import numpy as np
import pytest
import torch

from onehop.experiments.synthetic import (
    complexity,
    dimension,
    full_attention,
    paths,
    restricted_attention,
    timed,
    whole_layers,
    windowed_attention,
)
from onehop.model.attention import fused_attention


def test_unscaled_dot_products_saturate_the_softmax_with_growing_dimension():
    found = dimension()
    assert dimension() == found
    for row in found["rows"]:
        assert row["variance"] == pytest.approx(row["d"], rel=0.15)
        assert sum(row["scaled"]["weights"]) == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(
            np.array(row["scaled"]["scores"]) * row["d"] ** 0.5, row["unscaled"]["scores"], rtol=1e-5
        )
    first, last = found["rows"][0], found["rows"][-1]
    assert last["unscaled"]["top"] > 0.9 > 0.4 > last["scaled"]["top"]
    assert last["unscaled"]["gradient"] < first["unscaled"]["gradient"] / 3
    assert last["scaled"]["gradient"] == pytest.approx(first["scaled"]["gradient"], rel=0.2)


def test_gradients_vanish_with_distance_in_a_recurrence_but_not_in_attention():
    rows = {row["distance"]: row for row in paths(draws=8)["rows"]}
    assert rows[1]["recurrent"] == rows[1]["attention"] == 1
    assert rows[16]["recurrent"] < 0.01
    assert rows[64]["recurrent"] < rows[16]["recurrent"] < rows[4]["recurrent"]
    assert 0.5 < rows[64]["attention"] < 2


def test_complexity_times_every_layer_at_every_size():
    found = complexity(lengths=(8, 16), widths=(16,), repeats=1)
    assert [(row["d"], row["n"]) for row in found["rows"]] == [(16, 8), (16, 16)]
    assert all(row[kind] > 0 for row in found["rows"] for kind in ("self_attention", "recurrence", "convolution"))


def test_restricted_attention_attends_to_the_neighbours():
    torch.manual_seed(1)
    x = torch.randn(1, 20, 16)
    torch.testing.assert_close(restricted_attention(x)[:, :, 16:17].shape, full_attention(x)[:, :, 16:17].shape)
    heads = x.view(1, 20, 8, 2).transpose(1, 2)
    padded = torch.nn.functional.pad(heads, (0, 0, 16, 15))
    near = padded[0, 3, 10 : 10 + 32]  # what position 10 sees: 16 before it, itself, 15 after it
    weights = (near @ heads[0, 3, 10] / 2**0.5).softmax(0)
    torch.testing.assert_close(restricted_attention(x)[0, 3, 10], weights @ near)


@pytest.mark.parametrize("length", [5, 32, 33, 70])
def test_windowed_attention_equals_masked_attention(length):
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 1, 2, length, 4)
    place = torch.arange(length)
    mask = (place[None] >= place[:, None] - 16) & (place[None] <= place[:, None] + 15)
    torch.testing.assert_close(windowed_attention(q, k, v), fused_attention(q, k, v, mask[None, None]))


def test_timed_attention_layers_include_their_projections():
    """If the window holds the whole sentence, restricted attention equals full attention."""
    torch.manual_seed(1)
    x = torch.randn(1, 15, 16)
    with torch.inference_mode():
        layers = whole_layers(16)
        full, restricted = layers["self_attention"](x), layers["restricted"](x)
    torch.testing.assert_close(restricted, full)
    assert not torch.allclose(full, full_attention(x).transpose(1, 2).flatten(2))


def test_timed_interleaves_layers_and_skips_the_first_runs():
    ticks = iter([0, 5, 10, 11, 20, 29, 30, 32, 40, 47, 50, 53])  # seconds of a, b, a, b, a, b: 5, 1, 9, 2, 7, 3
    order = []
    layers = {"a": lambda x: order.append("a") or x, "b": lambda x: order.append("b") or x}
    found = timed(layers, torch.zeros(1, 1, 1), 3, lambda: next(ticks), statistics.median)
    assert found == {"a": 7, "b": 2}
    assert order == ["a", "b"] * 4  # the first runs are not timed
