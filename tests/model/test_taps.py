"""Taps record and edit every named quantity of a forward pass, and leave the model unchanged."""

import math

import pytest
import torch
from torch import Tensor

from onehop.config import ModelSettings
from onehop.model.attention import fused_attention
from onehop.model.taps import AXES, Recorder, watch
from onehop.model.transformer import Tokens, Transformer

NORMS = pytest.mark.parametrize("norm", ["post", "pre"])

# All sizes differ, so that an axis with a wrong name cannot have the right length.
SIZES = {"batch": 2, "d_model": 12, "d_ff": 20, "head": 3, "d_k": 7, "d_v": 8, "h_d_v": 24, "vocabulary": 30}
SOURCE, TARGET = 5, 4

STAGES = ["scores", "scaled_scores", "masked_scores", "weights", "head_outputs"]
ATTENTION = ["q", "k", "v", *STAGES, "concatenation", "projection"]


def a_model(norm: str = "post", dropout: float = 0.0) -> Transformer:
    torch.manual_seed(1)
    widths = {"d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 7, "d_v": 8, "max_length": 16}
    settings = ModelSettings(n_encoder_layers=2, n_decoder_layers=1, dropout=dropout, norm=norm, **widths)
    return Transformer(settings, 30).double().eval()


def a_batch() -> tuple[Tokens, Tokens]:
    src = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
    tgt = torch.tensor([[2, 10, 11, 12], [2, 13, 14, 0]])
    return Tokens.padded(src), Tokens.padded(tgt)


def recorded(model: Transformer) -> Recorder:
    recorder = Recorder()
    watch(model, recorder)(*a_batch())
    return recorder


def names_of_a_layer(norm: str, *, cross: bool) -> list[str]:
    """In the order of computation: pre-norm normalises before the sub-layer, post-norm after the residual sum."""
    names = []
    for role in ["self", *(["cross"] if cross else []), "feed"]:
        inner = [f"{role}_attention.{n}" for n in ATTENTION]
        if role == "feed":
            inner = ["feed_forward.hidden", "feed_forward.output"]
        skip, norm_name, residual = (f"{role}_add_norm.{n}" for n in ("skip", "norm", "residual"))
        names += [skip, norm_name, *inner, residual] if norm == "pre" else [skip, *inner, residual, norm_name]
    return names


@NORMS
def test_one_pass_records_every_named_quantity_in_order(norm):
    inputs = ["embeddings", "scaled", "positioned"]
    last = ["norm"] if norm == "pre" else []
    expected = [f"source_input.{n}" for n in inputs]
    for layer in (0, 1):
        expected += [f"encoder.layers.{layer}.{n}" for n in names_of_a_layer(norm, cross=False)]
    expected += [f"encoder.{n}" for n in last]
    expected += [f"target_input.{n}" for n in inputs]
    expected += [f"decoder.layers.0.{n}" for n in names_of_a_layer(norm, cross=True)]
    expected += [f"decoder.{n}" for n in last]
    assert list(recorded(a_model(norm))) == [*expected, "logits"]


@NORMS
def test_every_recorded_axis_has_the_length_of_its_name(norm):
    for name, quantity in recorded(a_model(norm)).items():
        here = SOURCE if name.startswith(("source", "encoder")) else TARGET
        lengths = SIZES | {"token": here, "query": here, "key": SOURCE if "cross" in name else here}
        assert tuple(quantity.value.shape) == tuple(lengths[axis] for axis in quantity.axes), name


def test_every_axis_name_is_used():
    assert {name.rpartition(".")[2] for name in recorded(a_model("pre"))} == set(AXES)


@pytest.mark.parametrize(
    ("path", "query", "memory"),
    [
        ("encoder.layers.0.self_attention", "encoder.layers.0.self_add_norm.skip", None),
        ("decoder.layers.0.self_attention", "decoder.layers.0.self_add_norm.skip", None),
        (
            "decoder.layers.0.cross_attention",
            "decoder.layers.0.cross_add_norm.skip",
            "encoder.layers.1.feed_add_norm.norm",
        ),
    ],
)
def test_each_recorded_stage_of_attention_follows_from_the_previous_one(path, query, memory):
    model = a_model()
    recorder = recorded(model)
    x = {name: recorder[f"{path}.{name}"].value for name in ATTENTION}
    asking, asked = recorder[query].value, recorder[memory or query].value
    module = model.get_submodule(path)
    src, tgt = a_batch()
    inside = (tgt if path == "decoder.layers.0.self_attention" else src).token_mask[:, None, None, :]
    future = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    mask = inside & ~future if path == "decoder.layers.0.self_attention" else inside

    def heads(projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (3, -1)).movedim(2, 1)

    follows = {
        "q": heads(asking @ module.w_q.weight.T),
        "k": heads(asked @ module.w_k.weight.T),
        "v": heads(asked @ module.w_v.weight.T),
        "scores": torch.einsum("bhqd,bhkd->bhqk", x["q"], x["k"]),
        "scaled_scores": x["scores"] / math.sqrt(7),
        "masked_scores": torch.where(mask, x["scaled_scores"], -math.inf),
        "weights": x["masked_scores"].exp() / x["masked_scores"].exp().sum(-1, keepdim=True),
        "head_outputs": torch.einsum("bhqk,bhkd->bhqd", x["weights"], x["v"]),
        "concatenation": torch.cat(list(x["head_outputs"].unbind(1)), dim=-1),
        "projection": x["concatenation"] @ module.w_o.weight.T,
    }
    assert list(follows) == ATTENTION
    for name, expected in follows.items():
        torch.testing.assert_close(x[name], expected, rtol=0, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")
    torch.testing.assert_close(
        fused_attention(x["q"], x["k"], x["v"], mask), torch.einsum("bhqk,bhkd->bhqd", x["weights"], x["v"])
    )


@NORMS
def test_recorded_residuals_and_norms_follow_the_norm_order(norm):
    model = a_model(norm)
    recorder = recorded(model)
    layer = "decoder.layers.0"
    for role, sublayer in {"self": "self_attention.projection", "feed": "feed_forward.output"}.items():
        module = model.get_submodule(f"{layer}.{role}_add_norm")
        skip, residual, normed = (recorder[f"{layer}.{role}_add_norm.{n}"].value for n in ("skip", "residual", "norm"))
        torch.testing.assert_close(residual, skip + recorder[f"{layer}.{sublayer}"].value)
        torch.testing.assert_close(normed, module.norm(skip if norm == "pre" else residual))


def test_a_watched_model_gives_the_same_logits():
    model = a_model()
    torch.testing.assert_close(watch(model, Recorder())(*a_batch()), model(*a_batch()), rtol=0, atol=1e-10)


def test_watching_shares_parameters_and_does_not_change_the_model():
    model = a_model()
    before = model(*a_batch())
    watched = watch(model, Recorder())
    assert all(a is b for a, b in zip(watched.parameters(), model.parameters(), strict=True))
    assert all(a is b for a, b in zip(watched.buffers(), model.buffers(), strict=True))
    assert watched.watched
    assert not any(getattr(module, "watched", False) for module in model.modules())
    watched(*a_batch())
    assert torch.equal(model(*a_batch()), before)


def test_gradients_of_a_watched_model_reach_the_original():
    model = a_model()
    watch(model, Recorder())(*a_batch()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_growing_a_watched_models_positions_does_not_change_the_original():
    model = a_model()
    watch(model, Recorder()).init_cache(a_batch()[0], capacity=99)
    assert len(model.target_input.positions) == 16


def head_off(name: str, value: Tensor) -> Tensor:
    if name != "encoder.layers.1.self_attention.head_outputs":
        return value
    edited = value.clone()
    edited[:, 1] = 0
    return edited


def test_zeroing_a_head_equals_zeroing_its_output_weights():
    model, without_head = a_model(), a_model()
    with torch.no_grad():
        without_head.encoder.layers[1].self_attention.w_o.weight[:, 8:16] = 0
    edited = watch(model, head_off)(*a_batch())
    torch.testing.assert_close(edited, without_head(*a_batch()), rtol=0, atol=1e-10)
    assert not torch.allclose(edited, model(*a_batch()))


def test_an_edit_does_not_affect_later_passes():
    model = a_model()
    first, before = recorded(model), model(*a_batch())
    watch(model, head_off)(*a_batch())
    again = recorded(model)
    assert torch.equal(model(*a_batch()), before)
    assert all(torch.equal(first[name].value, again[name].value) for name in first)


def test_recorded_tensors_are_copies():
    model = a_model()

    class ErasingRecorder(Recorder):
        def __call__(self, name: str, value: Tensor) -> Tensor:
            passed = super().__call__(name, value)
            self[name].value.zero_()
            return passed

    torch.testing.assert_close(watch(model, ErasingRecorder())(*a_batch()), model(*a_batch()), rtol=0, atol=1e-10)
    assert not any(quantity.value.requires_grad for quantity in recorded(model).values())


def test_watching_a_watched_model_replaces_the_tap():
    first, second = Recorder(), Recorder()
    watch(watch(a_model(), first), second)(*a_batch())
    assert len(first) == 0
    assert "logits" in second


def test_a_watched_module_outside_a_model_records_names_without_a_path():
    recorder = Recorder()
    module = a_model().encoder.layers[0].feed_forward
    watch(module, recorder)(torch.zeros(1, 2, 12).double())
    assert list(recorder) == ["hidden", "output"]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_recorded_quantities_of_packed_sentences_equal_those_of_padded_ones(norm):
    """All quantities are recorded, and each sentence has its own block of the attention weights."""
    settings = ModelSettings(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=32, n_heads=2, norm=norm)
    torch.manual_seed(0)
    model = Transformer(settings, 20).eval()
    lengths = torch.tensor([3, 5])
    ids = torch.randint(4, 20, (8,))
    together, alone = Recorder(), Recorder()
    out = watch(model, together)(Tokens.packed(ids, lengths), Tokens.packed(ids, lengths))
    torch.testing.assert_close(out, model(Tokens.packed(ids, lengths), Tokens.packed(ids, lengths)))
    second = Tokens.padded(ids[None, 3:])
    watch(model, alone)(second, second)
    assert together.keys() == alone.keys()
    for role in ("encoder.layers.0.self", "decoder.layers.0.self", "decoder.layers.0.cross"):
        weights = together[f"{role}_attention.weights"].value
        assert (weights[:, :, 3:, :3] == 0).all()
        assert (weights[:, :, :3, 3:] == 0).all()
        torch.testing.assert_close(weights[:, :, 3:, 3:], alone[f"{role}_attention.weights"].value)
