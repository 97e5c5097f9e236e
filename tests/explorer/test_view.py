"""The command `onehop explore` and the notebook."""

import re
from dataclasses import replace
from html import unescape

import pytest
from page_data import TEXT, data_of
from typer.testing import CliRunner

import onehop
from onehop.cli import app
from onehop.errors import OnehopError
from onehop.explorer import serve
from onehop.explorer.view import View, explorer_of
from onehop.interpret.tracer import Trace, Tracer, load_tracer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model, write_model


def test_the_command_exports_one_file(model_file, tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explore", TEXT, "-m", str(model_file), "--export", str(out), "--edit", "mask=off"])
    assert done.exit_code == 0, done.output
    data = data_of(out.read_text(encoding="utf-8"))
    assert data["trace"]["source"]["text"] == TEXT
    assert data["trace"]["edits"] == ["mask=off"]


def test_the_command_serves_the_given_sentence(model_file, monkeypatch):
    asked = {}
    monkeypatch.setattr(serve, "serve", lambda explorer, **options: asked.update(options, opening=explorer.opening))
    done = CliRunner().invoke(app, ["explore", "a new tree", "-m", str(model_file), "--port", "0", "--no-browser"])
    assert done.exit_code == 0, done.output
    assert asked.pop("say") is not None
    assert asked == {"port": 0, "browser": False, "edits": [], "opening": "a new tree"}


def test_errors_of_the_command_are_one_line(model_file, tmp_path):
    for text, edit in (("", "mask=off"), ("the", "mask=on")):
        args = ["explore", text, "-m", str(model_file), "--export", str(tmp_path / "x.html"), "--edit", edit]
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 2
        assert done.stderr.startswith("onehop: ")
        assert done.stderr.count("\n") == 1


def test_a_notebook_shows_the_page_in_an_iframe(model_file, tmp_path):
    view = onehop.explore('"<!--', model_file, device="cpu")
    html = view._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "<script" not in html
    (inside,) = re.findall(r'srcdoc="([^"]*)"', html)
    assert unescape(inside) == view.page
    assert data_of(view.page)["backend"] == "notebook"
    assert data_of(view.page)["trace"]["model"]["hash"] == data_of(view.page)["about"]["model"]["hash"] is not None
    view.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == view.page
    assert repr(view).startswith("<the explorer's page, ")


def test_a_model_stays_in_memory_until_its_file_changes(model_file, tmp_path):
    file = tmp_path / "copy.safetensors"
    write_model(file, read_model(model_file))
    first = load_tracer(file, "cpu")
    assert load_tracer(str(file), "cpu") is first
    assert explorer_of(first) is explorer_of(load_tracer(file, "cpu"))
    write_model(file, replace(read_model(model_file), provenance={"made": "anew"}))
    assert load_tracer(file, "cpu") is not first


def test_trace_works_as_a_function(model_file, tmp_path):
    found = onehop.trace(TEXT, str(model_file), edits=["scale=off"], beam=2, device="cpu")
    assert found.header["edits"] == ["scale=off"]
    assert found.header["options"]["beam"] == 2
    assert repr(found) == f"Trace({TEXT!r} -> {found.text!r}, tensors={len(found)})"
    found.write(str(tmp_path / "trace.json"))
    assert Trace.read(tmp_path / "trace.json").text == found.text


def test_a_translator_without_a_model_file_can_be_explored(tracer):
    there = tracer.translator
    unnamed = Tracer(SentenceTranslator.of_model(tracer.model, there.tokenizer, "en", "de"))
    trace = unnamed.trace(TEXT, ["scale=off"])
    assert trace.header["model"]["hash"] is None
    assert trace.header["edits"] == ["scale=off"]


def test_a_view_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(OnehopError, match=r"cannot be written: .* Choose another path\.$"):
        View("").save(tmp_path / "none" / "page.html")
