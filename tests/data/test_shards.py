"""A store in shards: the same pairs as a store of one machine, read as one store."""

from functools import partial

import numpy as np
import pytest
from local_runner import LocalRunner

from onehop.config import load_settings, with_changes
from onehop.data.batches import Epoch
from onehop.data.prepare import prepare
from onehop.data.shards import make_shards
from onehop.data.store import JoinedArrays, Store

CHANGES = ["data.valid_size=20", "tokenizer.vocab_size=300", "data.train=['a.tsv', 'b.tsv']", "data.language=false"]


def write_corpus(folder):
    """Two files with duplicates within and between them, an empty side and a line with one column."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    pairs = [" ".join(words[(i * k) % 10] for k in range(1, 3 + i % 5)) + f" {i % 700}" for i in range(10_000)]
    lines = [f"{text}\t{text[::-1]}" for text in pairs]
    (folder / "a.tsv").write_text("\n".join([*lines[:9000], "\tno source", "one column"]) + "\n", encoding="utf-8")
    (folder / "b.tsv").write_text("\n".join(lines[8000:]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_corpus(folder)
    settings = with_changes(load_settings("tiny"), CHANGES)
    whole = prepare(settings, folder / "whole", root=folder, processes=1)
    make = partial(make_shards, runner=LocalRunner(), partitions=3, part_chunks=1)
    return whole, prepare(settings, folder / "sharded", root=folder, make=make)


def test_concatenated_shards_equal_the_store(stores):
    whole, sharded = stores
    assert len(sharded.description["shards"]) == 4
    for split in ("train", "valid"):
        for side in ("source", "target"):
            one, two = (getattr(store.pairs(split), side) for store in stores)
            np.testing.assert_array_equal(one.ids, np.asarray(two.ids))
            np.testing.assert_array_equal(one.ends, np.asarray(two.ends))
            np.testing.assert_array_equal(one.lengths, two.lengths)
    for name in ("pairs", "sources", "tokenizer_hash", "made_from", "report", "id_type"):
        assert whole.description[name] == sharded.description[name], name
    assert whole.tokenizer == sharded.tokenizer
    assert whole.valid_text("src") == sharded.valid_text("src")
    assert sharded.report.dropped["duplicate"].count > 0
    sharded.verify()


def test_batches_of_shards_equal_those_of_the_store(stores):
    one, two = (Epoch(store.pairs("train"), 500, seed=3, number=1) for store in stores)
    assert len(one) == len(two) > 10
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.src, b.src)
        np.testing.assert_array_equal(a.labels, b.labels)


def test_a_stopped_preparation_resumes_with_the_same_result(stores, tmp_path):
    class Dying(LocalRunner):
        def map(self, task, items):
            for i, result in enumerate(super().map(task, items)):
                if task.__name__ == "_encode_part" and i == 2:
                    raise KeyboardInterrupt
                yield result

    write_corpus(tmp_path)
    settings = with_changes(load_settings("tiny"), CHANGES)
    make = partial(make_shards, partitions=3, part_chunks=1)
    with pytest.raises(KeyboardInterrupt):
        prepare(settings, tmp_path / "store", root=tmp_path, make=partial(make, runner=Dying()))
    again = prepare(settings, tmp_path / "store", root=tmp_path, make=partial(make, runner=LocalRunner()))
    assert again.hash == stores[1].hash
    assert Store.open(tmp_path / "store").hash == again.hash


def test_joined_arrays_read_as_one_array():
    parts = [np.arange(3), np.arange(0), np.arange(4)]
    joined = JoinedArrays(parts, [0, 3, 3])
    whole = np.concatenate([part + plus for part, plus in zip(parts, [0, 3, 3], strict=True)])
    np.testing.assert_array_equal(joined, whole)
    for first in range(8):
        for last in range(first, 8):
            np.testing.assert_array_equal(joined[first:last], whole[first:last])
    np.testing.assert_array_equal(joined[-1:], whole[-1:])
    np.testing.assert_array_equal(joined[np.array([6, 0, 2, 3])], whole[[6, 0, 2, 3]])
    assert int(joined[4]) == whole[4]
    assert joined.max() == whole.max()
