"""Which parts of figure 1 each variant keeps."""

from pathlib import Path

from command_line import onehop

from onehop.experiments import family_figure


def test_the_family_figure_is_not_written_to_a_text_file(tmp_path):
    text = tmp_path / "train.en"
    text.write_text("mine")
    found = onehop("paper", "family", "-o", str(text))
    said = f"onehop: {text} does not end in .svg. Give a name that ends in .svg with -o.\n"
    assert (found.stderr, found.exit_code, text.read_text()) == (said, 2, "mine")


def test_the_family_table_is_derived_from_the_models():
    cells = {part: list(of_part.values()) for part, of_part in family_figure.cells().items()}
    assert [what for what, _ in cells["cross-attention"]] == ["keeps", "drops", "drops", "drops"]
    assert [what for what, _ in cells["encoder stack"]] == ["keeps", "keeps", "drops", "keeps"]
    assert [what for what, _ in cells["mask over the future"]] == ["keeps", "drops", "keeps", "drops"]
    assert [what for what, _ in cells["patch projection"]] == ["", "", "", "adds"]
    assert cells["feed-forward network"] == [
        *(("keeps", "ReLU"), ("changes", "GELU"), ("changes", "GELU (tanh)"), ("changes", "GELU"))
    ]


def test_the_command_prints_the_family_table_and_writes_the_figure(tmp_path):
    out = tmp_path / "family.svg"
    found = onehop("paper", "family", "-o", str(out))
    assert "| cross-attention | 3.2.3 | yes | drops | drops | drops |" in found.stdout
    assert out.read_text().count(">dropped<") == sum(
        what == "drops" for of_part in family_figure.cells().values() for what, _ in of_part.values()
    )
    (tmp_path / "folder.svg").mkdir()
    refused = onehop("paper", "family", "-o", str(tmp_path / "folder.svg"))
    assert refused.stderr == f"onehop: {tmp_path / 'folder.svg'} cannot be written: Is a directory. Give another -o.\n"


def test_without_output_the_command_prints_only_the_family_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert onehop("paper", "family").stdout == family_figure.table_text() + "\n"
    assert list(tmp_path.iterdir()) == []


def test_the_docs_show_the_printed_family_table():
    page = Path(__file__).parents[2] / "docs" / "internals" / "paper-map.md"
    assert family_figure.table_text() in page.read_text(encoding="utf-8")
