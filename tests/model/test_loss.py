"""The loss against torch's own, and R-Drop's divergence against torch.distributions."""

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F

from onehop.model.loss import NEVER, allowed_tokens, cross_entropy, divergence


def example(seed: int = 0, rows: int = 23, vocab: int = 11):
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(rows, vocab, generator=generator)).requires_grad_()
    labels = torch.randint(0, vocab, (rows,), generator=generator)
    labels[::5] = 0
    return logits, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_cross_entropy_and_its_gradient_equal_torchs(smoothing):
    logits, labels = example()
    ours = cross_entropy(logits, labels, smoothing).objective
    torchs = F.cross_entropy(logits, labels, label_smoothing=smoothing, ignore_index=0, reduction="sum")
    torch.testing.assert_close(ours, torchs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, torchs)))


def test_excluded_tokens_get_no_smoothing():
    logits, labels = example()
    labels = labels.clamp(max=8)
    bias = torch.zeros(11)
    bias[9:] = NEVER
    ours = cross_entropy(logits + bias, labels, 0.1, allowed=allowed_tokens(bias)).objective
    without = F.cross_entropy(logits[:, :9], labels, label_smoothing=0.1, ignore_index=0, reduction="sum")
    torch.testing.assert_close(ours, without)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, without)))


def test_the_nll_is_not_smoothed():
    logits, labels = example()
    found = cross_entropy(logits, labels, 0.3)
    torch.testing.assert_close(found.nll, F.cross_entropy(logits, labels, ignore_index=0, reduction="sum").detach())
    assert not found.nll.requires_grad
    assert found.nll > 0


def test_the_ignored_label_can_be_chosen():
    logits, labels = example()
    ours = cross_entropy(logits, labels, 0.1, ignore=4).objective
    torchs = F.cross_entropy(logits, labels, label_smoothing=0.1, ignore_index=4, reduction="sum")
    torch.testing.assert_close(ours, torchs)


def test_padding_does_not_change_loss_or_divergence():
    logits, labels = example()
    other = torch.where(labels[:, None] == 0, 100 * torch.randn_like(logits), logits)
    assert cross_entropy(logits, labels, 0.1).objective == cross_entropy(other, labels, 0.1).objective
    third, _ = example(seed=1)
    assert divergence(logits, third, labels) == divergence(other, third, labels)
    assert divergence(logits, third, torch.zeros_like(labels)) == 0


def test_the_divergence_is_the_mean_kl_of_both_directions():
    (one, labels), (two, _) = example(0), example(1)
    p, q = Categorical(logits=one), Categorical(logits=two)
    expected = 0.5 * (kl_divergence(p, q) + kl_divergence(q, p))[labels != 0].sum()
    found = divergence(one, two, labels)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(x, (one, two)) for x in (found, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_the_divergence_is_positive_and_zero_for_equal_logits():
    for seed in range(20):
        (one, labels), (two, _) = example(seed), example(seed + 100)
        assert divergence(one, two, labels) > 0
        assert divergence(one, one.detach().clone(), labels).abs() < 1e-6


def test_bfloat16_logits_are_summed_in_float32():
    logits, labels = example()
    found = cross_entropy(logits.bfloat16(), labels, 0.1).objective
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, cross_entropy(logits.bfloat16().float(), labels, 0.1).objective)


def test_losses_of_parts_add_up():
    logits, labels = example()
    one, two = (cross_entropy(logits[rows], labels[rows], 0.1) for rows in (slice(0, 9), slice(9, None)))
    whole = cross_entropy(logits, labels, 0.1)
    torch.testing.assert_close(one.objective + two.objective, whole.objective)
    torch.testing.assert_close(one.nll + two.nll, whole.nll)
