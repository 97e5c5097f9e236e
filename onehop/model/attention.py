"""Attention, in the paper's order: equation 1 spelled out, the same fused, then many heads of it (section 3.2).

Who may attend to whom is a boolean mask in which True means "may attend", or a `Packed` pattern: sentences that stand
end to end in one row and must not see each other.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from onehop.model import kernels
from onehop.model.packing import Mask, Packed, Packing, Pattern, causal_mask
from onehop.model.taps import Tap, Tapped

if kernels.usable():
    from onehop.model.kernels import ragged
else:
    ragged = None  # type: ignore[assignment]

Queries = Float[Tensor, "batch heads query d_k"]
Keys = Float[Tensor, "batch heads key d_k"]
Values = Float[Tensor, "batch heads key d_v"]
HeadOutputs = Float[Tensor, "batch heads query d_v"]
Heads = Float[Tensor, "batch heads _ _"]
FLASH_WIDTH = 256  # the widest head that the flash kernel takes


def untapped(name: str, value: Tensor) -> Tensor:
    """The tap of a pass that nobody watches."""
    return value


def attention(q: Queries, k: Keys, v: Values, mask: Mask | None = None, tap: Tap = untapped) -> HeadOutputs:
    """Equation 1: softmax(Q Kᵀ / √d_k) V, each step by its name.

    A query that may attend to nothing gets zeros, where the formula alone would give 0/0.
    """
    scores = tap("scores", q @ k.transpose(-2, -1))
    scaled = tap("scaled_scores", scores / math.sqrt(q.shape[-1]))
    masked = tap("masked_scores", scaled if mask is None else scaled.masked_fill(~mask, -math.inf))
    weights = tap("weights", masked.softmax(-1).masked_fill(masked == -math.inf, 0.0))
    return tap("head_outputs", weights @ v)


def fused_attention(q: Queries, k: Keys, v: Values, mask: Mask | None = None) -> HeadOutputs:
    """Equation 1 in one kernel, which never holds the scores. Specified by `attention`."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# --- sentences packed end to end ------------------------------------------------------------------------------


def packed_attention(q: Queries, k: Keys, v: Values, pattern: Packed) -> HeadOutputs:
    """Attention that never crosses a sentence's boundary: by a kernel for ragged rows, or padded for the moment."""
    if kernels.fast(q) and max(k.shape[-1], v.shape[-1]) <= FLASH_WIDTH:
        scale = 1 / math.sqrt(k.shape[-1])
        return varlen_attention(*of_one_width(q, k, v), pattern, scale)[..., : v.shape[-1]]
    return padded_attention(q, k, v, pattern)


def of_one_width(q: Queries, k: Keys, v: Values) -> tuple[Heads, Heads, Heads]:
    """Heads of one width, which the flash kernel wants in eights: filled up with zeros, which adds nothing."""
    width = -(-max(k.shape[-1], v.shape[-1]) // 8) * 8
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v


def padded_attention(q: Queries, k: Keys, v: Values, pattern: Packed) -> HeadOutputs:
    """One row a sentence, with padding, for as long as the attention takes. Specifies the ragged kernels.

    Sentences go in a few groups of neighbours: where a batch is sorted by length, hardly any padding is left.
    """
    queries, keys = pattern.query.groups(), pattern.key.groups()
    rows_q, rows_k = ([int(group.starts[-1]) for group in groups] for groups in (queries, keys))
    split = torch.split
    parts = zip(split(q, rows_q, 2), split(k, rows_k, 2), split(v, rows_k, 2), queries, keys, strict=True)
    return torch.cat([padded_group(*part, pattern.causal) for part in parts], dim=2)


def padded_group(q: Queries, k: Keys, v: Values, query: Packing, key: Packing, causal: bool) -> HeadOutputs:
    """One group of `padded_attention`."""
    inside_q, inside_k = query.inside, key.inside
    mask = inside_k[:, None, None, :]
    if causal:
        mask = mask & causal_mask(inside_q.shape[1], q.device)
    out = fused_attention(unpack(q, inside_q), unpack(k, inside_k), unpack(v, inside_k), mask)
    return out.transpose(1, 2)[inside_q].transpose(0, 1)[None]


def unpack(
    packed: Float[Tensor, "1 heads rows d"], inside: Bool[Tensor, "sentences longest"]
) -> Float[Tensor, "sentences heads longest d"]:
    """Give each sentence a row of its own, filled up with zeros."""
    padded = packed.new_zeros(*inside.shape, packed.shape[1], packed.shape[3])
    padded[inside] = packed[0].transpose(0, 1)
    return padded.transpose(1, 2)


def varlen_attention(q: Queries, k: Keys, v: Values, pattern: Packed, scale: float | None = None) -> HeadOutputs:
    """The flash kernel for ragged rows. Specified by `padded_attention`; `scale`: if not 1/√d_k."""
    query, key = pattern.query, pattern.key
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    window = (-1, 0) if pattern.causal else (-1, -1)
    out = varlen_attn(q, k, v, query.starts, key.starts, query.longest, key.longest, scale=scale, window_size=window)
    assert isinstance(out, Tensor)
    return out.transpose(0, 1)[None]


def side_by_side(x: Float[Tensor, "rows d_model"], *linears: nn.Linear) -> Float[Tensor, "rows width"]:
    """Several projections of the same rows in one matrix product."""
    weight = torch.cat([linear.weight for linear in linears])
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return F.linear(x, weight, bias)


# --- many heads -----------------------------------------------------------------------------------------------


class MultiHeadAttention(Tapped):
    """Section 3.2.2: Concat(head_1 … head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V); biases on request.

    The h projections stand side by side in one matrix; that splits the projection into heads, not the input.
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
        pattern: Pattern,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let each position of x gather from the memory; in self-attention the memory is x."""
        rows = max(x.shape[1], memory.shape[1])
        if ragged is not None and isinstance(pattern, Packed) and self._in_kernels(rows, pattern) and kernels.fast(x):
            own = x.squeeze(0)  # a view both ways, where x[0] would fill a gradient with zeros first
            joined = self._all_at_once(own, pattern) if memory is x else self._across(own, memory.squeeze(0), pattern)
            out: Tensor = self.w_o(joined[None])
            return out
        return self.attend(self.queries(x), *self.keys_and_values(memory), pattern)

    def queries(self, x: Float[Tensor, "batch query d_model"]) -> Queries:
        """What each position is looking for."""
        return self.tap("q", self._split(self.w_q(x)))

    def keys_and_values(self, memory: Float[Tensor, "batch key d_model"]) -> tuple[Keys, Values]:
        """What each position offers, and what it hands over."""
        return self.tap("k", self._split(self.w_k(memory))), self.tap("v", self._split(self.w_v(memory)))

    def attend(self, q: Queries, k: Keys, v: Values, pattern: Pattern) -> Float[Tensor, "batch query d_model"]:
        """Attention in every head, joined and projected."""
        if self.watched:
            heads = attention(q, k, v, pattern.mask if isinstance(pattern, Packed) else pattern, self.tap)
        elif isinstance(pattern, Packed):
            heads = packed_attention(q, k, v, pattern)
        else:
            heads = fused_attention(q, k, v, pattern)
        joined = self.tap("concatenation", heads.transpose(1, 2).flatten(2))
        return self.tap("projection", self.w_o(joined))

    # --- on a GPU, nobody watching: see kernels/ragged.py ---

    def _in_kernels(self, rows: int, pattern: Packed) -> bool:
        wide = self.w_q.out_features
        fits = wide // self.n_heads in ragged.WIDTHS and rows * 3 * wide < ragged.CELLS
        short = max(pattern.query.longest, pattern.key.longest) <= ragged.LONGEST
        return not self.watched and wide == self.w_v.out_features and fits and short

    def _all_at_once(self, x: Float[Tensor, "rows d_model"], pattern: Packed) -> Float[Tensor, "rows width"]:
        qkv = side_by_side(x, self.w_q, self.w_k, self.w_v)
        sentences = pattern.query
        out: Tensor = ragged.self_attention(
            qkv, sentences.sentence_of_row, sentences.starts, self.n_heads, pattern.causal
        )[0]
        return out

    def _across(
        self, x: Float[Tensor, "query d_model"], memory: Float[Tensor, "key d_model"], pattern: Packed
    ) -> Float[Tensor, "query width"]:
        query, key = pattern.query, pattern.key
        rows, starts = (query.sentence_of_row, key.sentence_of_row), (query.starts, key.starts)
        kv = side_by_side(memory, self.w_k, self.w_v)
        out: Tensor = ragged.cross_attention(self.w_q(x), kv, *rows, *starts, self.n_heads)[0]
        return out

    def _split(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch heads length d"]:
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)
