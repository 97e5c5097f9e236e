"""Quality and attention entropy by source length."""

import pytest
import torch

from onehop.experiments.lengths import by_length, entropy, lengths


def test_lengths_fill_buckets_with_joined_sentences(tracer):
    texts = ["the old house", "a new bird"] * 20
    buckets = by_length(tracer, texts, texts)
    for bucket, pairs in buckets.items():
        assert len(pairs) <= 30
        assert all(text == reference for text, reference, _ in pairs)
        assert all(bucket == 0 or length > 10 for _, _, length in pairs)
    results = lengths(tracer, texts[:4], texts[:4], longest=12)
    assert results["trained_to"] == 12
    assert [b["to"] for b in results["buckets"]] == sorted(b["to"] for b in results["buckets"])
    assert all(0 <= b["attention_entropy"]["cross"] <= 8 for b in results["buckets"])


def test_entropy_is_measured_in_bits():
    assert entropy(torch.full((1, 1, 1, 8), 1 / 8)) == pytest.approx(3)
    assert entropy(torch.eye(8)[None, None, :1]) == pytest.approx(0)
