"""Products of float32 numbers in float16 halves: their accuracy, and a search with them."""

import math

import pytest
import torch
from hypotheses import assert_same
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.decoding import cuda_graph_state, one_token
from onehop.decoding.cuda_graph_search import CapturedSearch
from onehop.decoding.options import SearchOptions
from onehop.decoding.split_products import SplitProducts
from onehop.decoding.torch_engine import TorchEngine
from onehop.errors import OnehopError
from onehop.model.transformer import Transformer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 2, "max_length": 64}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE)


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


@pytest.mark.gpu
@pytest.mark.parametrize("x_size", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("weight_size", [1e-3, 0.05, 1.0, 100.0])
def test_a_split_product_is_nearly_as_exact_as_float32(x_size, weight_size):
    torch.manual_seed(1)
    x, weight, bias = x_size * normal(2, 20, 512), weight_size * normal(48, 512), normal(48)
    exact = F.linear(x.double(), weight.double())
    how = cuda_graph_state.operations(x.device)
    with SplitProducts(how.split, how.relu):
        split = F.linear(x, weight)
        with_bias = F.linear(x, weight, bias)
    # float32 itself is 2e-7 to 6e-7 off; tensor cores truncate sums instead of rounding them
    assert relative_error(split, exact) < (5e-7 if DEVICE == "cpu" else 2e-6)
    assert relative_error(F.linear(x.bfloat16(), weight.bfloat16()), exact) > 1e-3
    assert torch.equal(with_bias, split + bias)
    assert split.dtype == torch.float32


def test_numbers_beyond_float16_give_nan():
    x, weight = normal(4, 16), normal(8, 16)
    x[1, 3] = 1e5
    with SplitProducts(one_token.split, one_token.relu):
        out = F.linear(x.cpu(), weight.cpu())
    assert out.isnan().all(dim=1).tolist() == [False, True, False, False]


def test_inputs_are_split_once_and_prepared_weights_never_again():
    splits = []

    def split(x, halves, is_weight):
        splits.append((len(x), is_weight))
        one_token.split(x, halves, is_weight)

    products = SplitProducts(split, one_token.relu)
    x, one, other = torch.randn(3, 8), torch.randn(5, 8), torch.randn(6, 8)
    products.prepare([one])
    address = products.prepared[one].data_ptr()
    with products:
        F.linear(x, one)
        F.linear(x, other)
    assert splits == [(5, True), (3, False), (6, True)]
    with products:
        F.linear(x, one)  # x is split again, because it may have changed
    assert splits[3:] == [(3, False)]
    with torch.no_grad():
        one.mul_(2.0)
    products.prepare([one])
    with products:
        torch.testing.assert_close(F.linear(x, one), x @ one.t())
    assert products.prepared[one].data_ptr() == address


# --- in a search ----------------------------------------------------------------------------------------------


def model_of(**changes: object) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(ModelSettings(**{**SHAPE, **changes}), 40).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.embedding.weight.mul_(3.0)
    return model


@pytest.fixture
def engines(monkeypatch):
    """The plain engine, and the captured search with split products at any number of rows."""
    monkeypatch.setattr(cuda_graph_state, "FEWEST_ROWS", 1)

    def of(model):
        fast = TorchEngine(model)
        fast.captured = CapturedSearch(model, one_token)
        fast.captured.products = SplitProducts(one_token.split, one_token.relu)
        return TorchEngine(model, capture=False), fast

    return of


TEXTS = [[5, 6, 7, 8], [9], [11, 12, 13, 30, 4, 5], [20, 21]]


def translate(engine, beam):
    return engine.translate(TEXTS, SearchOptions(beam=beam, n_best=beam), range(len(TEXTS)))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "tied": False, "output_bias": True},
        {"attention_bias": True, "activation": "gelu", "d_k": 5, "d_v": 7},
    ],
)
def test_a_search_with_split_products_equals_the_plain_search(engines, changes, beam):
    model = model_of(**changes)
    plain, fast = engines(model)
    before = translate(plain, beam)
    assert_same(translate(fast, beam), before, rel=1e-4)
    assert len(fast.captured.products.prepared) == 2 * 6 + 1
    with torch.no_grad():
        model.decoder.layers[0].self_attention.w_q.weight.mul_(-2.0)
        model.decoder.layers[1].cross_attention.w_o.weight.mul_(-2.0)
        model.encoder.layers[0].feed_forward.w_1.weight.mul_(-2.0)
    after = translate(plain, beam)
    assert [h[0].ids for h in before] != [h[0].ids for h in after]
    assert_same(translate(fast, beam), after, rel=1e-4)
    assert fast.captured.products is not None


def test_an_activation_beyond_float16_disables_split_products(engines):
    model = model_of()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.w_1.bias[0] = 1e5
        model.decoder.layers[0].feed_forward.w_2.weight[:, 0] *= 1e-5
    plain, fast = engines(model)
    expected = translate(plain, 2)
    for _ in range(2):
        assert_same(translate(fast, 2), expected, rel=1e-4)
        assert fast.captured.products is None


def test_a_model_with_nan_is_an_error(engines):
    model = model_of()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.w_1.bias[0] = math.nan
    _, fast = engines(model)
    with pytest.raises(OnehopError, match=r"^The model's log-probabilities contain NaN"):
        translate(fast, 2)


def test_products_of_few_rows_are_not_split(engines, monkeypatch):
    monkeypatch.setattr(cuda_graph_state, "FEWEST_ROWS", 5)
    _, fast = engines(model_of())
    translate(fast, 1)
    assert not fast.captured.products.prepared
    translate(fast, 2)
    assert fast.captured.products.prepared


def test_products_are_split_only_in_float32_on_a_gpu():
    assert CapturedSearch(model_of(), one_token).products is None
    if torch.cuda.is_available():
        assert CapturedSearch(model_of().cuda(), one_token).products is not None
        assert CapturedSearch(model_of().cuda().bfloat16(), one_token).products is None
