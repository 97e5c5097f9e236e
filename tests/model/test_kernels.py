"""The GPU's kernels in Triton's interpreter, each against the plain function that specifies it."""

import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from long_tests import LONG, LONG_ONLY, examples
from torch.nn import functional as F
from torch.torch_version import TorchVersion

if os.environ["TRITON_INTERPRET"] != "1":
    pytest.skip("a GPU is here: tests/model/test_kernels_on_gpu.py checks them on it", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed: its interpreter runs the kernels on the CPU")

from onehop.config import ModelSettings
from onehop.model import kernels
from onehop.model.attention import padded_attention
from onehop.model.kernels import fused, ragged
from onehop.model.kernels.add_norm import add_norm, sum_and_norm
from onehop.model.kernels.cross_entropy import linear_cross_entropy
from onehop.model.kernels.feed_forward import feed_forward, fits
from onehop.model.loss import NEVER, cross_entropy, output_loss
from onehop.model.packing import PackedMask, Packing
from onehop.model.transformer import Layer, Stack, Tokens, Transformer

HEADS, WIDTH = 2, 16


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def gradients(out, inputs, d_out):
    return torch.autograd.grad(out, inputs, d_out)


def assert_all_close(ours, theirs) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def by_heads(x):
    return x.view(1, -1, HEADS, WIDTH).transpose(1, 2)


def reference(q, k, v, mask):
    return padded_attention(by_heads(q), by_heads(k), by_heads(v), mask).transpose(1, 2).flatten(2)[0]


def compare_self(lengths: list[int], causal: bool) -> None:
    packing = Packing.of(torch.tensor(lengths))
    qkv, d_out = (
        random_tensor(sum(lengths), 3 * HEADS * WIDTH),
        random_tensor(sum(lengths), HEADS * WIDTH, seed=1).detach(),
    )
    out, _ = ragged.self_attention(qkv, packing.sentence_of_row, packing.starts, HEADS, causal)
    plain = reference(*qkv.chunk(3, 1), PackedMask(packing, packing, causal))
    assert_all_close([out, *gradients(out, qkv, d_out)], [plain, *gradients(plain, qkv, d_out)])


def compare_cross(query_lengths: list[int], key_lengths: list[int]) -> None:
    query, key = (Packing.of(torch.tensor(n)) for n in (query_lengths, key_lengths))
    q, kv = random_tensor(sum(query_lengths), HEADS * WIDTH), random_tensor(sum(key_lengths), 2 * HEADS * WIDTH, seed=1)
    d_out = random_tensor(len(q), HEADS * WIDTH, seed=2).detach()
    rows = (query.sentence_of_row, key.sentence_of_row)
    out, _ = ragged.cross_attention(q, kv, *rows, query.starts, key.starts, HEADS)
    plain = reference(q, *kv.chunk(2, 1), PackedMask(query, key))
    assert_all_close([out, *gradients(out, (q, kv), d_out)], [plain, *gradients(plain, (q, kv), d_out)])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 129, pytest.param(256, marks=LONG_ONLY)])
def test_self_attention_of_sentences_of_one_length_equals_the_reference(length, causal):
    compare_self([length, length], causal)


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6), causal=st.booleans())
@examples(4)
def test_self_attention_of_mixed_lengths_equals_the_reference(lengths, causal):
    compare_self(lengths, causal)


@given(lengths=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), min_size=1, max_size=6))
@examples(4)
def test_cross_attention_of_mixed_lengths_equals_the_reference(lengths):
    """A query whose source is empty gets zeros."""
    query, key = ([side[i] for side in lengths] for i in (0, 1))
    if sum(query) and sum(key):
        compare_cross(query, key)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_with_empty_sentences_equals_the_reference(causal):
    """At the beginning, at the end, and at the border of a tile, as in batches padded to fixed shapes."""
    compare_self([0, 32, 0, 0, 32, 70, 0], causal)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ([0, 32, 0, 0, 32, 0], [5, 0, 70, 9, 3, 130]),
        ([20, 70, 0, 0, 0, 0], [30, 20, 64, 64, 64, 10]),  # padding sentences
        ([64, 64, 30], [3, 0, 0]),
    ],
)
def test_cross_attention_with_very_different_lengths_equals_the_reference(query, key):
    compare_cross(query, key)


def test_keys_without_queries_have_no_gradient():
    q, kv = torch.zeros(0, HEADS * WIDTH), torch.zeros(3, 2 * HEADS * WIDTH)
    key = Packing.of(torch.tensor([3]))
    empty, starts = torch.zeros(0, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    rest = (torch.zeros(HEADS, 0), empty, key.sentence_of_row, starts, key.starts, HEADS)
    dq, dkv = ragged.cross_attention_backward(q, kv, q, q, *rest)
    assert dq.shape == q.shape
    assert torch.equal(dkv, torch.zeros_like(kv))


def test_sentences_in_one_tile_have_no_gradient_to_each_other():
    packing = Packing.of(torch.tensor([3, 4, 5]))
    qkv = random_tensor(12, 3 * HEADS * WIDTH)
    out, _ = ragged.self_attention(qkv, packing.sentence_of_row, packing.starts, HEADS, False)
    (gradient,) = gradients(out, qkv, torch.cat([torch.zeros(3, 32), torch.ones(4, 32), torch.zeros(5, 32)]))
    assert (gradient[:3] == 0).all()
    assert (gradient[7:] == 0).all()
    assert gradient[3:7].abs().sum() > 0


@pytest.mark.parametrize("vocab", [7, 8192, 8193, 20_000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
def test_the_fused_output_loss_equals_the_plain_loss(vocab, smoothing, biased):
    inputs = [random_tensor(5, 8), random_tensor(vocab, 8, seed=1), *[random_tensor(vocab, seed=2)] * biased]
    labels = torch.tensor([1, vocab - 1, 0, 3, 0])  # 0 is padding
    objective, nll, _ = linear_cross_entropy(*inputs, *[None] * (not biased), labels, smoothing, 0)
    plain = cross_entropy(F.linear(*inputs), labels, smoothing)
    assert_all_close([objective, nll], [plain.objective, plain.nll])
    d = torch.tensor(0.3)
    assert_all_close(gradients(objective, inputs, d), gradients(plain.objective, inputs, d))


@pytest.mark.parametrize("biased", [False, True])
def test_the_fused_output_loss_matches_its_torch_schema(biased):
    bias = random_tensor(9, seed=2) if biased else None
    inputs = (random_tensor(5, 8), random_tensor(9, 8, seed=1), bias, torch.tensor([1, 8, 0, 3, 0]), 0.1, 0)
    assert set(torch.library.opcheck(linear_cross_entropy, inputs).values()) == {"SUCCESS"}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fused_output_loss_ignores_tokens_excluded_by_a_bias(monkeypatch, smoothing):
    """With smoothing the plain loss is used instead, which smooths over the other tokens only."""
    monkeypatch.setattr(kernels, "applicable", lambda x: True)
    calls = []
    monkeypatch.setattr(fused, "linear_cross_entropy", lambda *x: calls.append(x) or linear_cross_entropy(*x))
    bias = torch.tensor([0.0, 0.0, NEVER, 0.5, 0.0]).requires_grad_()
    inputs, labels = [random_tensor(4, 8), random_tensor(5, 8, seed=1), bias], torch.tensor([1, 3, 0, 4])
    ours, plain = (f(*inputs, labels, smoothing) for f in (fused.fused_output_loss, output_loss))
    assert len(calls) == (smoothing == 0.0)
    assert ours.objective < 20
    d = torch.tensor(1.0)
    assert_all_close([ours.objective, ours.nll], [plain.objective, plain.nll])
    assert_all_close(gradients(ours.objective, inputs, d), gradients(plain.objective, inputs, d))


def feed_forward_inputs(rows: int, d_model: int, d_ff: int) -> list[torch.Tensor]:
    shapes = [(rows, d_model), (d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,)]
    return [random_tensor(*shape, seed=i) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize(("rows", "d_model", "d_ff"), [(5, 64, 128), (300, 128, 384)])  # several tiles each way
def test_the_fused_feed_forward_equals_the_plain_one(rows, d_model, d_ff):
    x, w_1, b_1, w_2, b_2 = inputs = feed_forward_inputs(rows, d_model, d_ff)
    d_out = random_tensor(rows, d_model, seed=9).detach()
    ours, plain = feed_forward(*inputs)[0], F.linear(F.relu(F.linear(x, w_1, b_1)), w_2, b_2)
    for a, b in zip((ours, *gradients(ours, inputs, d_out)), (plain, *gradients(plain, inputs, d_out)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * b.abs().max().item())


def test_the_fused_feed_forward_matches_its_torch_schema():
    done = torch.library.opcheck(feed_forward, feed_forward_inputs(5, 64, 128))
    assert set(done.values()) == {"SUCCESS"}


def test_the_fused_feed_forward_needs_sizes_divisible_by_its_tiles():
    assert fits(512, 2048)
    assert not fits(512, 2000)
    assert not fits(500, 2048)


def normed_with(factors, skip, added, gain, bias):
    return F.layer_norm(skip + added * factors, gain.shape, gain, bias, 1e-5)


def add_norm_inputs(rows: int, width: int) -> list[torch.Tensor]:
    return [random_tensor(*shape, seed=i) for i, shape in enumerate([(rows, width), (rows, width), (width,), (width,)])]


@pytest.mark.parametrize("width", [4, 8, 24, 512, 1030])
def test_add_norm_without_dropout_equals_layer_norm_of_the_sum(width):
    inputs, d_out = add_norm_inputs(21, width), random_tensor(21, width, seed=9).detach()
    ours, plain = add_norm(*inputs, None, 0.0, 1e-5)[0], normed_with(1.0, *inputs)
    assert_all_close([ours, *gradients(ours, inputs, d_out)], [plain, *gradients(plain, inputs, d_out)])


@pytest.mark.parametrize("drop", [0.1, 0.5])
def test_add_norm_uses_one_dropout_mask_forwards_and_backwards(drop):
    """The dropout mask is read off the gradients. The plain version with this mask must give equal results."""
    inputs, d_out = add_norm_inputs(150, 96), random_tensor(150, 96, seed=9).detach()
    ours = add_norm(*inputs, torch.tensor([7]), drop, 1e-5)[0]
    d_skip, d_added, *_ = found = gradients(ours, inputs, d_out)
    dropped = d_added == 0
    torch.testing.assert_close(d_added[~dropped], d_skip[~dropped] / (1 - drop))
    plain = normed_with(torch.where(dropped, 0.0, 1 / (1 - drop)), *inputs)
    assert_all_close([ours, *found], [plain, *gradients(plain, inputs, d_out)])
    # Within five standard deviations for all 14,400 elements, and for each of the eight that share a random draw.
    assert abs(dropped.float().mean() - drop) < 5 * (drop * (1 - drop) / 14_400) ** 0.5
    by_place = dropped.view(150, 12, 8).float().mean((0, 1))
    assert ((by_place - drop).abs() < 5 * (drop * (1 - drop) / 1_800) ** 0.5).all()


def test_add_norm_dropout_depends_on_its_seed():
    inputs = add_norm_inputs(8, 64)
    one, again, other = (add_norm(*inputs, torch.tensor([seed]), 0.5, 1e-5)[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("seed", "drop"), [(torch.tensor([7]), 0.5), (None, 0.0)])
def test_add_norm_matches_its_torch_schema(seed, drop):
    """The compiler relies on the shape function, the gradients, and on inputs that are neither changed nor returned."""
    done = torch.library.opcheck(add_norm, (*add_norm_inputs(5, 16), seed, drop, 1e-5))
    assert set(done.values()) == {"SUCCESS"}


def summed_with(factors, skip, added, gain, bias):
    total = skip + added * factors
    return total, F.layer_norm(total, gain.shape, gain, bias, 1e-5)


@pytest.mark.parametrize("width", [4, 24, 512, 1030])
def test_sum_and_norm_equals_the_sum_and_its_layer_norm(width):
    """With gradients of both outputs, as in pre-norm layers."""
    inputs, d_outs = add_norm_inputs(21, width), [random_tensor(21, width, seed=i).detach() for i in (8, 9)]
    ours, plain = sum_and_norm(*inputs, None, 0.0, 1e-5)[:2], summed_with(1.0, *inputs)
    assert_all_close([*ours, *gradients(ours, inputs, d_outs)], [*plain, *gradients(plain, inputs, d_outs)])


@pytest.mark.parametrize("used", [0, 1])
def test_either_output_of_sum_and_norm_may_be_unused(used):
    """The sum before a stack's last norm is not used otherwise."""
    inputs, d_out = add_norm_inputs(5, 16), random_tensor(5, 16, seed=9).detach()
    ours, plain = sum_and_norm(*inputs, None, 0.0, 1e-5)[used], summed_with(1.0, *inputs)[used]
    mine, theirs = (torch.autograd.grad(x, inputs[: 2 + 2 * used], d_out) for x in (ours, plain))
    assert_all_close(mine, theirs)


def test_sum_and_norm_uses_one_dropout_mask_forwards_and_backwards():
    inputs, d_outs = add_norm_inputs(150, 96), [random_tensor(150, 96, seed=i).detach() for i in (8, 9)]
    ours = sum_and_norm(*inputs, torch.tensor([7]), 0.1, 1e-5)[:2]
    found = gradients(ours, inputs, d_outs)
    dropped = found[1] == 0
    assert 0.05 < dropped.float().mean() < 0.15
    plain = summed_with(torch.where(dropped, 0.0, 1 / 0.9), *inputs)
    assert_all_close([*ours, *found], [*plain, *gradients(plain, inputs, d_outs)])


def test_pre_norm_sums_stay_in_float32():
    """A sub-layer's output is in bfloat16, the residual sum in float32, and their gradients likewise."""
    skip, added, gain, bias = add_norm_inputs(9, 64)
    added = added.detach().bfloat16().requires_grad_()
    ours, plain = sum_and_norm(skip, added, gain, bias, None, 0.0, 1e-5)[:2], summed_with(1.0, skip, added, gain, bias)
    assert torch.equal(ours[0], plain[0])
    assert (ours[0].dtype, ours[1].dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(ours[1].float(), plain[1], rtol=0.01, atol=0.01)
    d_total, d_out = random_tensor(9, 64, seed=8).detach(), random_tensor(9, 64, seed=9).detach().bfloat16()
    mine = gradients(ours, (skip, added), (d_total, d_out))
    theirs = gradients(plain, (skip, added), (d_total, d_out.float()))
    torch.testing.assert_close(mine[0], theirs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine[1], theirs[1], rtol=0.01, atol=0.01)


@pytest.mark.parametrize(("seed", "drop"), [(torch.tensor([7]), 0.5), (None, 0.0)])
def test_sum_and_norm_matches_its_torch_schema(seed, drop):
    done = torch.library.opcheck(sum_and_norm, (*add_norm_inputs(5, 16), seed, drop, 1e-5))
    assert set(done.values()) == {"SUCCESS"}


def test_neighbouring_elements_are_dropped_independently():
    """Two neighbours in a row or column are both dropped with the product of their probabilities."""
    inputs = add_norm_inputs(60, 64)
    out = add_norm(*inputs, torch.tensor([3]), 0.5, 1e-5)[0]
    dropped = (gradients(out, inputs, torch.randn(60, 64))[1] == 0).float()
    for one, other in ((dropped[:, 1:], dropped[:, :-1]), (dropped[1:], dropped[:-1])):
        assert abs((one * other).mean() - 0.25) < 5 * (0.25 * 0.75 / one.numel()) ** 0.5


def test_kernels_do_not_apply_to_float32_on_a_cpu():
    x = torch.zeros(2)
    assert not kernels.applicable(x)
    assert kernels.to_matmul_dtype(x) is x
    assert kernels.matmul_dtype(x) == torch.float32


@pytest.mark.parametrize("gpu", [True, False])
def test_fuse_keeps_weights_and_results(monkeypatch, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    model = Transformer(ModelSettings(d_model=16, d_ff=32, n_heads=2, n_encoder_layers=1, n_decoder_layers=1), 20)
    before, inputs = dict(model.named_parameters()), [Tokens.padded(torch.tensor([[4, 5, 6]]))] * 2
    expected = model.eval()(*inputs)
    assert kernels.fuse(model) is model
    assert dict(model.named_parameters()) == before
    assert torch.equal(model(*inputs), expected)
    layer = model.decoder.layers[0]
    parts = (layer.self_attention, layer.cross_attention, layer.feed_forward, layer.feed_add_norm, model.decoder)
    swapped = {fused.FusedAttention, fused.FusedFeedForward, fused.FusedAddNorm, fused.FusedStack}
    assert ({type(x) for x in parts} == swapped) is gpu
    assert (model.output_loss is fused.fused_output_loss) is gpu


@pytest.mark.parametrize("sharded", [False, True])
def test_a_pre_norm_stack_is_fused_unless_its_layers_are_sharded(monkeypatch, sharded):
    """FSDP2 replaces a layer's class, and gathers the layer's weights only in its forward pass."""

    class FSDPLayer(Layer):
        pass

    sums, gathered = [], []
    monkeypatch.setattr(kernels, "applicable", lambda x: True)
    kernel = SimpleNamespace(sum_and_norm=lambda *inputs: sums.append(1) or sum_and_norm(*inputs))
    monkeypatch.setattr(fused, "add_norm", kernel)
    monkeypatch.setattr(FSDPLayer, "forward", lambda *inputs: gathered.append(1) or Layer.forward(*inputs))
    stack = Stack(ModelSettings(d_model=16, d_ff=32, n_heads=2, norm="pre"), 2, cross=False).eval()
    x = random_tensor(1, 5, 16)
    expected = stack(x, None)
    fused.swap_modules(stack)
    for layer in stack.layers if sharded else ():
        layer.__class__ = FSDPLayer
    assert_all_close([stack(x, None)], [expected])
    assert (len(sums), len(gathered)) == ((0, 2) if sharded else (4, 0))


def test_the_attention_kernel_is_limited_in_rows_and_length(monkeypatch):
    monkeypatch.setattr(fused, "ragged", ragged)  # it is not imported without a GPU
    heads = fused.FusedAttention(32, 2, 16, 16)
    short, long = (PackedMask(packing, packing) for packing in (Packing.of(torch.tensor([n])) for n in (512, 513)))
    assert heads._kernel_fits(700_000, short)
    assert not heads._kernel_fits(2**31 // 96 + 1, short)
    assert not heads._kernel_fits(700_000, long)


WHOLE_MODEL = """
import os, torch
os.environ["TRITON_INTERPRET"] = "1"
from onehop.model import kernels, transformer
from onehop.model.kernels import add_norm, feed_forward, fused, ragged
from onehop.model.kernels.cross_entropy import linear_cross_entropy
from onehop.config import ModelSettings
from onehop.training.step import Objective
from onehop.training.dataloader import DeviceBatch

torch.manual_seed(1)
lengths, others = torch.tensor([3, 9, 1]), torch.tensor([4, 5, 7])
tokens = lambda n: transformer.Tokens.packed(torch.randint(4, 50, (int(n.sum()),)), n)
fed = DeviceBatch(tokens(lengths), tokens(others), torch.randint(0, 50, (16,)))
sizes = dict(n_encoder_layers=1, n_decoder_layers=2, d_model=64, d_ff=128, n_heads=2, dropout=0.0)
shapes = [ModelSettings(**sizes, norm=norm) for norm in ("post", "pre")]
objectives = [Objective(transformer.Transformer(shape, 50), 0.1, 0.0) for shape in shapes]

def run(objective):
    objective.zero_grad()
    value, nll = objective(fed)
    value.backward()
    return [value.detach(), nll.detach(), *(p.grad.clone() for p in objective.parameters())]

plain = [run(objective) for objective in objectives]
calls = {name: 0 for name in ("add_norm", "sum_and_norm")}

def counted(name):
    kernel = getattr(add_norm, name)
    def call(*inputs):
        calls[name] += 1
        return kernel(*inputs)
    setattr(add_norm, name, call)

for name in calls:
    counted(name)
kernels.applicable = lambda x: True
fused.ragged, fused.linear_cross_entropy = ragged, linear_cross_entropy
fused.feed_forward, fused.add_norm = feed_forward, add_norm
for without, objective in zip(plain, objectives, strict=True):
    fused.swap_modules(objective.model)
    for a, b in zip(without, run(objective), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
assert calls == {"add_norm": 8, "sum_and_norm": 8}, calls  # sub-layers: 2 + 2 × 3
"""


def test_loss_and_gradients_of_a_model_with_kernels_equal_the_plain_models():
    """In a separate process, in which the kernels are applied without a GPU."""
    done = subprocess.run([sys.executable, "-c", WHOLE_MODEL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COMPILED = """
import os, torch
os.environ["TRITON_INTERPRET"] = "1"
from onehop.model import kernels
from onehop.model.kernels import add_norm, fused
from onehop.model.kernels.add_norm import sums_inside
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F

def as_it_is(graph, _):
    return graph.forward

folded = []

def with_sums_inside(module, _):
    sums_inside(module.graph)
    module.recompile()
    norms = module.graph.find_nodes(op="call_function", target=torch.ops.onehop.add_norm_backward.default)
    folded.extend(norm.args[-2] is not None for norm in norms)
    return module.forward

kernels.applicable, fused.add_norm = lambda x: True, add_norm
torch.manual_seed(1)
one, two = (fused.FusedAddNorm(64, 0.5, "post").train() for _ in range(2))
layers = lambda x, y, z: two(one(x, lambda _: y), lambda past: z + past.sin())
backend = aot_autograd(fw_compiler=as_it_is, bw_compiler=with_sums_inside)
compiled = torch.compile(layers, dynamic=False, backend=backend)
inputs, d_out = [torch.randn(1, 40, 64, requires_grad=True) for _ in range(3)], torch.randn(1, 40, 64)
dropped = []
for _ in range(2):
    ours = compiled(*inputs)
    found = torch.autograd.grad(ours, inputs, d_out)
    factors = [torch.where(gradient == 0, 0.0, 2.0) for gradient in found[1:]]
    plain = F.layer_norm(inputs[0] + inputs[1] * factors[0], (64,))
    plain = F.layer_norm(plain + (inputs[2] + plain.sin()) * factors[1], (64,))
    for a, b in zip([ours, *found], [plain, *torch.autograd.grad(plain, inputs, d_out)], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    dropped += factors
assert folded == [False, True], folded  # the first norm's output has two uses
# Any two of the four masks differ in about half of their 2,560 elements.
assert all((dropped[i] != dropped[j]).float().mean() > 0.4 for i in range(4) for j in range(i))

x, one, two = (value.detach().requires_grad_() for value in inputs)
seeds = lambda: [torch.randint(2**31 - 1, (1,)) for _ in range(2)]

def pre_norm(x, one, two):
    gain, bias = torch.ones(64), torch.zeros(64)
    for added, seed in zip((one, two), seeds(), strict=True):
        x, normed, *_ = add_norm.sum_and_norm(x[0] if x.dim() > 2 else x, added[0], gain, bias, seed, 0.5, 1e-5)
    return normed

ours = torch.compile(pre_norm, dynamic=False, backend=backend)(x, one, two)
found = torch.autograd.grad(ours, (x, one, two), d_out[0])
factors = [torch.where(gradient == 0, 0.0, 2.0) for gradient in found[1:]]
plain = F.layer_norm(x + one * factors[0] + two * factors[1], (64,))[0]
theirs = torch.autograd.grad(plain, (x, one, two), d_out[0])
for a, b in zip([ours, *found], [plain, *theirs], strict=True):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
assert (factors[0] != factors[1]).float().mean() > 0.4
"""


@pytest.mark.slow
def test_compiled_layers_use_one_dropout_mask_per_layer_and_step():
    """A compiler may recompute values in the backward pass, but not the random seed."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- compiled, without a GPU ----------------------------------------------------------------------------------


HOPPER = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from onehop.model.kernels import add_norm, cross_entropy, feed_forward, one_token, ragged

TYPES = {"seed": "*i64", "labels": "*i64", "position": "*i64", "min_length": "*i64", "best": "*i64"}
FLOATS = "gain bias means spreads d_gains d_biases d_bias objective nll peaks sums hopes log_probs".split()
NUMBERS = {"rows": "i32", "ignore": "i32", "drop": "fp32", "eps": "fp32", "smoothing": "fp32"}

def of(kernel, short, **constants):
    kinds = TYPES | NUMBERS | dict.fromkeys(FLOATS, "*fp32") | dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, short) for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": WARPS, "num_stages": STAGES}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert built.asm["cubin"]
    return built.asm["ptx"]

def eight_at_a_time(text):
    return "ld.global.v4" in text and "st.global.v4" in text

WARPS, STAGES = 1, 3
norm = {"WIDTH": 512, "TILE": 512, "DROPS": True}
assert eight_at_a_time(of(add_norm.forward_kernel, "*bf16", **norm, PRE=False, total=None))
for two in (False, True):
    assert eight_at_a_time(of(add_norm.backward_kernel, "*bf16", **norm, PRE=False, TWO=two))
TYPES |= {"skip": "*fp32", "total": "*fp32", "d_skip": "*fp32", "d_past": "*fp32"}  # pre-norm's sums
assert eight_at_a_time(of(add_norm.forward_kernel, "*bf16", **norm, PRE=True))
for two in (False, True):
    assert eight_at_a_time(of(add_norm.backward_kernel, "*bf16", **norm, PRE=True, TWO=two, added=None))
best = {"VOCAB": 37_000, "PARTS": 73, "END": 3, "TILE": 512}
assert "ld.global.v4" in of(one_token.summary_kernel, "*fp32", **best)
of(one_token.best_kernel, "*fp32", **best, FEW=6, KEPT=8, PARTS_TILE=128)
numbers = "q_rows sentence_count q_stride k_stride v_stride out_stride dq_stride dk_stride dv_stride".split()
TYPES |= dict.fromkeys(["q_sentences", "k_sentences", "q_starts", "k_starts"], "*i32") | {"lse": "*fp32"}
TYPES |= dict.fromkeys(numbers, "i32") | dict.fromkeys(["scale", "natural_scale"], "fp32")
for kernel, shape in ((ragged.forward_kernel, ragged.FORWARD), (ragged.backward_kernel, ragged.BACKWARD)):
    WARPS, STAGES = shape["num_warps"], shape["num_stages"]
    tile = {name: size for name, size in shape.items() if name.isupper()}
    for causal in (False, True) if LONG else (True,):
        attended = of(kernel, "*bf16", CAUSAL=causal, WIDTH=64, PRECISION="tf32", **tile)
        assert "mma" in attended
WARPS, STAGES = feed_forward.TILE["num_warps"], feed_forward.TILE["num_stages"]
tile = {name: size for name, size in feed_forward.TILE.items() if name.isupper()}
down, across, deep = tile["ROWS"], tile["COLUMNS"], tile["DEPTH"]
blocks = {"d_out": [down, deep], "w_2": [deep, across], "hidden": [down, across], "passed": [down, across]}
TYPES |= {name: f"tensordesc<bf16{block}>" for name, block in blocks.items()}
product = of(feed_forward.hidden_gradient_kernel, "*bf16", WIDTH=512, HIDDEN=2048, PRECISION="tf32", **tile)
assert all(word in product for word in ("wgmma", "cp.async.bulk.tensor.2d.shared", "cp.async.bulk.tensor.2d.global"))
WARPS, STAGES = cross_entropy.WARPS, 3
for vocab in (16_000, 37_000) if LONG else (37_000,):  # the second is a multiple of 8, but not of 16
    assert eight_at_a_time(of(cross_entropy.loss_kernel, "*bf16", VOCAB=vocab, BLOCK=cross_entropy.BLOCK))
"""


@pytest.mark.long
def test_kernels_compile_for_hopper_with_vectorised_memory_access(tmp_path):
    """Triton compiles for a Hopper GPU without one."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", f"LONG = {LONG}\n{HOPPER}"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_compiled_does_not_format_operator_arguments(monkeypatch):
    """Torch 2.11 formats them for a log. The text doubles with every layer."""
    from onehop.training.step import compiled

    class History:
        def __str__(self):
            pytest.fail("written out")

        __repr__ = __format__ = __str__

    with warnings.catch_warnings():  # the compiler's imports use deprecated parts of torch
        warnings.simplefilter("ignore")
        from torch._inductor.exc import OperatorIssue

        monkeypatch.setattr(OperatorIssue, "operator_str", staticmethod(OperatorIssue.operator_str))  # to restore it
        monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0+cu130"))
        compiled(torch.nn.Linear(2, 2))
    assert OperatorIssue.operator_str(torch.add, [History()], {}) == str(torch.add)
