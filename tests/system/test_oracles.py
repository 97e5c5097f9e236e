"""Our model against torch.nn's layers and Hugging Face's Marian with the same weights."""

from collections.abc import Iterator

import pytest
import torch
import transformers
from torch import Tensor, nn

from onehop.config import ModelSettings
from onehop.model.attention import MultiHeadAttention
from onehop.model.packing import causal_mask
from onehop.model.transformer import Layer, Stack, Tokens, Transformer, sinusoids
from onehop.text.tokenizer import BOS, EOS, PAD

D_MODEL, D_FF, HEADS, LAYERS = 16, 24, 4, 2
PRECISIONS = pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])

# Our weights, and the one of theirs that contains them concatenated.
Pairs = Iterator[tuple[list[Tensor], Tensor]]


def settings(**changes) -> ModelSettings:
    return ModelSettings(
        n_encoder_layers=LAYERS,
        n_decoder_layers=LAYERS,
        d_model=D_MODEL,
        d_ff=D_FF,
        n_heads=HEADS,
        dropout=0.0,
        **changes,
    )


def scatter(module: nn.Module) -> None:
    """Change all weights from their initial zero or one, so that a missing or swapped one is noticed."""
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)


def affine(ours: nn.Linear | nn.LayerNorm, theirs: nn.Linear | nn.LayerNorm) -> Pairs:
    yield [ours.weight], theirs.weight
    yield [ours.bias], theirs.bias


def copy(pairs: Pairs) -> None:
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(torch.cat(ours))


def close(actual: Tensor, expected: Tensor, atol: float) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


# --- torch.nn -------------------------------------------------------------------------------------------------


def attention_pairs(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> Pairs:
    nn.init.zeros_(theirs.in_proj_bias)
    nn.init.zeros_(theirs.out_proj.bias)
    yield [ours.w_q.weight, ours.w_k.weight, ours.w_v.weight], theirs.in_proj_weight
    yield [ours.w_o.weight], theirs.out_proj.weight


def layer_pairs(ours: Layer, theirs: nn.Module) -> Pairs:
    yield from attention_pairs(ours.self_attention, theirs.self_attn)
    norms = [ours.self_add_norm.norm]
    if ours.cross_attention is not None:
        yield from attention_pairs(ours.cross_attention, theirs.multihead_attn)
        norms.append(ours.cross_add_norm.norm)
    yield from affine(ours.feed_forward.w_1, theirs.linear1)
    yield from affine(ours.feed_forward.w_2, theirs.linear2)
    for i, norm in enumerate([*norms, ours.feed_add_norm.norm], start=1):
        yield from affine(norm, getattr(theirs, f"norm{i}"))


def stack_pairs(ours: Stack, theirs: nn.Module) -> Pairs:
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        yield from layer_pairs(our_layer, their_layer)
    if ours.last_norm is not None:
        yield from affine(ours.last_norm, theirs.norm)


def twins(norm: str, dtype: torch.dtype, *, cross: bool) -> tuple[Stack, nn.Module]:
    """One of our stacks and one of torch's with the same weights."""
    torch.manual_seed(1)
    ours = Stack(settings(norm=norm), LAYERS, cross=cross).to(dtype)
    scatter(ours)
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=dtype)
    last = nn.LayerNorm(D_MODEL, dtype=dtype) if norm == "pre" else None
    if cross:
        theirs = nn.TransformerDecoder(layer, LAYERS, norm=last)
    else:
        theirs = nn.TransformerEncoder(layer, LAYERS, norm=last, enable_nested_tensor=False)
    copy(stack_pairs(ours, theirs))
    return ours, theirs


def assert_same_gradients(ours: Stack, theirs: nn.Module, atol: float) -> None:
    checked = 0
    for our_weights, their_weight in stack_pairs(ours, theirs):
        close(torch.cat([w.grad for w in our_weights]), their_weight.grad, atol)
        assert their_weight.grad.abs().sum() > 0
        checked += len(our_weights)
    assert checked == len(list(ours.parameters()))


@NORMS
@PRECISIONS
def test_the_encoder_equals_torch_nns(norm, dtype, atol):
    ours, theirs = twins(norm, dtype, cross=False)
    inside = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    x = torch.randn(2, 6, D_MODEL, dtype=dtype)
    weights = torch.randn(2, 6, D_MODEL, dtype=dtype) * inside[..., None] / 10
    our_x, their_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    our_out = ours(our_x, inside[:, None, None, :])
    their_out = theirs(their_x, src_key_padding_mask=~inside)
    close(our_out[inside], their_out[inside], atol)
    (our_out * weights).sum().backward()
    (their_out * weights).sum().backward()
    close(our_x.grad, their_x.grad, atol)
    assert_same_gradients(ours, theirs, atol)


@NORMS
@PRECISIONS
def test_the_decoder_equals_torch_nns(norm, dtype, atol):
    ours, theirs = twins(norm, dtype, cross=True)
    inside = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    x, memory = torch.randn(2, 7, D_MODEL, dtype=dtype), torch.randn(2, 5, D_MODEL, dtype=dtype)
    weights = torch.randn(2, 7, D_MODEL, dtype=dtype) / 10
    our_x, their_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    our_memory, their_memory = memory.clone().requires_grad_(), memory.clone().requires_grad_()
    before = causal_mask(7)
    our_out = ours(our_x, before[None, None], our_memory, inside[:, None, None, :])
    their_out = theirs(their_x, their_memory, tgt_mask=~before, memory_key_padding_mask=~inside)
    close(our_out, their_out, atol)
    (our_out * weights).sum().backward()
    (their_out * weights).sum().backward()
    close(our_x.grad, their_x.grad, atol)
    close(our_memory.grad, their_memory.grad, atol)
    assert_same_gradients(ours, theirs, atol)


# --- Hugging Face's Marian ------------------------------------------------------------------------------------

VOCABULARY, LONGEST = 40, 30


def marian_attention_pairs(ours: MultiHeadAttention, theirs: nn.Module) -> Pairs:
    for our_name, their_name in {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}.items():
        projection = getattr(theirs, their_name)
        nn.init.zeros_(projection.bias)
        yield [getattr(ours, our_name).weight], projection.weight


def marian_layer_pairs(ours: Layer, theirs: nn.Module) -> Pairs:
    yield from marian_attention_pairs(ours.self_attention, theirs.self_attn)
    yield from affine(ours.self_add_norm.norm, theirs.self_attn_layer_norm)
    if ours.cross_attention is not None:
        yield from marian_attention_pairs(ours.cross_attention, theirs.encoder_attn)
        yield from affine(ours.cross_add_norm.norm, theirs.encoder_attn_layer_norm)
    yield from affine(ours.feed_forward.w_1, theirs.fc1)
    yield from affine(ours.feed_forward.w_2, theirs.fc2)
    yield from affine(ours.feed_add_norm.norm, theirs.final_layer_norm)


def marian_pairs(ours: Transformer, theirs: "transformers.MarianMTModel") -> Pairs:
    yield [ours.embedding.weight], theirs.model.shared.weight
    for our_stack, their_stack in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        for our_layer, their_layer in zip(our_stack.layers, their_stack.layers, strict=True):
            yield from marian_layer_pairs(our_layer, their_layer)


def a_marian() -> "transformers.MarianMTModel":
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=VOCABULARY,
            d_model=D_MODEL,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=D_FF,
            decoder_ffn_dim=D_FF,
            max_position_embeddings=LONGEST,
            activation_function="relu",
            scale_embedding=True,
            dropout=0.0,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    ).eval()


@pytest.fixture(scope="module")
def marians() -> tuple[Transformer, "transformers.MarianMTModel"]:
    """Our model and Marian with the same weights and positions. Marian's table has all sines before all cosines."""
    torch.manual_seed(0)
    ours = Transformer(settings(max_length=LONGEST), VOCABULARY).eval()
    scatter(ours)
    with torch.no_grad():  # so that outputs do not repeat the input and some end
        ours.decoder.layers[-1].feed_add_norm.norm.weight.normal_()
        ours.embedding.weight[EOS] *= 1.5
    theirs = a_marian()
    copy(marian_pairs(ours, theirs))
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data = sinusoids(LONGEST, D_MODEL)
    assert sum(len(weights) for weights, _ in marian_pairs(ours, theirs)) == len(list(ours.parameters()))
    return ours, theirs


def sources() -> Tensor:
    """Sentences of many lengths, padded."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, VOCABULARY, (16, 9), generator=generator)
    lengths = torch.randint(1, 10, (16, 1), generator=generator)
    return ids.masked_fill(torch.arange(9) >= lengths, PAD)


def test_marian_has_the_same_sinusoids_in_another_order():
    theirs, ours = a_marian().model.encoder.embed_positions.weight, sinusoids(LONGEST, D_MODEL)
    close(torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=1), theirs.detach(), atol=1e-6)


def test_marian_gives_the_same_logits(marians):
    ours, theirs = marians
    src = sources()
    tgt = torch.cat([torch.full((16, 1), BOS), sources().flip(0).clamp(min=4)], dim=1)
    expected = theirs(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt).logits
    assert expected.std() > 0.1
    close(ours(Tokens.padded(src), Tokens.padded(tgt)), expected, atol=1e-4)


def greedy(model: Transformer, src: Tensor, longest: int) -> list[list[int]]:
    """The most probable token at each step, up to EOS."""
    cache = model.init_cache(Tokens.padded(src), capacity=longest)
    ids = torch.full((len(src), 1), BOS)
    for _ in range(longest):
        ids = torch.cat([ids, model.step(ids[:, -1:], cache).argmax(-1)], dim=1)
    return [up_to_the_end(row) for row in ids.tolist()]


def up_to_the_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def test_marian_gives_the_same_greedy_output(marians):
    ours, theirs = marians
    src = sources()
    found = theirs.generate(src, attention_mask=src != PAD, num_beams=1, do_sample=False, max_new_tokens=20)
    outputs = [up_to_the_end(row) for row in found.tolist()]
    assert len({tuple(o) for o in outputs}) > 8, "outputs are too alike to prove anything"
    assert len({len(o) for o in outputs}) > 3, "no output ends early"
    with torch.no_grad():
        assert greedy(ours, src, longest=20) == outputs
