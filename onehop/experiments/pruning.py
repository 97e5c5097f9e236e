"""The number of heads that a model needs: heads are removed in order, the least important first."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.decoding.options import SearchOptions
from onehop.evaluation.metrics import bleu, chrf
from onehop.interpret.ablations import ATTENTION, Role
from onehop.interpret.recorded_search import read_by, unpadded
from onehop.interpret.tracer import Tracer
from onehop.model.attention import MultiHeadAttention
from onehop.model.taps import watch
from onehop.model.transformer import Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import BOS, EOS

Json = dict[str, Any]
_GREEDY = SearchOptions(beam=1)
_POINTS = 12
_WEIGHED_ON = 50


@dataclass(frozen=True)
class Head:
    """A head and its importance for the loss."""

    role: Role
    layer: int
    head: int
    importance: float

    @property
    def path(self) -> str:
        stack = "encoder" if self.role == "encoder" else "decoder"
        return f"{stack}.layers.{self.layer}.{'cross' if self.role == 'cross' else 'self'}_attention"


def pruning(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> Json:
    """Scores of the same sentences with heads removed."""
    order = heads_by_importance(tracer, sources[:_WEIGHED_ON], references[:_WEIGHED_ON])
    counts = sorted({round(i * len(order) / _POINTS) for i in range(_POINTS + 1)})
    rows, whole = [], tracer.translator
    for count in counts:
        model = without_heads(tracer.model, order[:count])
        pruned = SentenceTranslator.of_model(model, whole.tokenizer, whole.source, whole.target)
        rows.append({"removed": count, **scores(pruned, sources, references)})
    listed = [{"role": h.role, "layer": h.layer, "head": h.head, "importance": h.importance} for h in order]
    facts = {"metric": "BLEU", "sentences": len(sources), "search": "greedy", "heads": len(order)}
    return {**facts, "order": listed, "rows": rows}


def heads_by_importance(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> list[Head]:
    """The heads, least important first: the mean absolute gradient of the loss with respect to a gate on each head.

    This follows Michel et al. (2019), who also normalise the importance in each attention.
    """
    encode = tracer.translator.tokenizer.encode
    totals: dict[str, Tensor] = {}
    for text, reference in zip(sources, references, strict=True):
        for path, gradient in gate_gradients(tracer.model, encode(text), encode(reference)).items():
            totals[path] = totals.get(path, torch.zeros_like(gradient)) + gradient.abs()
    heads = []
    for path, total in totals.items():
        stack, _, layer, kind = path.split(".")
        role: Role = "cross" if kind.startswith("cross") else "encoder" if stack == "encoder" else "decoder"
        shares = (total / total.norm().clamp(min=1e-12)).tolist()
        heads += [Head(role, int(layer), i, share) for i, share in enumerate(shares)]
    return sorted(heads, key=lambda head: head.importance)


def gate_gradients(model: Transformer, source: list[int], target: list[int]) -> dict[str, Tensor]:
    """The gradient of a sentence's mean loss with respect to a gate of 1 on each head's output."""
    gates: dict[str, Tensor] = {}

    def gated(name: str, value: Tensor) -> Tensor:
        found = ATTENTION.fullmatch(name)
        if found is None or found[4] != "head_outputs":
            return value
        gates[name.removesuffix(".head_outputs")] = gate = torch.ones(value.shape[1], device=value.device)
        return value * gate.requires_grad_()[:, None, None]

    device = next(model.parameters()).device
    sides = (read_by(model, source), [BOS, *target], [*target, EOS])
    src, tgt, labels = (torch.tensor([ids], device=device) for ids in sides)
    watched = watch(model, gated)
    watched.source_input.reach(src.shape[1])
    watched.target_input.reach(tgt.shape[1])
    logits: Tensor = watched(unpadded(src), unpadded(tgt))[0]
    loss = torch.nn.functional.cross_entropy(logits.float(), labels[0])
    gradients = torch.autograd.grad(loss, list(gates.values()))
    return {path: gradient.cpu() for path, gradient in zip(gates, gradients, strict=True)}


def without_heads(model: Transformer, heads: Sequence[Head]) -> Transformer:
    """A copy of the model with these heads' columns of W^O set to zero."""
    pruned = copy.deepcopy(model)
    width = model.settings.value_width
    with torch.no_grad():
        for head in heads:
            attention = pruned.get_submodule(head.path)
            assert isinstance(attention, MultiHeadAttention)
            attention.w_o.weight[:, head.head * width : (head.head + 1) * width] = 0.0
    return pruned


def scores(translator: SentenceTranslator, sources: Sequence[str], references: Sequence[str]) -> Json:
    """BLEU and chrF of greedy translations."""
    texts = [found.text for found in translator.translate(sources, _GREEDY)]
    return {"bleu": bleu(texts, references).value, "chrf": chrf(texts, references).value}
