"""The Transformer: parameter counts, positions, masking, cached decoding, dropout, options."""

import math
import re
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from onehop.config import ModelSettings, load_settings
from onehop.errors import OnehopError
from onehop.model.kv_cache import Cache
from onehop.model.taps import Recorder, watch
from onehop.model.transformer import Tokens, Transformer, parameter_count, sinusoids

NORMS = pytest.mark.parametrize("norm", ["post", "pre"])


def small(**changes) -> ModelSettings:
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 16, "d_ff": 24, "n_heads": 4, "max_length": 32}
    return ModelSettings(**{**sizes, "dropout": 0.0, **changes})


def a_model(vocab_size: int = 20, **changes) -> Transformer:
    """A float64 model without weights at their initial zero or one, so that nothing is equal by accident."""
    torch.manual_seed(1)
    model = Transformer(small(**changes), vocab_size).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def tokens(*sentences: list[int]) -> Tokens:
    longest = max(map(len, sentences))
    return Tokens.padded(torch.tensor([s + [0] * (longest - len(s)) for s in sentences]))


def packed(*sentences: list[int]) -> Tokens:
    return Tokens.packed(
        torch.tensor([id for sentence in sentences for id in sentence]), torch.tensor([len(s) for s in sentences])
    )


SRC = [5, 6, 7, 8, 3], [9, 3], [10, 11, 12, 3]
TGT = [2, 13, 14], [2, 15, 16, 17, 18, 19], [2, 4]


def close(actual: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def embedded_by(table: nn.Module) -> list[Tensor]:
    """A list that collects the outputs of an embedding in later passes, with their gradients retained."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple, out: Tensor) -> None:
        out.retain_grad()
        seen.append(out)

    table.register_forward_hook(keep)
    return seen


# --- parameters -----------------------------------------------------------------------------------------------


def count(vocab_size: int = 37000, **changes) -> int:
    with torch.device("meta"):
        return parameter_count(Transformer(ModelSettings(**changes), vocab_size))


@pytest.mark.parametrize(("preset", "parameters"), [("base", 63_045_632), ("big", 214_171_648)])
def test_base_and_big_have_the_papers_parameter_counts(preset, parameters):
    with torch.device("meta"):
        assert parameter_count(Transformer(load_settings(preset).model, 37000)) == parameters


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ({"d_k": 16, "d_v": 64}, 58),
        ({"d_k": 32, "d_v": 64}, 60),
        ({"n_encoder_layers": 2, "n_decoder_layers": 2}, 36),
        ({"n_encoder_layers": 4, "n_decoder_layers": 4}, 50),
        ({"n_encoder_layers": 8, "n_decoder_layers": 8}, 80),
        ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
        ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
        ({"d_ff": 1024}, 53),
        ({"d_ff": 4096}, 90),
    ],
)
def test_rows_of_table_3_have_the_printed_parameter_counts(change, printed):
    # The base row's 65 million parameters imply a vocabulary of about 40,800.
    assert count(40_800) / 1e6 == pytest.approx(65, abs=0.1)
    assert count(40_800, **change) / 1e6 == pytest.approx(printed, abs=1)


def test_the_number_of_heads_does_not_change_the_parameter_count():
    assert count(n_heads=1) == count(n_heads=32) == count()


def test_keys_and_values_may_have_different_widths():
    model = a_model(d_k=3, d_v=5)
    heads = model.decoder.layers[0].cross_attention
    assert [w.weight.shape for w in (heads.w_q, heads.w_k, heads.w_v, heads.w_o)] == [
        (12, 16),
        (12, 16),
        (20, 16),
        (16, 20),
    ]
    assert model(tokens(*SRC), tokens(*TGT)).isfinite().all()


def test_tying_removes_two_of_three_embedding_matrices():
    tied, untied = a_model(tied=True), a_model(tied=False)
    assert parameter_count(untied) - parameter_count(tied) == 2 * 20 * 16
    assert [n for n, p in tied.named_parameters() if p.shape == (20, 16)] == ["embedding.weight"]
    assert len([n for n, p in untied.named_parameters() if p.shape == (20, 16)]) == 3


def test_a_tied_model_equals_an_untied_one_with_three_equal_matrices():
    for role, table in {"source": "embedding", "target": "target_embedding", "output": "output"}.items():
        model = a_model(tied=False)
        tied = a_model(tied=True)
        tied.load_state_dict({k: v for k, v in model.state_dict().items() if k in tied.state_dict()})
        for name in ("embedding", "target_embedding", "output"):
            getattr(model, name).weight.data = tied.embedding.weight.data.clone()
        src, tgt = tokens(*SRC), tokens(*TGT)
        close(model(src, tgt), tied(src, tgt))
        getattr(model, table).weight.data *= 2
        assert not torch.allclose(model(src, tgt), tied(src, tgt)), role


def test_feed_forward_weights_are_twice_those_of_an_attention():
    def weights(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters() if p.dim() == 2)

    model = Transformer(small(d_ff=64), 20)
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    assert weights(encoder.feed_forward) == 2 * weights(encoder.self_attention)
    assert weights(decoder.feed_forward) == weights(decoder.self_attention) + weights(decoder.cross_attention)


def test_initial_weights_have_the_documented_distributions():
    torch.manual_seed(1)
    model = Transformer(small(d_model=128, d_ff=300, tied=False, positions="learned", max_length=256), 400)
    kinds = set()
    for name, p in model.named_parameters():
        if "embedding" in name or "positions" in name:
            assert p.std().item() == pytest.approx(128**-0.5, rel=0.05), name
            assert p.abs().max() > 3 * 128**-0.5, f"{name} is not normal"
            kinds.add("normal")
        elif p.dim() == 2:
            bound = math.sqrt(6 / sum(p.shape))
            assert 0.99 * bound < p.abs().max() <= bound, name
            assert p.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
            kinds.add("Xavier")
        else:
            assert (p == (0 if name.endswith("bias") else 1)).all(), name
            kinds.add("constant")
    assert kinds == {"normal", "Xavier", "constant"}
    steps = Recorder()
    watch(model, steps)(Tokens.padded(torch.arange(400)[None, :200]), tokens([2]))
    assert steps["source_input.scaled"].value.std().item() == pytest.approx(1, rel=0.05)


# --- positions ------------------------------------------------------------------------------------------------


def test_sinusoids_follow_the_papers_formula():
    table = sinusoids(50, 8)
    for pos in (0, 1, 49):
        for i in range(4):
            angle = pos / 10000 ** (2 * i / 8)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_wavelengths_form_a_geometric_progression_from_2_pi():
    first, second = sinusoids(2, 512).double()
    assert first.tolist() == [0.0, 1.0] * 256
    wavelengths = 2 * math.pi / torch.atan2(second[0::2], second[1::2])
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-5)
    assert wavelengths[-1].item() == pytest.approx(2 * math.pi * 9647, rel=1e-4)
    close(wavelengths[1:] / wavelengths[:-1], torch.full((255,), 10000 ** (2 / 512)).double(), atol=1e-4)


@pytest.mark.parametrize("offset", [1, 7, 50])
def test_an_offset_rotates_every_sine_cosine_pair_by_a_fixed_angle(offset):
    pairs = torch.view_as_complex(sinusoids(200, 32).double().unflatten(1, (16, 2)).flip(-1).contiguous())
    turned = pairs[offset:] / pairs[:-offset]
    close(turned, turned[:1].expand_as(turned), atol=1e-4)
    close(turned.abs(), torch.ones_like(turned.abs()), atol=1e-5)


def test_sinusoids_extend_beyond_max_length():
    long = list(range(4, 20)) * 3
    short_table, long_table = a_model(max_length=8), a_model(max_length=64)
    src, ids = tokens(long), torch.tensor([[2, *long]])
    cached = short_table.step(ids, short_table.init_cache(src, capacity=ids.shape[1]))
    close(cached, long_table(src, Tokens.padded(ids)))


@pytest.mark.parametrize(("length", "capacity"), [(9, 5), (5, 9)])
def test_texts_longer_than_learned_positions_are_refused(length, capacity):
    model = a_model(positions="learned", max_length=8)
    message = (
        "A sentence of 9 tokens is longer than the 8 learned positions. "
        "Split it, or train with a larger model.max_length."
    )
    with pytest.raises(OnehopError, match=f"^{re.escape(message)}$"):
        model.init_cache(tokens([4] * length), capacity)
    model.init_cache(tokens([4] * 8), 8)


# --- masking --------------------------------------------------------------------------------------------------


@NORMS
def test_without_positions_a_permuted_source_gives_a_permuted_memory(norm):
    model, scaled = a_model(norm=norm), {}

    def forget_positions(name: str, value: Tensor) -> Tensor:
        scaled[name] = value
        return scaled["source_input.scaled"] if name == "source_input.positioned" else value

    order = torch.tensor([2, 0, 4, 1, 3])
    src = torch.tensor([SRC[0]])
    orderless = watch(model, forget_positions)
    close(orderless.encode(Tokens.padded(src[:, order])), orderless.encode(Tokens.padded(src))[:, order])
    with_positions = model.encode(Tokens.padded(src))[:, order]
    assert not torch.allclose(model.encode(Tokens.padded(src[:, order])), with_positions, atol=1e-3)


@NORMS
@pytest.mark.parametrize(("watched", "layout"), [(False, tokens), (True, tokens), (False, packed)])
def test_logits_have_no_gradient_to_future_targets(norm, watched, layout):
    model = a_model(norm=norm, tied=False)
    model = watch(model, Recorder()) if watched else model
    targets = embedded_by(model.target_embedding)
    logits = model(layout(SRC[0]), layout(TGT[1]))
    for t in range(6):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), targets[0], retain_graph=True)
        assert (gradient[0, t + 1 :] == 0).all()
        assert (gradient[0, : t + 1] != 0).any(-1).all()


@pytest.mark.parametrize("watched", [False, True])
def test_padding_has_no_influence_and_no_gradient(watched):
    model = a_model(tied=False)
    model = watch(model, Recorder()) if watched else model
    sources, targets = embedded_by(model.embedding), embedded_by(model.target_embedding)
    src, tgt = tokens(*SRC), tokens(*TGT)
    logits = model(src, tgt)
    for row, (s, t) in enumerate(zip(SRC, TGT, strict=True)):
        close(logits[row, : len(t)], model(tokens(s), tokens(t))[0])
    logits[tgt.token_mask].square().sum().backward()
    for seen, inside in ((sources[0], src.token_mask), (targets[0], tgt.token_mask)):
        assert (seen.grad[~inside] == 0).all()
        assert (seen.grad[inside] != 0).any(-1).all()


@NORMS
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_packed_sentences_give_the_padded_logits_and_gradients(norm, positions):
    model = a_model(norm=norm, positions=positions)
    generator = torch.Generator().manual_seed(2)

    def outcome(logits: Tensor) -> tuple[Tensor, list[Tensor]]:
        weights = torch.randn(logits.shape, generator=generator.manual_seed(2)).double()
        return logits, list(torch.autograd.grad((logits * weights).sum(), list(model.parameters())))

    tgt = tokens(*TGT)
    padded, padded_gradients = outcome(model(tokens(*SRC), tgt)[tgt.token_mask])
    end_to_end, packed_gradients = outcome(model(packed(*SRC), packed(*TGT))[0])
    close(end_to_end, padded)
    for ours, theirs in zip(packed_gradients, padded_gradients, strict=True):
        close(ours, theirs)


# --- decoding with a cache ------------------------------------------------------------------------------------

SAME_LENGTH = [2, 13, 14, 15, 4, 6], [2, 15, 16, 17, 18, 19], [2, 4, 9, 13, 5, 3]


def decoded(model: Transformer, cache: Cache, ids: Tensor, portions: tuple[int, ...]) -> Tensor:
    """Logits of ids fed to the cache in portions."""
    return torch.cat([model.step(portion, cache) for portion in ids.split(list(portions), dim=1)], dim=1)


@NORMS
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("portions", [(1, 1, 1, 1, 1, 1), (2, 1, 3), (6,)])
@pytest.mark.parametrize("watched", [False, True])
def test_cached_decoding_equals_the_full_forward_pass(norm, positions, portions, watched):
    model = a_model(norm=norm, positions=positions, d_k=3, d_v=5)
    src, tgt = tokens(*SRC), tokens(*SAME_LENGTH)
    stepping = watch(model, Recorder()) if watched else model
    cache = stepping.init_cache(src, capacity=8)
    close(decoded(stepping, cache, tgt.ids, portions), model(src, tgt))
    assert cache.length == 6


def test_selected_cache_rows_continue_their_own_hypotheses():
    model = a_model()
    src, ids = tokens(*SRC), tokens(*SAME_LENGTH).ids
    cache = model.init_cache(src, capacity=6)
    model.step(ids[:, :2], cache)
    rows = torch.tensor([1, 1, 0])
    chosen, further = cache.select(rows), ids[:, 2:]
    expected = model(tokens(*(SRC[r] for r in rows)), Tokens.padded(torch.cat([ids[rows, :2], further], dim=1)))
    close(decoded(model, chosen, further, (1, 2, 1)), expected[:, 2:])
    close(decoded(model, cache, further, (1, 2, 1)), model(src, Tokens.padded(ids))[:, 2:])


def test_a_source_without_padding_needs_no_mask():
    model = a_model()
    padded = tokens(SRC[0], SRC[0])
    bare = Tokens(padded.ids, padded.positions)
    tgt = tokens(*SAME_LENGTH[:2])
    close(model(bare, Tokens(tgt.ids, tgt.positions)), model(padded, tgt))
    cache = model.init_cache(bare, capacity=6).select(torch.tensor([1, 0]))
    close(model.step(tgt.ids, cache), model(padded, tgt))


def test_a_step_beyond_the_caches_capacity_is_refused():
    model = a_model()
    cache = model.init_cache(tokens(SRC[0]), capacity=1)
    model.step(torch.tensor([[2]]), cache)
    with pytest.raises(AssertionError, match="the cache is full"):
        model.step(torch.tensor([[4]]), cache)


# --- dropout and output ---------------------------------------------------------------------------------------


def recorded(model: Transformer) -> dict[str, Tensor]:
    steps = Recorder()
    watch(model, steps)(tokens([4, 5, 6, 7] * 4), tokens([2, 5, 6, 7] * 4))
    return {name: step.value for name, step in steps.items()}


@NORMS
def test_dropout_applies_only_to_sublayer_outputs_and_embeddings(norm):
    model = a_model(dropout=0.5, norm=norm).train()
    x = recorded(model)
    dropped = {"encoder.layers.0.self_add_norm.skip": x["source_input.positioned"]}
    after = {"encoder.layers.0.self_add_norm.skip": x["encoder.layers.0.self_add_norm.skip"]}
    for layer in ("encoder.layers.0", "decoder.layers.1"):
        for role, output in {"self": "self_attention.projection", "feed": "feed_forward.output"}.items():
            name = f"{layer}.{role}_add_norm"
            dropped[name] = x[f"{layer}.{output}"]
            after[name] = x[f"{name}.residual"] - x[f"{name}.skip"]
    for name, before in dropped.items():
        kept = after[name].abs() > 1e-12
        assert 0.3 < kept.double().mean() < 0.7, name
        close(after[name], torch.where(kept, 2 * before, 0.0))
    ffn = model.encoder.layers[0].feed_forward
    close(x["encoder.layers.0.feed_forward.output"], ffn.w_2(x["encoder.layers.0.feed_forward.hidden"]))
    weights = x["encoder.layers.0.self_attention.weights"]
    close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    close(
        x["decoder.layers.0.cross_attention.head_outputs"],
        x["decoder.layers.0.cross_attention.weights"] @ x["decoder.layers.0.cross_attention.v"],
    )


def test_dropout_is_off_in_evaluation():
    model = a_model(dropout=0.5)
    src, tgt = tokens(*SRC), tokens(*TGT)
    assert torch.equal(model(src, tgt), model(src, tgt))
    close(model(src, tgt), a_model(dropout=0.0)(src, tgt))
    assert not torch.equal(model.train()(src, tgt), model(src, tgt))


def test_embeddings_are_scaled_by_root_d_model_before_positions_are_added():
    model = a_model()
    x = recorded(model)
    close(x["source_input.scaled"], 4 * model.embedding(torch.tensor([[4, 5, 6, 7] * 4])))
    close(x["source_input.positioned"], x["source_input.scaled"] + sinusoids(16, 16).double())


def test_log_probabilities_are_the_log_softmax_of_logits():
    model = a_model()
    src, tgt = tokens(*SRC), tokens(*TGT)
    close(model.log_probabilities(src, tgt).exp().sum(-1), torch.ones(3, 6).double())
    close(model.log_probabilities(src, tgt), torch.log_softmax(model(src, tgt), -1))


# --- one graph ------------------------------------------------------------------------------------------------

# In a separate process, because the tests' shape checks cannot be compiled.
ONE_GRAPH = """
import torch
from onehop.config import ModelSettings
from onehop.model.transformer import Tokens, Transformer

for norm in ("post", "pre"):
    torch.manual_seed(1)
    sizes = dict(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=4, dropout=0.0)
    model = Transformer(ModelSettings(**sizes, norm=norm), 20)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    src = Tokens.padded(torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]]))
    tgt = Tokens.padded(torch.tensor([[2, 9, 10], [2, 11, 0]]))
    results = []
    for m in (model, compiled):
        model.zero_grad()
        out = m(src, tgt)
        out.square().sum().backward()
        results.append((out.detach(), *(p.grad.clone() for p in model.parameters())))
    for eager, traced in zip(*results, strict=True):
        torch.testing.assert_close(traced, eager, rtol=1e-5, atol=1e-5)
print("one graph")
"""


@pytest.mark.slow
def test_torch_compile_traces_the_model_in_one_graph():
    done = subprocess.run([sys.executable, "-c", ONE_GRAPH], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "one graph\n", done.stderr


# --- options that the paper does not have ---------------------------------------------------------------------


def test_attention_and_output_biases_are_optional_and_counted():
    plain, biased = a_model(), a_model(attention_bias=True, output_bias=True)
    added = {n for n, _ in biased.named_parameters()} - {n for n, _ in plain.named_parameters()}
    # Two encoder layers with one attention, two decoder layers with two: four projections each.
    assert len(added) == 6 * 4 + 1
    assert all(name.endswith("bias") for name in added)
    assert parameter_count(biased) - parameter_count(plain) == 6 * 4 * 16 + 20
    fresh = Transformer(small(attention_bias=True, output_bias=True), 20)
    assert all(not p.any() for n, p in fresh.named_parameters() if n in added)


def test_the_output_bias_is_added_to_the_logits():
    model = a_model(output_bias=True)
    src, tgt = tokens(*SRC), tokens(*TGT)
    with torch.no_grad():
        before = model(src, tgt)
        model.output_bias[7] += 3.0
        change = model(src, tgt) - before
    expected = torch.zeros_like(change)
    expected[..., 7] = 3.0
    close(change, expected)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("relu", lambda x: x.clamp(min=0)),
        ("swish", lambda x: x / (1 + (-x).exp())),
        ("gelu", lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2),
    ],
)
def test_the_activation_is_applied_between_the_two_projections(activation, expected):
    network = a_model(activation=activation).encoder.layers[0].feed_forward
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    close(network(x), network.w_2(expected(network.w_1(x))))


@pytest.mark.parametrize("changes", [{"activation": "swish"}, {"attention_bias": True, "output_bias": True}])
def test_cached_decoding_with_activation_and_biases_equals_the_full_forward_pass(changes):
    model = a_model(**changes)
    src, tgt = tokens(*SRC), tokens([2, 13, 14], [2, 15, 16], [2, 4, 5])
    with torch.no_grad():
        cache = model.init_cache(src, capacity=3)
        steps = [model.step(tgt.ids[:, i : i + 1], cache) for i in range(3)]
        close(torch.cat(steps, dim=1), model(src, tgt))
