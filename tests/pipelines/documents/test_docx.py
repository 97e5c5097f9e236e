"""Word documents: other parts are unchanged, and formatting, links, fields and breaks move with their words."""

import io
import re
import zipfile
from pathlib import Path

import pytest

from onehop.errors import MissingPackageError, TextError
from onehop.pipelines.documents import read_document

LETTER = (Path(__file__).parent / "files" / "letter.docx").read_bytes()


def parts(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: (info.date_time, archive.read(info)) for info in archive.infolist()}


def runs(data, name="word/document.xml"):
    """The runs of each paragraph: their text after signs for the formatting."""
    xml = parts(data)[name][1].decode()
    found = []
    for paragraph in re.findall(r"<w:p>.*?</w:p>|<w:p .*?</w:p>", xml, re.DOTALL):
        looks = re.findall(r"<w:(hyperlink)|<w:r>(.*?)</w:r>", paragraph, re.DOTALL)
        found.append(["link:" * bool(link) + run_text(run) for link, run in looks])
    return found


def run_text(run):
    looks = "".join(mark for tag, mark in (("w:b/", "*"), ("w:i/", "_"), ("w:u ", "~"), ("w:sz ", "^")) if tag in run)
    inside = re.sub(r"<w:rPr>.*?</w:rPr>", "", run, flags=re.DOTALL)
    inside = re.sub(r"<w:(tab|br|fldChar)\b[^>]*>", r"{\1}", inside)
    return looks + re.sub(r"<[^>]*>|\s*\n\s*", "", inside)


def test_unchanged_text_gives_the_same_parts(translated):
    assert parts(translated(LETTER, "letter.docx", str)) == parts(LETTER)


def test_formatting_moves_with_its_words(translated):
    found = runs(translated(LETTER, "letter.docx"))
    assert found[0] == ["THE OLD HOUSE BY THE SEA"]
    bought = " THAT YOUR BROTHER BOUGHT FOR "
    assert found[1] == ["WE HAVE ", "*NEVER", " SEEN THE ", "_OLD HOUSE", bought, "^%s EUROS", "."]
    assert found[3] == ["CALL THE DOCTOR.", "{tab}", "TOMORROW."]
    assert found[8] == ["FIRST LINE", "{br}", "SECOND LINE"]
    assert found[9] == ["READ ", "link:", "~THE MANUAL", " BEFORE YOU COME."]
    assert found[10] == ["PAGE ", "{fldChar}", "PAGE", "{fldChar}", "1", "{fldChar}", " OF THE LETTER"]
    footer = parts(translated(LETTER, "letter.docx"))["word/footer1.xml"][1]
    assert b"WRITTEN BY THE SEA" in footer


def test_other_parts_and_formatting_are_unchanged(translated):
    before, after = parts(LETTER), parts(translated(LETTER, "letter.docx"))
    assert list(before) == list(after)
    assert {name for name in before if before[name] != after[name]} == {"word/document.xml", "word/footer1.xml"}
    for tag in ("w:pStyle", "w:tbl>", "w:tcW", "w:hyperlink r:id", "w:sectPr"):
        assert before["word/document.xml"][1].count(tag.encode()) == after["word/document.xml"][1].count(tag.encode())


def test_characters_that_xml_forbids_are_replaced(translated):
    """A model with byte fallback may write any byte, even those that mark the runs of a paragraph internally."""
    found = translated(LETTER, "letter.docx", lambda word: word + "\x00\x01\x02\x1b")
    assert runs(found)[0] == [" ".join(word + "\ufffd" * 4 for word in ("The", "old", "house", "by", "the", "sea"))]


def test_a_file_that_is_no_archive_is_refused():
    with pytest.raises(TextError, match=r"x\.docx is damaged, or of another format: File is not a zip file"):
        read_document(b"text", "x.docx")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("onehop.errors.is_installed", lambda module: False)
    for name, package in (("x.docx", "lxml"), ("x.po", "polib"), ("x.yml", "PyYAML")):
        with pytest.raises(MissingPackageError, match=rf'needs {package}.*pip install "onehop\[formats\]"'):
            read_document(b"", name)


def test_a_placeholder_over_two_runs_is_kept(translated):
    with zipfile.ZipFile(io.BytesIO(LETTER)) as old, zipfile.ZipFile(out := io.BytesIO(), "w") as new:
        for info in old.infolist():
            new.writestr(
                info, old.read(info).replace(b">We have <", b">We have {{first <").replace(b">never<", b">name}}<")
            )
    assert runs(translated(out.getvalue(), "letter.docx"))[1][:3] == ["WE HAVE {{first ", "*name}}", " SEEN THE "]
