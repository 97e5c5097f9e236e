"""Pairs in files of records: each format gives the same store, and each error is reported."""

import csv
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from data.test_prepare import sentences, settings, write_tsv

from onehop.data import records
from onehop.data.chunks import read_chunks
from onehop.data.corpus import entries_from_names, find_files
from onehop.data.filters import columns_of, report_to_text
from onehop.data.prepare import prepare
from onehop.errors import MissingPackageError, SettingsError, TextError

PAIRS = [("Good morning.", "Guten Morgen."), ('A "quoted",\nline; é', "Eine\t»Zeile« & <mehr>"), ("Night.", "Nacht.")]
BYTES = [(a.encode(), b.encode()) for a, b in PAIRS]


def as_csv(pairs, header=("en", "de"), **dialect) -> bytes:
    out = io.StringIO()
    csv.writer(out, **dialect).writerows([*([header] if header else []), *pairs])
    return out.getvalue().encode()


def as_jsonl(pairs) -> bytes:
    return "".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in pairs).encode()


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def as_tmx(pairs, languages=("en-US", "DE"), prolog="") -> bytes:
    def variant(language, text):
        return f'<tuv xml:lang="{language}"><seg>{escaped(text)}</seg></tuv>'

    units = "".join(f"<tu>{''.join(map(variant, languages, pair))}</tu>\n" for pair in pairs)
    return f'<?xml version="1.0"?>{prolog}<tmx version="1.4"><header/><body>{units}</body></tmx>'.encode()


def table(pairs, names=("en", "de")) -> pyarrow.Table:
    return pyarrow.table(dict(zip(names, map(list, zip(*pairs, strict=True)), strict=True)))


def translations(pairs) -> pyarrow.Table:
    return pyarrow.table({"id": list(range(len(pairs))), "translation": [{"en": a, "de": b} for a, b in pairs]})


def as_parquet(content: pyarrow.Table) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(content, out, row_group_size=150)
    return out.getvalue()


def write_dataset(folder: Path, *shards: pyarrow.Table) -> None:
    """Write a folder like `datasets.Dataset.save_to_disk`."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{len(shards):05d}.arrow" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        with pyarrow.ipc.new_stream(folder / name, shard.schema) as out:
            out.write_table(shard, max_chunksize=100)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")


def read(name: str, root: Path, columns=None, size: int = 2) -> list[tuple[bytes, ...]]:
    (file,) = find_files([name], root, "en", "de", columns)
    return [pair for chunk in read_chunks(file, size) for pair in columns_of(chunk)]


FORMATS = {
    "a.csv": as_csv,
    "a.csv.gz": lambda pairs: gzip.compress(as_csv(pairs, ("de", "English"), delimiter=";").replace(b"\r\n", b"\n")),
    "a.jsonl": as_jsonl,
    "a.ndjson.xz": lambda pairs: lzma.compress(as_jsonl(pairs)),
    "a.parquet": lambda pairs: as_parquet(table(pairs)),
    "b.parquet": lambda pairs: as_parquet(translations(pairs)),
    "a.tmx": as_tmx,
    "a.tmx.gz": lambda pairs: gzip.compress(as_tmx(pairs).decode().encode("utf-16")),
}


def written(name: str, pairs) -> bytes:
    swapped = [pair[::-1] for pair in pairs] if name == "a.csv.gz" else pairs
    return FORMATS[name](swapped)


# --- the same pairs -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def from_tsv(tmp_path_factory):
    """The hash of the store made from a TSV file."""
    folder = tmp_path_factory.mktemp("tsv")
    write_tsv(folder / "a.tsv", sentences(400))
    return prepare(settings(), folder / "store", root=folder, processes=1).hash


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_store_as_tsv(name, tmp_path, from_tsv):
    (tmp_path / name).write_bytes(written(name, sentences(400)))
    store = prepare(settings(name), tmp_path / "store", root=tmp_path, processes=1)
    assert store.hash == from_tsv
    assert [source for source, _ in store.sources] == [name[0]]


@pytest.mark.parametrize("make", [table, translations])
def test_a_hugging_face_folder_gives_the_same_store_as_tsv(make, tmp_path, from_tsv):
    pairs = sentences(400)
    write_dataset(tmp_path / "mine", make(pairs[:150]), make(pairs[150:]))
    store = prepare(settings("mine"), tmp_path / "store", root=tmp_path, processes=1)
    assert store.hash == from_tsv


@pytest.mark.parametrize("name", FORMATS)
def test_tabs_quotes_and_newlines_are_part_of_a_text(name, tmp_path):
    (tmp_path / name).write_bytes(written(name, PAIRS))
    assert read(name, tmp_path) == BYTES


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (("source", "target"), None),
        (("SRC", "tgt"), None),
        (("English", "German"), None),
        (("en_GB", "de-AT"), None),
        (("question", "answer"), ("question", "answer")),
        (None, None),  # two columns need no header
    ],
)
def test_columns_are_found_by_name(header, columns, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + as_csv(PAIRS, header))
    assert read("a.csv", tmp_path, columns) == BYTES


def test_the_exact_column_counts_before_a_region(tmp_path):
    rows = [("x", *pair, "y") for pair in PAIRS]
    (tmp_path / "a.csv").write_bytes(as_csv(rows, ("en-GB", "en", "de", "de_id")))
    assert read("a.csv", tmp_path) == BYTES


def test_markup_codes_in_a_tmx_segment_are_not_text(tmp_path):
    seg = 'Press <bpt i="1">&lt;b&gt;</bpt><hi>OK</hi><ept i="1">&lt;/b&gt;</ept> <ph>{0}</ph>now'
    unit = f'<tu><tuv lang="en"><seg>{seg}</seg></tuv><tuv lang="de"><seg>Jetzt</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f'<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><body>{unit}</body></tmx>')
    assert read("a.tmx", tmp_path) == [(b"Press OK now", b"Jetzt")]


# --- what is wrong --------------------------------------------------------------------------------------------


def test_records_without_two_sides_are_counted_and_shown(tmp_path):
    good = sentences(30)
    lines = [*as_jsonl(good).split(b"\n")[:-1], b'{"en": "alone"}', b"{broken", b'{"en": "x", "de": 3}', b"[1]", b""]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    rows = [*good, ("one",), ("1", "2", "3")]
    (tmp_path / "b.csv").write_bytes(as_csv(rows))
    (tmp_path / "c.parquet").write_bytes(as_parquet(table([*good, (None, "x"), ("y", None)])))
    one = b"<tu><tuv xml:lang='en'><seg>only</seg></tuv></tu></body>"
    gap = b"<tu><tuv xml:lang='en'><seg>&gap;</seg></tuv><tuv xml:lang='de'><seg>x</seg></tuv></tu>"
    tmx = as_tmx(good, prolog='<!DOCTYPE tmx SYSTEM "tmx14.dtd">')
    (tmp_path / "d.tmx").write_bytes(tmx.replace(b"</body>", gap + one))
    store = prepare(
        settings("a.jsonl", "b.csv", "c.parquet", "d.tmx", duplicates=False),
        tmp_path / "store",
        root=tmp_path,
        processes=1,
    )
    dropped = store.report.dropped
    assert (dropped["columns"].count, dropped["empty"].count) == (4 + 2 + 2 + 2, 1)
    assert store.report.files == {"a.jsonl": 35, "b.csv": 32, "c.parquet": 32, "d.tmx": 32}
    text = report_to_text(store.report)
    assert "10 dropped: not two sides" in text
    assert "a.jsonl:31  'alone' → ''" in text


def test_bytes_that_are_not_utf8_are_counted(tmp_path):
    (tmp_path / "a.csv").write_bytes("en,de\nschön,pretty\n".encode("latin-1") + b"a,b\n")
    assert read("a.csv", tmp_path) == [(b"sch\xf6n", b"pretty"), (b"a", b"b")]


def test_an_unclosed_quote_loses_some_rows_but_no_memory(tmp_path):
    rows = "".join(f"word {i},Wort {i}\n" for i in range(30_000))
    (tmp_path / "a.csv").write_text(f'en,de\nfirst,erstes\n"open,nie\n{rows}')
    found = read("a.csv", tmp_path, size=4096)
    assert found[0] == (b"first", b"erstes")
    assert found[1] == (b"(field larger than field limit (131072))",)
    assert found[-1] == (b"word 29999", b"Wort 29999")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"id,en,fr\n1,a,b\n",
            r"a\.csv has the columns id, en, fr, but none named de\. Rename them to en and",
        ),
        ("a.csv", b"", r"a\.csv has the columns \(none\), but none named en\."),
        ("a.csv", "en,de\n".encode("utf-16"), r"a\.csv is UTF-16 \(line 1\), not UTF-8\."),
        ("a.jsonl", b'{"en": "a", "fr": "b"}\n', r"a\.jsonl has the columns en, fr, but none named de\."),
        ("a.jsonl", b'[\n{"en": "a"}]', r"a\.jsonl line 1 is not a JSON object\. Each line must be an object, such as"),
        ("a.parquet", b"no parquet", r"a\.parquet is cut off or damaged"),
        ("a.parquet", as_parquet(table(PAIRS, ("en", "fr"))), r"has the columns en, fr, but none named de\."),
        ("a.arrow", b"no arrow", r"a\.arrow is cut off or damaged"),
        ("a.tmx", as_tmx(PAIRS)[:-20], r"a\.tmx is not well-formed XML: .*line \d+.*\. Export it again\."),
        (
            "a.tmx",
            as_tmx(PAIRS, ("en", "fr")),
            r"a\.tmx has en, fr, but no unit in en and de\. Give the right languages",
        ),
        ("a.tsv", b"[\n", r"other formats are known by their endings \(\.tsv, \.csv, \.jsonl, \.parquet and \.tmx\)\."),
    ],
)
def test_an_unreadable_file_is_a_one_line_error(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=message):
        read(name, tmp_path)


@pytest.mark.parametrize(
    "prolog", ['<!DOCTYPE tmx [<!ENTITY a "x">]>', '<!DOCTYPE tmx [<!ENTITY a SYSTEM "/etc/passwd">]>']
)
def test_entities_are_refused(prolog, tmp_path):
    (tmp_path / "a.tmx").write_bytes(as_tmx(PAIRS, prolog=prolog))
    with pytest.raises(TextError, match=r"a\.tmx declares the entity a\. Replace it by its text\."):
        read("a.tmx", tmp_path)


def test_a_dataset_dict_needs_the_name_of_a_split(tmp_path):
    for split in ("train", "validation"):
        write_dataset(tmp_path / "mine" / split, table(PAIRS))
    (tmp_path / "mine" / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    with pytest.raises(
        TextError,
        match=r"mine is a dataset with several splits: train, validation\. Give one, such as .*/mine/train\.$",
    ):
        read("mine", tmp_path)
    assert read("mine/train", tmp_path) == BYTES
    (tmp_path / "other").mkdir()
    with pytest.raises(TextError, match=r"other is a folder\. Give a pair of files written as name"):
        read("other", tmp_path)


def test_exactly_two_columns_are_required(tmp_path):
    with pytest.raises(SettingsError, match=r"data\.columns names 1 columns\. Name two"):
        read("a.csv", tmp_path, ("en",))


def test_records_are_refused_as_plain_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(as_csv(PAIRS))
    (file,) = find_files(["a.csv"], tmp_path, "en", "de")
    with pytest.raises(TextError, match=r"a\.csv has pairs, but data\.plain needs plain text\. Give text files"):
        next(read_chunks(file, plain="lines"))


def test_missing_pyarrow_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(as_parquet(table(PAIRS)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = (
        r'^This needs pyarrow\. Install it with: pip install "onehop\[data\]", or write .*a\.parquet as CSV or JSONL$'
    )
    with pytest.raises(MissingPackageError, match=message):
        read("a.parquet", tmp_path)


# --- bounded memory -------------------------------------------------------------------------------------------


def test_tables_are_read_in_batches_of_rows(tmp_path, monkeypatch):
    """Even if the file was written as one batch."""
    monkeypatch.setattr(records, "ROWS", 10)
    pairs = sentences(100)
    (tmp_path / "a.parquet").write_bytes(as_parquet(table(pairs)))
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", table(pairs).schema) as out:
        out.write_table(table(pairs))
    for name in ("a.parquet", "a.arrow"):
        (file,) = find_files([name], tmp_path, "en", "de")
        reader = records.READERS[file.format](file)
        assert [len(batch) for batch in reader.batches(file.paths[0])] == [10] * 10
        assert [tuple(side.decode() for side in record) for record in reader] == pairs
        assert reader.consumed == file.size


def test_an_unclosed_segment_is_truncated(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LONGEST_LINE", 10)
    long = [("x " * 100_000, "kurz")]
    (tmp_path / "a.tmx").write_bytes(as_tmx(long))
    ((source, target),) = read("a.tmx", tmp_path)
    assert (len(source) < 100_000, target) == (True, b"kurz")


# --- on the command line --------------------------------------------------------------------------------------


def test_files_with_both_sides_need_no_partner(tmp_path):
    write_dataset(tmp_path / "mine", table(PAIRS))
    names = ["a.csv", "x.en", "b.tmx.gz", "x.de", str(tmp_path / "mine")]
    assert entries_from_names(names) == (("a.csv", "b.tmx.gz", str(tmp_path / "mine"), "x.{lang}"), ("en", "de"))
    with pytest.raises(TextError, match=r"x\.en has no partner\."):
        entries_from_names(["a.csv", "x.en"])
