"""The token store: it round-trips, and every error is one line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onehop.atomic import write_whole
from onehop.data.filters import FilterReport, report_to_dict
from onehop.data.store import Pairs, PairsWriter, Store, id_type, side_from_lists, write_description
from onehop.errors import StoreError

SRC = [[5, 6, 7], [8], [9, 10], [65535]]
TGT = [[1], [2, 3, 4, 5, 6], [7, 8], [9]]


def make_store(folder: Path, vocab_size: int = 65536, valid: int = 1) -> Path:
    folder.mkdir()
    dtype = id_type(vocab_size)
    for split, last in (("train", 4), ("valid", valid)):
        writer = PairsWriter(folder, split)
        for first in range(0, last, 3):
            rows = slice(first, min(first + 3, last))
            writer.write(Pairs(side_from_lists(SRC[rows], dtype), side_from_lists(TGT[rows], dtype)))
        writer.close()
    (folder / "tokenizer.model").write_bytes(b"model")
    (folder / "valid.src.txt").write_text("a\u2028b c\nd\n", encoding="utf-8")
    (folder / "valid.tgt.txt").write_text("x\ny\n", encoding="utf-8")
    description = {
        "source": "en",
        "target": "de",
        "id_type": dtype.str,
        "tokenizer_hash": "t",
        "made_from": {},
        "report": report_to_dict(FilterReport(train=4)),
    }
    write_description(folder, description)
    return folder


@pytest.fixture
def folder(tmp_path):
    return make_store(tmp_path / "store")


@pytest.mark.parametrize(("vocab_size", "dtype"), [(300, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_pairs_round_trip(tmp_path, vocab_size, dtype):
    pairs = Store.open(make_store(tmp_path / "s", vocab_size)).pairs("train")
    assert len(pairs) == 4
    assert [pairs.src(i).tolist() for i in range(4)] == SRC
    assert [pairs.tgt(i).tolist() for i in range(4)] == TGT
    assert pairs.src_lengths.tolist() == [3, 1, 2, 1]
    assert pairs.tgt_lengths.tolist() == [1, 5, 2, 1]
    assert pairs.src_lengths.dtype == np.int32
    assert pairs.src(0).dtype == np.dtype(dtype)


def test_sentences_are_read_only_views(folder):
    pairs = Store.open(folder).pairs("train")
    assert np.shares_memory(pairs.src(0), pairs.source.ids)
    with pytest.raises(ValueError, match="read-only"):
        pairs.src(0)[0] = 1


def test_metadata_round_trips(folder):
    store = Store.open(str(folder))
    assert (store.source, store.target, store.tokenizer) == ("en", "de", b"model")
    assert len(store.pairs("valid")) == 1
    assert store.valid_text("src") == ["a\u2028b c", "d"]
    assert store.report.train == 4
    store.verify()


def test_hash_depends_on_the_content_only(tmp_path, folder):
    same, other = make_store(tmp_path / "same"), make_store(tmp_path / "other", valid=2)
    assert Store.open(folder).hash == Store.open(same).hash != Store.open(other).hash


def test_an_empty_split_can_be_opened(tmp_path):
    pairs = Store.open(make_store(tmp_path / "s", valid=0)).pairs("valid")
    assert len(pairs) == 0
    assert pairs.src_lengths.tolist() == []


def test_weights_need_a_store_with_recorded_sources(folder):
    """Stores made before sources were recorded still open and train."""
    store = Store.open(folder)
    assert store.sources == []
    assert not store.pairs("train", {}).parts
    with pytest.raises(StoreError) as e:
        store.pairs("train", {"a": 2.0})
    assert str(e.value) == (
        f"The token store {folder} does not record the files of its pairs, which train.weights needs. "
        "Make it again with `onehop prepare --force`."
    )


def test_a_part_of_a_side_can_be_read(folder):
    side = Store.open(folder).pairs("train").source
    assert side.between(1, 3).lists() == SRC[1:3]
    assert side.between(0, 4).lists() == SRC
    assert side.between(2, 2).lists() == []
    assert side.lists() == SRC


def test_an_unknown_split_is_an_error(folder):
    with pytest.raises(ValueError, match="no split 'test': there are train, valid"):
        Store.open(folder).pairs("test")


# --- errors ---------------------------------------------------------------------------------------------------


def test_a_missing_store_is_an_error(tmp_path):
    with pytest.raises(StoreError, match=r"There is no token store .*nowhere\. Make one with `onehop prepare`\."):
        Store.open(tmp_path / "nowhere")


def test_foreign_folders_files_and_descriptions_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "store.json").write_text('{"format": "something"}')
    for path in (tmp_path, tmp_path / "file", tmp_path / "foreign"):
        with pytest.raises(StoreError, match=r"is not a token store\. Give the folder that `onehop prepare` wrote"):
            Store.open(path)


def test_a_description_that_is_no_json_is_refused(folder):
    (folder / "store.json").write_text("{")
    with pytest.raises(StoreError, match=r"is damaged: store\.json cannot be read\. Make it again"):
        Store.open(folder)


@pytest.mark.parametrize("change", [{"hash": 3}, {"files": []}, {"source": None}, {"id_type": "<f8"}, {"version": "1"}])
def test_a_description_with_wrong_types_is_refused(folder, change):
    description = json.loads((folder / "store.json").read_text())
    (folder / "store.json").write_text(json.dumps({**description, **change}))
    with pytest.raises(StoreError, match=rf"is damaged: store\.json has no valid {next(iter(change))}\. Make it again"):
        Store.open(folder)


def test_a_newer_format_is_refused(folder):
    description = json.loads((folder / "store.json").read_text())
    (folder / "store.json").write_text(json.dumps({**description, "version": 99}))
    with pytest.raises(StoreError, match=r"has format 99; this onehop reads format 1\. Make it again"):
        Store.open(folder)


@pytest.mark.parametrize("name", ["train.src.ids", "valid.tgt.ends", "tokenizer.model"])
def test_a_missing_file_is_an_error(folder, name):
    (folder / name).unlink()
    with pytest.raises(StoreError, match=rf"lacks its file {name}\. Make it again"):
        Store.open(folder)


def test_a_file_of_wrong_size_is_refused(folder):
    (folder / "train.tgt.ids").write_bytes(b"12")
    with pytest.raises(StoreError, match=r"is damaged: train\.tgt\.ids has 2 bytes instead of 18\. Make it again"):
        Store.open(folder)


def test_a_store_deleted_after_opening_is_an_error(folder):
    store = Store.open(folder)
    shutil.rmtree(folder)
    for use in (lambda: store.pairs("train"), lambda: store.tokenizer, store.verify):
        with pytest.raises(StoreError, match=r"lacks its file .*Make it again"):
            use()
    with pytest.raises(StoreError, match=r"lacks its file valid\.src\.txt\. Make it again"):
        store.valid_text("src")


def test_changed_content_is_found_only_by_verify(folder):
    ids = bytearray((folder / "train.src.ids").read_bytes())
    ids[0] ^= 1
    (folder / "train.src.ids").write_bytes(bytes(ids))
    store = Store.open(folder)
    with pytest.raises(StoreError, match=r"is damaged: its content does not match its hash\. Make it again"):
        store.verify()


def test_concurrent_writes_leave_one_complete_file(tmp_path, monkeypatch):
    file, sync = tmp_path / "data.json", os.fsync
    other = "import sys, pathlib; from onehop.atomic import write_whole; "
    other += "write_whole(pathlib.Path(sys.argv[1]), b'other')"

    def meanwhile(descriptor: int) -> None:
        sync(descriptor)
        monkeypatch.setattr(os, "fsync", sync)  # restored by its first call, before the rename
        subprocess.run([sys.executable, "-c", other, str(file)], check=True)
        assert file.read_bytes() == b"other"

    monkeypatch.setattr(os, "fsync", meanwhile)
    write_whole(file, b"own")
    assert file.read_bytes() == b"own"
    assert os.listdir(tmp_path) == ["data.json"]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "data.json", b"own")
    assert os.listdir(tmp_path) == []


def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next_write(tmp_path):
    names = ["a.json.1.unfinished", "a.json.2.unfinished", "a.json.b.3.unfinished", "b.json.4.unfinished"]
    for name in names:
        (tmp_path / name).write_text("half")
    for name in names[1:]:
        os.utime(tmp_path / name, (0, 0))
    write_whole(tmp_path / "a.json", b"whole")
    # A temporary file that is being written is kept, and so are those of other files.
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", names[0], names[2], names[3]}
