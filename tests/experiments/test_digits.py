"""The demo on images of digits: store, training, attention over patches."""

import json
import sys

import numpy as np
import pytest
import torch
from command_line import onehop
from long_tests import long_only
from page_data import TEXT, data_of

from onehop.config import ModelSettings
from onehop.errors import MissingPackageError
from onehop.experiments import digits
from onehop.experiments.digits import chosen, patches
from onehop.explorer.content import patches_in
from onehop.interpret.trace_file import unpack
from onehop.model.variants import VisionTransformer
from onehop.storage.model_io import read_model
from onehop.storage.model_label import describe
from onehop.text.tokenizer import vocabulary_of

pytestmark = pytest.mark.usefixtures("quick_peak")
QUICK = ["train.steps=40", "train.save_every=20", "train.validate_every=20", "train.warmup=10", "model.d_model=32"]


def test_images_are_split_into_three_disjoint_parts():
    parts = digits.split_digits()
    assert [len(part) for part in parts] == [1295, 143, 359]
    assert [part.digits.tolist() for part in parts] == [part.digits.tolist() for part in digits.split_digits()]
    assert all(set(part.digits.tolist()) == set(range(10)) for part in parts)
    pixels = np.concatenate([part.pixels for part in parts])
    assert (pixels.shape, pixels.min(), pixels.max()) == ((1797, 8, 8), 0, 16)


def test_a_store_has_the_images_and_their_digits(tmp_path):
    fit, valid, _ = digits.split_digits()
    store = digits.write_store(tmp_path / "store", fit, valid)
    store.verify()
    assert store.holds == "images"
    pairs = store.pairs("train")
    assert pairs.src(3).tolist() == fit.pixels[3].reshape(-1).tolist()
    name = vocabulary_of(store.tokenizer).name(int(pairs.tgt(3)[0]))
    assert name == str(fit.digits[3])


def test_a_run_learns_resumes_and_draws_its_attention(tmp_path):
    first = digits.run(tmp_path / "digits", [*QUICK, "train.decay=sqrt"])
    assert first.of == 359
    assert first.share > 0.3  # a tenth by chance
    again = digits.run(tmp_path / "digits", [*QUICK, "train.decay=sqrt", "train.steps=80"])
    assert read_model(again.model).provenance["step"] == 80
    assert again.share > first.share
    assert again.picture.read_text().startswith("<svg")


def test_patch_weights_are_shares_of_attention(tmp_path):
    outcome = digits.run(tmp_path / "digits", QUICK)
    network = digits.load_network(outcome.model)
    image = digits.split_digits()[2].pixels[0]
    weights = digits.patch_weights(network, image)
    assert weights.shape == (3, 4, 4, 4)
    assert bool((weights >= 0).all())
    assert bool((weights.flatten(2).sum(-1) <= 1 + 1e-5).all())
    watched = network.class_states(torch.from_numpy(image)[None])
    assert watched.shape == (1, 32)


def test_digits_on_the_command_line(tmp_path):
    words = ["demo", "digits", "-o", str(tmp_path / "d")]
    for change in QUICK:
        words += ["--set", change]
    found = onehop(*words)
    assert found.exit_code == 0
    assert "of 359 held-out digits read right:" in found.stdout
    assert (tmp_path / "d" / "attention.svg").exists()
    found = patches_in(tmp_path / "d" / "patches.json")
    assert found["of"] == 359
    assert found["model"]["hash"] == describe(tmp_path / "d" / "run" / "model.safetensors").hash


@long_only
def test_the_preset_recognises_97_percent(tmp_path):
    assert digits.run(tmp_path / "digits").share >= 0.97


def test_missing_scikit_learn_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingPackageError) as error:
        digits.split_digits()
    assert str(error.value) == 'This needs scikit-learn. Install it with: pip install "onehop[digits]"'


@pytest.fixture(scope="module")
def vision():
    sizes = {"image": 4, "patch": 2, "levels": 5, "d_model": 8, "d_ff": 8, "n_heads": 2, "n_encoder_layers": 2}
    torch.manual_seed(1)
    return VisionTransformer(ModelSettings(kind="vision", **sizes, dropout=0.0), 4).eval()


def test_patches_contain_all_attention_weights_and_probabilities(vision):
    """Equal to a plain forward pass; each row of weights sums to one."""
    pixels, digits = np.random.default_rng(1).integers(0, 5, (6, 4, 4)), np.array([0, 1, 2, 0, 1, 2])
    found = patches(vision, pixels, digits, [4, 2])
    weights = unpack(found)["weights"]
    assert weights.axes == ("image", "layer", "head", "query", "key")
    assert weights.values.shape == (2, 2, 2, 5, 5)
    np.testing.assert_allclose(weights.values.astype(float).sum(-1), 1, atol=2e-3)
    logits = vision.logits(vision.class_states(torch.from_numpy(pixels[[4, 2]]))[None])[0]
    for image, row in zip(found["images"], logits[:, 1:].softmax(-1).tolist(), strict=True):
        assert image["probabilities"] == pytest.approx(row, abs=1e-5)
    assert [(image["place"], image["digit"]) for image in found["images"]] == [(4, 1), (2, 2)]
    assert found["images"][0]["pixels"] == pixels[4].tolist()


def test_chosen_images_are_the_first_of_each_digit_and_two_errors():
    digits = np.array([1, 0, 1, 0, 1, 0])
    assert chosen(np.array([1, 0, 0, 1, 1, 1]), digits) == [1, 0, 2, 3]
    assert chosen(digits, digits) == [1, 0]


def test_given_patches_are_shown_on_the_page(short_outputs, model_file, vision, tmp_path):
    file, out = tmp_path / "patches.json", tmp_path / "page.html"
    own = patches(vision, np.zeros((1, 4, 4), np.int64), np.array([0]), [0])
    file.write_text(json.dumps({"name": "patches", **own}), encoding="utf-8")
    args = ["explore", TEXT, "-m", str(model_file), "--export", str(out), "--patches", str(file)]
    assert onehop(*args).exit_code == 0
    assert data_of(out.read_text(encoding="utf-8"))["measured"]["patches"] == {**patches_in(file), "file": str(file)}


@pytest.mark.parametrize("content", [None, "[", "[]", "{}", '{"name": "lengths"}'])
def test_a_file_without_patches_is_a_one_line_error(model_file, tmp_path, content):
    file = tmp_path / "patches.json"
    if content is not None:
        file.write_text(content)
    args = ["explore", TEXT, "-m", str(model_file), "--export", str(tmp_path / "x.html"), "--patches", str(file)]
    done = onehop(*args)
    assert (done.exit_code, done.stderr) == (
        2,
        f"onehop: {file} has no images with attention. "
        "Give the patches.json that `onehop demo digits -o FOLDER` writes.\n",
    )
