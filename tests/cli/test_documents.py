"""Documents on the command line: which arguments are files, the output, and refusals."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from onehop.cli import app


def onehop(*args):
    return CliRunner().invoke(app, ["translate", "-m", "model.safetensors", "--beam", "1", *map(str, args)])


@pytest.fixture
def here(tmp_path, monkeypatch, model_file):
    monkeypatch.chdir(tmp_path)
    Path("model.safetensors").write_bytes(model_file.read_bytes())
    Path("a.md").write_text("# the old house\n\n```\nkeep\n```\n")
    Path("house").write_text("the old house\r\n", newline="")
    return tmp_path


def test_existing_paths_are_files_and_other_words_text(here):
    text = onehop("the old house").stdout.strip()
    assert text
    assert onehop("the", "old", "house", "--text").stdout.strip() == text
    assert onehop("a.md").stdout == f"# {text}\n\n```\nkeep\n```\n"
    assert onehop("house").stdout_bytes == f"{text}\r\n".encode()
    assert onehop("house", "--text").stdout_bytes != f"{text}\r\n".encode()


def messages(result):
    """The messages besides warnings, which a model with random weights causes."""
    assert (result.stdout, result.exit_code) == ("", 0)
    return [line for line in result.stderr.splitlines() if not line.startswith("onehop: ")]


def test_one_file_becomes_a_file_and_several_a_folder(here):
    assert messages(onehop("a.md", "-o", "b.md")) == ["a.md", "b.md"]
    assert messages(onehop("a.md", "house", "-o", "out")) == ["a.md", "house", "out: 2 files"]
    assert Path("out/a.md").read_text() == Path("b.md").read_text()
    assert messages(onehop("out", "-o", "more")) == ["a.md", "more"]
    assert onehop("house", "--format", "markdown", "-o", "out2").exit_code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no.md"], "no.md does not exist. Check the path, or use --text to translate it as text."),
        (["a.md", "no"], "no does not exist. Check the path, or use --text to translate it as text."),
        (
            ["a.md", "--json"],
            "--json does not work with documents. Give the file with --input, to translate its lines.",
        ),
        (["one", "--join-lines"], "--join-lines is for documents. Give the file without --input."),
        (["a.md", "--format", "pdf"], "There is no format 'pdf'. There are: "),
        (["a.md", "-i", "a.md"], "Both a text and --input are given. Give one of them."),
        (
            ["a.md", "-o", "s3://bucket/a.md"],
            "-o s3:// is not on this machine, and outputs are written here. Give a local",
        ),
        (["."], "The files of . cannot be written to standard output. Give a folder with -o."),
    ],
)
def test_invalid_calls_are_refused(here, args, message):
    found = onehop(*args)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"onehop: {message}")
    assert found.stderr.count("\n") == 1


def test_a_damaged_file_leaves_nothing_behind(here):
    Path("a.docx").write_bytes(b"not a zip")
    result = onehop("a.docx", "-o", "b.docx")
    assert result.stderr.startswith("onehop: a.docx is damaged, or of another format")
    assert not list(here.glob("b.docx*"))


def test_an_output_may_be_a_file_url(here):
    assert messages(onehop("a.md", "-o", f"file://{here}/b.md")) == ["a.md", str(here / "b.md")]
