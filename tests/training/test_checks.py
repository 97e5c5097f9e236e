"""Checks of a store before training."""

import shutil

import numpy as np
import pytest

from onehop.atomic import write_json
from onehop.data.store import Store, hash_files
from onehop.errors import StoreError
from onehop.training.checks import check_fits


@pytest.fixture
def damaged(digits, tmp_path):
    """A copy of a store, to change one number in."""

    def change(name, dtype, value, *, true_hash):
        settings, store = digits
        folder = shutil.copytree(store.path, tmp_path / "store")
        values = np.fromfile(folder / name, dtype)
        values[1] = value
        values.tofile(folder / name)
        if true_hash:
            hash = hash_files(folder, list(store.description["files"]))
            write_json(folder / "store.json", {**store.description, "hash": hash})
        return settings, Store.open(folder)

    return change


def refusal(settings, store):
    with pytest.raises(StoreError) as caught:
        check_fits(settings, store)
    assert str(caught.value).endswith(". Make it again with `onehop prepare`.")
    return str(caught.value)


def test_an_intact_store_passes(digits):
    settings, store = digits
    check_fits(settings, store)


def test_a_store_with_a_wrong_hash_is_refused(damaged):
    settings, store = damaged("train.src.ids", "<u2", 7, true_hash=False)
    assert f"The token store {store.path} is damaged: its content does not match its hash." in refusal(settings, store)


def test_an_id_outside_the_vocabulary_is_refused(damaged):
    settings, store = damaged("valid.tgt.ids", "<u2", 65535, true_hash=True)
    assert "has the id 65535 in valid.tgt.ids, of 3" in refusal(settings, store)


@pytest.mark.parametrize("end", [-5, 10**9])
def test_inconsistent_sentence_ends_are_refused(damaged, end):
    settings, store = damaged("train.src.ends", "<i8", end, true_hash=True)
    assert "is damaged: train.src.ends do not fit." in refusal(settings, store)
