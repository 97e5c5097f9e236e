"""Attention against a worked example and plain Python, and packed attention against one sentence at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onehop.model import kernels
from onehop.model.attention import (
    MultiHeadAttention,
    attention,
    fused_attention,
    padded_attention,
)
from onehop.model.kernels import fused
from onehop.model.packing import PackedMask, Packing, causal_mask
from onehop.model.taps import Recorder, watch

BOTH = pytest.mark.parametrize("attend", [attention, fused_attention])
sizes = st.integers(1, 5)


def close(actual: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def gradients(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a randomly weighted sum of the output."""
    generator = torch.Generator().manual_seed(7)
    return torch.autograd.grad((out * torch.randn(out.shape, generator=generator).to(out)).sum(), inputs)


@st.composite
def problems(draw):
    """q, k, v and a mask of any broadcastable shape: widths differ, whole rows may be masked, scores may saturate."""
    batch, heads, query, key, d_k, d_v = (draw(sizes) for _ in range(6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([0.01, 1.0, 20.0]))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).mul(size).requires_grad_()

    shape = [draw(st.sampled_from([1, n])) for n in (batch, heads, query)] + [key]
    mask = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    inputs = normal(batch, heads, query, d_k), normal(batch, heads, key, d_k), normal(batch, heads, key, d_v)
    return *inputs, draw(st.sampled_from([None, mask]))


def plain_attention(q: list, k: list, v: list, allowed: list) -> list:
    """Equation 1 for one head, with lists and math only."""
    rows = []
    for query, may in zip(q, allowed, strict=True):
        keys = [j for j, yes in enumerate(may) if yes]
        scores = [math.fsum(a * b for a, b in zip(query, k[j], strict=True)) / math.sqrt(len(query)) for j in keys]
        powers = [math.exp(score - max(scores)) for score in scores]
        weights = [power / math.fsum(powers) for power in powers]
        rows.append([math.fsum(w * v[j][c] for w, j in zip(weights, keys, strict=True)) for c in range(len(v[0]))])
    return rows


# --- equation 1 -----------------------------------------------------------------------------------------------


def test_every_step_of_attention_in_a_worked_example():
    heads = MultiHeadAttention(d_model=4, n_heads=1, d_k=3, d_v=3)
    matrices = {
        "w_q": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.1, 0.2, 0.3]],
        "w_k": [[0.2, 0.3, 0.4], [0.5, 0.6, 0.7], [0.8, 0.9, 0.1], [0.2, 0.3, 0.4]],
        "w_v": [[0.3, 0.4, 0.5], [0.6, 0.7, 0.8], [0.9, 0.1, 0.2], [0.3, 0.4, 0.5]],
    }
    for name, matrix in matrices.items():
        getattr(heads, name).weight.data = torch.tensor(matrix).T
    hello_world = torch.tensor([[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]])
    steps = Recorder()
    watch(heads, steps)(hello_world, hello_world, None)
    for name, expected in {
        "q": [[0.8, 1.0, 1.2], [0.5, 0.7, 0.9]],
        "k": [[1.0, 1.2, 0.5], [0.7, 0.9, 1.1]],
        "v": [[1.2, 0.5, 0.7], [0.9, 1.1, 1.3]],
        "scores": [[2.60, 2.78], [1.79, 1.97]],
        "scaled_scores": [[1.501, 1.605], [1.033, 1.137]],
        "masked_scores": [[1.501, 1.605], [1.033, 1.137]],
        "weights": [[0.474, 0.526], [0.474, 0.526]],
        "head_outputs": [[1.042, 0.816, 1.016], [1.042, 0.816, 1.016]],
    }.items():
        close(steps[name].value[0, 0], torch.tensor(expected), atol=5.1e-4)


@BOTH
@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_attention_equals_plain_python(attend, problem):
    q, k, v, mask = problem
    batch, heads, query, _ = q.shape
    allowed = torch.ones(batch, heads, query, k.shape[2], dtype=torch.bool) & (True if mask is None else mask)
    expected = [
        [plain_attention(*(x[b, h].tolist() for x in (q, k, v, allowed))) for h in range(heads)] for b in range(batch)
    ]
    close(attend(q, k, v, mask), torch.tensor(expected, dtype=torch.float64))


@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_explicit_and_fused_attention_have_equal_outputs_and_gradients(problem):
    *inputs, mask = problem
    explicit, fused = attention(*inputs, mask), fused_attention(*inputs, mask)
    close(explicit, fused)
    for ours, theirs in zip(gradients(explicit, *inputs), gradients(fused, *inputs), strict=True):
        close(ours, theirs, atol=1e-8 if inputs[0].abs().max() > 10 else 1e-10)


def test_explicit_and_fused_attention_agree_in_float32():
    torch.manual_seed(1)
    inputs = [torch.randn(2, 4, 9, 8, requires_grad=True) for _ in range(3)]
    mask = causal_mask(9)[None, None]
    explicit, fused = attention(*inputs, mask), fused_attention(*inputs, mask)
    close(explicit, fused, atol=1e-5)
    for ours, theirs in zip(gradients(explicit, *inputs), gradients(fused, *inputs), strict=True):
        close(ours, theirs, atol=1e-5)


@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_weights_sum_to_one_and_in_fully_masked_rows_to_zero(problem):
    q, k, v, mask = problem
    steps = Recorder()
    attention(q, k, v, mask, steps)
    weights = steps["weights"].value
    some = torch.ones(weights.shape[:-1]) if mask is None else mask.any(-1).expand(weights.shape[:-1])
    close(weights.sum(-1), some.double())
    assert (weights >= 0).all()


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d_v", [4, 6])
def test_a_fully_masked_row_gives_zeros_and_zero_gradients(attend, dtype, d_v):
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 2, 3, d, dtype=dtype, requires_grad=True) for d in (4, 4, d_v))
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[0, :, 1] = False
    out = attend(q, k, v, mask)
    assert (out[0, :, 1] == 0).all()
    grad_q, grad_k, grad_v = gradients(out, q, k, v)
    assert (grad_q[0, :, 1] == 0).all()
    assert all(g.isfinite().all() and g.abs().sum() > 0 for g in (grad_q, grad_k, grad_v))
    assert all((g == 0).all() for g in torch.autograd.grad(attend(q, k, v, mask)[0, :, 1].sum(), (q, k, v)))


@pytest.mark.parametrize("d_k", [4, 64, 512])
def test_scores_have_variance_d_k_and_scaled_scores_one(d_k):
    torch.manual_seed(d_k)
    q, k = torch.randn(1, 1, 800, d_k), torch.randn(1, 1, 800, d_k)
    steps = Recorder()
    attention(q, k, k, tap=steps)
    assert steps["scores"].value.var().item() == pytest.approx(d_k, rel=0.1)
    assert steps["scaled_scores"].value.var().item() == pytest.approx(1, rel=0.1)


def test_a_causal_mask_allows_the_same_and_earlier_positions():
    expected = [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(3).tolist() == expected


# --- equation 2 -----------------------------------------------------------------------------------------------


@given(batch=sizes, heads=sizes, query=sizes, key=sizes, d_k=sizes, d_v=sizes, watched=st.booleans())
@settings(max_examples=40, deadline=None)
def test_multi_head_attention_equals_a_sum_over_heads(batch, heads, query, key, d_k, d_v, watched):
    torch.manual_seed(1)
    module = MultiHeadAttention(6, heads, d_k, d_v).double()
    x, memory = torch.randn(batch, query, 6).double(), torch.randn(batch, key, 6).double()
    everything = [[True] * key] * query
    expected = torch.zeros(batch, query, 6).double()
    for h in range(heads):
        w_q, w_k = (w.weight[h * d_k : (h + 1) * d_k] for w in (module.w_q, module.w_k))
        w_v, w_o = module.w_v.weight[h * d_v : (h + 1) * d_v], module.w_o.weight[:, h * d_v : (h + 1) * d_v]
        for b in range(batch):
            q, k, v = (x[b] @ w_q.T).tolist(), (memory[b] @ w_k.T).tolist(), (memory[b] @ w_v.T).tolist()
            expected[b] += torch.tensor(plain_attention(q, k, v, everything), dtype=torch.float64) @ w_o.T
    out = (watch(module, Recorder()) if watched else module)(x, memory, None)
    close(out, expected)


def test_the_projections_have_no_biases():
    assert {n for n, _ in MultiHeadAttention(8, 2, 4, 4).named_parameters()} == {
        f"{w}.weight" for w in ("w_q", "w_k", "w_v", "w_o")
    }


def fully_masked_row() -> dict:
    """Two queries. The second may attend to nothing: by a mask, or as a sentence with an empty source."""
    query, key = Packing.of(torch.tensor([1, 1])), Packing.of(torch.tensor([2, 0]))
    return {
        "mask": torch.tensor([[True, True], [False, False]])[None, None],
        "packed": PackedMask(query, key),
    }


@pytest.mark.parametrize("kind", ["mask", "packed"])
@pytest.mark.parametrize("watched", [False, True])
def test_multi_head_attention_gives_zeros_in_fully_masked_rows(kind, watched):
    torch.manual_seed(1)
    module = MultiHeadAttention(8, 2, 4, 4)
    module = watch(module, Recorder()) if watched else module
    x, memory = torch.randn(1, 2, 8, requires_grad=True), torch.randn(1, 2, 8, requires_grad=True)
    out = module(x, memory, fully_masked_row()[kind])
    assert (out[0, 1] == 0).all()
    assert (out[0, 0] != 0).all()
    grad_x, *others = gradients(out, x, memory, *module.parameters())
    assert (grad_x[0, 1] == 0).all()
    assert all(g.isfinite().all() for g in others)


# --- sentences packed end to end ------------------------------------------------------------------------------


@st.composite
def packed_problems(draw):
    """Packed sentences, self or cross, causal or not. Some may be empty, and `longest` may be an upper bound."""
    lengths = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4))
    across = draw(st.booleans())
    query = [q for q, _ in lengths]
    key = [k for _, k in lengths] if across else query
    slack, causal = draw(st.integers(0, 2)), not across and draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def normal(rows: int, width: int) -> Tensor:
        return torch.randn(1, 2, rows, width, generator=generator, dtype=torch.float64).requires_grad_()

    def packing(lengths: list[int]) -> Packing:
        return Packing.of(torch.tensor(lengths), max(lengths) + slack if slack else None)

    mask = PackedMask(packing(query), packing(key), causal)
    return normal(sum(query), 3), normal(sum(key), 3), normal(sum(key), 4), mask


def one_sentence_at_a_time(q: Tensor, k: Tensor, v: Tensor, mask: PackedMask) -> Tensor:
    outs = []
    for i in range(len(mask.query.starts) - 1):
        here, there = (slice(*p.starts[i : i + 2].tolist()) for p in (mask.query, mask.key))
        causal = causal_mask(here.stop - here.start)[None, None] if mask.causal else None
        outs.append(attention(q[:, :, here], k[:, :, there], v[:, :, there], causal))
    return torch.cat(outs, dim=2)


@given(problem=packed_problems())
@settings(max_examples=80, deadline=None)
def test_packed_attention_equals_one_sentence_at_a_time(problem):
    *inputs, mask = problem
    together, alone = padded_attention(*inputs, mask), one_sentence_at_a_time(*inputs, mask)
    close(together, alone)
    for ours, theirs in zip(gradients(together, *inputs), gradients(alone, *inputs), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
def test_packed_attention_has_no_gradient_across_sentences(causal):
    torch.manual_seed(1)
    packing = Packing.of(torch.tensor([2, 3, 1]))
    inputs = [torch.randn(1, 2, 6, 4, requires_grad=True) for _ in range(3)]
    out = padded_attention(*inputs, PackedMask(packing, packing, causal))
    for gradient in torch.autograd.grad(out[:, :, 2:5].square().sum(), inputs):
        assert (gradient[:, :, :2] == 0).all()
        assert (gradient[:, :, 5:] == 0).all()
        assert gradient[:, :, 2:5].abs().sum() > 0


def test_a_packing_has_starts_longest_and_mask():
    packing = Packing.of(torch.tensor([2, 0, 3]))
    assert packing.starts.tolist() == [0, 2, 2, 5]
    assert packing.starts.dtype == torch.int32
    assert packing.longest == 3
    assert packing.token_mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]


@pytest.mark.parametrize(("d_k", "d_v"), [(8, 32), (16, 32), (32, 16), (12, 12), (5, 3), (16, 16)])
def test_padded_heads_give_the_same_attention(d_k, d_v):
    """The flash kernel takes one width for q, k and v, a multiple of eight."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 2, 7, d_k, dtype=torch.float64) for _ in range(2))
    v = torch.randn(1, 2, 7, d_v, dtype=torch.float64)
    filled = fused.pad_heads(q, k, v)
    assert len({x.shape for x in filled}) == 1
    assert filled[0].shape[-1] % 8 == 0
    out = torch.nn.functional.scaled_dot_product_attention(*filled, scale=1 / math.sqrt(d_k))
    assert torch.allclose(out[..., :d_v], attention(q, k, v), atol=1e-12)
    assert not out[..., d_v:].any()


def test_the_flash_kernel_gets_padded_heads_and_the_unpadded_scale(monkeypatch):
    """The kernel needs a GPU, so a function with its signature replaces it."""
    packing = Packing.of(torch.tensor([3, 4]))
    q, k, v = (torch.randn(1, 2, 7, width) for width in (4, 4, 12))
    given = []

    def flash(q, k, v, *_, scale, window_size):
        given.append((q.shape[-1], k.shape[-1], v.shape[-1], window_size))
        padded = (
            x.transpose(0, 1)[None] * factor for x, factor in ((q, scale * math.sqrt(q.shape[-1])), (k, 1), (v, 1))
        )
        return padded_attention(*padded, PackedMask(packing, packing, causal=True))[0].transpose(0, 1)

    monkeypatch.setattr(kernels, "applicable", lambda x: True)
    monkeypatch.setattr(fused, "varlen_attn", flash)
    out = fused.FusedAttention(8, 2, 4, 12).heads(q, k, v, PackedMask(packing, packing, causal=True))
    assert given == [(16, 16, 16, (-1, 0))]
    torch.testing.assert_close(out, padded_attention(q, k, v, PackedMask(packing, packing, causal=True)))
