"""Labels of batches: masked tokens at the right rate, class labels only, images shifted by a pixel."""

import numpy as np
import pytest

from onehop.config import ModelSettings
from onehop.data.batches import pack
from onehop.data.objectives import MASK, TrainingTask, black_images, classified, masked, roll
from onehop.data.store import Pairs, side_from_lists
from onehop.text.tokenizer import EOS, PAD

VOCAB = 500
IDS = np.dtype("<u2")


def texts(count: int, length: int) -> Pairs:
    rng = np.random.default_rng(0)
    return Pairs(
        side_from_lists([[]] * count, IDS), side_from_lists(rng.integers(4, VOCAB, (count, length)).tolist(), IDS)
    )


@pytest.fixture(scope="module")
def batch():
    return pack(texts(200, 50), np.arange(200))


def test_a_share_of_tokens_is_predicted_and_most_of_it_masked(batch):
    found = masked(batch, VOCAB, np.random.default_rng(1))
    asked = found.labels != PAD
    assert asked.sum() / len(asked) == pytest.approx(0.15, abs=0.01)
    shown = found.tgt[asked]
    assert (shown == MASK).mean() == pytest.approx(0.8, abs=0.03)
    assert (shown == found.labels[asked]).mean() == pytest.approx(0.1, abs=0.03)
    assert np.array_equal(found.labels[asked], batch.labels[asked])
    assert np.array_equal(found.tgt[~asked], batch.labels[~asked])
    assert not (found.labels == EOS).any()
    assert found.tokens == asked.sum()


def test_masking_depends_only_on_its_seed(batch):
    task = TrainingTask(ModelSettings(kind="encoder"), VOCAB)
    assert np.array_equal(task(batch, 1, 2, 3).tgt, task(batch, 1, 2, 3).tgt)
    assert not np.array_equal(task(batch, 1, 2, 3).tgt, task(batch, 1, 2, 4).tgt)
    assert np.array_equal(task.for_validation(batch, 7).tgt, task.for_validation(batch, 7).tgt)


def test_a_batch_of_one_token_still_has_a_label():
    one = pack(texts(1, 1), np.arange(1))
    assert all(masked(one, VOCAB, np.random.default_rng(seed)).tokens == 1 for seed in range(20))


def test_translator_and_decoder_predict_every_packed_label(batch):
    for kind in (None, "decoder"):
        assert TrainingTask(ModelSettings(kind=kind), VOCAB)(batch, 1) is batch


def images() -> Pairs:
    pixels = np.arange(3 * 16).reshape(3, 16) % 17
    return Pairs(side_from_lists(pixels.tolist(), IDS), side_from_lists([[5], [1], [9]], IDS))


def test_an_image_has_only_its_class_as_label():
    found = classified(pack(images(), np.arange(3)))
    assert found.labels.tolist() == [5, 1, 9]
    assert found.src.tolist() == (np.arange(48) % 17).tolist()
    assert (found.src_lengths.tolist(), found.tgt_lengths.tolist()) == ([16] * 3, [1] * 3)


def test_images_are_shifted_in_training_but_not_in_validation():
    model = ModelSettings(kind="vision", image=4, patch=2, levels=17)
    task, packed = TrainingTask(model, 11), pack(images(), np.arange(3))
    still = task.for_validation(packed, 0)
    assert np.array_equal(still.src, classified(packed).src)
    moved = [task(packed, i).src.reshape(3, 4, 4) for i in range(30)]
    assert any(not np.array_equal(m, still.src.reshape(3, 4, 4)) for m in moved)
    image = still.src.reshape(3, 4, 4)[1]
    allowed = [roll(image, down, across) for down in (-1, 0, 1) for across in (-1, 0, 1)]
    assert all(any(np.array_equal(m[1], a) for a in allowed) for m in moved)


def test_shifting_down_fills_the_top_row_with_black():
    image = np.array([[1, 2], [3, 4]])
    assert roll(image, 1, 0).tolist() == [[0, 0], [1, 2]]
    assert roll(image, 0, -1).tolist() == [[2, 0], [4, 0]]


def test_black_images_have_the_shape_of_a_batch():
    found = black_images(100, 4)
    assert (len(found.src), len(found.tgt), found.tokens) == (96, 6, 6)
