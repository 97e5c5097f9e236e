"""Which parts of figure 1 each variant keeps."""

from pathlib import Path

from typer.testing import CliRunner

from onehop.cli import app
from onehop.experiments import family_figure


def onehop(*words: str):
    return CliRunner().invoke(app, list(words))


def test_the_picture_of_the_family_overwrites_no_text(tmp_path):
    text = tmp_path / "train.en"
    text.write_text("mine")
    found = onehop("paper", "family", "-o", str(text))
    said = f"onehop: {text} does not end in .svg. Give a name that ends in .svg with -o.\n"
    assert (found.stderr, found.exit_code, text.read_text()) == (said, 2, "mine")


def test_the_family_is_read_from_the_models():
    cells = {part: list(of_part.values()) for part, of_part in family_figure.cells().items()}
    assert [what for what, _ in cells["cross-attention"]] == ["keeps", "drops", "drops", "drops"]
    assert [what for what, _ in cells["encoder stack"]] == ["keeps", "keeps", "drops", "keeps"]
    assert [what for what, _ in cells["mask over the future"]] == ["keeps", "drops", "keeps", "drops"]
    assert [what for what, _ in cells["patch projection"]] == ["", "", "", "adds"]
    assert cells["feed-forward network"] == [
        *(("keeps", "ReLU"), ("changes", "GELU"), ("changes", "GELU (tanh)"), ("changes", "GELU"))
    ]


def test_the_family_as_table_and_picture(tmp_path):
    out = tmp_path / "family.svg"
    found = onehop("paper", "family", "-o", str(out))
    assert "| cross-attention | 3.2.3 | yes | drops | drops | drops |" in found.stdout
    assert out.read_text().count(">dropped<") == sum(
        what == "drops" for of_part in family_figure.cells().values() for what, _ in of_part.values()
    )
    (tmp_path / "folder.svg").mkdir()
    refused = onehop("paper", "family", "-o", str(tmp_path / "folder.svg"))
    assert refused.stderr == f"onehop: {tmp_path / 'folder.svg'} cannot be written: Is a directory. Give another -o.\n"


def test_the_family_without_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert onehop("paper", "family").stdout == family_figure.table_text() + "\n"
    assert list(tmp_path.iterdir()) == []


def test_the_pages_table_is_the_commands():
    page = Path(__file__).parents[2] / "docs" / "internals" / "paper-map.md"
    assert family_figure.table_text() in page.read_text(encoding="utf-8")
