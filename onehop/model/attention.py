"""Attention, in the paper's order: equation 1, a fused version, then multi-head attention (section 3.2).

A mask is boolean, True = may attend, or a `PackedMask`: sentences that stand end to end in one row and must not attend
to each other. `kernels.fuse` replaces these modules by fused ones on a GPU.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.model.packing import AttentionMask, Mask, PackedMask, Packing, causal_mask
from onehop.model.taps import Tap, Tapped

Queries = Float[Tensor, "batch heads query d_k"]
Keys = Float[Tensor, "batch heads key d_k"]
Values = Float[Tensor, "batch heads key d_v"]
HeadOutputs = Float[Tensor, "batch heads query d_v"]


def untapped(name: str, value: Tensor) -> Tensor:
    """The identity tap."""
    return value


def attention(q: Queries, k: Keys, v: Values, mask: Mask | None = None, tap: Tap = untapped) -> HeadOutputs:
    """Equation 1: softmax(Q Kᵀ / √d_k) V, with a tap at each step.

    A query that may attend to nothing gets zeros, where the formula alone would give 0/0.
    """
    scores = tap("scores", q @ k.transpose(-2, -1))
    scaled = tap("scaled_scores", scores / math.sqrt(q.shape[-1]))
    masked = tap("masked_scores", scaled if mask is None else scaled.masked_fill(~mask, -math.inf))
    weights = tap("weights", masked.softmax(-1).masked_fill(masked == -math.inf, 0.0))
    return tap("head_outputs", weights @ v)


def fused_attention(q: Queries, k: Keys, v: Values, mask: Mask | None = None) -> HeadOutputs:
    """Equation 1 in one kernel that never stores the scores. Specified by `attention`."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# --- sentences packed end to end ------------------------------------------------------------------------------


def padded_attention(q: Queries, k: Keys, v: Values, mask: PackedMask) -> HeadOutputs:
    """Attention with one padded row per sentence. Specifies the ragged kernels.

    Sentences are padded in a few groups of neighbours: in a batch sorted by length this leaves little padding.
    """
    queries, keys = mask.query.groups(), mask.key.groups()
    rows_q, rows_k = ([int(group.starts[-1]) for group in groups] for groups in (queries, keys))
    split = torch.split
    groups = zip(split(q, rows_q, 2), split(k, rows_k, 2), split(v, rows_k, 2), queries, keys, strict=True)
    return torch.cat([_padded_group(*group, mask.causal) for group in groups], dim=2)


def _padded_group(q: Queries, k: Keys, v: Values, query: Packing, key: Packing, causal: bool) -> HeadOutputs:
    tokens_q, tokens_k = query.token_mask, key.token_mask
    mask = tokens_k[:, None, None, :]
    if causal:
        mask = mask & causal_mask(tokens_q.shape[1], q.device)
    unpacked = _unpack(q, tokens_q), _unpack(k, tokens_k), _unpack(v, tokens_k)
    # For a CPU and bfloat16, torch's fused kernel takes 5 to 19 times as long backward as plain products.
    slow = q.dtype == torch.bfloat16 and not q.is_cuda and q.requires_grad
    out = attention(*unpacked, mask) if slow else fused_attention(*unpacked, mask)
    return out.transpose(1, 2)[tokens_q].transpose(0, 1)[None]


def _unpack(
    packed: Float[Tensor, "1 heads rows d"], token_mask: Bool[Tensor, "sentences longest"]
) -> Float[Tensor, "sentences heads longest d"]:
    """Give each sentence its own row, padded with zeros."""
    padded = packed.new_zeros(*token_mask.shape, packed.shape[1], packed.shape[3])
    padded[token_mask] = packed[0].transpose(0, 1)
    return padded.transpose(1, 2)


# --- many heads -----------------------------------------------------------------------------------------------


class MultiHeadAttention(Tapped):
    """Section 3.2.2: Concat(head_1 … head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V); biases on request.

    The h projections are stacked in one matrix, so the projection is split into heads, not the input.
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, *, bias: bool = False) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias=bias)
        self.w_k = nn.Linear(d_model, n_heads * d_k, bias=bias)
        self.w_v = nn.Linear(d_model, n_heads * d_v, bias=bias)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_model"],
        mask: AttentionMask,
    ) -> Float[Tensor, "batch query d_model"]:
        """Attend from each position of x to the memory; in self-attention the memory is x."""
        return self.attend(self.queries(x), *self.keys_and_values(memory), mask)

    def queries(self, x: Float[Tensor, "batch query d_model"]) -> Queries:
        return self.tap("q", self._split(self.w_q(x)))

    def keys_and_values(self, memory: Float[Tensor, "batch key d_model"]) -> tuple[Keys, Values]:
        return self.tap("k", self._split(self.w_k(memory))), self.tap("v", self._split(self.w_v(memory)))

    def attend(self, q: Queries, k: Keys, v: Values, mask: AttentionMask) -> Float[Tensor, "batch query d_model"]:
        joined = self.tap("concatenation", self.heads(q, k, v, mask).transpose(1, 2).flatten(2))
        return self.tap("projection", self.w_o(joined))

    def heads(self, q: Queries, k: Keys, v: Values, mask: AttentionMask) -> HeadOutputs:
        """Equation 1 in every head."""
        if self.watched:
            return attention(q, k, v, mask.dense if isinstance(mask, PackedMask) else mask, self.tap)
        return padded_attention(q, k, v, mask) if isinstance(mask, PackedMask) else fused_attention(q, k, v, mask)

    def _split(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch heads length d"]:
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)
