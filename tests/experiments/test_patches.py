"""Images as a vision model reads them."""

import json

import numpy as np
import pytest
import torch
from page_data import TEXT, data_of
from typer.testing import CliRunner

from onehop.cli import app
from onehop.config import ModelSettings
from onehop.experiments.patches import chosen, patches
from onehop.explorer.content import (
    patches_in,
)
from onehop.interpret.trace_file import unpack
from onehop.model.variants import VisionTransformer


@pytest.fixture(scope="module")
def vision():
    sizes = {"image": 4, "patch": 2, "levels": 5, "d_model": 8, "d_ff": 8, "n_heads": 2, "n_encoder_layers": 2}
    torch.manual_seed(1)
    return VisionTransformer(ModelSettings(kind="vision", **sizes, dropout=0.0), 4).eval()


def test_patches_hold_every_weight_that_the_vision_model_used(vision):
    """Against a plain forward pass: same classes, and each row of each head adds up to one."""
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


def test_the_first_of_each_digit_is_shown_and_two_that_were_read_wrong():
    digits = np.array([1, 0, 1, 0, 1, 0])
    assert chosen(np.array([1, 0, 0, 1, 1, 1]), digits) == [1, 0, 2, 3]
    assert chosen(digits, digits) == [1, 0]


def test_images_of_ones_own_stand_on_the_page(short_outputs, model_file, vision, tmp_path):
    file, out = tmp_path / "patches.json", tmp_path / "page.html"
    own = patches(vision, np.zeros((1, 4, 4), np.int64), np.array([0]), [0])
    file.write_text(json.dumps({"name": "patches", **own}), encoding="utf-8")
    args = ["explore", TEXT, "-m", str(model_file), "--export", str(out), "--patches", str(file)]
    assert CliRunner().invoke(app, args).exit_code == 0
    assert data_of(out.read_text(encoding="utf-8"))["measured"]["patches"] == {**patches_in(file), "file": str(file)}


@pytest.mark.parametrize("content", [None, "[", "[]", "{}", '{"name": "lengths"}'])
def test_a_file_without_images_is_refused_in_a_line(model_file, tmp_path, content):
    file = tmp_path / "patches.json"
    if content is not None:
        file.write_text(content)
    args = ["explore", TEXT, "-m", str(model_file), "--export", str(tmp_path / "x.html"), "--patches", str(file)]
    done = CliRunner().invoke(app, args)
    assert (done.exit_code, done.stderr) == (
        2,
        f"onehop: {file} has no images with attention. "
        "Give the patches.json that `onehop demo digits -o FOLDER` writes.\n",
    )
