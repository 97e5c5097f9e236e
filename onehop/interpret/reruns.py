"""Reruns of a recorded translation with a change: without the mask, or with one head off."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.interpret.ablations import ROLES, Edit, EditTap, Role, attention_path
from onehop.interpret.recorded_search import TappedModel, unpadded
from onehop.interpret.trace_fields import attention_inputs
from onehop.interpret.trace_file import Json
from onehop.model.taps import Recorder
from onehop.model.transformer import Layer, Tokens, Transformer, attention_mask

_TOP = 2


@dataclass(frozen=True, eq=False)
class Recording:
    """One forward pass over a source and its translation: tokens, edits, and every tapped quantity."""

    tapped_model: TappedModel
    model: Transformer
    src: Tokens
    tgt: Tokens
    outputs: Int[Tensor, " step"]
    edits: tuple[Edit, ...]
    recorder: Recorder

    @classmethod
    def of(
        cls,
        tapped_model: TappedModel,
        model: Transformer,
        source: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        edits: Sequence[Edit] = (),
    ) -> "Recording":
        """Record a pass: the decoder reads `inputs` and should predict `outputs`."""
        device, recorder = next(model.parameters()).device, Recorder()
        src, tgt = (unpadded(torch.tensor([list(ids)], device=device)) for ids in (source, inputs))
        with tapped_model.tapped(EditTap(model, edits), recorder) as tapped:
            tapped.ensure_length(src.ids.shape[1], tgt.ids.shape[1])
            tapped(src, tgt)
        return cls(tapped_model, model, src, tgt, torch.tensor(list(outputs), device=device), tuple(edits), recorder)

    def value(self, name: str) -> Tensor:
        """A recorded quantity, with its batch axis."""
        return self.recorder[name].value

    @property
    def memory(self) -> Float[Tensor, "1 source d_model"]:
        return self.value(attention_inputs(self.model)["decoder.layers.0.cross_attention"]["memory"])

    def layer_input(self, stack: str, layer: int) -> Float[Tensor, "1 length d_model"]:
        if layer:
            last = "residual" if self.model.settings.norm == "pre" else "norm"
            return self.value(f"{stack}.layers.{layer - 1}.feed_add_norm.{last}")
        return self.value(f"{'source' if stack == 'encoder' else 'target'}_input.positioned")

    def output_log_probs(self, logits: Float[Tensor, "rows step vocab"]) -> Float[Tensor, "rows step"]:
        """The log-probability of each token of the translation."""
        log_p = logits.float().log_softmax(-1)
        return log_p.gather(2, self.outputs.expand(len(log_p), -1)[..., None])[..., 0]


def leak(recording: Recording) -> Json | None:
    """The probability of each token if the decoder can see it, since there is no causal mask."""
    if any(edit.name == "mask" for edit in recording.edits):
        return None
    unmasked, edits = Recorder(), (*recording.edits, Edit("mask", "off"))
    with recording.tapped_model.tapped(EditTap(recording.model, edits), unmasked) as model:
        model.logits(model.decode(recording.tgt, recording.memory, recording.src))
    with_mask, without = (
        recording.output_log_probs(r["logits"].value)[0].exp().tolist() for r in (recording.recorder, unmasked)
    )
    names = [f"decoder.layers.{i}.self_attention" for i in range(recording.model.settings.n_decoder_layers)]
    future = {name: unmasked[f"{name}.weights"].value[0].triu(1).sum(-1).mean(-1).tolist() for name in names}
    pairs = zip(with_mask, without, strict=True)
    return {"probability": [{"masked": a, "unmasked": b} for a, b in pairs], "future_weight": future}


@dataclass(frozen=True)
class HeadsOff:
    """The heads of one attention, each switched off alone.

    `effect` is the change in the log-probability of each token of the translation, given the same prefix. `top` are
    the most probable ids at that step, with their probabilities.
    """

    role: Role
    layer: int
    effect: Float[Tensor, "head step"]
    top: list[list[list[tuple[int, float]]]]


def attentions(model: Transformer) -> list[tuple[Role, int]]:
    """Every attention of a model, in the order of computation."""
    s = model.settings
    layers = {"encoder": s.n_encoder_layers, "decoder": s.n_decoder_layers, "cross": s.n_decoder_layers}
    return [(role, layer) for role in ROLES for layer in range(layers[role])]


def heads_off(recording: Recording) -> Iterator[HeadsOff]:
    """Switch off every head in turn. The heads of an attention form one batch, one row each."""
    for role, layer in attentions(recording.model):
        yield _one_attention(recording, role, layer)


@torch.inference_mode()
def _one_attention(recording: Recording, role: Role, layer: int) -> HeadsOff:
    """Switch off the heads of one attention. Layers below it are not recomputed: its layer's input was recorded."""
    name = f"{attention_path(role, layer)}.head_outputs"
    heads = recording.model.settings.n_heads
    off = torch.eye(heads, dtype=torch.bool, device=recording.src.ids.device)[..., None, None]  # row, head, 1, 1

    def without_one(path: str, value: Tensor) -> Tensor:
        return value.masked_fill(off, 0.0) if path == name else value

    with recording.tapped_model.tapped(EditTap(recording.model, recording.edits), without_one) as model:
        memory = recording.memory.expand(heads, -1, -1)
        if role == "encoder":
            memory = _encoder_from(model, recording, layer, heads)
        states = _decoder_from(model, recording, 0 if role == "encoder" else layer, memory)
        logits = model.logits(states)
    effect = recording.output_log_probs(logits) - recording.output_log_probs(recording.value("logits"))
    best = logits.float().softmax(-1).topk(min(_TOP, logits.shape[-1]))
    top = [
        [list(zip(i, p, strict=True)) for i, p in zip(ids, ps, strict=True)]
        for ids, ps in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return HeadsOff(role, layer, effect, top)


def _encoder_from(
    model: Transformer, recording: Recording, first: int, rows: int
) -> Float[Tensor, "rows source d_model"]:
    """Run the encoder from layer `first`, over several rows of the same sentence."""
    x = recording.layer_input("encoder", first).expand(rows, -1, -1)
    mask = attention_mask(recording.src, recording.src)
    for layer in list(model.encoder.layers)[first:]:
        x = layer(x, mask)
    return model.encoder.finish(x)


def _decoder_from(
    model: Transformer, recording: Recording, first: int, memory: Float[Tensor, "rows source d_model"]
) -> Float[Tensor, "rows target d_model"]:
    """Run the decoder from layer `first`, each row over its own memory."""
    x = recording.layer_input("decoder", first).expand(len(memory), -1, -1)
    self_mask = attention_mask(recording.tgt, recording.tgt, causal=True)
    cross_mask = attention_mask(recording.tgt, recording.src)
    for layer in list(model.decoder.layers)[first:]:
        assert isinstance(layer, Layer)
        x = layer(x, self_mask, memory, cross_mask)
    return model.decoder.finish(x)
