"""The GPU's kernels in Triton's interpreter, each against the plain function that specifies it."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
pytest.importorskip("triton", reason="Triton is not installed: its interpreter runs the kernels on the CPU")

from onehop import kernels
from onehop.attention import Packed, Packing, padded_attention
from onehop.kernels import ragged
from onehop.kernels.cross_entropy import linear_cross_entropy
from onehop.kernels.feed_forward import linear_relu
from onehop.loss import cross_entropy

HEADS, WIDTH = 2, 16


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def gradients(out, inputs, d_out):
    return torch.autograd.grad(out, inputs, d_out)


def assert_all_close(ours, theirs) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def by_heads(x):
    return x.view(1, -1, HEADS, WIDTH).transpose(1, 2)


def reference(q, k, v, pattern):
    return padded_attention(by_heads(q), by_heads(k), by_heads(v), pattern).transpose(1, 2).flatten(2)[0]


def compare_self(lengths: list[int], causal: bool) -> None:
    packing = Packing.of(torch.tensor(lengths))
    qkv, d_out = drawn(sum(lengths), 3 * HEADS * WIDTH), drawn(sum(lengths), HEADS * WIDTH, seed=1).detach()
    out, _ = ragged.self_attention(qkv, packing.sentence_of_row, packing.starts, HEADS, causal)
    plain = reference(*qkv.chunk(3, 1), Packed(packing, packing, causal))
    assert_all_close([out, *gradients(out, qkv, d_out)], [plain, *gradients(plain, qkv, d_out)])


def compare_cross(query_lengths: list[int], key_lengths: list[int]) -> None:
    query, key = (Packing.of(torch.tensor(n)) for n in (query_lengths, key_lengths))
    q, kv = drawn(sum(query_lengths), HEADS * WIDTH), drawn(sum(key_lengths), 2 * HEADS * WIDTH, seed=1)
    d_out = drawn(len(q), HEADS * WIDTH, seed=2).detach()
    rows = (query.sentence_of_row, key.sentence_of_row)
    out, _ = ragged.cross_attention(q, kv, *rows, query.starts, key.starts, HEADS)
    plain = reference(q, *kv.chunk(2, 1), Packed(query, key))
    assert_all_close([out, *gradients(out, (q, kv), d_out)], [plain, *gradients(plain, (q, kv), d_out)])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 129, 256])
def test_one_length_after_another(length, causal):
    compare_self([length, length], causal)


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6), causal=st.booleans())
@settings(max_examples=15, deadline=None)
def test_mixed_lengths_within(lengths, causal):
    compare_self(lengths, causal)


@given(lengths=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_mixed_lengths_across(lengths):
    """Also where a sentence's partner is empty: what may attend to nothing gets zeros."""
    query, key = ([side[i] for side in lengths] for i in (0, 1))
    if sum(query) and sum(key):
        compare_cross(query, key)


def test_a_tile_sees_no_other_sentence():
    packing = Packing.of(torch.tensor([3, 4, 5]))
    qkv = drawn(12, 3 * HEADS * WIDTH)
    out, _ = ragged.self_attention(qkv, packing.sentence_of_row, packing.starts, HEADS, False)
    (gradient,) = gradients(out, qkv, torch.cat([torch.zeros(3, 32), torch.ones(4, 32), torch.zeros(5, 32)]))
    assert (gradient[:3] == 0).all()
    assert (gradient[7:] == 0).all()
    assert gradient[3:7].abs().sum() > 0


@pytest.mark.parametrize("vocab", [7, 8192, 8193, 20_000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fused_output_is_the_plain_loss(vocab, smoothing):
    states, weight = drawn(5, 8), drawn(vocab, 8, seed=1)
    labels = torch.tensor([1, vocab - 1, 0, 3, 0])  # 0 is filling
    objective, nll, _ = linear_cross_entropy(states, weight, labels, smoothing, 0)
    plain = cross_entropy(F.linear(states, weight), labels, smoothing)
    assert_all_close([objective, nll], [plain.objective, plain.nll])
    d = torch.tensor(0.3)
    assert_all_close(gradients(objective, (states, weight), d), gradients(plain.objective, (states, weight), d))


def test_the_fused_feed_forward_is_relu_of_a_linear_layer():
    x, weight, bias = drawn(5, 8), drawn(12, 8, seed=1), drawn(12, seed=2)
    d_out = drawn(5, 12, seed=3).detach()
    ours, plain = linear_relu(x, weight, bias), F.relu(F.linear(x, weight, bias))
    inputs = (x, weight, bias)
    assert_all_close([ours, *gradients(ours, inputs, d_out)], [plain, *gradients(plain, inputs, d_out)])


def test_kernels_are_for_short_numbers_on_a_gpu():
    x = torch.zeros(2)
    assert not kernels.fast(x)
    assert kernels.shortened(x) is x
    assert kernels.short_type(x) == torch.float32


WHOLE_MODEL = """
import os, torch
os.environ["TRITON_INTERPRET"] = "1"
from onehop import attention, kernels, loss, model
from onehop.kernels import ragged
from onehop.kernels.cross_entropy import linear_cross_entropy
from onehop.kernels.feed_forward import linear_relu
from onehop.config import ModelSettings
from onehop.passes import Objective
from onehop.feed import Fed

torch.manual_seed(1)
shape = ModelSettings(n_encoder_layers=1, n_decoder_layers=2, d_model=32, d_ff=48, n_heads=2, dropout=0.0, norm=NORM)
objective = Objective(model.Transformer(shape, 50), 0.1, 0.0)
lengths, others = torch.tensor([3, 9, 1]), torch.tensor([4, 5, 7])
tokens = lambda n: model.Tokens.packed(torch.randint(4, 50, (int(n.sum()),)), n)
fed = Fed(tokens(lengths), tokens(others), torch.randint(0, 50, (16,)))

def run():
    objective.zero_grad()
    value, nll = objective(fed)
    value.backward()
    return [value.detach(), nll.detach(), *(p.grad.clone() for p in objective.parameters())]

plain = run()
kernels.fast = lambda x: True
attention.ragged, loss.linear_cross_entropy, model.linear_relu = ragged, linear_cross_entropy, linear_relu
for a, b in zip(plain, run(), strict=True):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
"""


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_whole_model_with_kernels_is_the_model_without(norm):
    """In a process of its own, where the kernels are told that this is a GPU."""
    code = WHOLE_MODEL.replace("NORM", repr(norm))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
