"""Label-smoothed cross-entropy (section 5.4), and R-Drop's divergence between two dropout passes."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Logits = Float[Tensor, "rows vocab"]
Labels = Int[Tensor, " rows"]
VocabMask = Bool[Tensor, " vocab"]
OutputWeight = Float[Tensor, "vocab d_model"]
OutputBias = Float[Tensor, " vocab"] | None

# The output bias of tokens that an imported model never generates, and the bias or logit below which a token is one.
NEVER = -1e9
RULED_OUT = NEVER / 2


@dataclass(frozen=True)
class Loss:
    """Sums over the target tokens, so that parts of a batch add up to the whole."""

    objective: Float[Tensor, ""]
    nll: Float[Tensor, ""]


def cross_entropy(
    logits: Logits, labels: Labels, smoothing: float, ignore: int = 0, allowed: VocabMask | None = None
) -> Loss:
    """The objective: cross-entropy against (1 - ε) on the label plus ε spread evenly over the vocabulary.

    `allowed` excludes tokens that are never generated: their share of ε would be an objective of millions.

    Also returns the plain negative log-likelihood, whose exponential is the perplexity. Rows labelled `ignore` are
    padding and do not count.
    """
    return Loss(*SmoothedCrossEntropy.apply(logits.float(), labels, smoothing, ignore, allowed))  # type: ignore[no-untyped-call]


def output_loss(
    states: Float[Tensor, "rows d_model"], weight: OutputWeight, bias: OutputBias, labels: Labels, smoothing: float
) -> Loss:
    """The loss straight from the decoder's output."""
    return cross_entropy(F.linear(states, weight, bias), labels, smoothing, allowed=allowed_tokens(bias))


def allowed_tokens(bias: OutputBias) -> VocabMask | None:
    """The tokens that the output bias does not rule out; None: all of them."""
    return None if bias is None else bias > RULED_OUT


class SmoothedCrossEntropy(torch.autograd.Function):
    """Cross-entropy with a hand-written gradient p - q: one pass over the vocabulary instead of four."""

    @staticmethod
    def forward(
        ctx: Any, logits: Logits, labels: Labels, smoothing: float, ignore: int, allowed: VocabMask | None
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        log_p = logits.log_softmax(-1)
        counted = labels != ignore
        ctx.save_for_backward(log_p, labels, counted, allowed)
        ctx.smoothing = smoothing
        nll = -log_p.gather(-1, labels[:, None])[:, 0].masked_fill(~counted, 0.0).sum()
        ctx.mark_non_differentiable(nll)
        if not smoothing:
            return nll.clone(), nll
        smoothed = log_p if allowed is None else log_p.masked_fill(~allowed, 0.0)
        vocab = logits.shape[-1] if allowed is None else allowed.sum()
        uniform = -smoothed.sum(-1).masked_fill(~counted, 0.0).sum() / vocab
        return (1.0 - smoothing) * nll + smoothing * uniform, nll

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, ""], _: Tensor) -> tuple[Logits, None, None, None, None]:
        """(p - q) for each row that counts."""
        log_p, labels, counted, allowed = ctx.saved_tensors
        uniform = ctx.smoothing / log_p.shape[-1] if allowed is None else ctx.smoothing * allowed / allowed.sum()
        p_minus_q = log_p.exp().sub_(uniform)
        on_label = torch.full_like(labels, ctx.smoothing - 1.0, dtype=log_p.dtype)
        p_minus_q.scatter_add_(-1, labels[:, None], on_label[:, None])
        return p_minus_q.mul_((grad * counted)[:, None]), None, None, None, None


def divergence(one: Logits, two: Logits, labels: Labels, ignore: int = 0) -> Float[Tensor, ""]:
    """R-Drop (Liang et al. 2021): the mean of KL(p‖q) and KL(q‖p) between two passes, summed over the tokens."""
    p, q = one.float().log_softmax(-1), two.float().log_softmax(-1)
    kl = F.kl_div(q, p, log_target=True, reduction="none") + F.kl_div(p, q, log_target=True, reduction="none")
    return 0.5 * kl.sum(-1).masked_fill(labels == ignore, 0.0).sum()
