"""Compares the hypotheses of two searches."""

import pytest

from onehop.decoding.options import Hypothesis


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], **tolerance: float) -> None:
    """Each sentence has equal ids and flags, and scores within this tolerance of `pytest.approx`."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [(h.ids, h.finished, h.looped) for h in ours] == [(h.ids, h.finished, h.looped) for h in theirs]
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], **tolerance)
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], **tolerance)
