"""Names and layout of our tensors in Hugging Face's Marian.

Marian's positions are all sines and then all cosines; the paper's alternate. Nothing else in a post-norm Transformer
depends on the order of d_model, so a permutation of it in every weight converts one model to the other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int

from onehop.config import ModelSettings

Array = Float32[np.ndarray, "..."]

_PROJECTIONS = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}
BIAS = "final_logits_bias"
EMBEDDING = "model.shared.weight"
POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))


@dataclass(frozen=True)
class _TensorNames:
    """The names of a tensor in both models, its d_model axis, and whether it is optional in ours."""

    ours: str
    theirs: str
    d_model_axis: int | None = None
    optional: bool = False


def _tensor_names(settings: ModelSettings) -> Iterator[_TensorNames]:
    """Every tensor of a model that Marian can express."""
    yield _TensorNames("embedding.weight", EMBEDDING, 1)
    yield _TensorNames("output_bias", BIAS, optional=True)
    for stack, n_layers in (("encoder", settings.n_encoder_layers), ("decoder", settings.n_decoder_layers)):
        for i in range(n_layers):
            yield from _layer_names(f"{stack}.layers.{i}", cross=stack == "decoder")


def _layer_names(layer: str, *, cross: bool) -> Iterator[_TensorNames]:
    theirs = f"model.{layer}"
    kinds = {"self": "self_attn", "cross": "encoder_attn"} if cross else {"self": "self_attn"}
    for kind, name in kinds.items():
        yield from _attention_names(f"{layer}.{kind}_attention", f"{theirs}.{name}")
        yield from _weight_and_bias(f"{layer}.{kind}_add_norm.norm", f"{theirs}.{name}_layer_norm", 0, 0)
    yield from _weight_and_bias(f"{layer}.feed_forward.w_1", f"{theirs}.fc1", 1, None)
    yield from _weight_and_bias(f"{layer}.feed_forward.w_2", f"{theirs}.fc2", 0, 0)
    yield from _weight_and_bias(f"{layer}.feed_add_norm.norm", f"{theirs}.final_layer_norm", 0, 0)


def _attention_names(ours: str, theirs: str) -> Iterator[_TensorNames]:
    for our_name, their_name in _PROJECTIONS.items():
        out = our_name == "w_o"
        yield from _weight_and_bias(
            f"{ours}.{our_name}", f"{theirs}.{their_name}", 0 if out else 1, 0 if out else None, optional_bias=True
        )


def _weight_and_bias(
    ours: str, theirs: str, weight_axis: int, bias_axis: int | None, *, optional_bias: bool = False
) -> Iterator[_TensorNames]:
    yield _TensorNames(f"{ours}.weight", f"{theirs}.weight", weight_axis)
    yield _TensorNames(f"{ours}.bias", f"{theirs}.bias", bias_axis, optional_bias)


def order(d_model: int) -> Int[np.ndarray, " d_model"]:
    """For each of Marian's dimensions ours: sines first, then cosines."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def to_marian(weights: Mapping[str, Array], settings: ModelSettings) -> dict[str, Array]:
    """Our weights with Marian's names and order, and zeros for missing biases."""
    permutation, theirs = order(settings.d_model), {}
    for names in _tensor_names(settings):
        if names.ours in weights:
            tensor = weights[names.ours]
            axis = names.d_model_axis
            theirs[names.theirs] = np.ascontiguousarray(tensor if axis is None else tensor.take(permutation, axis))
        else:
            width = len(weights["embedding.weight"]) if names.theirs == BIAS else settings.d_model
            theirs[names.theirs] = np.zeros(width, dtype=np.float32)
    theirs[BIAS] = theirs[BIAS][None]
    return theirs


def from_marian(weights: Mapping[str, Array], settings: ModelSettings) -> dict[str, Array]:
    """Marian's weights with our names and order. A KeyError names a missing tensor."""
    permutation, ours = np.argsort(order(settings.d_model)), {}
    for names in _tensor_names(settings):
        has_bias = settings.output_bias if names.theirs == BIAS else settings.attention_bias
        if names.optional and not has_bias:
            continue
        tensor, axis = weights[names.theirs], names.d_model_axis
        ours[names.ours] = np.ascontiguousarray(tensor if axis is None else tensor.take(permutation, axis))
    return ours
