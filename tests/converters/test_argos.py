"""Argos packages are read without unpacking, translate like CTranslate2, and are refused if damaged or hostile."""

import json
import struct
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import sentencepiece as spm
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from sentence_pieces import learn_pieces

from onehop.config import DataSettings, Settings, TokenizerSettings, TrainSettings
from onehop.converters import argos
from onehop.converters.convert import export, import_folder
from onehop.data.prepare import prepare
from onehop.decoding.options import SearchOptions
from onehop.errors import ExportError
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.ctranslate2_conversion import sinusoids
from onehop.storage.ctranslate2_reading import read_variables
from onehop.storage.model_io import read_model, write_model
from onehop.storage.number_formats import Int8Rows
from onehop.training.workflow import train

ENGLISH = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
GERMAN = ["das alte Haus", "ein neuer Baum", "der Vogel auf dem Baum", "die alten Häuser"]
TEXTS = ("the old house", "a new bird in the tree!", "x", "birds and houses", "naïve 🍎")
WIDTH, INNER, HEADS = 16, 24, 2


PIECES = learn_pieces(ENGLISH + GERMAN, 60)


def vocabulary() -> list[str]:
    """As in OpenNMT-py: its special tokens, and pieces in another order, some of which are missing."""
    processor = spm.SentencePieceProcessor(model_proto=PIECES)
    pieces = [processor.IdToPiece(i) for i in range(3, len(processor))]
    return ["<unk>", "<blank>", "<s>", "</s>", *sorted(pieces[:-2], key=lambda piece: piece[::-1])]


def linear(spec, rng, rows, columns):
    spec.weight = (2 * rng.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)
    spec.bias = (0.1 * rng.standard_normal(rows)).astype(np.float32)


def norm(spec, rng):
    spec.gamma = (1 + 0.1 * rng.standard_normal(WIDTH)).astype(np.float32)
    spec.beta = (0.1 * rng.standard_normal(WIDTH)).astype(np.float32)


def specification(*, tied=True, pre_norm=True, zero=False, positions=None, seed=7):
    """A translator with random weights, as OpenNMT-py's converter specifies it."""
    rng, words = np.random.default_rng(seed), vocabulary()
    spec = TransformerSpec.from_config((2, 1), HEADS, pre_norm=pre_norm, activation=Activation.RELU)
    spec.config.decoder_start_token = "<s>"
    spec.decoder.start_from_zero_embedding = zero
    table = (rng.standard_normal((len(words), WIDTH)) / 3).astype(np.float32)
    other = table if tied else (rng.standard_normal(table.shape) / 3).astype(np.float32)
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = table, other
    spec.decoder.projection.weight = other
    bias = rng.standard_normal(len(words)) / 2
    bias[:4] = -9, -9, -9, 1.5  # it sometimes predicts EOS and no other special token
    spec.decoder.projection.bias = bias.astype(np.float32)
    for stack in (spec.encoder, spec.decoder):
        stack.position_encodings.encodings = sinusoids(128, WIDTH) if positions is None else positions
        if pre_norm:
            norm(stack.layer_norm, rng)
        for layer in stack.layer:
            linear(layer.self_attention.linear[0], rng, 3 * WIDTH, WIDTH)
            linear(layer.self_attention.linear[1], rng, WIDTH, WIDTH)
            norm(layer.self_attention.layer_norm, rng)
            if stack is spec.decoder:
                linear(layer.attention.linear[0], rng, WIDTH, WIDTH)
                linear(layer.attention.linear[1], rng, 2 * WIDTH, WIDTH)
                linear(layer.attention.linear[2], rng, WIDTH, WIDTH)
                norm(layer.attention.layer_norm, rng)
            linear(layer.ffn.linear_0, rng, INNER, WIDTH)
            linear(layer.ffn.linear_1, rng, WIDTH, INNER)
            norm(layer.ffn.layer_norm, rng)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    return spec


def package(file, spec, quantization=None, **changes):
    """Write an .argosmodel. `changes` replaces members by name; None omits one."""
    folder = file.with_suffix(".ct2")
    folder.mkdir()
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    about = {"package_version": "1.9", "argos_version": "1.9", "from_code": "en", "to_code": "de"}
    members = {f"model/{each.name}": each.read_bytes() for each in folder.iterdir()}
    members |= {"metadata.json": json.dumps(about).encode(), "sentencepiece.model": PIECES, "README.md": b"hello"}
    members |= {name.replace("__", "/"): data for name, data in changes.items()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            if data is not None:
                archive.writestr(f"translate-en_de-1_9/{name}", data)
    return file


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return package(tmp_path_factory.mktemp("argos") / "translate-en_de-1_9.argosmodel", specification())


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"tied": False},
        {"pre_norm": False},
        {"zero": True},
        {"positions": np.random.default_rng(1).standard_normal((100, WIDTH)).astype(np.float32)},
    ],
    ids=lambda how: "-".join(how) or "OpenNMT-py",
)
def test_an_imported_package_translates_like_ctranslate2(how, tmp_path):
    file = package(tmp_path / "p.argosmodel", specification(**how))
    proof = import_folder(file, tmp_path / "m.safetensors", TEXTS)
    assert proof.differences == []
    assert proof.largest_logit_difference < 1e-3
    model = read_model(tmp_path / "m.safetensors")
    s = model.settings.model
    assert (model.source, model.target, s.source_end) == ("en", "de", False)
    assert (s.tied, s.norm, s.positions) == (
        how.get("tied", True),
        "pre" if how.get("pre_norm", True) else "post",
        "learned" if "positions" in how else "sinusoidal",
    )
    torch_engine, fast = (
        SentenceTranslator.load(tmp_path / "m.safetensors", "cpu", engine=name, compute="float32", threads=1)
        for name in ("torch", "ctranslate2")
    )
    texts = list(TEXTS[:4])
    both = [[best[0].text for best in each.n_best(texts, SearchOptions(beam=1))] for each in (torch_engine, fast)]
    assert both[0] == both[1]
    assert len(set(both[0])) > 1, "too alike to prove anything"


def test_int8_rows_are_imported_unchanged(tmp_path):
    file = package(tmp_path / "p.argosmodel", specification(), quantization="int8")
    stored = argos.import_package(file).stored
    matrix = stored.tensors["encoder.layers.0.feed_forward.w_1.weight"]
    with zipfile.ZipFile(file) as archive:
        _, theirs = read_variables(archive.read("translate-en_de-1_9/model/model.bin"), "x")
    assert isinstance(matrix, Int8Rows)
    assert np.array_equal(matrix.values, theirs["encoder/layer_0/ffn/linear_0/weight"])
    scale = theirs["encoder/layer_0/ffn/linear_0/weight_scale"]
    np.testing.assert_allclose(matrix.scale * scale, 1, rtol=1e-6)


@pytest.mark.parametrize("quantization", ["float16", "bfloat16", "int16"])
def test_packages_in_16_bit_formats_are_imported(quantization, plain, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = package(tmp_path / "p.argosmodel", specification(), quantization=quantization)
    found, expected = (argos.import_package(each).stored.weights() for each in (file, plain))
    assert all(np.abs(found[name] - expected[name]).max() < 0.05 for name in expected)


def test_an_unpacked_package_gives_the_same_model(plain, tmp_path):
    with zipfile.ZipFile(plain) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "translate-en_de-1_9"
    found, expected = argos.import_package(folder).stored, argos.import_package(plain).stored
    assert found.tokenizer == expected.tokenizer
    assert all(np.array_equal(found.tensors[name], t) for name, t in expected.tensors.items())


def test_an_imported_package_can_be_fine_tuned(plain, tmp_path):
    """Its tokenizer encodes both languages, and sources have no EOS in training either."""
    stored = argos.import_package(plain).stored
    write_model(tmp_path / "start.safetensors", stored)
    lines = [f"{source}\t{GERMAN[i % len(GERMAN)]}\n" for i, source in enumerate(ENGLISH)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    how = {"validate_every": 2, "save_every": 2, "report_every": 1, "average": 1, "keep": 1, "compile": False}
    settings = Settings(
        model=replace(stored.settings.model, dropout=0.0),
        tokenizer=TokenizerSettings(vocab_size=300),
        data=DataSettings(train=(str(tmp_path / "pairs.tsv"),), valid_size=2, language=False, ratio=20.0),
        train=TrainSettings(
            steps=2,
            batch_tokens=200,
            warmup=1,
            learning_rate=1e-4,
            start_from=str(tmp_path / "start.safetensors"),
            **how,
        ),
    )
    store = prepare(settings, tmp_path / "store", tokenizer=stored.tokenizer)
    assert store is not None
    train(settings, tmp_path / "run", store=tmp_path / "store", bleu_on=0, device="cpu")
    tuned = read_model(tmp_path / "run" / "model.safetensors")
    assert tuned.settings.model.source_end is False
    moved = np.abs(tuned.weights()["embedding.weight"] - stored.weights()["embedding.weight"]).max()
    assert 0 < moved < 0.01


def test_sources_without_eos_cannot_be_exported_to_onnx(plain, tmp_path):
    write_model(tmp_path / "m.safetensors", argos.import_package(plain).stored)
    with pytest.raises(ExportError, match="reads sources without EOS, which --to onnx cannot express"):
        export(tmp_path / "m.safetensors", "onnx", tmp_path / "out")


# --- what is refused ------------------------------------------------------------------------------------------


def message(file):
    with pytest.raises(ExportError) as caught:
        argos.import_package(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(plain, tmp_path, **members):
    """Copy the package with other members; None omits one."""
    file = tmp_path / "changed.argosmodel"
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        other = {name.replace("__", "/").replace("_", "."): data for name, data in members.items()}
        for info in old.infolist():
            name = info.filename.partition("/")[2]
            data = other.pop(name, old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
    assert other == {}
    return file


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"metadata_json": b"["}, "metadata.json is not a JSON object."),
        ({"metadata_json": b"{}"}, "is not a translator of one language pair."),
        ({"metadata_json": b'{"type": "sbd", "from_code": "en", "to_code": "de"}'}, "is not a translator of one"),
        ({"model__model_bin": None}, "The package has no model/model.bin."),
        ({"model__model_bin": b"no"}, "is cut off."),
        ({"model__model_bin": b"\xff" * 40}, "is not a CTranslate2 model, or has version"),
        ({"model__model_bin": b"\0" * 10_000_000}, "is too large for a package."),
        ({"model__config_json": b"7"}, "model/config.json is not a JSON object."),
        ({"model__config_json": b'{"add_source_bos": true}'}, "has BOS in the source"),
        ({"model__config_json": b'{"layer_norm_epsilon": 0.1}'}, "another ε in its layer norms"),
        ({"sentencepiece_model": b"no"}, "is not a SentencePiece model"),
        ({"sentencepiece_model": None}, "The package has no sentencepiece.model."),
    ],
)
def test_a_damaged_or_unsupported_package_is_a_one_line_error(members, what, plain, tmp_path):
    assert what in message(changed(plain, tmp_path, **members))


def test_a_file_that_is_no_package_is_a_one_line_error(tmp_path):
    (tmp_path / "x.argosmodel").write_bytes(b"no")
    assert "is not a readable package." in message(tmp_path / "x.argosmodel")
    assert "is not a readable package." in message(tmp_path / "missing.argosmodel")


def test_an_import_writes_no_member_of_a_package_to_disk(plain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "slip.argosmodel"
    file.write_bytes(plain.read_bytes())
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("../../evil.txt", "x")
        archive.writestr("/tmp/onehop-evil.txt", "x")
    argos.import_package(file)
    assert [path.name for path in tmp_path.iterdir()] == ["slip.argosmodel"]


def variables_of(plain):
    with zipfile.ZipFile(plain) as archive:
        return archive.read("translate-en_de-1_9/model/model.bin")


@pytest.mark.parametrize("place", [0.02, 0.3, 0.9, 0.999])
def test_truncated_weights_are_a_one_line_error(place, plain):
    data = variables_of(plain)
    with pytest.raises(ExportError, match="is cut off"):
        read_variables(data[: int(place * len(data))], "x")


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda spec: setattr(spec.decoder.projection, "bias", np.zeros(5, "f4")), "bias and the vocabulary differ"),
        (lambda spec: setattr(spec.encoder, "scale_embeddings", False), "unscaled embeddings"),
        (
            lambda spec: setattr(spec.encoder.layer[0].ffn.layer_norm, "gamma", np.zeros(5, "f4")),
            "have inconsistent shapes",
        ),
        (lambda spec: setattr(spec.encoder, "num_heads", np.dtype("int16").type(4)), "Encoder and decoder differ"),
        (
            lambda spec: linear(spec.encoder.layer[0].ffn.linear_0, np.random.default_rng(1), 9, 5),
            "have inconsistent shapes",
        ),
    ],
)
def test_inconsistent_specifications_are_a_one_line_error(spoil, what, tmp_path):
    spec = specification()
    spoil(spec)
    assert what in message(package(tmp_path / "p.argosmodel", spec))


def test_an_unsupported_variable_is_named(plain, tmp_path):
    data = bytearray(variables_of(plain))
    (count,) = struct.unpack_from("<I", data, 4 + 2 + 16 + 4)
    name = b"encoder/layer_0/self_attention/relative_position_keys\0"
    added = struct.pack("<H", len(name)) + name + struct.pack("<BIBI", 1, 1, 0, 4) + b"\0\0\x80?"
    struct.pack_into("<I", data, 4 + 2 + 16 + 4, count + 1)
    more = bytes(data[:30]) + added + bytes(data[30:])
    found = message(changed(plain, tmp_path, model__model_bin=more))
    assert (
        "The model has encoder/layer_0/self_attention/relative_position_keys, which onehop's model cannot express."
        in found
    )
