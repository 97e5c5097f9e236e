"""Fields of a trace, each computed from its arguments alone: recorded tensors, a step of the search, the settings."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from onehop.decoding.search import Kept
from onehop.interpret.trace_file import Array, Json
from onehop.model.taps import Recorder
from onehop.model.transformer import Transformer


def least_bytes(model: Transformer, source: int) -> int:
    """What the encoder's attention alone takes, known before anything is computed."""
    s = model.settings
    per_head = source * source * 8 + source * 8 * (s.key_width + s.value_width)  # in float32
    return s.n_encoder_layers * s.n_heads * per_head


def to_numpy(values: Tensor) -> Array:
    """A tensor as a float32 array."""
    array: Array = values.detach().float().cpu().numpy()
    return array


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


ADDED: Mapping[str, Callable[[str], str]] = {
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
        stream, added = recorder[name].value[0], recorder[ADDED[sublayer](layer)].value[0]
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
