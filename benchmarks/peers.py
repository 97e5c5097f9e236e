"""The systems that training speed is compared with: torch.nn.Transformer and Hugging Face Marian."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.config import ModelSettings
from onehop.model.transformer import sinusoids
from onehop.text.tokenizer import BOS, EOS, PAD


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with tied embeddings, built as in its tutorial."""

    def __init__(self, s: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, s.d_model)
        nn.init.normal_(self.embedding.weight, std=s.d_model**-0.5)
        self.register_buffer("positions", sinusoids(s.max_length, s.d_model))
        self.dropout = nn.Dropout(s.dropout)
        shape = (s.d_model, s.n_heads, s.n_encoder_layers, s.n_decoder_layers, s.d_ff, s.dropout)
        self.transformer = nn.Transformer(*shape, batch_first=True)
        for (
            module
        ) in self.transformer.modules():  # the paper applies no dropout to attention weights or the inner layer
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

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


class Marian(nn.Module):
    """Hugging Face's MarianMTModel."""

    def __init__(self, s: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.marian = MarianMTModel(
            MarianConfig(
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
                scale_embedding=True,
                max_position_embeddings=s.max_length,
                pad_token_id=PAD,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
            )
        )

    def forward(self, src: Tensor, tgt: Tensor, *, padded: bool = True) -> Tensor:
        masks = {"attention_mask": src != PAD, "decoder_attention_mask": tgt != PAD} if padded else {}
        return self.marian(input_ids=src, decoder_input_ids=tgt, **masks).logits
