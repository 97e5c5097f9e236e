"""The model's modules with kernels inside. `kernels.fuse` gives a model these classes in place of its own.

Each computes the same as its base class, and falls back to it where no kernel applies: float32, a CPU, a tapped pass.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from onehop.model import kernels
from onehop.model.attention import HeadOutputs, Keys, MultiHeadAttention, Queries, Values
from onehop.model.kv_cache import MemoryMask
from onehop.model.loss import Labels, Loss, OutputBias, OutputWeight, output_loss
from onehop.model.packing import AttentionMask, PackedMask
from onehop.model.transformer import (
    Activations,
    AddNorm,
    FeedForward,
    Layer,
    Memory,
    Predictor,
    SelfMask,
    Stack,
    Sublayer,
)

if kernels.available():
    from onehop.model.kernels import add_norm, feed_forward, ragged
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
        mask: AttentionMask,
    ) -> Float[Tensor, "batch query d_model"]:
        rows = max(x.shape[1], memory.shape[1])
        if (
            ragged is not None
            and isinstance(mask, PackedMask)
            and self._kernel_fits(rows, mask)
            and kernels.applicable(x)
        ):
            own = x.squeeze(0)  # a view in both passes; the backward pass of x[0] would first zero-fill a gradient
            joined = self._self_kernel(own, mask) if memory is x else self._cross_kernel(own, memory.squeeze(0), mask)
            out: Tensor = self.w_o(joined[None])
            return out
        return super().forward(x, memory, mask)

    def heads(self, q: Queries, k: Keys, v: Values, mask: AttentionMask) -> HeadOutputs:
        fits = max(k.shape[-1], v.shape[-1]) <= kernels.FLASH_MAX_WIDTH
        if isinstance(mask, PackedMask) and not self.watched and fits and kernels.applicable(q):
            scale = 1 / math.sqrt(k.shape[-1])
            return varlen_attention(*pad_heads(q, k, v), mask, scale)[..., : v.shape[-1]]
        return super().heads(q, k, v, mask)

    def _kernel_fits(self, rows: int, mask: PackedMask) -> bool:
        wide = self.w_q.out_features
        fits = wide // self.n_heads in ragged.WIDTHS and rows * 3 * wide < ragged.CELLS
        short = max(mask.query.longest, mask.key.longest) <= ragged.LONGEST
        return not self.watched and wide == self.w_v.out_features and fits and short

    def _self_kernel(self, x: Float[Tensor, "rows d_model"], mask: PackedMask) -> Float[Tensor, "rows width"]:
        qkv = _project(x, self.w_q, self.w_k, self.w_v)
        sentences = mask.query
        out: Tensor = ragged.self_attention(
            qkv, sentences.sentence_of_row, sentences.starts, self.n_heads, mask.causal
        )[0]
        return out

    def _cross_kernel(
        self, x: Float[Tensor, "query d_model"], memory: Float[Tensor, "key d_model"], mask: PackedMask
    ) -> Float[Tensor, "query width"]:
        query, key = mask.query, mask.key
        rows, starts = (query.sentence_of_row, key.sentence_of_row), (query.starts, key.starts)
        kv = _project(memory, self.w_k, self.w_v)
        out: Tensor = ragged.cross_attention(self.w_q(x), kv, *rows, *starts, self.n_heads)[0]
        return out


def pad_heads(q: Queries, k: Keys, v: Values) -> tuple[Heads, Heads, Heads]:
    """Heads padded with zeros to one width, a multiple of eight, as the flash kernel requires."""
    width = -(-max(k.shape[-1], v.shape[-1]) // 8) * 8
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v


def varlen_attention(q: Queries, k: Keys, v: Values, mask: PackedMask, scale: float | None = None) -> HeadOutputs:
    """The flash kernel for ragged rows. Specified by `attention.padded_attention`; `scale`: if not 1/√d_k."""
    query, key = mask.query, mask.key
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    window = (-1, 0) if mask.causal else (-1, -1)
    out = varlen_attn(q, k, v, query.starts, key.starts, query.longest, key.longest, scale=scale, window_size=window)
    assert isinstance(out, Tensor)
    return out.transpose(0, 1)[None]


def _project(x: Float[Tensor, "rows d_model"], *linears: nn.Linear) -> Float[Tensor, "rows width"]:
    """Several projections of the same rows in one matrix product."""
    weight = torch.cat([linear.weight for linear in linears])
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return F.linear(x, weight, bias)


class FusedFeedForward(FeedForward):
    """Equation 2 in the kernel of `feed_forward`."""

    def forward(self, x: Activations) -> Activations:
        if feed_forward is not None and not self.watched and self._kernel_fits() and kernels.applicable(x):
            rows = kernels.to_matmul_dtype(x).flatten(0, -2)
            one, two = self.w_1, self.w_2
            out: Tensor = feed_forward.feed_forward(rows, one.weight, one.bias, two.weight, two.bias)[0]
            return out.view(x.shape)
        return super().forward(x)

    def _kernel_fits(self) -> bool:
        return self.activation is F.relu and feed_forward.fits(self.w_1.in_features, self.w_1.out_features)


class FusedAddNorm(AddNorm):
    """Post-norm LayerNorm(x + Dropout(added)) with a single pass through memory. Pre-norm is fused by the stack."""

    def forward(self, x: Activations, sublayer: Sublayer) -> Activations:
        if self.pre:
            return super().forward(x, sublayer)
        if add_norm is None or self.watched or not kernels.applicable(x):
            # The cast is safe: each norm normalises again, so rounding does not accumulate.
            return kernels.to_matmul_dtype(super().forward(x, sublayer))
        normed: Tensor = add_norm.add_norm(*_add_norm_inputs(self, x, sublayer(x), self.norm))[0]
        return normed.view(x.shape)


class FusedStack(Stack):
    """In pre-norm, the sum after each sub-layer and the norm before the next one with a single pass through memory."""

    def forward(
        self, x: Activations, mask: SelfMask, memory: Memory | None = None, memory_mask: MemoryMask = None
    ) -> Activations:
        # FSDP2 changes the class of a sharded layer, whose weights are complete only in its own forward pass.
        layers = [layer for layer in self.layers if type(layer) is Layer]
        unsharded = len(layers) == len(self.layers)
        if add_norm is None or self.last_norm is None or self.watched or not unsharded or not kernels.applicable(x):
            return super().forward(x, mask, memory, memory_mask)
        sublayers = [pair for layer in layers for pair in layer.sublayers(mask, memory, memory_mask)]
        norms = [around.norm for around, _ in sublayers] + [self.last_norm]
        normed: Tensor = norms[0](x)
        for (around, sublayer), norm in zip(sublayers, norms[1:], strict=True):
            inputs = _add_norm_inputs(around, x, sublayer(normed), norm)
            x, normed = (out.view(x.shape) for out in add_norm.sum_and_norm(*inputs)[:2])
        return normed


def _add_norm_inputs(around: AddNorm, x: Activations, added: Activations, norm: nn.LayerNorm) -> tuple[Any, ...]:
    skip, added = (rows.flatten(0, -2) for rows in (x, kernels.to_matmul_dtype(added)))
    drop = around.dropout.p if around.training else 0.0
    seed = torch.randint(2**31 - 1, (1,), device=x.device) if drop else None
    return skip, added, norm.weight, norm.bias, seed, drop, norm.eps


def fused_output_loss(
    states: Float[Tensor, "rows d_model"], weight: OutputWeight, bias: OutputBias, labels: Labels, smoothing: float
) -> Loss:
    """`loss.output_loss` without float32 logits."""
    # A bias may rule tokens out, and smoothing must then leave them out.
    smoothed = bias is not None and smoothing > 0.0
    if linear_cross_entropy is None or smoothed or not kernels.applicable(states):
        return output_loss(states, weight, bias, labels, smoothing)
    states = states.to(kernels.matmul_dtype(states))
    objective, nll, _ = linear_cross_entropy(states, weight, bias, labels, smoothing, 0)  # labels of 0 are padding
    return Loss(objective, nll)


FUSED: dict[type[nn.Module], type[nn.Module]] = {
    MultiHeadAttention: FusedAttention,
    FeedForward: FusedFeedForward,
    AddNorm: FusedAddNorm,
    Stack: FusedStack,
}
