"""Operations on one new token per row: plain torch against the model's, and the kernels against plain torch.

Without a GPU the kernels run in Triton's interpreter.
"""

import math

import pytest
import torch
from torch import Tensor

from onehop.decoding import one_token as plain
from onehop.model.attention import attention
from onehop.text.tokenizer import EOS

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Rows, beam, heads, d_k, d_v, capacity, position, source: also widths that are no powers of two.
SHAPES = [
    (1, 1, 2, 8, 8, 32, 0, 16),
    (8, 4, 2, 8, 6, 96, 70, 37),
    (6, 3, 3, 5, 7, 64, 33, 16),
    (130, 1, 8, 4, 4, 32, 17, 3),  # enough rows for the kernel's other tile size
]


@pytest.fixture(scope="module")
def fast():
    pytest.importorskip("triton")
    from onehop.model.kernels import one_token

    return one_token


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def past_inputs(shape):
    rows, _, heads, d_k, d_v, capacity, position, _ = shape
    torch.manual_seed(position)
    keys, values = normal(capacity, rows, heads, d_k), normal(capacity, rows, heads, d_v)
    keys[position:], values[position:] = 1e4, 1e4  # positions that are not yet written must not be read
    origins = torch.randint(0, rows, (rows, capacity), device=DEVICE)
    origins[:, position] = torch.arange(rows, device=DEVICE)
    return normal(rows, heads * (2 * d_k + d_v)), keys, values, origins, torch.tensor(position, device=DEVICE)


def source_inputs(shape):
    rows, beam, heads, d_k, d_v, _, _, length = shape
    torch.manual_seed(length)
    sentences = rows // beam
    lengths = torch.randint(1, length + 1, (sentences,), device=DEVICE)
    return (
        normal(rows, heads * d_k),
        normal(sentences, length, heads, d_k),
        normal(sentences, length, heads, d_v),
        lengths,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_attend_past_equals_attention_to_each_rows_ancestors(shape):
    qkv, keys, values, origins, position = past_inputs(shape)
    rows, _, heads, d_k, d_v, _, now, _ = shape
    found = plain.attend_past(qkv, keys, values, origins, position)
    for row in range(0, rows, max(1, rows // 8)):
        q, k, v = qkv[row].split([heads * d_k, heads * d_k, heads * d_v])
        assert torch.equal(keys[now, row].flatten(), k)
        assert torch.equal(values[now, row].flatten(), v)
        own_keys = torch.stack([keys[t, origins[row, t]] for t in range(now + 1)], dim=1)[None]
        own_values = torch.stack([values[t, origins[row, t]] for t in range(now + 1)], dim=1)[None]
        expected = attention(q.view(1, heads, 1, d_k), own_keys, own_values)
        torch.testing.assert_close(found[row], expected.flatten())


@pytest.mark.parametrize("shape", SHAPES)
def test_attend_source_equals_attention_without_padding(shape):
    q, keys, values, lengths = source_inputs(shape)
    _, beam, heads, d_k, *_ = shape
    found = plain.attend_source(q, keys, values, lengths)
    for row in range(0, len(q), max(1, len(q) // 8)):
        s = row // beam
        k, v = (x[s, : lengths[s]].transpose(0, 1)[None] for x in (keys, values))
        torch.testing.assert_close(found[row], attention(q[row].view(1, heads, 1, d_k), k, v).flatten())


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_kernels_equal_plain_torch(fast, shape, monkeypatch):
    if shape[0] == 130 and DEVICE == "cpu":  # the interpreter takes 19 s for 130 rows: the same tiles with 5
        monkeypatch.setattr(fast, "MANY", 1)
        shape = (5, *shape[1:])
    qkv, keys, values, origins, position = past_inputs(shape)
    new_keys, new_values = keys.clone(), values.clone()
    expected = plain.attend_past(qkv, keys, values, origins, position)
    torch.testing.assert_close(fast.attend_past(qkv, new_keys, new_values, origins, position), expected)
    assert torch.equal(new_keys, keys)
    assert torch.equal(new_values, values)
    torch.testing.assert_close(fast.attend_source(*source_inputs(shape)), plain.attend_source(*source_inputs(shape)))


@pytest.mark.parametrize("width", [8, 24, 512])
def test_add_norm_kernel_equals_plain_torch(fast, width):
    torch.manual_seed(width)
    x, added, gain, bias = normal(5, width) + 3, normal(5, width), normal(width), normal(width)
    expected = torch.nn.functional.layer_norm(x + added, (width,), gain, bias, 1e-5)
    torch.testing.assert_close(plain.add_norm(x, added, gain, bias, 1e-5), expected)
    torch.testing.assert_close(fast.add_norm(x, added, gain, bias, 1e-5), expected)


@pytest.mark.parametrize("width", [8, 24, 512])
@pytest.mark.parametrize("is_weight", [False, True])
def test_split_kernel_equals_plain_torch_and_keeps_22_bits(fast, width, is_weight):
    torch.manual_seed(width)
    x = normal(5, width) * 10.0 ** torch.arange(-5, 5, 2, device=DEVICE)[:, None]
    ours, expected = (torch.empty(5, 3 * width, dtype=torch.float16, device=DEVICE) for _ in range(2))
    plain.split(x, expected, is_weight)
    fast.split(x, ours, is_weight)
    assert torch.equal(ours, expected)
    high, low = expected.double()[:, -width:], expected.double()[:, :width]
    if not is_weight:
        torch.testing.assert_close((high + low) / plain.SCALE, x.double(), rtol=2.0**-22, atol=2.0**-29)


def halves_of(x: Tensor) -> Tensor:
    halves = torch.empty(len(x), 3 * x.shape[1], dtype=torch.float16, device=DEVICE)
    plain.split(x, halves, False)
    return halves


@pytest.mark.parametrize("which", ["plain", "kernel"])
@pytest.mark.parametrize("shape", SHAPES[:3])
def test_operations_write_the_float16_halves_of_their_results(fast, shape, which):
    module = plain if which == "plain" else fast
    x, _, gain, bias = normal(6, 24), normal(6, 24), normal(24), normal(24)
    calls = [
        (module.attend_past, past_inputs(shape)),
        (module.attend_source, source_inputs(shape)),
        (module.add_norm, (x, x, gain, bias, 1e-5)),
        (module.relu, (x,)),
    ]
    for operation, arguments in calls:
        rows, heads, width = len(arguments[0]), shape[2], shape[4]
        wide = heads * width if operation in (module.attend_past, module.attend_source) else 24
        halves = torch.full((rows, 3 * wide), torch.nan, dtype=torch.float16, device=DEVICE)
        out = operation(*arguments, halves)
        assert torch.equal(halves, halves_of(out))
        if operation is not module.relu:
            assert torch.equal(out, operation(*arguments))
    x[0, 0] = math.nan
    relu = module.relu(x, torch.empty(6, 72, dtype=torch.float16, device=DEVICE))
    torch.testing.assert_close(relu, x.relu(), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("vocab", [5, 300, 9000])
@pytest.mark.parametrize("few", [1, 3, 5])
@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("which", ["plain", "kernel"])
def test_best_of_rows_equals_a_stable_sort(fast, vocab, few, position, which):
    torch.manual_seed(vocab)
    logits = normal(6, vocab)
    logits[0] = logits[0].round()  # many ties
    logits[1] = 0.0
    logits[2, EOS] = 5.0
    logits[3, 0] = -math.inf
    expected = logits.log_softmax(-1)
    if position < 2:
        expected[:, EOS] = -math.inf
    values, ids = (x[:, :few] for x in expected.sort(dim=1, descending=True, stable=True))
    at, least = torch.tensor(position, device=DEVICE), torch.tensor(2, device=DEVICE)
    found = (plain if which == "plain" else fast).best_of_rows(logits, few, EOS, at, least)
    torch.testing.assert_close(found[0], values)
    possible = values > -math.inf
    assert torch.equal(found[1][possible], ids[possible])


@pytest.mark.parametrize("which", ["plain", "kernel"])
def test_best_of_rows_propagates_nan(fast, which):
    logits = normal(2, 9000)
    logits[1, 8000] = math.nan
    zero = torch.tensor(0, device=DEVICE)
    values, ids = (plain if which == "plain" else fast).best_of_rows(logits, 4, EOS, zero, zero)
    assert values.isnan().all(dim=1).tolist() == [False, True]
    assert int(ids.max()) < 9000


@pytest.mark.parametrize("beam", [1, 3, 4])
@pytest.mark.parametrize("coarse", [False, True])
def test_keep_best_kernel_equals_plain_torch(fast, beam, coarse):
    torch.manual_seed(beam)
    sentences, few, vocab = 7, beam + 2, 50
    logits = normal(sentences * beam, vocab)
    logits = logits.round() if coarse else logits
    logits[::2, EOS] = 4.0  # EOS is among the best tokens
    zero = torch.tensor(0, device=DEVICE)
    values, ids = plain.best_of_rows(logits, few, EOS, zero, zero)
    values[2 * beam, 1:] = -math.inf  # one possible token
    totals = -normal(sentences, beam).abs().double().round(decimals=0 if coarse else 3)
    totals[2, 1:] = -math.inf  # empty slots
    found = []
    for keep_best in (plain.keep_best, fast.keep_best):
        kept = totals.clone()
        tokens, parents = (torch.zeros(sentences * beam, dtype=torch.int64, device=DEVICE) for _ in range(2))
        answer = torch.zeros(2, sentences, 2 * beam, dtype=torch.float64, device=DEVICE)
        keep_best(values, ids, kept, tokens, parents, answer, EOS, vocab)
        found.append((kept, tokens, parents, answer))
    (kept, tokens, parents, answer), (fast_kept, fast_tokens, fast_parents, fast_answer) = found
    assert torch.equal(kept, fast_kept)
    there, seen = kept.view(-1) > -math.inf, answer[0] > -math.inf
    assert 0 < int(there.sum()) < len(there) or beam == 1
    assert torch.equal(tokens[there], fast_tokens[there])
    assert torch.equal(parents[there], fast_parents[there])
    assert torch.equal(answer[0], fast_answer[0])
    assert torch.equal(answer[1][seen], fast_answer[1][seen])
    assert all(parents // beam == torch.arange(len(parents), device=DEVICE) // beam)
    assert all(fast_parents // beam == torch.arange(len(parents), device=DEVICE) // beam)


def test_keep_best_kernel_propagates_nan(fast):
    values, ids = torch.full((4, 4), -1.0, device=DEVICE), torch.full((4, 4), 9, device=DEVICE)
    values[2] = math.nan
    totals, answer = torch.zeros(2, 2).double().to(DEVICE), torch.zeros(2, 2, 4).double().to(DEVICE)
    tokens, parents = torch.zeros(4, dtype=torch.int64, device=DEVICE), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    fast.keep_best(values, ids, totals, tokens, parents, answer, EOS, 50)
    assert answer[0].isnan().all(dim=1).tolist() == [False, True]
    assert tokens.tolist() == [9] * 4
