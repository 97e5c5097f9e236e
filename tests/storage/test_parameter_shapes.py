"""The shapes of a model file's tensors, computed without torch, equal those of the torch model."""

from itertools import combinations
from typing import Any

import pytest
import torch

from onehop.config import ModelSettings, load_settings, preset_names
from onehop.model.variants import model_for
from onehop.storage.parameter_shapes import parameter_shapes

SMALL: dict[str, Any] = {
    "n_encoder_layers": 1,
    "n_decoder_layers": 2,
    "d_model": 8,
    "d_ff": 12,
    "n_heads": 2,
    "max_length": 20,
}
OF_KIND: dict[str | None, dict[str, Any]] = {
    None: {},
    "decoder": {"kind": "decoder"},
    "encoder": {"kind": "encoder"},
    "vision": {"kind": "vision", "image": 8, "patch": 2, "levels": 17},
}
SWITCHES: list[dict[str, Any]] = [
    {"norm": "pre"},
    {"positions": "learned"},
    {"tied": False},
    {"attention_bias": True},
    {"output_bias": True},
    {"d_k": 3, "d_v": 5},
]
BERT: list[dict[str, Any]] = [{"segments": 2}, {"input_norm": True}]


def in_torch(model: ModelSettings, vocab_size: int) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):  # without allocating weights
        state = model_for(model, vocab_size).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


@pytest.mark.parametrize("name", preset_names())
def test_shapes_equal_the_torch_models_for_every_preset(name: str) -> None:
    model = load_settings(name).model
    assert parameter_shapes(model, 11) == in_torch(model, 11)


@pytest.mark.parametrize("kind", OF_KIND)
def test_shapes_equal_the_torch_models_for_every_setting(kind: str | None) -> None:
    switches = [{}, *SWITCHES, *(BERT if kind else [])]
    for one, two in combinations(switches, 2):
        model = ModelSettings(**SMALL, **OF_KIND[kind], **one, **two)
        assert parameter_shapes(model, 11) == in_torch(model, 11), (one, two)
