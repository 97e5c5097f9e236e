"""Reading parallel text: all input formats, and all errors."""

import gzip
import lzma
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from onehop.data import corpus
from onehop.data.chunks import read_chunks
from onehop.data.corpus import (
    ParallelFile,
    content_hash,
    entries_from_names,
    find_files,
    first_suspicious_line,
)
from onehop.errors import MissingPackageError, TextError

TSV = b"Good morning.\tGuten Morgen.\nThank you.\tDanke.\nGood night.\tGute Nacht.\n"
PAIRS = [
    (b"Good morning.", b"Guten Morgen."),
    (b"Thank you.", b"Danke."),
    (b"Good night.", b"Gute Nacht."),
]


def pairs_of(file: ParallelFile, size: int = 2) -> list[tuple[bytes, ...]]:
    pairs: list[tuple[bytes, ...]] = []
    for chunk in read_chunks(file, size):
        assert chunk.first_line == len(pairs) + 1
        columns = (line.split(b"\t") for line in chunk.src)
        sides = columns if chunk.tgt is None else zip(chunk.src, chunk.tgt, strict=True)
        pairs += [tuple(pair) for pair in sides]
    return pairs


def only(entry: str, root: Path) -> ParallelFile:
    (file,) = find_files([entry], root, "en", "de")
    return file


def zstd(data: bytes) -> bytes:
    packed: bytes = pytest.importorskip("backports.zstd").compress(data)
    return packed


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)]
)
def test_tsv_and_aligned_files_read_the_same_in_every_compression(tmp_path, suffix, pack):
    (tmp_path / f"all.tsv{suffix}").write_bytes(pack(TSV))
    (tmp_path / f"all.en{suffix}").write_bytes(pack(b"\n".join(p[0] for p in PAIRS)))
    (tmp_path / f"all.de{suffix}").write_bytes(pack(b"\n".join(p[1] for p in PAIRS)))
    assert pairs_of(only(f"all.tsv{suffix}", tmp_path)) == PAIRS
    assert pairs_of(only(f"all.{{lang}}{suffix}", tmp_path)) == PAIRS


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)])
def test_concatenated_archives_are_read_to_the_end(tmp_path, suffix, pack):
    (tmp_path / f"a.tsv{suffix}").write_bytes(pack(TSV) + pack(TSV * 20_000))
    assert pairs_of(only(f"a.tsv{suffix}", tmp_path), 4096) == PAIRS * 20_001


def test_the_language_may_be_in_the_folder_name(tmp_path):
    for lang, side in (("en", 0), ("de", 1)):
        (tmp_path / lang).mkdir()
        (tmp_path / lang / f"x.{lang}").write_bytes(b"\n".join(p[side] for p in PAIRS))
    assert pairs_of(only("{lang}/x.{lang}", tmp_path)) == PAIRS


def test_only_a_newline_ends_a_line(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfone\tein\xe2\x80\xa8s\r\ntwo\x0b\x85\tzwei\r\n")
    assert pairs_of(only("a.tsv", tmp_path)) == [(b"one", b"ein\xe2\x80\xa8s"), (b"two\x0b\x85", b"zwei")]


def test_a_pattern_matches_files_in_the_order_of_their_names(tmp_path):
    for name in ("b.tsv", "a.tsv", "c.txt"):
        (tmp_path / name).write_bytes(TSV)
    assert [f.name for f in find_files(["*.tsv"], tmp_path, "en", "de")] == ["a.tsv", "b.tsv"]


def test_consumed_bytes_reach_the_size_of_the_file(tmp_path):
    (tmp_path / "a.tsv.xz").write_bytes(lzma.compress(TSV * 1000))
    file = only("a.tsv.xz", tmp_path)
    consumed = [chunk.consumed for chunk in read_chunks(file, 500)]
    assert consumed == sorted(consumed)
    assert consumed[-1] == file.size


def test_an_endless_line_is_truncated(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST_LINE", 10)
    (tmp_path / "a.tsv").write_bytes(b"a\tb\n12345\t7890123456789012345678\nc\td\n")
    assert pairs_of(only("a.tsv", tmp_path)) == [(b"a", b"b"), (b"12345", b"7890"), (b"c", b"d")]


def test_the_content_hash_depends_on_content_not_on_names(tmp_path):
    (tmp_path / "a.tsv").write_bytes(TSV)
    (tmp_path / "b.tsv").write_bytes(TSV)
    (tmp_path / "c.tsv").write_bytes(TSV + b"x\ty\n")
    a, b, c = (content_hash(only(f"{name}.tsv", tmp_path)) for name in "abc")
    assert a == b != c


# --- errors ---------------------------------------------------------------------------------------------------


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(
        TextError, match=r"no\.tsv does not exist\. Give a pair of files written as name\.{lang}, a file"
    ):
        only("no.tsv", tmp_path)


def test_a_missing_side_is_an_error(tmp_path):
    (tmp_path / "a.en").write_bytes(b"x\n")
    with pytest.raises(TextError, match=r"a\.de does not exist\. Give"):
        only("a.{lang}", tmp_path)


def test_a_folder_instead_of_a_file_is_an_error(tmp_path):
    (tmp_path / "a.tsv").mkdir()
    with pytest.raises(TextError, match=r"a\.tsv is a folder\. Give a pair of files"):
        only("a.tsv", tmp_path)


def test_a_pattern_without_files_is_an_error(tmp_path):
    with pytest.raises(TextError, match=r"No file matches .*\*\.tsv\. Correct the pattern or the data root\."):
        only("*.tsv", tmp_path)


@pytest.mark.parametrize(("line", "found"), [("just text", "1 column"), ("a\tb\tc", "3 columns")])
def test_a_first_line_without_two_columns_is_an_error(tmp_path, line, found):
    (tmp_path / "a.tsv").write_text(line + "\na\tb\n")
    with pytest.raises(TextError, match=rf"a\.tsv line 1 has {found}\. It must be source TAB target"):
        list(read_chunks(only("a.tsv", tmp_path)))


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
@pytest.mark.parametrize("order", ["LE", "BE"])
def test_utf16_and_utf32_are_refused(tmp_path, encoding, order):
    (tmp_path / "a.tsv").write_bytes("\ufeffGuten\tTag\n".encode(f"{encoding}-{order}"))
    with pytest.raises(TextError) as refused:
        list(read_chunks(only("a.tsv", tmp_path)))
    file = tmp_path / "a.tsv"
    remedy = f"Convert it with `iconv -f {encoding} -t UTF-8 {file}`."
    assert str(refused.value) == f"{file} is {encoding} (line 1), not UTF-8. {remedy}"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)])
def test_a_damaged_archive_is_an_error(tmp_path, suffix, pack):
    packed = pack(os.urandom(5000).hex().encode())
    (tmp_path / f"cut.tsv{suffix}").write_bytes(packed[: len(packed) // 2])
    (tmp_path / f"other.tsv{suffix}").write_bytes(b"this is no archive at all")
    for name in ("cut", "other"):
        with pytest.raises(TextError, match=rf"{name}\.tsv{suffix} .*Download it again\."):
            list(read_chunks(ParallelFile(name="x", paths=(tmp_path / f"{name}.tsv{suffix}",))))


def test_a_file_deleted_before_reading_is_an_error(tmp_path):
    (tmp_path / "a.tsv").write_bytes(TSV)
    file = only("a.tsv", tmp_path)
    (tmp_path / "a.tsv").unlink()
    with pytest.raises(TextError, match=r"a\.tsv cannot be read: No such file or directory\. Check the file and its"):
        list(read_chunks(file))


def test_a_missing_zstd_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    (tmp_path / "a.tsv.zst").write_bytes(b"")
    with pytest.raises(MissingPackageError, match=r'backports\.zstd\. .*"onehop\[data\]", or unpack .*a\.tsv\.zst$'):
        list(read_chunks(only("a.tsv.zst", tmp_path)))


def sentence_lengths(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    src = rng.integers(20, 200, n)
    return src, np.maximum(1, src * 1.15 + rng.normal(0, 6, n)).astype(np.int64)


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("place", [0, 250, 999])
@pytest.mark.parametrize("which", [0, 1])
def test_the_line_where_files_diverge_is_found(lost, place, which):
    sides = list(sentence_lengths(1000 + lost, seed=place + lost))
    sides[which] = np.delete(sides[which], slice(place, place + lost))
    assert abs(first_suspicious_line(*(side.tolist() for side in sides)) - (place + 1)) <= 2


def test_unequal_line_counts_are_an_error(tmp_path):
    src, tgt = sentence_lengths(300, seed=0)
    (tmp_path / "a.en").write_text("".join("x" * n + "\n" for n in src))
    (tmp_path / "a.de").write_text("".join("x" * n + "\n" for n in np.delete(tgt, 120)))
    with pytest.raises(TextError) as error:
        list(read_chunks(only("a.{lang}", tmp_path)))
    found = re.search(r"a\.en has 300 lines and .*a\.de has 299\. .* Check line (\d+),", str(error.value))
    assert found
    assert abs(int(found[1]) - 121) <= 2


def test_an_empty_side_is_an_error(tmp_path):
    (tmp_path / "a.en").write_text("x\n")
    (tmp_path / "a.de").write_text("")
    with pytest.raises(TextError, match=r"has 1 lines and .*a\.de has 0\. .* Check line 1,"):
        list(read_chunks(only("a.{lang}", tmp_path)))


@pytest.mark.parametrize(
    ("names", "entries", "languages"),
    [
        (["train.en", "train.de"], ("train.{lang}",), ("en", "de")),
        (["a.b/news.fr.gz", "a.b/news.en.gz"], ("a.b/news.{lang}.gz",), ("fr", "en")),
        (["one.tsv", "two.tsv.xz"], ("one.tsv", "two.tsv.xz"), None),
        (["a.en", "a.de", "b.en.xz", "b.de.xz"], ("a.{lang}", "b.{lang}.xz"), ("en", "de")),
        (["-"], ("-",), None),
        ([], (), None),
    ],
)
def test_file_names_on_the_command_line_give_the_languages(names, entries, languages):
    assert entries_from_names(names) == (entries, languages)


@pytest.mark.parametrize("names", [["english", "german"], ["train.en", "test.de"], ["train.en", "train.de.gz"]])
def test_two_names_without_a_common_stem_are_refused(names):
    with pytest.raises(TextError, match=r"are not named as a pair\. Name aligned files like train.en train.de"):
        entries_from_names(names)


def test_a_misspelled_name_of_a_pair_is_reported_as_missing(tmp_path):
    for name in ("train.en", "train.de"):
        (tmp_path / name).touch()
    with pytest.raises(TextError, match=r"trian\.de does not exist\. Name aligned files"):
        entries_from_names([str(tmp_path / name) for name in ("train.en", "trian.de")])


def test_names_without_a_partner_or_of_several_languages_are_refused():
    with pytest.raises(TextError, match=r"^c\.en has no partner\. Name aligned files"):
        entries_from_names(["a.en", "a.de", "c.en"])
    with pytest.raises(TextError, match=r"^The files have 2 language pairs\. Give one language pair"):
        entries_from_names(["a.en", "a.de", "a.en", "a.fr"])
