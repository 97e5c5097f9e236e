"""Fields of a trace. Each is computed from its arguments alone: recorded tensors, a search step, the settings."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from onehop.config import ModelSettings
from onehop.decoding.beam import Kept
from onehop.errors import SettingsError
from onehop.interpret.ablations import Edit, Role, attention_path
from onehop.interpret.trace_file import Array, Json, Named
from onehop.model.attention import MultiHeadAttention
from onehop.model.taps import Recorder
from onehop.model.transformer import Transformer
from onehop.storage.ctranslate2_format import alignment_layer


def least_bytes(model: Transformer, source: int) -> int:
    """The memory of the encoder's attention, a lower bound that is known in advance."""
    s = model.settings
    per_head = source * source * 8 + source * 8 * (s.key_width + s.value_width)  # in float32
    return s.n_encoder_layers * s.n_heads * per_head


def to_numpy(values: Tensor) -> Array:
    array: Array = values.detach().float().cpu().numpy()
    return array


def parameters_of_parts(model: Transformer) -> dict[str, int]:
    """The number of parameters of every module, by its path."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        for path in accumulate(name.split("."), lambda above, part: f"{above}.{part}"):
            counts[path] = counts.get(path, 0) + parameter.numel()
    return counts


def state_after(kept: Kept, has_children: bool, is_last: bool) -> str:
    """The state of a candidate after the step that kept it."""
    if kept.state != "live" or has_children:
        return kept.state
    return "open" if is_last else "dropped"


def attention_inputs(model: Transformer) -> Json:
    """For each attention, the names of the tensors that its queries, and its keys and values, are computed from."""
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


def additions(recorder: Recorder) -> list[Json]:
    """For each sub-layer, the norms of the residual stream and of the sub-layer's output, and their cosine."""
    rows = []
    for name in recorder:
        path, _, last = name.rpartition(".")
        if last != "skip":
            continue
        layer, _, around = path.rpartition(".")
        sublayer = {"self": "self_attention", "cross": "cross_attention", "feed": "feed_forward"}[around.split("_")[0]]
        result = "output" if sublayer == "feed_forward" else "projection"
        stream, added = recorder[name].value[0], recorder[f"{layer}.{sublayer}.{result}"].value[0]
        stack, _, number = layer.split(".")
        rows.append(
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
    return rows


def score_variance(recorder: Recorder) -> Json:
    """The variance of q·k in every head, and of the components of q and k, over all pairs of tokens."""
    paths = [name.removesuffix(".scores") for name in recorder if name.endswith(".scores")]
    return {
        path: [
            {kind: float(recorder[f"{path}.{kind}"].value[0, head].var(correction=0)) for kind in ("scores", "q", "k")}
            for head in range(recorder[f"{path}.scores"].value.shape[1])
        ]
        for path in paths
    }


def aligner(settings: ModelSettings, recorder: Recorder) -> Json:
    """The cross-attention head that best shows the source token of each target token.

    This head gives the highest mean weight to the aligned token: the token with the most weight in the alignment
    layer, averaged over its heads.
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
    """The logit lens: the prediction after each decoder layer, as if it were the last.

    For every step it has the probabilities of the step's candidates, and the most probable tokens.
    """
    layers = []
    for layer in range(model.settings.n_decoder_layers):
        path = f"decoder.layers.{layer}.feed_add_norm"
        last_norm = model.decoder.last_norm
        state = recorder[f"{path}.norm"].value if last_norm is None else last_norm(recorder[f"{path}.residual"].value)
        p = nn.functional.linear(state[0], model.output_weight, model.output_bias).float().softmax(-1)
        top = p.topk(min(_LENS_TOP, p.shape[-1]))
        layers.append(
            [
                {"candidates": p[i, list(ids)].tolist(), "top": [choice(*pair) for pair in zip(*best, strict=True)]}
                for i, (ids, *best) in enumerate(
                    zip(candidates, top.indices.tolist(), top.values.tolist(), strict=True)
                )
            ]
        )
    return layers


_TOWARDS, _AWAY = 6, 3


@torch.inference_mode()
def neurons(
    model: Transformer, stack: str, layer: int, indices: Sequence[int], piece: Callable[[int], str]
) -> list[Json]:
    """For each neuron the norm of its output vector; in the decoder also the tokens that it promotes and suppresses.

    These are read directly through the output matrix, without the layers above.
    """
    s = model.settings
    layers = s.n_encoder_layers if stack == "encoder" else s.n_decoder_layers
    if layer >= layers or any(index >= s.d_ff for index in indices):
        raise SettingsError(
            f"There is no neuron {max(indices, default=0)} in layer {layer} of the {stack}.",
            f"Layers count from 0 to {layers - 1}, neurons from 0 to {s.d_ff - 1}.",
        )
    vectors = model.get_parameter(f"{stack}.layers.{layer}.feed_forward.w_2.weight")[:, list(indices)].T
    results: list[Json] = [
        {"neuron": index, "norm": norm} for index, norm in zip(indices, vectors.norm(dim=-1).tolist(), strict=True)
    ]
    if stack == "encoder":
        return results
    scores = vectors @ model.output_weight.T
    for entry, row in zip(results, scores, strict=True):
        for name, ranked in (("towards", row.topk(_TOWARDS)), ("away", row.topk(_AWAY, largest=False))):
            pairs = zip(ranked.indices.tolist(), ranked.values.tolist(), strict=True)
            entry[name] = [{"token": piece(i), "score": score} for i, score in pairs]
    return results


def head_weights(model: Transformer, role: Role, layer: int, head: int) -> dict[str, Named]:
    """The W^Q, W^K, W^V and W^O of one head, as in the paper: q = x W^Q."""
    Edit.parse(f"head=off@{role}.{layer}.{head}").check(model)  # refuses a head that does not exist
    attention = model.get_submodule(attention_path(role, layer))
    assert isinstance(attention, MultiHeadAttention)
    s = model.settings
    tensors: dict[str, Named] = {}
    for letter, width in (("q", s.key_width), ("k", s.key_width), ("v", s.value_width)):
        linear, rows = getattr(attention, f"w_{letter}"), slice(head * width, (head + 1) * width)
        axis = "d_v" if letter == "v" else "d_k"
        tensors[f"w_{letter}"] = Named(("d_model", axis), to_numpy(linear.weight[rows].T))
        if linear.bias is not None:
            tensors[f"b_{letter}"] = Named((axis,), to_numpy(linear.bias[rows]))
    columns = slice(head * s.value_width, (head + 1) * s.value_width)
    tensors["w_o"] = Named(("d_v", "d_model"), to_numpy(attention.w_o.weight[:, columns].T))
    return tensors
