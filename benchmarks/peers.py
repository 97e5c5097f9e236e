"""What benchmarks of training share: lengths of sentences, and peers in a model's shape from torch and Hugging Face.

Each peer takes (src, tgt) and gives logits. As in the paper, none drops attention weights or the inner layer.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.model.transformer import sinusoids
from onehop.text.tokenizer import BOS, EOS, PAD

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with tied embeddings, as its tutorial puts it together."""

    def __init__(self, s: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, s.d_model)
        nn.init.normal_(self.embedding.weight, std=s.d_model**-0.5)
        self.register_buffer("positions", sinusoids(s.max_length, s.d_model))
        self.dropout = nn.Dropout(s.dropout)
        self.transformer = self.layers(s)
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def layers(self, s: ModelSettings) -> nn.Module:
        shape = (s.d_model, s.n_heads, s.n_encoder_layers, s.n_decoder_layers, s.d_ff, s.dropout)
        return nn.Transformer(*shape, **layer_options(s))

    def forward(self, src: Tensor, tgt: Tensor, *, padded: bool = True) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device, dtype=torch.bool)
        masks = {}
        if padded:
            masks = {"src_key_padding_mask": src == PAD, "tgt_key_padding_mask": tgt == PAD}
            masks["memory_key_padding_mask"] = masks["src_key_padding_mask"]
        hidden = self.transformer(self.embed(src), self.embed(tgt), tgt_mask=causal, tgt_is_causal=True, **masks)
        return F.linear(hidden, self.embedding.weight)

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.positions.shape[1] ** 0.5 + self.positions[: ids.shape[1]])


class TorchStack(TorchTransformer):
    """torch.nn.TransformerEncoder as a model of one stack, causal for a decoder-only one."""

    def layers(self, s: ModelSettings) -> nn.Module:
        self.causal = s.kind == "decoder"
        n_layers = s.n_decoder_layers if self.causal else s.n_encoder_layers
        layer = nn.TransformerEncoderLayer(s.d_model, s.n_heads, s.d_ff, s.dropout, **layer_options(s))
        last_norm = nn.LayerNorm(s.d_model) if s.norm == "pre" else None
        return nn.TransformerEncoder(layer, n_layers, last_norm, enable_nested_tensor=False)

    def forward(self, src: Tensor, tgt: Tensor, *, padded: bool = True) -> Tensor:
        masks = {"src_key_padding_mask": tgt == PAD} if padded else {}
        if self.causal:
            causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device, dtype=torch.bool)
            masks |= {"mask": causal, "is_causal": True}
        return F.linear(self.transformer(self.embed(tgt), **masks), self.embedding.weight)


def layer_options(s: ModelSettings) -> dict[str, object]:
    return {"activation": ACTIVATIONS[s.activation], "batch_first": True, "norm_first": s.norm == "pre"}


class Marian(nn.Module):
    """Hugging Face's MarianMTModel, or for pre-norm Pegasus, which is the same model in that order."""

    def __init__(self, s: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

        config, model = (MarianConfig, MarianMTModel)
        if s.norm == "pre":
            config, model = (PegasusConfig, PegasusForConditionalGeneration)
        self.marian = model(
            config(
                vocab_size=vocabulary,
                d_model=s.d_model,
                encoder_layers=s.n_encoder_layers,
                decoder_layers=s.n_decoder_layers,
                encoder_attention_heads=s.n_heads,
                decoder_attention_heads=s.n_heads,
                encoder_ffn_dim=s.d_ff,
                decoder_ffn_dim=s.d_ff,
                activation_function="relu",
                dropout=s.dropout,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                max_position_embeddings=s.max_length,
                pad_token_id=PAD,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
                use_cache=False,
            )
        )

    def forward(self, src: Tensor, tgt: Tensor, *, padded: bool = True) -> Tensor:
        masks = {"attention_mask": src != PAD, "decoder_attention_mask": tgt != PAD} if padded else {}
        return self.marian(input_ids=src, decoder_input_ids=tgt, **masks).logits


class GPT2(nn.Module):
    """Hugging Face's GPT2LMHeadModel."""

    def __init__(self, s: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.gpt2 = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=s.max_length,
                n_embd=s.d_model,
                n_layer=s.n_decoder_layers,
                n_head=s.n_heads,
                n_inner=s.d_ff,
                activation_function="gelu_new",
                resid_pdrop=s.dropout,
                embd_pdrop=s.dropout,
                attn_pdrop=0.0,
                bos_token_id=BOS,
                eos_token_id=EOS,
                use_cache=False,
            )
        )

    def forward(self, src: Tensor, tgt: Tensor, *, padded: bool = True) -> Tensor:
        return self.gpt2(input_ids=tgt, **({"attention_mask": tgt != PAD} if padded else {})).logits


class Bert(nn.Module):
    """Hugging Face's BertForMaskedLM, without the extra layer before its output, which the others lack."""

    def __init__(self, s: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertForMaskedLM

        self.bert = BertForMaskedLM(
            BertConfig(
                vocab_size=vocabulary,
                hidden_size=s.d_model,
                num_hidden_layers=s.n_encoder_layers,
                num_attention_heads=s.n_heads,
                intermediate_size=s.d_ff,
                hidden_act="gelu",
                hidden_dropout_prob=s.dropout,
                attention_probs_dropout_prob=0.0,
                max_position_embeddings=s.max_length,
                type_vocab_size=s.segments or 1,
                pad_token_id=PAD,
            )
        )
        self.bert.cls.predictions.transform = nn.Identity()

    def forward(self, src: Tensor, tgt: Tensor, *, padded: bool = True) -> Tensor:
        return self.bert(input_ids=tgt, **({"attention_mask": tgt != PAD} if padded else {})).logits


def peers_of(s: ModelSettings) -> dict[str, Callable[[ModelSettings, int], nn.Module]]:
    """The two systems that have a model of this shape, by name."""
    if s.kind == "decoder":
        return {"nn.TransformerEncoder, causal": TorchStack, "Hugging Face GPT-2": GPT2}
    if s.kind == "encoder":
        return {"nn.TransformerEncoder": TorchStack, "Hugging Face BERT": Bert}
    return {"nn.Transformer": TorchTransformer, f"Hugging Face {'Pegasus' if s.norm == 'pre' else 'Marian'}": Marian}


def prose_lengths(draw: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw lengths of sentences and of their translations, 27 tokens on average, that spread as those of prose do."""
    src = np.clip(draw.gamma(3.2, 27.0 / 3.2, count), 2, 120)
    return src, np.clip(src * draw.normal(1.0, 0.15, count), 2, 120)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
