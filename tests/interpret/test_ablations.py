"""Edits are parsed, change one forward pass, and equal the same computation by hand."""

import math

import pytest
import torch
from torch import nn

from onehop.config import ModelSettings
from onehop.errors import SettingsError
from onehop.interpret.ablations import FORMS, Edit, EditTap, Scope, parse_edits
from onehop.model.taps import Recorder, watch
from onehop.model.transformer import Tokens, Transformer

NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
SRC, TGT = torch.tensor([[4, 5, 6, 7, 3]]), torch.tensor([[2, 10, 11, 12]])


def a_model(norm: str = "post") -> Transformer:
    torch.manual_seed(1)
    widths = {"d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 7, "d_v": 8, "max_length": 16}
    model = Transformer(ModelSettings(n_encoder_layers=2, n_decoder_layers=2, dropout=0.0, norm=norm, **widths), 30)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # so that biases are not 0 and gains not 1
            nn.init.normal_(parameter, mean=1.0, std=0.3)
    return model.double().eval()


def run(model: Transformer, *edits: str) -> Recorder:
    recorder, tap = Recorder(), EditTap(model, parse_edits(edits))
    watch(model, lambda name, value: recorder(name, tap(name, value)))(Tokens.padded(SRC), Tokens.padded(TGT))
    return recorder


def value(recorder: Recorder, name: str) -> torch.Tensor:
    return recorder[name].value


# --- parsing


@pytest.mark.parametrize(
    "text",
    [
        *("scale=off", "scale=2.5", "scale=2@cross", "scale=2@cross.1", "scale=2@cross.1.0", "mask=off"),
        *("positions=off", "positions=shuffled", "positions=shuffled:7", "head=off@encoder.1.0"),
        *("head=only@cross.0.2", "heads=averaged", "heads=averaged@decoder.1", "residual=off"),
        *("residual=off@encoder.1", "norm=off", "norm=off@decoder"),
    ],
)
def test_edits_round_trip_through_text(text):
    assert str(Edit.parse(f" {text} ")) == text


def test_a_scope_has_role_layer_and_head():
    assert Edit.parse("head=off@cross.1.0") == Edit("head", "off", Scope("cross", 1, 0))


def test_repeated_edits_are_removed():
    assert [str(e) for e in parse_edits(["scale=off", "mask=off", "scale=off"])] == ["scale=off", "mask=off"]


@pytest.mark.parametrize("name", FORMS)
def test_every_example_in_error_messages_is_valid(name):
    for text in FORMS[name].example.replace(" or ", ", ").split(", "):
        assert Edit.parse(text).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "scael=off",
            "There is no edit 'scael=off'. Edits are scale, mask, positions, head, heads, residual, norm: for example "
            "scale=off, mask=off, positions=off, head=off@cross.1.0, residual=off, norm=off.",
        ),
        ("scale=wide", "'scale=wide' is no edit of scale. Write scale=off, scale=2 or scale=2@cross.1."),
        ("scale=0", "scale=0 divides by zero. Give a divisor above 0."),
        ("mask=on", "'mask=on' is no edit of mask. Write mask=off."),
        ("mask=off@encoder", "'mask=off@encoder' names no place for this edit. Write mask=off."),
        (
            "head=off",
            "'head=off' names no place for this edit. Write head=off@cross.1.0 or head=only@cross.1.0.",
        ),
        (
            "head=off@attic.1.0",
            "'head=off@attic.1.0' names no place for this edit. Write head=off@cross.1.0 or head=only@cross.1.0.",
        ),
        (
            "norm=off@cross",
            "'norm=off@cross' names no place for this edit. Write norm=off or norm=off@encoder.1.",
        ),
        ("norm=off@", "'norm=off@' names no place for this edit. Write norm=off or norm=off@encoder.1."),
        (
            "norm=off@encoder.x",
            "'norm=off@encoder.x' names no place for this edit. Write norm=off or norm=off@encoder.1.",
        ),
    ],
)
def test_an_invalid_edit_is_a_one_line_error(text, message):
    with pytest.raises(SettingsError) as error:
        Edit.parse(text)
    assert str(error.value) == message


def test_a_very_long_invalid_edit_is_truncated_in_the_message():
    with pytest.raises(SettingsError) as error:
        Edit.parse("x" * 10_000)
    assert f"'{'x' * 59}…'" in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("norm=off@encoder.2", "norm=off@encoder.2 asks for layer 2, but there are 2. They count from 0 to 1."),
        ("head=off@cross.1.3", "head=off@cross.1.3 asks for head 3, but there are 3. They count from 0 to 2."),
    ],
)
def test_an_unknown_layer_or_head_is_refused(text, message):
    with pytest.raises(SettingsError) as error:
        EditTap(a_model(), parse_edits([text]))
    assert str(error.value) == message


# --- effects


@NORMS
def test_without_edits_the_logits_are_the_models(norm):
    model = a_model(norm)
    torch.testing.assert_close(value(run(model), "logits"), model(Tokens.padded(SRC), Tokens.padded(TGT)))


@NORMS
@pytest.mark.parametrize(
    "edit",
    [
        *("scale=off", "mask=off", "positions=off", "positions=shuffled", "head=off@cross.1.0"),
        *("head=only@encoder.0.1", "heads=averaged", "residual=off", "norm=off"),
    ],
)
def test_an_edit_changes_only_its_own_pass(norm, edit):
    model = a_model(norm)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = value(run(model), "logits")
    edited = value(run(model, edit), "logits")
    assert not torch.allclose(edited, plain)
    assert torch.equal(value(run(model), "logits"), plain)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_scale_replaces_root_d_k():
    found = run(a_model(), "scale=3@cross.1")
    for path, divisor in {"encoder.layers.0.self": math.sqrt(7), "decoder.layers.1.cross": 3.0}.items():
        scores, scaled = (value(found, f"{path}_attention.{n}") for n in ("scores", "scaled_scores"))
        torch.testing.assert_close(scaled, scores / divisor)


def test_the_scale_of_one_head_does_not_change_the_others():
    found = run(a_model(), "scale=off@decoder.0.2")
    scores, scaled = (value(found, f"decoder.layers.0.self_attention.{n}") for n in ("scores", "scaled_scores"))
    torch.testing.assert_close(scaled[:, 2], scores[:, 2])
    torch.testing.assert_close(scaled[:, :2], scores[:, :2] / math.sqrt(7))


def test_without_the_mask_the_decoder_attends_to_the_future():
    found = run(a_model(), "mask=off")
    for layer in (0, 1):
        path = f"decoder.layers.{layer}.self_attention"
        weights = value(found, f"{path}.weights")
        assert (weights > 0).all()
        torch.testing.assert_close(weights, value(found, f"{path}.scaled_scores").softmax(-1))


def test_mask_and_scale_can_be_combined():
    found = run(a_model(), "mask=off", "scale=off")
    path = "decoder.layers.0.self_attention"
    torch.testing.assert_close(value(found, f"{path}.weights"), value(found, f"{path}.scores").softmax(-1))


def test_without_positions_a_reversed_source_gives_reversed_states():
    model = a_model()
    forwards, backwards = Recorder(), Recorder()
    for ids, recorder in ((SRC, forwards), (SRC.flip(1), backwards)):
        tap = EditTap(model, parse_edits(["positions=off"]))
        watch(model, lambda n, v, tap=tap, recorder=recorder: recorder(n, tap(n, v))).encode(Tokens.padded(ids))
    name = "encoder.layers.1.feed_add_norm.norm"
    torch.testing.assert_close(value(forwards, name), value(backwards, name).flip(1))


def test_shuffled_positions_are_a_permutation():
    model = a_model()
    plain, edited, other = run(model), run(model, "positions=shuffled"), run(model, "positions=shuffled:3")
    at = [value(r, "source_input.positioned") - value(r, "source_input.scaled") for r in (plain, edited, other)]
    assert not torch.allclose(at[0], at[1])
    assert not torch.allclose(at[1], at[2])
    rows = [{tuple(row) for row in x[0].mul(1e6).round().long().tolist()} for x in at]
    assert rows[0] == rows[1] == rows[2]
    assert torch.equal(value(plain, "target_input.positioned"), value(edited, "target_input.positioned"))


@pytest.mark.parametrize(("edit", "left"), [("head=off@cross.1.0", [1, 2]), ("head=only@cross.1.0", [0])])
def test_switched_off_heads_add_nothing(edit, left):
    model = a_model()
    found = run(model, edit)
    outputs = value(found, "decoder.layers.1.cross_attention.head_outputs")
    assert [h for h in range(3) if outputs[:, h].abs().max() > 0] == left
    weight = model.get_submodule("decoder.layers.1.cross_attention.w_o").weight
    by_hand = sum(outputs[:, h] @ weight[:, 8 * h : 8 * h + 8].T for h in left)
    torch.testing.assert_close(value(found, "decoder.layers.1.cross_attention.projection"), by_hand)
    assert (value(found, "decoder.layers.0.cross_attention.head_outputs")[:, :].abs().amax((2, 3)) > 0).all()


def test_averaged_heads_have_equal_weights():
    plain, found = run(a_model()), run(a_model(), "heads=averaged@encoder.0")
    weights = value(found, "encoder.layers.0.self_attention.weights")
    mean = value(plain, "encoder.layers.0.self_attention.weights").mean(1)
    for head in range(3):
        torch.testing.assert_close(weights[:, head], mean)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 3, 5, dtype=torch.double))


@NORMS
def test_without_the_residual_only_the_sublayers_output_remains(norm):
    found = run(a_model(norm), "residual=off@decoder.1")
    for name, sublayer in (("self", "self_attention.projection"), ("feed", "feed_forward.output")):
        residual = value(found, f"decoder.layers.1.{name}_add_norm.residual")
        torch.testing.assert_close(residual, value(found, f"decoder.layers.1.{sublayer}"))
    assert value(found, "decoder.layers.0.self_add_norm.skip").abs().max() > 0


@NORMS
def test_without_the_norm_its_input_is_its_output(norm):
    found = run(a_model(norm), "norm=off")
    for name in (n for n in found if n.endswith("add_norm.norm")):
        went_in = name.replace(".norm", ".skip" if norm == "pre" else ".residual")
        assert torch.equal(value(found, name), value(found, went_in)), name
    if norm == "pre":
        last = value(found, "encoder.layers.1.feed_add_norm.residual")
        assert torch.equal(value(found, "encoder.norm"), last)


def test_without_norm_and_residual_the_sublayer_still_gets_its_input():
    found = run(a_model("pre"), "norm=off@encoder", "residual=off@encoder")
    normed = value(found, "encoder.layers.0.self_add_norm.norm")
    assert torch.equal(normed, value(found, "source_input.positioned"))
