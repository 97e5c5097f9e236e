"""Model files round-trip bit for bit or are refused in one line; a kill or a full disk leaves a whole file."""

import contextlib
import errno
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy
from safetensors import safe_open
from safetensors.numpy import save_file
from sharded import write_shards

from onehop.config import ModelSettings, Settings, TokenizerSettings
from onehop.errors import ModelFileError
from onehop.storage import model_io, model_label
from onehop.storage.model_file import StoredModel, content_hash
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_label import CONTENT, describe
from onehop.storage.number_formats import DTYPES, Int8Rows, NumberFormat, to_bfloat16, to_float32, to_int8
from onehop.storage.parameter_shapes import parameter_shapes
from onehop.text.tokenizer import Tokenizer

D_MODEL = 16
NORM = "encoder.layers.0.self_add_norm.norm.weight"
INNER = "encoder.layers.0.feed_forward.w_1.weight"
PROVENANCE = {"steps": 1200, "loss": 1.25, "corpora": ["news", "talks ü"], "machine": {"gpus": 0}, "parent": None}


def make_tokenizer() -> bytes:
    words = ["the cat sat on a mat", "die katze sass auf der matte", "one two three", "eins zwei drei"]
    return Tokenizer.learn(words * 10, TokenizerSettings(vocab_size=320)).model


def make_model(tokenizer: bytes, seed: int = 0) -> StoredModel:
    noise = np.random.default_rng(seed)
    settings = ModelSettings(kind="encoder", n_encoder_layers=1, d_model=D_MODEL, n_heads=2, d_ff=64)
    shapes = parameter_shapes(settings, Tokenizer(tokenizer).vocab_size)
    return StoredModel(
        settings=Settings(model=settings),
        tokenizer=tokenizer,
        source="en",
        target="de",
        provenance=PROVENANCE,
        tensors={name: noise.normal(size=shape).astype(np.float32) for name, shape in shapes.items()},
    )


@pytest.fixture(scope="module")
def tokenizer() -> bytes:
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: bytes) -> StoredModel:
    return make_model(tokenizer)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the check that tensors fit the settings."""
    monkeypatch.setattr(model_io, "check_fits", lambda *_: None)


def refusal(path: Path) -> str:
    """The one-line error of reading a file."""
    with pytest.raises(ModelFileError) as caught:
        read_model(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def rewrite_header(
    path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], *, true_hash: bool = True
) -> None:
    """Change the safetensors header and onehop's description in it; correct the hash if `true_hash`."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    described = json.loads(header["__metadata__"]["onehop"])
    change(header, described)
    if true_hash:
        body = data[8 + length :]
        arrays = {}
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                arrays[name] = np.frombuffer(body[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
        described["hash"] = content_hash({key: described[key] for key in CONTENT}, arrays)
    header["__metadata__"]["onehop"] = json.dumps(described)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


# --- round trips ----------------------------------------------------------------------------------------------


def test_a_model_round_trips(model: StoredModel, tmp_path: Path) -> None:
    assert write_model(tmp_path / "m.safetensors", model) == tmp_path / "m.safetensors"
    back = read_model(tmp_path / "m.safetensors")
    assert back == model
    assert back.hash == model.hash
    assert back.settings == model.settings
    assert back.tokenizer == model.tokenizer
    assert (back.source, back.target, back.provenance) == ("en", "de", PROVENANCE)
    assert back.tensors.keys() == model.tensors.keys()
    for name, tensor in back.weights().items():
        assert np.array_equal(tensor, model.weights()[name])
        assert tensor.dtype == np.float32


def test_the_suffix_safetensors_may_be_omitted(model: StoredModel, tmp_path: Path) -> None:
    assert write_model(tmp_path / "en-de.v1", model) == tmp_path / "en-de.v1.safetensors"
    (tmp_path / "en-de.v1").mkdir()  # the file precedes a folder of this name
    assert read_model(str(tmp_path / "en-de.v1")) == model


def test_the_safetensors_library_reads_the_file(model: StoredModel, tmp_path: Path) -> None:
    write_model(tmp_path / "m", model, store="int8")
    stored = model.stored_as("int8")
    rows = stored.tensors["embedding.weight"]
    assert isinstance(rows, Int8Rows)
    with safe_open(tmp_path / "m.safetensors", framework="numpy") as file:
        assert np.array_equal(file.get_tensor("embedding.weight"), rows.values)
        assert np.array_equal(file.get_tensor("embedding.weight.scale"), rows.scale)
        assert file.get_tensor("__tokenizer__").tobytes() == model.tokenizer
        assert json.loads(file.metadata()["onehop"])["hash"] == stored.hash


def test_the_safetensors_library_reads_bfloat16_for_torch(model: StoredModel, tmp_path: Path) -> None:
    write_model(tmp_path / "m", model, store="bfloat16")
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        read = file.get_tensor("embedding.weight")
    assert read.dtype == torch.bfloat16
    assert torch.equal(read, torch.from_numpy(model.weights()["embedding.weight"]).bfloat16())


@pytest.mark.usefixtures("unchecked")
def test_tensors_that_are_not_c_contiguous_round_trip(model: StoredModel, tmp_path: Path) -> None:
    turned = np.asfortranarray(model.weights()[INNER])
    strided = np.arange(128, dtype=np.float32)[::2]
    scalar = np.array(2.5, dtype=np.float32)
    odd = replace(model, tensors={"turned.weight": turned, "strided.bias": strided, "scalar": scalar})
    write_model(tmp_path / "m", odd)
    weights = read_model(tmp_path / "m").weights()
    assert np.array_equal(weights["turned.weight"], turned)
    assert np.array_equal(weights["strided.bias"], strided)
    assert weights["scalar"].shape == ()


def test_writing_twice_gives_the_same_bytes(model: StoredModel, tmp_path: Path) -> None:
    write_model(tmp_path / "a", model)
    shuffled = replace(model, tensors=dict(reversed(model.tensors.items())))
    write_model(tmp_path / "b", shuffled)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_the_file_mode_follows_the_umask(model: StoredModel, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_model(tmp_path / "m", model)
    assert (tmp_path / "m.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_describe_reads_only_the_header(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    data = path.read_bytes()
    path.write_bytes(data[: 8 + int.from_bytes(data[:8], "little")])  # no weights left
    label = describe(path)
    assert (label.hash, label.part, label.parts) == (model.hash, 1, 1)
    assert label.content["provenance"] == PROVENANCE
    assert label.content["settings"]["model"]["d_model"] == D_MODEL


# --- number formats -------------------------------------------------------------------------------------------

# Any float32, often exactly or nearly halfway between two bfloat16 numbers.
any_bits = st.builds(
    lambda upper, lower: upper << 16 | lower,
    st.integers(0, 0xFFFF) | st.sampled_from([0x7F80, 0xFF80, 0x7FFF, 0xFFFF]),
    st.integers(0, 0xFFFF) | st.sampled_from([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]),
)
finite_matrix = array_strategy(
    np.float32, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-(2.0**100), 2.0**100, width=32)
)


@given(st.lists(any_bits, min_size=1, max_size=20))
def test_bfloat16_rounds_like_torch(bits: list[int]) -> None:
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    ours = to_bfloat16(values)
    theirs = torch.from_numpy(values).bfloat16()
    nan = np.isnan(values)
    assert np.array_equal(ours[~nan], theirs.view(torch.int16).numpy().view(np.uint16)[~nan])
    assert np.isnan(to_float32(ours)[nan]).all()


@given(finite_matrix)
def test_the_bfloat16_error_is_at_most_one_part_in_256(values: np.ndarray) -> None:
    # Subnormal numbers have the step of the smallest normal number.
    allowed = np.maximum(np.abs(values, dtype=np.float64) * 2**-8, 2.0**-134)
    assert (np.abs(to_float32(to_bfloat16(values)) - values.astype(np.float64)) <= allowed).all()


@given(finite_matrix)
def test_the_int8_error_is_at_most_half_a_step(values: np.ndarray) -> None:
    rows = to_int8(values)
    step = rows.scale[:, None].astype(np.float64)
    exact = rows.values * step
    assert (np.abs(exact - values) <= step * (0.5 + 1e-5)).all()  # 1e-5, because the quotient is rounded to float32
    assert np.allclose(to_float32(rows), exact, rtol=1e-6)
    largest = np.abs(values).max(axis=1)
    ordinary = largest > 1e-35
    assert (np.abs(rows.values).max(axis=1)[ordinary] == 127).all()
    assert np.allclose(rows.scale[ordinary], largest[ordinary] / 127, rtol=1e-6)
    assert np.isfinite(1 / rows.scale).all()


def test_int8_keeps_a_row_of_zeros() -> None:
    rows = to_int8(np.array([[0, 0], [1, -2]], dtype=np.float32))
    assert rows.values.tolist() == [[0, 0], [64, -127]]
    assert to_float32(rows)[0].tolist() == [0, 0]


@pytest.mark.parametrize("store", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("write", [write_model, write_shards])
def test_rewriting_keeps_the_number_format_bit_for_bit(
    model: StoredModel, tmp_path: Path, store: NumberFormat, write: Callable[..., Any]
) -> None:
    write(tmp_path / "a", model, store=store)
    once = read_model(tmp_path / "a")
    assert once.hash == model.stored_as(store).hash
    write_model(tmp_path / "b", once, store=store)
    write_model(tmp_path / "c", once)
    assert read_model(tmp_path / "b").hash == read_model(tmp_path / "c").hash == once.hash


def test_only_matrices_are_stored_in_smaller_formats(model: StoredModel) -> None:
    kinds = {"float32": np.float32, "bfloat16": np.uint16}
    for store, kind in kinds.items():
        tensors = model.stored_as(store).tensors  # type: ignore[arg-type]
        assert tensors["embedding.weight"].dtype == kind
        assert tensors[NORM].dtype == np.float32
    rows = model.stored_as("int8").tensors
    assert isinstance(rows["embedding.weight"], Int8Rows)
    assert np.array_equal(rows[NORM], model.tensors[NORM])


def test_number_formats_can_be_converted_into_each_other(model: StoredModel) -> None:
    rows = model.stored_as("int8")
    floats = rows.stored_as("float32")
    assert np.array_equal(floats.tensors["embedding.weight"], rows.weights()["embedding.weight"])
    halves = rows.stored_as("bfloat16").tensors["embedding.weight"]
    assert np.array_equal(halves, to_bfloat16(rows.weights()["embedding.weight"]))
    again = model.stored_as("bfloat16").stored_as("int8").tensors["embedding.weight"]
    assert isinstance(again, Int8Rows)


@pytest.mark.usefixtures("unchecked")
def test_bfloat16_halves_and_int8_quarters_the_file(model: StoredModel, tmp_path: Path) -> None:
    wide = np.random.default_rng(1).normal(size=(2000, 256)).astype(np.float32)
    big = replace(model, tensors={"encoder.weight": wide})
    size = {}
    for store in ("float32", "bfloat16", "int8"):
        path = write_model(tmp_path / store, big, store=store)  # type: ignore[arg-type]
        size[store] = path.stat().st_size
    assert 0.49 < size["bfloat16"] / size["float32"] < 0.51
    assert 0.25 < size["int8"] / size["float32"] < 0.27


def test_int8_refuses_nonfinite_values(model: StoredModel, tmp_path: Path) -> None:
    broken = model.weights()
    broken["embedding.weight"] = np.full_like(broken["embedding.weight"], np.nan)
    with pytest.raises(ModelFileError) as caught:
        write_model(tmp_path / "m", replace(model, tensors=broken), store="int8")
    assert str(caught.value) == (
        "The tensor embedding.weight has values that are not finite, which int8 cannot hold. "
        "Take an earlier checkpoint: the training diverged."
    )
    assert list(tmp_path.iterdir()) == []


# --- the hash -------------------------------------------------------------------------------------------------


def test_every_part_of_the_content_changes_the_hash(model: StoredModel) -> None:
    one_bit = model.weights()
    one_bit[NORM] = one_bit[NORM].copy()
    one_bit[NORM].view(np.uint32)[3] ^= 1
    reshaped = model.weights()
    reshaped[INNER] = reshaped[INNER].reshape(32, 32)
    renamed = {name.replace("encoder", "decoder"): tensor for name, tensor in model.tensors.items()}
    others = [
        replace(model, source="fr"),
        replace(model, target="fr"),
        replace(model, source="de", target="en"),
        replace(model, provenance={**PROVENANCE, "steps": 1201}),
        replace(model, settings=Settings(model=replace(model.settings.model, dropout=0.2))),
        replace(model, tokenizer=model.tokenizer + b"\0"),
        replace(model, tensors=one_bit),
        replace(model, tensors=reshaped),
        replace(model, tensors=renamed),
        model.stored_as("bfloat16"),
        model.stored_as("int8"),
    ]
    assert len({m.hash for m in [model, *others]}) == len(others) + 1
    assert replace(model, provenance=dict(reversed(PROVENANCE.items()))).hash == model.hash
    assert model != others[0]
    assert len({model, replace(model)}) == 1


# --- shards ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["float32", "bfloat16", "int8"])
def test_a_sharded_model_can_be_read_by_any_shard(model: StoredModel, tmp_path: Path, store: NumberFormat) -> None:
    paths = write_shards(tmp_path / "m", model, store=store)
    expected = model.stored_as(store).hash
    for path in [*paths, tmp_path / "m"]:
        assert read_model(path).hash == expected
        assert describe(path).parts == len(paths)


def test_missing_shards_are_named(model: StoredModel, tmp_path: Path) -> None:
    paths = write_shards(tmp_path / "m", model)
    paths[1].unlink()
    paths[2].unlink()
    assert refusal(paths[3]) == (
        f"{paths[0]} is the first of {len(paths)} parts, and {paths[1].name}, {paths[2].name} is missing. "
        "Put all parts into one folder, under the names they were written with."
    )
    paths[0].unlink()
    assert refusal(paths[3]) == (
        f"{paths[3]} is part 4 of {len(paths)}, and the first part is not beside it. "
        "Put all parts into one folder, under the names they were written with."
    )
    renamed = paths[3].rename(tmp_path / "renamed.safetensors")
    assert refusal(renamed).startswith(f"{renamed} is part 4 of {len(paths)}, and the first part is not beside it.")


def test_mixed_shards_are_named(model: StoredModel, tokenizer: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = write_shards(tmp_path / "m", model)
    others = write_shards(tmp_path / "other" / "m", make_model(tokenizer, seed=1))
    kept = paths[2].read_bytes()
    remedy = "Download all parts of the model again."
    for wrong in (others[2], paths[1]):  # another model's part, and another part of the same model
        paths[2].write_bytes(wrong.read_bytes())
        assert refusal(paths[0]) == f"{paths[2]} belongs to another model than {paths[0]}. {remedy}"
    paths[2].write_bytes(kept)
    assert read_model(paths[0]) == model
    stray = tmp_path / others[1].name
    stray.write_bytes(others[1].read_bytes())
    assert refusal(stray) == f"{stray} belongs to another model than {paths[0]}. {remedy}"


def test_a_damaged_shard_is_refused(model: StoredModel, tmp_path: Path) -> None:
    paths = write_shards(tmp_path / "m", model)
    data = bytearray(paths[1].read_bytes())
    data[-1] ^= 1
    paths[1].write_bytes(data)
    assert f"{paths[0]} is damaged: its hash is " in refusal(paths[2])
    paths[1].write_bytes(data[:-1])
    assert refusal(paths[0]).startswith(f"{paths[1]} is cut off or damaged: ")


def test_old_parts_and_abandoned_temporaries_are_removed(model: StoredModel, tokenizer: bytes, tmp_path: Path) -> None:
    write_shards(tmp_path / "m", model)
    neighbours = ["m2-01234567-00002-of-00003.safetensors", "m-notes.txt", "m.safetensors.1.unfinished"]
    for name in neighbours:
        (tmp_path / name).touch()
    abandoned = tmp_path / "m.safetensors.2.unfinished"
    abandoned.touch()
    os.utime(abandoned, (time.time() - 7200, time.time() - 7200))
    write_model(tmp_path / "m", make_model(tokenizer, seed=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m.safetensors", *neighbours])


# --- refusals -------------------------------------------------------------------------------------------------

OURS = "Give a .safetensors file that onehop has written."
AGAIN = "Download it or make it again."


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    assert refusal(path) == f"There is no model file {path}. Give a .safetensors file or a run folder."
    assert refusal(tmp_path) == f"{tmp_path} is a folder. Give the .safetensors file in it."


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 300)
    assert refusal(path) == f"{path} cannot be read (File name too long). Check the path and its permissions."


def test_files_of_other_programs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"")
    assert refusal(path) == f"{path} is empty. {OURS}"
    path.write_text("Just some text that somebody wrote.\n")
    assert refusal(path) == f"{path} is not a safetensors file. {OURS}"
    path.write_bytes(b"\1\2\3")
    assert refusal(path) == f"{path} is not a safetensors file. {OURS}"
    save_file({"weight": np.zeros(3, np.float32)}, path)
    assert refusal(path) == f"{path} was written by another program. {OURS}"
    save_file({"weight": np.zeros(3, np.float32)}, path, metadata={"format": "pt"})
    assert refusal(path) == f"{path} was written by another program. {OURS}"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"x")
    assert refusal(path) == f"{path} is a zip file, such as torch.save writes, not a safetensors file. {OURS}"
    torch.save({"weight": torch.zeros(3)}, path)
    assert refusal(path) == f"{path} is a zip file, such as torch.save writes, not a safetensors file. {OURS}"


class TouchesFile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_is_refused_without_being_executed(protocol: int, tmp_path: Path) -> None:
    path, proof = tmp_path / "m.safetensors", tmp_path / "it-ran"
    path.write_bytes(pickle.dumps(TouchesFile(proof), protocol))
    message = refusal(path)
    assert not proof.exists()
    kind = "a pickle, which can run code when loaded, " if protocol else ""
    assert message == f"{path} is {kind}not a safetensors file. {OURS}"
    pickle.loads(path.read_bytes())  # loading it does execute code
    assert proof.exists()


def test_truncated_and_extended_files_are_refused(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert refusal(path) == f"{path} is cut off or damaged: incomplete metadata, file not fully covered. {AGAIN}"
    path.write_bytes(data + b"\0")
    assert refusal(path) == f"{path} is cut off or damaged: incomplete metadata, file not fully covered. {AGAIN}"
    path.write_bytes(data[:100])
    assert refusal(path) == f"{path} is cut off or damaged: its header is not complete. {AGAIN}"


def test_a_flipped_bit_of_the_weights_is_refused(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)
    assert re.fullmatch(
        rf"{re.escape(str(path))} is damaged: its hash is [0-9a-f]{{64}}, not {model.hash}\. {AGAIN}", refusal(path)
    )


def test_a_newer_format_is_refused(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, lambda _, described: described.update(format=2, layout="another kind of thing"))
    expected = f"{path} has the format 2, and this onehop reads formats up to 1. Update onehop."
    assert refusal(path) == expected
    with pytest.raises(ModelFileError) as caught:
        describe(path)
    assert str(caught.value) == expected


def test_settings_of_a_later_version_are_refused(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, lambda _, described: described["settings"]["model"].update(n_experts=8))
    assert refusal(path) == (
        f"{path} has settings that this onehop does not know: There is no setting model.n_experts. Update onehop."
    )


def test_settings_of_an_earlier_version_get_their_defaults(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, lambda _, described: described["settings"]["train"].pop("seed"))  # as if seed were new
    assert read_model(path).settings == model.settings


Change = Callable[[dict[str, Any], dict[str, Any]], Any]
CRAFTED: list[tuple[str, Change, str]] = [
    ("no hash", lambda h, d: d.pop("hash"), "is damaged: there is no 'hash'."),
    ("no settings", lambda h, d: d.pop("settings"), "is damaged: there is no 'settings'."),
    ("no format", lambda h, d: d.pop("format"), "is damaged: there is no 'format'."),
    ("format as text", lambda h, d: d.update(format="1"), "is damaged: the format version is not a number."),
    ("short hash", lambda h, d: d.update(hash="abc"), "is damaged: hash or layout is not hexadecimal."),
    ("path in layout", lambda h, d: d.update(layout="../../et"), "is damaged: hash or layout is not hexadecimal."),
    ("part 0", lambda h, d: d.update(part=0), "is damaged: the part number is out of range."),
    ("many parts", lambda h, d: d.update(parts=10**9), "is damaged: the part number is out of range."),
    ("overlap", lambda h, d: h["embedding.weight"].update(data_offsets=[4, 8]), "is cut off or damaged: "),
    ("huge shape", lambda h, d: h["embedding.weight"].update(shape=[2**62, 8]), "is cut off or damaged: "),
    ("empty huge", lambda h, d: h.update(x={"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}), "damaged: "),
    ("foreign type", lambda h, d: h["__tokenizer__"].update(dtype="BOOL"), "is damaged: there is no 'BOOL'."),
    ("not finite", lambda h, d: d["provenance"].update(loss=float("nan")), "is damaged: Out of range float"),
]


@pytest.mark.parametrize(("change", "message"), [c[1:] for c in CRAFTED], ids=[c[0] for c in CRAFTED])
def test_inconsistent_headers_are_refused(model: StoredModel, tmp_path: Path, change: Change, message: str) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, change, true_hash=False)
    found = refusal(path)
    assert found.startswith(str(path))
    assert message in found
    assert found.endswith(AGAIN)


HASHED: list[tuple[str, Change, str]] = [
    ("provenance", lambda h, d: d.update(provenance=[]), "is damaged: languages or provenance have the wrong type."),
    ("language", lambda h, d: d.update(source=7), "is damaged: languages or provenance have the wrong type."),
    ("no tokenizer", lambda h, d: h.update(tok=h.pop("__tokenizer__")), "is damaged: there is no '__tokenizer__'."),
    (
        "bytes as weights",
        lambda h, d: h["embedding.weight"].update(dtype="U8"),
        "is damaged: embedding.weight is not a tensor of weights.",
    ),
    ("no scale", lambda h, d: h.update(x=h.pop("embedding.weight.scale")), "there is no 'embedding.weight.scale'."),
    (
        "scale of another shape",
        lambda h, d: h["embedding.weight.scale"].update(shape=[1, *h["embedding.weight.scale"]["shape"]]),
        "is damaged: int8 rows and their scales do not match.",
    ),
]


@pytest.mark.parametrize(("change", "message"), [c[1:] for c in HASHED], ids=[c[0] for c in HASHED])
def test_inconsistent_content_with_a_correct_hash_is_refused(
    model: StoredModel, tmp_path: Path, change: Change, message: str
) -> None:
    path = write_model(tmp_path / "m", model, store="int8")
    rewrite_header(path, change)
    assert message in refusal(path)


def raw_file(path: Path, header: bytes, length: int | None = None) -> None:
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header)


def test_invalid_headers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    raw_file(path, b'{"a":1}', length=2**63)
    assert refusal(path) == f"{path} is cut off or damaged: its header is not complete. {AGAIN}"
    raw_file(path, b'{"__metadata__":null}')
    assert refusal(path) == f"{path} was written by another program. {OURS}"
    raw_file(path, b"{not json")
    assert refusal(path).startswith(f"{path} is damaged: ")
    raw_file(path, b'{"\xff\xfe":1}')
    assert refusal(path).startswith(f"{path} is damaged: ")
    raw_file(path, b'{"a":' + b"[" * 200_000)
    assert refusal(path).startswith(f"{path} is damaged: ")
    deep = json.dumps({"__metadata__": {"onehop": "[" * 200_000}}).encode()
    raw_file(path, deep)
    assert refusal(path).startswith(f"{path} is damaged: ")
    raw_file(path, json.dumps({"__metadata__": {"onehop": "[]"}}).encode())
    assert refusal(path).startswith(f"{path} is damaged: ")


Tensors = dict[str, np.ndarray]
OTHER_TENSORS: list[tuple[str, Callable[[Tensors], Any], str]] = [
    (
        "pieces",
        lambda t: t.update({"embedding.weight": t["embedding.weight"][1:]}),
        "embedding.weight has the shape (319, 16), but settings and tokenizer need (320, 16)",
    ),
    ("norm of one", lambda t: t.update({NORM: t[NORM][:1]}), f"{NORM} has the shape (1,), but"),
    ("turned", lambda t: t.update({INNER: t[INNER].T.copy()}), f"{INNER} has the shape (16, 64), but"),
    ("missing", lambda t: t.pop(NORM), f"the tensor {NORM} is missing"),
    ("one more", lambda t: t.update({"x\ny": t[NORM]}), r"the settings have no tensor 'x\ny'"),
]


@pytest.mark.parametrize(("change", "message"), [c[1:] for c in OTHER_TENSORS], ids=[c[0] for c in OTHER_TENSORS])
def test_tensors_must_be_those_of_the_settings(
    model: StoredModel, tmp_path: Path, change: Callable[[Tensors], Any], message: str
) -> None:
    path, tensors = tmp_path / "m.safetensors", model.weights()
    change(tensors)
    wrong = replace(model, tensors=tensors)
    with pytest.raises(ModelFileError) as caught:
        write_model(path, wrong)
    assert str(caught.value).startswith(f"{path} is inconsistent: {message}")
    assert str(caught.value).endswith(". Use the settings and the tokenizer that it was trained with.")
    assert not path.exists()
    with pytest.MonkeyPatch.context() as off:
        off.setattr(model_io, "check_fits", lambda *_: None)
        write_model(path, wrong)
    assert refusal(path) == str(caught.value)


HUGE = 2**62
OTHER_SETTINGS: list[tuple[str, Change, str]] = [
    (f"{name} {value}", lambda h, d, n=name, v=value: d["settings"]["model"].update({n: v}), message)
    for name, value, message in (
        ("n_encoder_layers", HUGE, f"model.n_encoder_layers is {HUGE}. Update onehop."),
        ("d_model", HUGE, f"model.d_model is {HUGE}. Update onehop."),
        ("max_length", HUGE, f"model.max_length is {HUGE}. Update onehop."),
        ("n_encoder_layers", 900, "the tensor encoder.layers.1.feed_add_norm.norm.bias is missing"),
        ("kind", "decoder", "the tensor decoder.layers.0."),
        ("kind", {}, "model.kind is {}. Update onehop."),
        ("tied", False, "the tensor output.weight is missing"),
        ("positions", "learned", "the tensor source_input.positions is missing"),
    )
]


@pytest.mark.parametrize(("change", "message"), [c[1:] for c in OTHER_SETTINGS], ids=[c[0] for c in OTHER_SETTINGS])
def test_settings_that_do_not_fit_the_tensors_are_refused(
    model: StoredModel, tmp_path: Path, change: Change, message: str
) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, change)
    assert message in refusal(path)


@pytest.mark.parametrize("settings", [[], "x", {"model": 3}, {"model": {"kind": []}}], ids=str)
def test_settings_of_wrong_types_are_refused(model: StoredModel, tmp_path: Path, settings: Any) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, lambda _, described: described.update(settings=settings))
    with contextlib.suppress(ModelFileError):  # it may pass the file: then reading refuses it
        model_label.check_kind(path, "encoder")
    assert re.search(r"the settings are not tables|model\.kind is", refusal(path))


def test_the_error_for_thousands_of_missing_parts_is_short(model: StoredModel, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model)
    rewrite_header(path, lambda _, described: described.update(parts=99_999))
    assert len(refusal(path)) < 1000


def test_an_invalid_tokenizer_is_refused(model: StoredModel, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(ModelFileError) as caught:
        write_model(path, replace(model, tokenizer=b"no tokenizer"))
    assert str(caught.value) == (
        f"{path} is inconsistent: The tokenizer is not a SentencePiece model. The file is damaged: make it again."
    )


@pytest.mark.usefixtures("unchecked")
def test_unsupported_provenance_and_tensor_names_are_refused(model: StoredModel, tmp_path: Path) -> None:
    def refused(**changes: Any) -> str:
        with pytest.raises(ModelFileError) as caught:
            write_model(tmp_path / "m", replace(model, **changes))
        return str(caught.value)

    remedy = "Keep it to strings, finite numbers, lists and tables."
    assert refused(provenance={"when": {1, 2}}) == (
        f"The provenance cannot be stored as JSON (Object of type set is not JSON serializable). {remedy}"
    )
    assert refused(provenance={"loss": float("nan")}).endswith(remedy)
    rows = to_int8(np.ones((2, 2), np.float32))
    twice = {"a": rows, "a.scale": np.ones(2, np.float32)}
    assert refused(tensors=twice) == "Two tensors are named a.scale. Rename one of them."
    tokenizer_again = {"__tokenizer__": np.ones(2, np.float32)}
    assert refused(tensors=tokenizer_again) == "Two tensors are named __tokenizer__. Rename one of them."


def test_an_unknown_dtype_is_refused(model: StoredModel) -> None:
    wrong = np.zeros(2)
    with pytest.raises((ModelFileError, TypeError), match=r"The tensor x is of float64\. Give float32|type"):
        assert replace(model, tensors={"x": wrong}).hash


# --- fuzzing --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed(model: StoredModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[bytes], str]:
    small = replace(model, provenance={"steps": 3})
    paths = write_shards(tmp_path_factory.mktemp("fuzz") / "m", small, store="int8")
    return paths, [path.read_bytes() for path in paths], read_model(paths[0]).hash


def refused_or_unchanged(fuzzed: tuple[list[Path], list[bytes], str], which: int, data: bytes) -> None:
    paths, originals, true_hash = fuzzed
    paths[which].write_bytes(data)
    message, found = "", true_hash
    try:
        found = read_model(paths[0]).hash
    except ModelFileError as e:
        message = str(e)
    finally:
        paths[which].write_bytes(originals[which])
    assert found == true_hash
    assert "\n" not in message


@settings(max_examples=400, deadline=None)
@given(data=st.data(), header=st.booleans())
def test_changed_bytes_are_refused_or_harmless(
    fuzzed: tuple[list[Path], list[bytes], str], data: st.DataObject, header: bool
) -> None:
    which = data.draw(st.integers(0, len(fuzzed[0]) - 1))
    mutated = bytearray(fuzzed[1][which])
    last = 8 + int.from_bytes(mutated[:8], "little") if header else len(mutated)
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, last - 1))] = data.draw(st.integers(0, 255))
    refused_or_unchanged(fuzzed, which, bytes(mutated))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cut_and_repeated_pieces_are_refused_or_harmless(
    fuzzed: tuple[list[Path], list[bytes], str], data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(fuzzed[0]) - 1))
    whole = fuzzed[1][which]
    a, b = sorted([data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))])
    mutated = data.draw(st.sampled_from([whole[:a], whole[a:], whole[:a] + whole[b:], whole[a:b], whole + whole[a:b]]))
    refused_or_unchanged(fuzzed, which, mutated)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(data)
    refusal(path)


# --- atomic writing -------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands in for a kill: no handler of Exception catches it, and file operations in `finally` fail."""


def kill_at(n: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the n-th file operation and all later ones raise."""
    calls = iter(range(10**6))

    def dying(operation: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(*args: Any, **options: Any) -> Any:
            if next(calls) >= n:
                raise Killed
            return operation(*args, **options)

        return attempt

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", dying(os.open))
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(os, "fsync", dying(os.fsync))
        patched.setattr(Path, "unlink", dying(Path.unlink))
        yield


@pytest.mark.parametrize("before", [write_model, write_shards])
@pytest.mark.parametrize("same_model", [False, True])
def test_a_kill_at_any_file_operation_leaves_the_old_or_new_model(
    model: StoredModel,
    tokenizer: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[..., Any],
    same_model: bool,
) -> None:
    new = model if same_model else make_model(tokenizer, seed=1)
    seen = []
    for n in range(10**6):
        before(tmp_path / "m", model)
        killed = False
        for _ in kill_at(n, monkeypatch):
            try:
                write_model(tmp_path / "m", new)
            except Killed:
                killed = True
        found = read_model(tmp_path / "m").hash
        assert found in (model.hash, new.hash)
        seen.append(found)
        if not killed:
            break
    assert len(seen) > 4
    assert seen[0] == model.hash
    assert seen[-1] == new.hash
    assert seen == sorted(seen, key=lambda h: h == new.hash)  # a later kill never brings the old model back


def test_shards_of_the_same_model_with_other_cuts_do_not_mix(model: StoredModel, tmp_path: Path) -> None:
    """Hash and number of parts are equal, but the parts differ."""
    first, second = (write_shards(tmp_path / "m", model, cut_at=rows) for rows in (10, 12))
    assert read_model(tmp_path / "m") == model
    second[1].write_bytes(first[1].read_bytes())
    assert "belongs to another model" in refusal(second[0])


WRITER = """
import sys
from onehop.storage.model_io import read_model
from onehop.storage.model_io import write_model
folder = sys.argv[1]
models = [read_model(f"{folder}/old"), read_model(f"{folder}/new")]
print("ready", flush=True)
while True:
    for model in models:
        write_model(f"{folder}/m", model)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_the_old_or_new_model(model: StoredModel, tokenizer: bytes, tmp_path: Path) -> None:
    new = make_model(tokenizer, seed=1)
    write_model(tmp_path / "old", model)
    write_model(tmp_path / "new", new)
    write_model(tmp_path / "m", model)
    pause = random.Random(0)
    for _ in range(12):
        with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            time.sleep(pause.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert read_model(tmp_path / "m").hash in (model.hash, new.hash)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_model(
    model: StoredModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    written = write_model(tmp_path / "m", model)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError) as caught:
        write_model(tmp_path / "m", replace(model, source="fr"))
    assert str(caught.value) == (
        f"The disk is full: {written} was not written, and the old file is unchanged. "
        "Free some space or choose another disk."
    )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_paths_that_cannot_be_written_are_refused(model: StoredModel, tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(ModelFileError) as caught:
            write_model(path, model)
        return str(caught.value)

    nowhere = tmp_path / "nowhere"
    assert refused(nowhere / "m") == f"There is no folder {nowhere} to write the model to. Create it first."
    folder = tmp_path / "m.safetensors"
    folder.mkdir()
    assert refused(folder) == f"The model cannot be written to {folder} (Is a directory). Choose another path."
    assert list(tmp_path.iterdir()) == [folder]


def test_a_model_is_written_even_if_old_shards_cannot_be_removed(
    model: StoredModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any, **__: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(model_io, "remove_shards", busy)
    write_model(tmp_path / "m", model)
    assert read_model(tmp_path / "m") == model


# --- without torch, and in the docs ---------------------------------------------------------------------------


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_model_is_read_without_torch(model: StoredModel, tmp_path: Path) -> None:
    write_model(tmp_path / "m", model, store="bfloat16")
    code = """
import sys
from onehop.storage.model_io import read_model
model = read_model("m")
model.weights()
print(model.hash, "torch" in sys.modules, "numpy" in sys.modules)
"""
    assert run_python(code, tmp_path).split() == [model.stored_as("bfloat16").hash, "False", "True"]


def test_the_docs_example_reads_the_file(model: StoredModel, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "model-file.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    write_shards(tmp_path / "en-de", model, store="int8")
    assert "onehop.storage.model_file" not in snippet
    code = snippet + "\nnp.save('embedding.npy', embedding)\nopen('tokenizer', 'wb').write(tokenizer)"
    assert run_python(code, tmp_path).split()[:3] == ["en", "de", model.stored_as("int8").hash]
    expected = model.stored_as("int8").weights()["embedding.weight"]
    assert np.array_equal(np.load(tmp_path / "embedding.npy"), expected)
    assert (tmp_path / "tokenizer").read_bytes() == model.tokenizer
