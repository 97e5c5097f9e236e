"""Variants against Hugging Face's GPT-2, BERT and ViT with the same weights."""

import math

import pytest
import torch
import transformers
from torch import Tensor, nn

from onehop.config import ModelSettings, Settings
from onehop.errors import SettingsError
from onehop.model.taps import Recorder, watch
from onehop.model.transformer import Layer, Stack, Tokens, Transformer
from onehop.model.variants import DecoderOnly, EncoderOnly, VisionTransformer, model_for
from onehop.training.estimate import saved_bytes_per_token, update_flops
from onehop.training.step import Objective

D_MODEL, D_FF, HEADS, LAYERS, VOCAB, LONGEST = 32, 64, 4, 3, 50, 20


def settings(kind: str, **changes) -> ModelSettings:
    sizes = {"n_encoder_layers": LAYERS, "n_decoder_layers": LAYERS, "d_model": D_MODEL, "d_ff": D_FF}
    rest = {"n_heads": HEADS, "dropout": 0.0, "positions": "learned", "attention_bias": True, "max_length": LONGEST}
    return ModelSettings(kind=kind, **sizes, **rest, **changes)


def scatter(module: nn.Module) -> None:
    """Change all weights from their initial zero or one, so that a missing or swapped one is noticed."""
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)


def give(ours: nn.Module, weight: Tensor, bias: Tensor) -> None:
    ours.weight.data.copy_(weight)
    ours.bias.data.copy_(bias)


def give_all(pairs) -> None:
    for ours, theirs in pairs:
        give(ours, theirs.weight, theirs.bias)


# --- the decoder: GPT-2 ---------------------------------------------------------------------------------------


def gpt2_pair() -> tuple[DecoderOnly, "transformers.GPT2LMHeadModel"]:
    torch.manual_seed(0)
    sizes = {"n_embd": D_MODEL, "n_layer": LAYERS, "n_head": HEADS, "n_inner": D_FF, "n_positions": LONGEST}
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=VOCAB, bos_token_id=2, eos_token_id=3, **sizes)
    ).eval()
    scatter(theirs)
    ours = DecoderOnly(settings("decoder", norm="pre", activation="gelu_tanh"), VOCAB).eval()
    copy_gpt2(ours, theirs)
    return ours, theirs


@torch.no_grad()
def copy_gpt2(ours: DecoderOnly, theirs: "transformers.GPT2LMHeadModel") -> None:
    """GPT-2 does not scale its embeddings by √d_model: they are divided by it, and the last norm multiplied."""
    scale, body = math.sqrt(D_MODEL), theirs.transformer
    ours.embedding.weight.copy_(body.wte.weight / scale)
    ours.target_input.positions.copy_(body.wpe.weight)
    for layer, block in zip(ours.decoder.layers, body.h, strict=True):
        heads = (layer.self_attention.w_q, layer.self_attention.w_k, layer.self_attention.w_v)
        weights, biases = block.attn.c_attn.weight.T.chunk(3), block.attn.c_attn.bias.chunk(3)
        for linear, weight, bias in zip(heads, weights, biases, strict=True):
            give(linear, weight, bias)
        give(layer.self_attention.w_o, block.attn.c_proj.weight.T, block.attn.c_proj.bias)
        give(layer.feed_forward.w_1, block.mlp.c_fc.weight.T, block.mlp.c_fc.bias)
        give(layer.feed_forward.w_2, block.mlp.c_proj.weight.T, block.mlp.c_proj.bias)
        give_all([(layer.self_add_norm.norm, block.ln_1), (layer.feed_add_norm.norm, block.ln_2)])
    give(ours.decoder.last_norm, body.ln_f.weight * scale, body.ln_f.bias * scale)


def test_a_decoders_logits_equal_gpt_2s():
    ours, theirs = gpt2_pair()
    ids = torch.randint(4, VOCAB, (5, LONGEST))
    expected = theirs(ids).logits
    actual = ours(Tokens.padded(ids), Tokens.padded(ids))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-4)
    assert expected.std() > 0.1


def test_a_decoders_logits_of_packed_texts_equal_gpt_2s():
    ours, theirs = gpt2_pair()
    texts = [torch.randint(4, VOCAB, (n,)) for n in (3, 11, LONGEST)]
    packed = Tokens.packed(torch.cat(texts), torch.tensor([len(text) for text in texts]))
    actual = ours(packed, packed)[0].split([len(text) for text in texts])
    for text, found in zip(texts, actual, strict=True):
        torch.testing.assert_close(found, theirs(text[None]).logits[0], rtol=0, atol=1e-4)


def test_a_decoders_cached_steps_equal_the_full_forward_pass():
    ours, _ = gpt2_pair()
    ids = torch.randint(4, VOCAB, (2, 9))
    cache = ours.init_cache(2, 9)
    found = torch.cat([ours.step(ids[:, :4], cache), *(ours.step(ids[:, i : i + 1], cache) for i in range(4, 9))], 1)
    torch.testing.assert_close(found, ours(Tokens.padded(ids), Tokens.padded(ids)), rtol=0, atol=1e-5)
    assert cache.length == 9


def test_texts_longer_than_learned_positions_are_refused():
    ours, _ = gpt2_pair()
    with pytest.raises(SettingsError, match="longer than the 20 learned positions"):
        ours.init_cache(1, LONGEST + 1)


# --- the encoder: BERT ----------------------------------------------------------------------------------------


def bert_pair() -> tuple[EncoderOnly, "transformers.BertModel"]:
    torch.manual_seed(0)
    sizes = {"hidden_size": D_MODEL, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = transformers.BertConfig(
        vocab_size=VOCAB, intermediate_size=D_FF, max_position_embeddings=LONGEST, type_vocab_size=2, **sizes
    )
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    scatter(theirs)
    more = {"activation": "gelu", "segments": 2, "input_norm": True, "norm_epsilon": 1e-12}
    ours = EncoderOnly(settings("encoder", **more), VOCAB).eval()
    copy_bert(ours, theirs)
    return ours, theirs


@torch.no_grad()
def copy_bert(ours: EncoderOnly, theirs: "transformers.BertModel") -> None:
    table = theirs.embeddings
    ours.embedding.weight.copy_(table.word_embeddings.weight / math.sqrt(D_MODEL))
    ours.source_input.positions.copy_(table.position_embeddings.weight)
    ours.source_input.segment_embeddings.copy_(table.token_type_embeddings.weight)
    give_all([(ours.source_input.norm, table.LayerNorm)])
    for layer, block in zip(ours.encoder.layers, theirs.encoder.layer, strict=True):
        own, out = block.attention.self, block.attention.output
        ours_own = layer.self_attention
        give_all([(ours_own.w_q, own.query), (ours_own.w_k, own.key), (ours_own.w_v, own.value)])
        give_all([(ours_own.w_o, out.dense), (layer.self_add_norm.norm, out.LayerNorm)])
        give_all([(layer.feed_forward.w_1, block.intermediate.dense), (layer.feed_forward.w_2, block.output.dense)])
        give_all([(layer.feed_add_norm.norm, block.output.LayerNorm)])


def test_an_encoders_states_equal_berts_with_padding_and_segments():
    ours, theirs = bert_pair()
    ids, segments = torch.randint(4, VOCAB, (3, 12)), torch.randint(0, 2, (3, 12))
    ids[1, 7:] = 0
    text = Tokens.padded(ids)
    text = Tokens(text.ids, text.positions, text.token_mask, segments=segments)
    expected = theirs(ids, attention_mask=(ids != 0).long(), token_type_ids=segments).last_hidden_state
    inside = ids != 0
    torch.testing.assert_close(ours.encode(text)[inside], expected[inside], rtol=0, atol=1e-5)
    other = Tokens(text.ids, text.positions, text.token_mask)
    assert (ours.encode(other) - expected)[inside].abs().max() > 0.01  # segments matter


def test_a_sentence_vector_ignores_padding():
    ours, _ = bert_pair()
    ids = torch.randint(4, VOCAB, (2, 6))
    ids[1, 4:] = 0
    both = ours.sentence_vectors(Tokens.padded(ids))
    alone = ours.sentence_vectors(Tokens(ids[1:, :4], torch.arange(4)[None]))
    torch.testing.assert_close(both[1:], alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(both.norm(dim=1), torch.ones(2))


# --- vision: ViT ----------------------------------------------------------------------------------------------


def vit_pair() -> tuple[VisionTransformer, "transformers.ViTForImageClassification"]:
    torch.manual_seed(0)
    sizes = {"hidden_size": D_MODEL, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = transformers.ViTConfig(
        image_size=8, patch_size=2, num_channels=1, intermediate_size=D_FF, num_labels=5, **sizes
    )
    theirs = transformers.ViTForImageClassification(config).eval()
    scatter(theirs)
    more = {"norm": "pre", "activation": "gelu", "norm_epsilon": 1e-12, "output_bias": True}
    ours = VisionTransformer(settings("vision", image=8, patch=2, levels=17, **more), 5).eval()
    copy_vit(ours, theirs)
    return ours, theirs


@torch.no_grad()
def copy_vit(ours: VisionTransformer, theirs: "transformers.ViTForImageClassification") -> None:
    scale, table = math.sqrt(D_MODEL), theirs.vit.embeddings
    cut = table.patch_embeddings.projection
    give(ours.projection, cut.weight.flatten(1) / scale, cut.bias / scale)
    ours.answer_embedding.copy_(table.cls_token[0, 0] / scale)
    ours.source_input.positions[: 1 + 16].copy_(table.position_embeddings[0])
    for layer, block in zip(ours.encoder.layers, theirs.vit.layers, strict=True):
        heads, own, feed = layer.self_attention, block.attention, layer.feed_forward
        give_all([(heads.w_q, own.q_proj), (heads.w_k, own.k_proj), (heads.w_v, own.v_proj), (heads.w_o, own.o_proj)])
        give_all([(feed.w_1, block.mlp.fc1), (feed.w_2, block.mlp.fc2)])
        norms = ((layer.self_add_norm.norm, block.layernorm_before), (layer.feed_add_norm.norm, block.layernorm_after))
        give_all(norms)
    give_all([(ours.encoder.last_norm, theirs.vit.layernorm)])
    ours.output.weight.copy_(theirs.classifier.weight)
    ours.output_bias.copy_(theirs.classifier.bias)


def test_a_vision_models_logits_equal_vits():
    ours, theirs = vit_pair()
    images = torch.randint(0, 17, (6, 8, 8))
    expected = theirs(images[:, None].float() / 16).logits
    actual = ours.logits(ours.class_states(images)[None])[0]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    assert expected.std() > 0.1


# --- all variants ---------------------------------------------------------------------------------------------


def test_the_kind_setting_chooses_the_model_class():
    more = {"image": 8, "patch": 2, "levels": 17}
    kinds = {"decoder": DecoderOnly, "encoder": EncoderOnly}
    assert {kind: type(model_for(settings(kind), VOCAB)) for kind in kinds} == kinds
    assert type(model_for(settings("vision", **more), VOCAB)) is VisionTransformer
    assert type(model_for(ModelSettings(d_model=8, n_heads=2), VOCAB)) is Transformer


def test_every_variant_uses_the_same_layer_and_can_be_watched():
    ids = Tokens.padded(torch.randint(4, VOCAB, (1, 7)))
    for kind, path in (("decoder", "decoder"), ("encoder", "encoder")):
        model, recorder = model_for(settings(kind), VOCAB).eval(), Recorder()
        logits = watch(model, recorder)(ids, ids)
        torch.testing.assert_close(logits, model(ids, ids), rtol=0, atol=1e-5)
        weights = recorder[f"{path}.layers.0.self_attention.weights"].value
        assert weights.shape == (1, HEADS, 7, 7)
        assert bool((weights.triu(1) == 0).all()) == (kind == "decoder")
        stacks = [m for m in model.modules() if isinstance(m, Stack)]
        assert len(stacks) == 1
        assert all(type(layer) is Layer for layer in stacks[0].layers)


def test_update_flops_of_variants_count_their_matrices():
    for kind in ("decoder", "encoder"):
        model = model_for(settings(kind), VOCAB)
        matrices = sum(p.numel() for n, p in model.named_parameters() if p.dim() == 2 and "positions" not in n)
        assert update_flops(model.settings, VOCAB, 0, 10) == 6.0 * 10 * matrices
    vision = model_for(settings("vision", image=8, patch=2, levels=17), VOCAB)
    layers = sum(p.numel() for n, p in vision.encoder.named_parameters() if p.dim() == 2)
    assert update_flops(vision.settings, VOCAB, 64, 1) == 6.0 * 17 * layers  # sixteen patches and the class token


@pytest.mark.parametrize("kind", ["decoder", "encoder", "vision"])
def test_activation_memory_of_every_kind_can_be_estimated(kind):
    more = {"image": 8, "patch": 2, "levels": 17} if kind == "vision" else {}
    chosen = Settings(model=settings(kind, **more))
    assert saved_bytes_per_token(Objective(model_for(chosen.model, VOCAB), 0.0, 0.0), chosen) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"segments": 2},
            "model.segments does not apply to this kind of model. "
            "Remove it, or set model.kind=encoder or model.kind=decoder or model.kind=vision.",
        ),
        (
            {"activation": "gelu_tanh"},
            "model.activation gelu_tanh is for GPT-2-like models. Set model.kind=decoder, or use gelu.",
        ),
        (
            {"kind": "decoder", "patch": 2},
            "model.patch does not apply to this kind of model. Remove it, or set model.kind=vision.",
        ),
        (
            {"kind": "vision", "image": 8, "patch": 3, "levels": 17},
            "model.image is 8, model.patch 3 and model.levels 17. "
            "A vision model needs all three, and model.image must be a multiple of model.patch.",
        ),
    ],
)
def test_settings_of_another_variant_are_refused(changes, message):
    with pytest.raises(SettingsError) as error:
        ModelSettings(**changes)
    assert str(error.value) == message
