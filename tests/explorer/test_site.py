"""The static site as files; what it does in a browser is in tests/browser."""

import io
import json
import re
import shutil

import pytest
import sentencepiece as spm
from command_line import onehop
from page_data import data_of

from onehop.errors import ModelChangedError, ModelFileError, OnehopError
from onehop.explorer.html import assets
from onehop.explorer.site import DESCRIPTION, EXAMPLE, MODEL, tokenizer_rules, write_site
from onehop.storage.model_label import describe
from onehop.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(explorer, model_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    write_site(explorer, model_file, folder)
    return folder


def test_a_site_holds_page_and_model(folder, explorer, model_file):
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == {"index.html", MODEL, DESCRIPTION, EXAMPLE, *(f"page/{path}" for path in assets())}
    assert describe(folder / MODEL).hash == describe(model_file).hash
    described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    assert described["bytes"] == (folder / MODEL).stat().st_size
    assert described["about"] == explorer.tracer.about()
    tokenizer = explorer.tracer.translator.tokenizer
    assert [tuple(piece[:2]) for piece in described["pieces"]] == tokenizer.vocabulary()
    html = (folder / "index.html").read_text(encoding="utf-8")
    assert data_of(html)["backend"] == "local"
    assert data_of(html)["trace"]["source"]["text"] == explorer.opening
    late = json.loads((folder / EXAMPLE).read_text(encoding="utf-8"))
    assert late["heads"] == list(explorer.heads(explorer.opening))[1:]
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', html)
    assert "default-src 'none'" in policy
    assert "worker-src 'self'" in policy
    assert "frame-ancestors" not in policy  # which a page cannot say of itself


def test_an_empty_folder_is_filled_and_a_nonempty_one_is_refused(folder, explorer, model_file, tmp_path):
    (tmp_path / "empty").mkdir()
    assert write_site(explorer, model_file, tmp_path / "empty") == sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file()
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OnehopError, match="cannot be written"):
        write_site(explorer, model_file, tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_the_small_model_is_the_default_if_installed(model_file, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path))
    shutil.copy(model_file, tmp_path / "en-de-small.safetensors")
    found = onehop("explore", "--site", tmp_path / "site")
    assert found.exit_code == 0, found.stderr
    assert "python -m http.server" in found.stdout
    described = json.loads((tmp_path / "site" / DESCRIPTION).read_text(encoding="utf-8"))
    assert described["about"]["name"] == "en-de-small"


def test_a_changed_model_file_is_refused(explorer, model_file, tmp_path):
    other = tmp_path / MODEL
    other.write_bytes(model_file.read_bytes()[:-1])
    with pytest.raises((ModelChangedError, ModelFileError)):
        write_site(explorer, other, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    "change", [{"model_type": "unigram"}, {"normalization_rule_name": "nfkc"}, {"add_dummy_prefix": False}]
)
def test_a_tokenizer_with_other_rules_is_refused(change):
    out, plain = io.BytesIO(), {"model_type": "bpe", "normalization_rule_name": "identity"}
    words = [f"{a}{b} {c}" for a in "abc" for b in "xyz" for c in ("house", "tree")]
    marks = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2, "hard_vocab_limit": False}
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(words), model_writer=out, vocab_size=40, **marks, **{**plain, **change}
    )
    with pytest.raises(ModelFileError, match="made by another program"):
        tokenizer_rules(Tokenizer(out.getvalue()))
