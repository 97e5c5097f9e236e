"""Heads are removed one by one, the least important first."""

from dataclasses import replace

import pytest
import torch

from onehop.experiments.pruning import Head, gate_gradients, heads_by_importance, pruning, without_heads
from onehop.interpret.ablations import EditTap, attention_path, parse_edits
from onehop.model.taps import watch
from onehop.model.transformer import Tokens
from onehop.text.tokenizer import EOS


def test_zeros_in_w_o_equal_the_edit_that_switches_heads_off(tracer):
    heads = [Head("cross", 1, 0, 0.0), Head("encoder", 0, 1, 0.0)]
    src, tgt = (Tokens.padded(torch.tensor([ids])) for ids in ([5, 6, 3], [2, 7]))
    tap = EditTap(tracer.model, parse_edits(["head=off@cross.1.0", "head=off@encoder.0.1"]))
    with torch.no_grad():
        expected = watch(tracer.model, tap)(src, tgt)
        torch.testing.assert_close(without_heads(tracer.model, heads)(src, tgt), expected)
        assert not torch.allclose(tracer.model(src, tgt), expected)


def test_a_heads_gradient_equals_the_slope_of_the_loss(tracer):
    gradients = gate_gradients(tracer.model, [5, 6], [7, 8])
    path, head, step = attention_path("cross", 1), 1, 1e-2

    def loss(factor: float) -> float:
        def gated(name, value):
            scale = torch.ones(value.shape[1] if value.dim() == 4 else 1)
            scale[head if value.dim() == 4 else 0] = factor
            return value * scale[:, None, None] if name == f"{path}.head_outputs" else value

        src, tgt = (Tokens.padded(torch.tensor([ids])) for ids in ([5, 6, 3], [2, 7, 8]))
        with torch.no_grad():
            logits = watch(tracer.model, gated)(src, tgt)[0]
        return float(torch.nn.functional.cross_entropy(logits.double(), torch.tensor([7, 8, 3])))

    slope = (loss(1 + step) - loss(1 - step)) / (2 * step)
    assert float(gradients["cross", 1][head]) == pytest.approx(slope, rel=0.05, abs=1e-5)


def test_no_eos_is_added_for_models_that_read_sources_without_it(tracer, monkeypatch):
    marked = gate_gradients(tracer.model, [5, 6], [7, 8])
    monkeypatch.setattr(tracer.model, "settings", replace(tracer.model.settings, source_end=False))
    for attention, gradient in gate_gradients(tracer.model, [5, 6, EOS], [7, 8]).items():
        assert torch.equal(gradient, marked[attention])


def test_pruning_removes_all_heads_by_importance(tracer):
    texts = ["the old house", "a new bird"]
    found = pruning(tracer, texts, texts)
    order = found["order"]
    assert len(order) == found["heads"] == 2 * 5
    assert [h["importance"] for h in order] == sorted(h["importance"] for h in order)
    assert [row["removed"] for row in found["rows"]] == list(range(11))
    assert {h.role for h in heads_by_importance(tracer, texts, texts)} == {"encoder", "decoder", "cross"}
