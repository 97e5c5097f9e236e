"""The verb and the notebook."""

import re
from html import unescape

import pytest
from page_data import TEXT, data_of
from typer.testing import CliRunner

import onehop
from onehop.cli import app
from onehop.errors import OnehopError
from onehop.explorer import serve
from onehop.explorer.view import View


def test_the_verb_writes_one_file(model_file, tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explore", TEXT, "-m", str(model_file), "--export", str(out), "--edit", "mask=off"])
    assert done.exit_code == 0, done.output
    data = data_of(out.read_text(encoding="utf-8"))
    assert data["trace"]["source"]["text"] == TEXT
    assert data["trace"]["edits"] == ["mask=off"]


def test_the_verb_serves_the_sentence_it_is_given(model_file, monkeypatch):
    asked = {}
    monkeypatch.setattr(serve, "serve", lambda explorer, **options: asked.update(options, opening=explorer.opening))
    done = CliRunner().invoke(app, ["explore", "a new tree", "-m", str(model_file), "--port", "0", "--no-browser"])
    assert done.exit_code == 0, done.output
    assert asked.pop("say") is not None
    assert asked == {"port": 0, "browser": False, "edits": [], "opening": "a new tree"}


def test_the_verbs_errors_are_one_line(model_file, tmp_path):
    for text, edit in (("", "mask=off"), ("the", "mask=on")):
        args = ["explore", text, "-m", str(model_file), "--export", str(tmp_path / "x.html"), "--edit", edit]
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 2
        assert done.stderr.startswith("onehop: ")
        assert done.stderr.count("\n") == 1


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(model_file, tmp_path):
    translator = onehop.Translator.load(model_file, "cpu")
    view = translator.explore('"<!--')
    html = view._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "<script" not in html
    (inside,) = re.findall(r'srcdoc="([^"]*)"', html)
    assert unescape(inside) == view.page
    assert data_of(view.page)["home"] == "notebook"
    assert data_of(view.page)["trace"]["model"]["hash"] == data_of(view.page)["about"]["model"]["hash"] is not None
    view.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == view.page
    assert repr(view).startswith("<the explorer's page, ")


def test_a_translator_without_a_file_can_be_looked_into(tracer):
    there = tracer.translator
    translator = onehop.Translator.of_model(tracer.model, there.tokenizer, "en", "de")
    trace = translator.trace(TEXT, ["scale=off"])
    assert trace.header["model"]["hash"] is None
    assert trace.header["edits"] == ["scale=off"]


def test_a_view_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(OnehopError, match=r"cannot be written: .* Choose another place\.$"):
        View("").save(tmp_path / "none" / "page.html")
