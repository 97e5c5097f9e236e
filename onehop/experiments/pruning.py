"""The number of heads that a model needs: heads are removed in order, the least important first."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from onehop.evaluation.metrics import bleu, chrf
from onehop.experiments.provenance import Json
from onehop.experiments.sentence_attention import GREEDY
from onehop.interpret.ablations import Role, attention_path, parse_attention_name
from onehop.interpret.recorded_search import teacher_forced
from onehop.interpret.tracer import Tracer
from onehop.model.attention import MultiHeadAttention
from onehop.model.taps import watch
from onehop.model.transformer import Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import EOS

_POINTS = 12
_IMPORTANCE_SENTENCES = 50


@dataclass(frozen=True)
class Head:
    role: Role
    layer: int
    head: int
    importance: float


def pruning(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> Json:
    """Scores of the same sentences with heads removed."""
    order = heads_by_importance(tracer, sources[:_IMPORTANCE_SENTENCES], references[:_IMPORTANCE_SENTENCES])
    counts = sorted({round(i * len(order) / _POINTS) for i in range(_POINTS + 1)})
    rows, whole = [], tracer.translator
    for count in counts:
        model = without_heads(tracer.model, order[:count])
        pruned = SentenceTranslator.of_model(model, whole.tokenizer, whole.source, whole.target)
        rows.append({"removed": count, **_scores(pruned, sources, references)})
    facts = {"metric": "BLEU", "sentences": len(sources), "search": "greedy", "heads": len(order)}
    return {**facts, "order": list(map(asdict, order)), "rows": rows}


def heads_by_importance(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> list[Head]:
    """The heads, least important first: the mean absolute gradient of the loss with respect to a gate on each head.

    This follows Michel et al. (2019), who also normalise the importance in each attention.
    """
    encode = tracer.translator.tokenizer.encode
    totals: dict[tuple[Role, int], Tensor] = {}
    for text, reference in zip(sources, references, strict=True):
        for attention, gradient in gate_gradients(tracer.model, encode(text), encode(reference)).items():
            totals[attention] = totals.get(attention, torch.zeros_like(gradient)) + gradient.abs()
    heads = []
    for (role, layer), total in totals.items():
        shares = (total / total.norm().clamp(min=1e-12)).tolist()
        heads += [Head(role, layer, i, share) for i, share in enumerate(shares)]
    return sorted(heads, key=lambda head: head.importance)


def gate_gradients(model: Transformer, source: list[int], target: list[int]) -> dict[tuple[Role, int], Tensor]:
    """For each role and layer, the gradient of a sentence's mean loss with respect to a gate of 1 on each head."""
    gates: dict[tuple[Role, int], Tensor] = {}

    def gated(name: str, value: Tensor) -> Tensor:
        attention = parse_attention_name(name)
        if attention is None or attention.quantity != "head_outputs":
            return value
        gates[attention.role, attention.layer] = gate = torch.ones(value.shape[1], device=value.device)
        return value * gate.requires_grad_()[:, None, None]

    logits = teacher_forced(watch(model, gated), source, target)[0]
    labels = torch.tensor([*target, EOS], device=logits.device)
    loss = torch.nn.functional.cross_entropy(logits.float(), labels)
    gradients = torch.autograd.grad(loss, list(gates.values()))
    return {attention: gradient.cpu() for attention, gradient in zip(gates, gradients, strict=True)}


def without_heads(model: Transformer, heads: Sequence[Head]) -> Transformer:
    """A copy of the model with these heads' columns of W^O set to zero."""
    pruned = copy.deepcopy(model)
    width = model.settings.value_width
    with torch.no_grad():
        for head in heads:
            attention = pruned.get_submodule(attention_path(head.role, head.layer))
            assert isinstance(attention, MultiHeadAttention)
            attention.w_o.weight[:, head.head * width : (head.head + 1) * width] = 0.0
    return pruned


def _scores(translator: SentenceTranslator, sources: Sequence[str], references: Sequence[str]) -> Json:
    """BLEU and chrF of greedy translations."""
    texts = [translation.text for translation in translator.translate(sources, GREEDY)]
    return {"bleu": bleu(texts, references).value, "chrf": chrf(texts, references).value}
