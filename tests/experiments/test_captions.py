"""Downloading parallel text for a first training, from a local folder instead of the network."""

import gzip
import hashlib

import pytest

from onehop.errors import TextError
from onehop.experiments import captions
from onehop.experiments.captions import fetch


@pytest.fixture
def source(tmp_path, monkeypatch):
    """The URL of a folder with two small files."""
    folder = tmp_path / "source"
    folder.mkdir()
    texts = {"train.en": b"A man.\nA dog.\n", "train.de": b"Ein Mann.\nEin Hund.\n"}
    for name, text in texts.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text))
    monkeypatch.setattr(captions, "FILES", {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()})
    return folder.as_uri()


def test_files_are_downloaded_once_and_reported(source, tmp_path, monkeypatch):
    said, out = [], tmp_path / "new" / "captions"
    fetch(out, said.append, source)
    assert said == [f"{out / name}: 2 lines" for name in ("train.en", "train.de")]
    assert (out / "train.de").read_bytes() == b"Ein Mann.\nEin Hund.\n"
    assert sorted(file.name for file in out.iterdir()) == ["train.de", "train.en"]
    (out / "train.en").unlink()
    fetch(out, said.append, source)
    assert len(said) == 3
    monkeypatch.setattr(captions, "download", lambda *_: pytest.fail("fetched again"))
    fetch(out, said.append, source)


def test_download_errors_are_one_line_and_keep_existing_files(source, tmp_path, monkeypatch):
    out = tmp_path / "captions"
    with pytest.raises(TextError, match=r"train\.en\.gz cannot be downloaded: .* Connect to the network"):
        fetch(out, str, source + "/no")
    packed = tmp_path / "source" / "train.de.gz"
    packed.write_bytes(gzip.compress(b"Something else.\n"))
    with pytest.raises(TextError, match=r"train\.de\.gz has changed\."):
        fetch(out, str, source)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(TextError, match=r"train\.de\.gz cannot be downloaded"):
        fetch(out, str, source)
    assert [file.name for file in out.iterdir()] == ["train.en"]
    (out / "train.en").write_text("mine")
    with pytest.raises(TextError, match=r"train\.en already exists, with other content\. Give another -o\."):
        fetch(out, str, source)
    assert (out / "train.en").read_text() == "mine"
    with pytest.raises(TextError, match=r"cannot be written"):
        fetch(out / "train.en", str, source)
