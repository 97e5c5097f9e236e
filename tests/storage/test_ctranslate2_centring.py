"""Centring: the same model in float32, less rounding in int8, and only for models with an outlier."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import ctranslate2
import numpy as np
import pytest
import torch

from onehop.config import ModelSettings, Settings
from onehop.model.transformer import Tokens, Transformer
from onehop.pipelines.load import model_of
from onehop.storage import ctranslate2_centring, ctranslate2_conversion, registry
from onehop.storage.ctranslate2_centring import NumpyForward, centred
from onehop.storage.ctranslate2_format import vocabulary
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import read_model
from onehop.text.tokenizer import BOS, EOS, Tokenizer

SHAPE = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 2, "max_length": 40}
VARIANTS = [{}, {"tied": False, "positions": "learned"}, {"activation": "gelu", "attention_bias": True}]
ROOT = Path(__file__).parents[2]
Pieces: TypeAlias = list[list[str]]


@pytest.fixture
def stored(model_file):
    """A model with random weights. One channel of each layer norm is a large constant."""
    basis = read_model(model_file)

    def make(constant: float = 30, **changes: object) -> StoredModel:
        settings = ModelSettings(**{**SHAPE, **changes})
        torch.manual_seed(3)
        weights = Transformer(settings, len(basis.tensors["embedding.weight"])).state_dict()
        tensors = {name: tensor.numpy() for name, tensor in weights.items()}
        for name in tensors:
            if name.endswith("bias") and "norm" not in name:
                tensors[name] = np.random.default_rng(len(name)).normal(size=tensors[name].shape).astype(np.float32)
            if name.endswith("norm.bias"):
                tensors[name][5] = constant
        return replace(basis, settings=Settings(model=settings), tensors=tensors)

    return make


def log_probs(model: StoredModel, compute: str, src: Pieces, tgt: Pieces) -> np.ndarray:
    """CTranslate2's log-probabilities of all target tokens."""
    files = {name: b"".join(pieces) for name, pieces in ctranslate2_conversion.ct2_files(model, compute).items()}
    translator = ctranslate2.Translator("model", compute_type=compute, intra_threads=1, files=files)
    return np.concatenate([result.log_probs for result in translator.score_batch(src, tgt)])


def set_threshold(monkeypatch, threshold: float) -> None:
    """Centre models in every dtype if an outlier has at least this share."""
    original = ctranslate2_conversion._variables

    def variables(model: StoredModel, compute: str) -> dict[str, np.ndarray]:
        return centred(original(model, compute), model.settings.model, threshold)

    monkeypatch.setattr(ctranslate2_conversion, "_variables", variables)


@pytest.mark.parametrize("changes", VARIANTS)
def test_centring_does_not_change_float32_scores(stored, changes, monkeypatch):
    model = stored(**changes)
    pieces = vocabulary(model.tokenizer)
    ids = np.random.default_rng(1).integers(EOS + 1, len(pieces), (2, 20, 16))
    texts = [[[pieces[i] for i in row] for row in half] for half in ids]
    expected = log_probs(model, "float32", *texts)
    assert changed_by(model, 0)
    set_threshold(monkeypatch, 0)
    np.testing.assert_allclose(log_probs(model, "float32", *texts), expected, rtol=0, atol=2e-4)


def changed_by(model: StoredModel, threshold: float, compute: str = "int8") -> set[str]:
    variables = ctranslate2_conversion._variables(model, compute)
    result = centred(variables, model.settings.model, threshold)
    assert variables.keys() <= result.keys()
    return {name for name, array in result.items() if array is not variables.get(name)}


def test_centring_changes_only_biases(stored):
    changed = changed_by(stored(), ctranslate2_centring.OUTLIER_SHARE)
    assert {name.rpartition("/")[2] for name in changed} == {"beta", "bias"}
    # The last norm of a stack feeds no sublayer, so it is not centred.
    assert "decoder/layer_1/attention/layer_norm/beta" in changed
    assert "decoder/layer_1/ffn/layer_norm/beta" not in changed


@pytest.mark.parametrize("changes", [{"constant": 1}, {"norm": "pre"}])
def test_models_without_outlier_or_with_pre_norm_are_unchanged(stored, changes):
    assert not changed_by(stored(**changes), ctranslate2_centring.OUTLIER_SHARE)


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_numpy_forward_pass_equals_torchs(stored, changes):
    model = stored(1, **changes)
    variables = ctranslate2_conversion._variables(model, "float32")
    src, tgt = np.random.default_rng(2).integers(EOS + 1, 50, (2, 3, 9))
    src[:, -1], tgt[:, 0] = EOS, BOS
    outputs = NumpyForward(variables, model.settings.model).forward(src, tgt)
    with torch.inference_mode():
        expected = model_of(model).eval().states(*(Tokens.padded(torch.from_numpy(ids)) for ids in (src, tgt)))
    close = 0.05 if "activation" in changes else 1e-4  # NumpyForward approximates GELU
    np.testing.assert_allclose(outputs["decoder/layer_1/ffn"], expected.numpy(), rtol=0, atol=close)


def shipped(name: str) -> StoredModel:
    folder = registry.package_folder() / name
    if not folder.is_dir():
        folder = ROOT / "packages" / f"onehop-{name}" / f"onehop_{name.replace('-', '_')}"
    return read_model(folder / registry.MODEL)


@pytest.mark.parametrize("name", ["en-de", "en-de-small", "de-en", "en-fr", "fr-en"])
def test_only_de_en_of_the_shipped_models_is_centred(name):
    """The scores of the other models were measured without centring."""
    assert bool(changed_by(shipped(name), ctranslate2_centring.OUTLIER_SHARE)) == (name == "de-en")


def test_centring_halves_the_int8_error_of_de_en(monkeypatch):
    model = shipped("de-en")
    tokenizer = Tokenizer(model.tokenizer)
    with open(ROOT / "results" / "de-en" / "everyday.tsv", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [[tokenizer.tokens(tokenizer.encode(row[side])) for row in rows] for side in ("german", "english")]
    exact = log_probs(model, "float32", *texts)
    error = np.square(log_probs(model, "int8", *texts) - exact).mean()
    monkeypatch.setattr(ctranslate2_conversion, "centred", lambda variables, _: variables)
    assert error < np.square(log_probs(model, "int8", *texts) - exact).mean() / 2
