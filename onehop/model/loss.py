"""Label-smoothed cross-entropy (section 5.4), and R-Drop's divergence between two dropout passes."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Logits = Float[Tensor, "rows vocab"]
Labels = Int[Tensor, " rows"]
Pieces = Bool[Tensor, " vocab"]

# The output bias of tokens that an imported model never generates; a bias or logit below the second marks one.
NEVER = -1e9
RULED_OUT = NEVER / 2


@dataclass(frozen=True)
class Loss:
    """Sums over the target tokens, so that parts of a batch add up to the whole."""

    objective: Float[Tensor, ""]
    nll: Float[Tensor, ""]


def cross_entropy(
    logits: Logits, labels: Labels, smoothing: float, ignore: int = 0, sayable: Pieces | None = None
) -> Loss:
    """The objective: cross-entropy against (1 - ε) on the label plus ε spread evenly over the vocabulary.

    `sayable` excludes tokens that are never generated: their share of ε would be an objective of millions.

    Also returns the plain negative log-likelihood, whose exponential is the perplexity. Rows labelled `ignore` are
    padding and do not count.
    """
    return Loss(*SmoothedCrossEntropy.apply(logits.float(), labels, smoothing, ignore, sayable))  # type: ignore[no-untyped-call]


def output_loss(
    states: Float[Tensor, "rows d_model"],
    weight: Float[Tensor, "vocab d_model"],
    bias: Float[Tensor, " vocab"] | None,
    labels: Labels,
    smoothing: float,
    ignore: int = 0,
) -> Loss:
    """The loss straight from the decoder's output."""
    return cross_entropy(F.linear(states, weight, bias), labels, smoothing, ignore, sayable_by(bias))


def sayable_by(bias: Float[Tensor, " vocab"] | None) -> Pieces | None:
    """The tokens that the output bias does not rule out; None: all of them."""
    return None if bias is None else bias > RULED_OUT


class SmoothedCrossEntropy(torch.autograd.Function):
    """Cross-entropy with a hand-written gradient p - q: one pass over the vocabulary instead of four."""

    @staticmethod
    def forward(
        ctx: Any, logits: Logits, labels: Labels, smoothing: float, ignore: int, sayable: Pieces | None
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The objective and the negative log-likelihood."""
        log_p = logits.log_softmax(-1)
        counted = labels != ignore
        ctx.save_for_backward(log_p, labels, counted, sayable)
        ctx.smoothing = smoothing
        nll = -log_p.gather(-1, labels[:, None])[:, 0].masked_fill(~counted, 0.0).sum()
        ctx.mark_non_differentiable(nll)
        if not smoothing:
            return nll.clone(), nll
        shared = log_p if sayable is None else log_p.masked_fill(~sayable, 0.0)
        number = logits.shape[-1] if sayable is None else sayable.sum()
        spread = -shared.sum(-1).masked_fill(~counted, 0.0).sum() / number
        return (1.0 - smoothing) * nll + smoothing * spread, nll

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, ""], _: Tensor) -> tuple[Logits, None, None, None, None]:
        """(p - q) for each row that counts."""
        log_p, labels, counted, sayable = ctx.saved_tensors
        spread = ctx.smoothing / log_p.shape[-1] if sayable is None else ctx.smoothing * sayable / sayable.sum()
        p_minus_q = log_p.exp().sub_(spread)
        on_label = torch.full_like(labels, ctx.smoothing - 1.0, dtype=log_p.dtype)
        p_minus_q.scatter_add_(-1, labels[:, None], on_label[:, None])
        return p_minus_q.mul_((grad * counted)[:, None]), None, None, None, None


def divergence(one: Logits, two: Logits, labels: Labels, ignore: int = 0) -> Float[Tensor, ""]:
    """R-Drop (Liang et al. 2021): the mean of KL(p‖q) and KL(q‖p) between two passes, summed over the tokens."""
    p, q = one.float().log_softmax(-1), two.float().log_softmax(-1)
    both = F.kl_div(q, p, log_target=True, reduction="none") + F.kl_div(p, q, log_target=True, reduction="none")
    return 0.5 * both.sum(-1).masked_fill(labels == ignore, 0.0).sum()
