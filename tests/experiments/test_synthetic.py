"""What needs no trained model: softmax by dimension, gradients by distance, costs of layers."""

import numpy as np
import pytest
import torch

from onehop.experiments.synthetic import complexity, dimension, full_attention, paths, restricted_attention


def test_the_variance_of_a_dot_product_grows_with_the_dimension_and_the_softmax_dies():
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


def test_gradients_fade_along_a_chain_and_not_in_attention():
    rows = {row["distance"]: row for row in paths(draws=8)["rows"]}
    assert rows[1]["recurrent"] == rows[1]["attention"] == 1
    assert rows[16]["recurrent"] < 0.01
    assert rows[64]["recurrent"] < rows[16]["recurrent"] < rows[4]["recurrent"]
    assert 0.5 < rows[64]["attention"] < 2


def test_the_costs_are_of_the_layers_that_they_name():
    found = complexity(lengths=(8, 16), widths=(16,), repeats=1)
    assert [(row["d"], row["n"]) for row in found["rows"]] == [(16, 8), (16, 16)]
    assert all(row[kind] > 0 for row in found["rows"] for kind in ("self_attention", "recurrence", "convolution"))


def test_restricted_attention_is_attention_to_the_neighbours():
    torch.manual_seed(1)
    x = torch.randn(1, 20, 16)
    torch.testing.assert_close(restricted_attention(x)[:, :, 16:17].shape, full_attention(x)[:, :, 16:17].shape)
    heads = x.view(1, 20, 8, 2).transpose(1, 2)
    padded = torch.nn.functional.pad(heads, (0, 0, 16, 15))
    near = padded[0, 3, 10 : 10 + 32]  # what position 10 sees: 16 before it, itself, 15 after it
    weights = (near @ heads[0, 3, 10] / 2**0.5).softmax(0)
    torch.testing.assert_close(restricted_attention(x)[0, 3, 10], weights @ near)
