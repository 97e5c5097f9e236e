"""The model's modules with kernels inside. `kernels.fuse` gives a model these classes in place of its own.

Each computes the same as its base class, and falls back to it where no kernel applies: float32, a CPU, a tapped pass.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from onehop.model import kernels
from onehop.model.attention import HeadOutputs, Keys, MultiHeadAttention, Queries, Values
from onehop.model.loss import Labels, Loss, output_loss
from onehop.model.packing import Packed, Pattern
from onehop.model.transformer import Activations, AddNorm, FeedForward, Predictor

if kernels.usable():
    from onehop.model.kernels import feed_forward, ragged
    from onehop.model.kernels.add_norm import add_norm
    from onehop.model.kernels.cross_entropy import linear_cross_entropy
else:
    add_norm = feed_forward = linear_cross_entropy = ragged = None  # type: ignore[assignment]

Heads = Float[Tensor, "batch heads _ _"]


def swap_modules(model: nn.Module) -> None:
    """Give each module its fused class, if there is one. Weights and names stay."""
    for module in model.modules():
        module.__class__ = FUSED.get(type(module), type(module))
    if isinstance(model, Predictor):
        model.output_loss = fused_output_loss


class FusedAttention(MultiHeadAttention):
    """Attention over packed sentences in the kernels of `ragged`, or in the flash kernel."""

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_model"],
        pattern: Pattern,
    ) -> Float[Tensor, "batch query d_model"]:
        """Attend from each position of x to the memory; in self-attention the memory is x."""
        rows = max(x.shape[1], memory.shape[1])
        if ragged is not None and isinstance(pattern, Packed) and self._in_kernels(rows, pattern) and kernels.fast(x):
            own = x.squeeze(0)  # a view in both passes; the backward pass of x[0] would first zero-fill a gradient
            joined = self._all_at_once(own, pattern) if memory is x else self._across(own, memory.squeeze(0), pattern)
            out: Tensor = self.w_o(joined[None])
            return out
        return super().forward(x, memory, pattern)

    def heads(self, q: Queries, k: Keys, v: Values, pattern: Pattern) -> HeadOutputs:
        """Equation 1 in every head."""
        fits = max(k.shape[-1], v.shape[-1]) <= kernels.FLASH_WIDTH
        if isinstance(pattern, Packed) and not self.watched and fits and kernels.fast(q):
            scale = 1 / math.sqrt(k.shape[-1])
            return varlen_attention(*of_one_width(q, k, v), pattern, scale)[..., : v.shape[-1]]
        return super().heads(q, k, v, pattern)

    def _in_kernels(self, rows: int, pattern: Packed) -> bool:
        wide = self.w_q.out_features
        fits = wide // self.n_heads in ragged.WIDTHS and rows * 3 * wide < ragged.CELLS
        short = max(pattern.query.longest, pattern.key.longest) <= ragged.LONGEST
        return not self.watched and wide == self.w_v.out_features and fits and short

    def _all_at_once(self, x: Float[Tensor, "rows d_model"], pattern: Packed) -> Float[Tensor, "rows width"]:
        qkv = _side_by_side(x, self.w_q, self.w_k, self.w_v)
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
        kv = _side_by_side(memory, self.w_k, self.w_v)
        out: Tensor = ragged.cross_attention(self.w_q(x), kv, *rows, *starts, self.n_heads)[0]
        return out


def of_one_width(q: Queries, k: Keys, v: Values) -> tuple[Heads, Heads, Heads]:
    """Heads padded with zeros to one width, a multiple of eight, as the flash kernel requires."""
    width = -(-max(k.shape[-1], v.shape[-1]) // 8) * 8
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v


def varlen_attention(q: Queries, k: Keys, v: Values, pattern: Packed, scale: float | None = None) -> HeadOutputs:
    """The flash kernel for ragged rows. Specified by `attention.padded_attention`; `scale`: if not 1/√d_k."""
    query, key = pattern.query, pattern.key
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    window = (-1, 0) if pattern.causal else (-1, -1)
    out = varlen_attn(q, k, v, query.starts, key.starts, query.longest, key.longest, scale=scale, window_size=window)
    assert isinstance(out, Tensor)
    return out.transpose(0, 1)[None]


def _side_by_side(x: Float[Tensor, "rows d_model"], *linears: nn.Linear) -> Float[Tensor, "rows width"]:
    """Several projections of the same rows in one matrix product."""
    weight = torch.cat([linear.weight for linear in linears])
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return F.linear(x, weight, bias)


class FusedFeedForward(FeedForward):
    """Equation 2 in the kernel of `feed_forward`."""

    def forward(self, x: Activations) -> Activations:
        """Each position on its own."""
        if feed_forward is not None and not self.watched and self._in_kernels() and kernels.fast(x):
            rows = kernels.shortened(x).flatten(0, -2)
            one, two = self.w_1, self.w_2
            out: Tensor = feed_forward.feed_forward(rows, one.weight, one.bias, two.weight, two.bias)[0]
            return out.view(x.shape)
        return super().forward(x)

    def _in_kernels(self) -> bool:
        return self.activation is F.relu and feed_forward.fits(self.w_1.in_features, self.w_1.out_features)


class FusedAddNorm(AddNorm):
    """Post-norm LayerNorm(x + Dropout(added)) with a single pass through memory."""

    def forward(self, x: Activations, sublayer: Callable[[Activations], Activations]) -> Activations:
        """Wrap a sub-layer."""
        if self.pre:
            return super().forward(x, sublayer)
        if add_norm is None or self.watched or not kernels.fast(x):
            # The cast is safe: each norm normalises again, so rounding does not accumulate.
            return kernels.shortened(super().forward(x, sublayer))
        added = kernels.shortened(sublayer(x)).flatten(0, -2)
        drop = self.dropout.p if self.training else 0.0
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if drop else None
        normed: Tensor = add_norm(x.flatten(0, -2), added, self.norm.weight, self.norm.bias, seed, drop, self.norm.eps)[
            0
        ]
        return normed.view(x.shape)


def fused_output_loss(
    states: Float[Tensor, "rows d_model"],
    weight: Float[Tensor, "vocab d_model"],
    bias: Float[Tensor, " vocab"] | None,
    labels: Labels,
    smoothing: float,
    ignore: int = 0,
) -> Loss:
    """`loss.output_loss` without float32 logits."""
    if linear_cross_entropy is None or bias is not None or not kernels.fast(states):
        return output_loss(states, weight, bias, labels, smoothing, ignore)
    short = states.to(kernels.short_type(states))
    objective, nll, _ = linear_cross_entropy(short, weight, labels, smoothing, ignore)
    return Loss(objective, nll)


FUSED: dict[type[nn.Module], type[nn.Module]] = {
    MultiHeadAttention: FusedAttention,
    FeedForward: FusedFeedForward,
    AddNorm: FusedAddNorm,
}
