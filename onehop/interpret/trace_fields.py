"""Fields of a trace, each computed from its arguments alone: recorded tensors, a step of the search, the settings."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from onehop.config import ModelSettings
from onehop.decoding.beam import Kept
from onehop.errors import SettingsError
from onehop.interpret.trace_file import Array, Json
from onehop.model.taps import Recorder
from onehop.model.transformer import Transformer
from onehop.storage.ctranslate2_format import alignment_layer


def least_bytes(model: Transformer, source: int) -> int:
    """What the encoder's attention alone takes, known before anything is computed."""
    s = model.settings
    per_head = source * source * 8 + source * 8 * (s.key_width + s.value_width)  # in float32
    return s.n_encoder_layers * s.n_heads * per_head


def to_numpy(values: Tensor) -> Array:
    array: Array = values.detach().float().cpu().numpy()
    return array


def parameters_of_parts(model: Transformer) -> dict[str, int]:
    """The number of parameters of every part, by its path."""
    found: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        for box in accumulate(name.split("."), lambda above, part: f"{above}.{part}"):
            found[box] = found.get(box, 0) + parameter.numel()
    return found


def fate(kept: Kept, has_children: bool, is_last: bool) -> str:
    """What became of a candidate that a step had kept."""
    if kept.state != "live" or has_children:
        return kept.state
    return "open" if is_last else "dropped"


def attention_inputs(model: Transformer) -> Json:
    """For each attention, the recorded tensors that its queries, and its keys and values, were made from."""
    s = model.settings
    pre = s.norm == "pre"
    own = "norm" if pre else "skip"
    memory = "encoder.norm" if pre else f"encoder.layers.{s.n_encoder_layers - 1}.feed_add_norm.norm"
    inputs = {}
    for stack, layers in (("encoder", s.n_encoder_layers), ("decoder", s.n_decoder_layers)):
        for path in (f"{stack}.layers.{i}" for i in range(layers)):
            name = f"{path}.self_add_norm.{own}"
            inputs[f"{path}.self_attention"] = {"query": name, "memory": name}
            if stack == "decoder":
                inputs[f"{path}.cross_attention"] = {"query": f"{path}.cross_add_norm.{own}", "memory": memory}
    return inputs


_ADDED: Mapping[str, Callable[[str], str]] = {
    "self_attention": lambda path: f"{path}.self_attention.projection",
    "cross_attention": lambda path: f"{path}.cross_attention.projection",
    "feed_forward": lambda path: f"{path}.feed_forward.output",
}


def additions(recorder: Recorder) -> list[Json]:
    """For each sub-layer, how long the stream's vectors are, how long what it adds, and the angle between them."""
    found = []
    for name in recorder:
        path, _, last = name.rpartition(".")
        if last != "skip":
            continue
        layer, _, around = path.rpartition(".")
        sublayer = {"self": "self_attention", "cross": "cross_attention", "feed": "feed_forward"}[around.split("_")[0]]
        stream, added = recorder[name].value[0], recorder[_ADDED[sublayer](layer)].value[0]
        stack, _, number = layer.split(".")
        found.append(
            {
                "name": f"{layer}.{sublayer}",
                "stack": stack,
                "layer": int(number),
                "sublayer": sublayer,
                "stream": stream.norm(dim=-1).tolist(),
                "added": added.norm(dim=-1).tolist(),
                "cosine": torch.nn.functional.cosine_similarity(stream, added, dim=-1).tolist(),
            }
        )
    return found


def score_variance(recorder: Recorder) -> Json:
    """The variance of q·k in every head beside that of q's and k's components, over all pairs of tokens."""
    paths = [name.removesuffix(".scores") for name in recorder if name.endswith(".scores")]
    return {
        path: [
            {kind: float(recorder[f"{path}.{kind}"].value[0, head].var(correction=0)) for kind in ("scores", "q", "k")}
            for head in range(recorder[f"{path}.scores"].value.shape[1])
        ]
        for path in paths
    }


# --- what can be read out of the recorded tensors ----------------------------------------------------------------


def aligner(settings: ModelSettings, recorder: Recorder) -> Json:
    """The cross-attention head that best shows which source token each written token translates.

    That is the head which gives, on average, most weight to the token that the alignment links: the one at which the
    layer that aligns looks most, its heads averaged.
    """
    weights = torch.stack(
        [recorder[f"decoder.layers.{i}.cross_attention.weights"].value[0] for i in range(settings.n_decoder_layers)]
    )
    linked = weights[alignment_layer(settings)].mean(0).argmax(-1)
    shares = weights.gather(3, linked.expand(*weights.shape[:2], -1)[..., None])[..., 0].mean(-1)
    layer, head = divmod(int(shares.argmax()), settings.n_heads)
    return {"role": "cross", "layer": layer, "head": head, "share": float(shares[layer, head]), "all": shares.tolist()}


_LENS_TOP = 3


def logit_lens(
    model: Transformer,
    recorder: Recorder,
    candidates: Sequence[Sequence[int]],
    choice: Callable[[int, float], Json],
) -> list[list[Json]]:
    """After each decoder layer, what would be written if it were the last: read through the output matrix.

    For every step the probabilities of its candidates, and the most probable pieces of all.
    """
    found = []
    for layer in range(model.settings.n_decoder_layers):
        path = f"decoder.layers.{layer}.feed_add_norm"
        last_norm = model.decoder.last_norm
        state = recorder[f"{path}.norm"].value if last_norm is None else last_norm(recorder[f"{path}.residual"].value)
        p = nn.functional.linear(state[0], model.output_weight, model.output_bias).float().softmax(-1)
        top = p.topk(min(_LENS_TOP, p.shape[-1]))
        found.append(
            [
                {"candidates": p[i, list(ids)].tolist(), "top": [choice(*pair) for pair in zip(*best, strict=True)]}
                for i, (ids, *best) in enumerate(
                    zip(candidates, top.indices.tolist(), top.values.tolist(), strict=True)
                )
            ]
        )
    return found


_TOWARDS, _AWAY = 6, 3


@torch.inference_mode()
def neurons(
    model: Transformer, stack: str, layer: int, places: Sequence[int], piece: Callable[[int], str]
) -> list[Json]:
    """For each neuron the length of what it writes; in the decoder, the pieces that it writes towards and away from.

    Those are read directly through the output matrix, past the layers above.
    """
    s = model.settings
    layers = s.n_encoder_layers if stack == "encoder" else s.n_decoder_layers
    if layer >= layers or any(place >= s.d_ff for place in places):
        raise SettingsError(
            f"There is no neuron {max(places, default=0)} in layer {layer} of the {stack}.",
            f"Layers count from 0 to {layers - 1}, neurons from 0 to {s.d_ff - 1}.",
        )
    written = model.get_parameter(f"{stack}.layers.{layer}.feed_forward.w_2.weight")[:, list(places)].T
    found: list[Json] = [
        {"neuron": place, "norm": norm} for place, norm in zip(places, written.norm(dim=-1).tolist(), strict=True)
    ]
    if stack == "encoder":
        return found
    scores = written @ model.output_weight.T
    for entry, row in zip(found, scores, strict=True):
        for name, ranked in (("towards", row.topk(_TOWARDS)), ("away", row.topk(_AWAY, largest=False))):
            pairs = zip(ranked.indices.tolist(), ranked.values.tolist(), strict=True)
            entry[name] = [{"token": piece(i), "score": score} for i, score in pairs]
    return found
