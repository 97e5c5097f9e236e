"""Label smoothing (section 5.4), and the divergence between two dropout passes that R-Drop adds to it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

Logits = Float[Tensor, "rows vocab"]
Labels = Int[Tensor, " rows"]


@dataclass(frozen=True)
class Loss:
    """Sums over the target tokens, so that parts of a batch add up to the whole."""

    objective: Float[Tensor, ""]
    nll: Float[Tensor, ""]


def cross_entropy(logits: Logits, labels: Labels, smoothing: float, ignore: int = 0) -> Loss:
    """The objective: cross-entropy against (1 - ε) on the label plus ε spread evenly over the vocabulary.

    Beside it the plain negative log-likelihood, whose exponential is the perplexity. Rows labelled `ignore` are
    filling and count for nothing.
    """
    log_p = logits.float().log_softmax(-1)
    counted = labels != ignore
    nll = -log_p.gather(-1, labels[:, None])[:, 0].masked_fill(~counted, 0.0).sum()
    if not smoothing:
        return Loss(nll, nll.detach())
    spread = -log_p.mean(-1).masked_fill(~counted, 0.0).sum()
    return Loss((1.0 - smoothing) * nll + smoothing * spread, nll.detach())


def divergence(one: Logits, two: Logits, labels: Labels, ignore: int = 0) -> Float[Tensor, ""]:
    """R-Drop (Liang et al. 2021): the mean of KL(p‖q) and KL(q‖p) between two passes, summed over the tokens."""
    p, q = one.float().log_softmax(-1), two.float().log_softmax(-1)
    both = F.kl_div(q, p, log_target=True, reduction="none") + F.kl_div(p, q, log_target=True, reduction="none")
    return 0.5 * both.sum(-1).masked_fill(labels == ignore, 0.0).sum()


def total(losses: list[Loss]) -> Loss:
    """The sum of several parts."""
    return Loss(torch.stack([x.objective for x in losses]).sum(), torch.stack([x.nll for x in losses]).sum())
