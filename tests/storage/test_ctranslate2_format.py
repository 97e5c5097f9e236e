"""CTranslate2's files written by onehop equal those of its own specification; int8 rows are not rounded again."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from onehop.config import ModelSettings, Settings
from onehop.model.transformer import Transformer
from onehop.model.transformer import sinusoids as sinusoids_in_torch
from onehop.storage import ctranslate2_conversion, ctranslate2_format
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import read_model
from onehop.storage.number_formats import Int8Rows

SHAPE = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 2, "max_length": 24}
VARIANTS = [{}, {"norm": "pre"}, {"tied": False}, {"positions": "learned"}]


@pytest.fixture
def stored(model_file):
    """Makes a model with these settings and random weights."""
    basis = read_model(model_file)

    def make(**changes: object) -> StoredModel:
        settings = ModelSettings(**{**SHAPE, **changes})
        torch.manual_seed(3)
        weights = Transformer(settings, len(basis.tensors["embedding.weight"])).state_dict()
        tensors = {name: tensor.numpy() for name, tensor in weights.items()}
        return replace(basis, settings=Settings(model=settings), tensors=tensors)

    return make


def reference(model: StoredModel):
    """The same model through CTranslate2's own specification."""
    from ctranslate2.specs import transformer_spec

    s, w = model.settings.model, model.weights()
    spec = transformer_spec.TransformerSpec.from_config(
        (s.n_encoder_layers, s.n_decoder_layers),
        s.n_heads,
        pre_norm=s.norm == "pre",
        alignment_layer=max(0, s.n_decoder_layers - 2),
        alignment_heads=s.n_heads,
    )

    def norm(theirs, ours):
        theirs.gamma, theirs.beta = w[f"{ours}.weight"], w[f"{ours}.bias"]

    def attention(theirs, ours, groups):
        for linear, names in zip(theirs.linear, groups, strict=True):
            linear.weight = np.concatenate([w[f"{ours}.w_{n}.weight"] for n in names])

    for stack, name, side in ((spec.encoder, "encoder", "source"), (spec.decoder, "decoder", "target")):
        stack.scale_embeddings = True
        learned = w.get(f"{side}_input.positions")
        table = ctranslate2_conversion.sinusoids(ctranslate2_format.positions_of(s), s.d_model)
        stack.position_encodings.encodings = table if learned is None else learned
        if s.norm == "pre":
            norm(stack.layer_norm, f"{name}.last_norm")
        for i, layer in enumerate(stack.layer):
            ours = f"{name}.layers.{i}"
            attention(layer.self_attention, f"{ours}.self_attention", ["qkv", "o"])
            norm(layer.self_attention.layer_norm, f"{ours}.self_add_norm.norm")
            if name == "decoder":
                attention(layer.attention, f"{ours}.cross_attention", ["q", "kv", "o"])
                norm(layer.attention.layer_norm, f"{ours}.cross_add_norm.norm")
            for linear, number in ((layer.ffn.linear_0, 1), (layer.ffn.linear_1, 2)):
                linear.weight = w[f"{ours}.feed_forward.w_{number}.weight"]
                linear.bias = w[f"{ours}.feed_forward.w_{number}.bias"]
            norm(layer.ffn.layer_norm, f"{ours}.feed_add_norm.norm")
    spec.encoder.embeddings[0].weight = w["embedding.weight"]
    spec.decoder.embeddings.weight = w["embedding.weight" if s.tied else "target_embedding.weight"]
    spec.decoder.projection.weight = w["embedding.weight" if s.tied else "output.weight"]
    pieces = ctranslate2_format.vocabulary(model.tokenizer)
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    return spec


def unpack(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read CTranslate2's binary format."""
    place = 0

    def take(form):
        nonlocal place
        values = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize("<" + form)
        return values

    def text():
        nonlocal place
        (size,) = take("H")
        place += size
        return data[place - size : place - 1].decode()

    assert take("I") == (6,)
    assert text() == "TransformerSpec"
    assert take("I") == (7,)
    arrays = {}
    for _ in range(take("I")[0]):
        name = text()
        shape = take(f"{take('B')[0]}I")
        kind, size = take("BI")
        dtype = [np.float32, np.int8, np.int16][kind]
        arrays[name] = np.frombuffer(data, dtype, size // np.dtype(dtype).itemsize, place).reshape(shape)
        place += size
    aliases = {text(): text() for _ in range(take("I")[0])}
    assert place == len(data)
    return arrays, aliases


def written(model: StoredModel, compute: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    return unpack(b"".join(ctranslate2_conversion.ct2_files(model, compute)["model.bin"]))


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_files_equal_those_of_ctranslate2s_specification(stored, changes, tmp_path):
    model = stored(**changes)
    spec = reference(model)
    spec.validate()
    spec.optimize()
    spec.save(str(tmp_path))
    expected, other_names = unpack((tmp_path / "model.bin").read_bytes())
    arrays, aliases = written(model, "float32")
    for name, array in {**arrays, **{alias: arrays[of] for alias, of in aliases.items()}}.items():
        np.testing.assert_array_equal(array, expected[other_names.get(name, name)], err_msg=name)
    # The omitted variables are switches that are off by default in CTranslate2.
    left_out = (set(expected) | set(other_names)) - set(arrays) - set(aliases)
    assert {name.split("/")[1] for name in left_out} == {
        *("alibi", "alibi_use_positive_positions", "multi_query_attention", "scale_alibi"),
    }
    files = ctranslate2_conversion.ct2_files(model, "float32")
    for file in ("config.json", "shared_vocabulary.json"):
        assert json.loads(b"".join(files[file])) == json.loads((tmp_path / file).read_bytes())


def test_stored_int8_rows_are_written_bit_for_bit(stored):
    model = stored().stored_as("int8")
    arrays, aliases = written(model, "int8")
    rows = model.tensors["embedding.weight"]
    assert isinstance(rows, Int8Rows)
    np.testing.assert_array_equal(arrays["decoder/embeddings/weight"], rows.values)
    np.testing.assert_allclose(1 / arrays["decoder/embeddings/weight_scale"], rows.scale, rtol=2e-7)
    qkv = [model.tensors[f"encoder.layers.0.self_attention.w_{x}.weight"] for x in "qkv"]
    fused = arrays["encoder/layer_0/self_attention/linear_0/weight"]
    np.testing.assert_array_equal(fused, np.concatenate([part.values for part in qkv]))
    assert aliases["decoder/projection/weight"] == "decoder/embeddings/weight"


def test_float32_files_of_an_int8_model_have_its_weights(stored):
    model = stored().stored_as("int8")
    arrays, _ = written(model, "float32")
    np.testing.assert_array_equal(arrays["decoder/embeddings/weight"], model.weights()["embedding.weight"])


def test_float32_is_rounded_to_int8_as_in_a_model_file(stored):
    one, two = written(stored(), "int8")[0], written(stored().stored_as("int8"), "int8")[0]
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])
    assert one["decoder/embeddings/weight"].dtype == np.int8


@pytest.mark.parametrize("store", ["bfloat16", "int8"])
def test_learned_positions_stay_float32(stored, store):
    arrays, aliases = written(stored(positions="learned").stored_as(store), "int8")
    table = arrays["encoder/position_encodings/encodings"]
    assert (table.dtype, table.shape) == (np.float32, (24, 16))
    assert "encoder/position_encodings/encodings" not in aliases


def test_sinusoids_equal_the_models():
    np.testing.assert_allclose(
        ctranslate2_conversion.sinusoids(700, 64), sinusoids_in_torch(700, 64).numpy(), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"d_k": 4}, "d_k 4 and d_v 8 are not d_model / n_heads"),
        ({"d_v": 4}, "d_k 8 and d_v 4 are not d_model / n_heads"),
        ({"d_k": 4, "d_v": 4}, "d_k 4 and d_v 4 are not d_model / n_heads"),
        ({"d_k": 8, "d_v": 8}, None),
        ({"norm": "pre", "tied": False, "positions": "learned"}, None),
    ],
)
def test_settings_that_ctranslate2_lacks_are_named(changes, reason):
    assert ctranslate2_format.inexpressible(ModelSettings(**{**SHAPE, **changes})) == reason


def test_a_cached_model_contains_tokenizer_and_metadata(stored):
    model = stored()
    files = ctranslate2_conversion.cached_files(model, "int8")
    assert b"".join(files[ctranslate2_format.TOKENIZER_FILE]) == model.tokenizer
    metadata = json.loads(b"".join(files[ctranslate2_format.METADATA_FILE]))
    d_model = model.settings.model.d_model
    assert metadata == {"source": "en", "target": "de", "d_model": d_model, "positions": 1024, "learned": False}
