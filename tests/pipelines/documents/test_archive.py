"""Books and OpenDocument texts: only text in the archive changes."""

import contextlib
import io
import zipfile

import pytest

from onehop.errors import TextError
from onehop.pipelines.documents import ReadOptions, read_document

CHAPTER = """\
<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en"><head><title>The sea</title>
<link rel="stylesheet" href="a.css"/></head><body>
<h1 id="c1">The sea</h1>
<p>It was <em>late</em> when we saw<br/>the house &amp; the tree.</p>
<pre>keep this</pre>
</body></html>
"""
CONTENT = """\
<?xml version="1.0" encoding="UTF-8"?>
<office:document-content xmlns:office="urn:o" xmlns:text="urn:t" office:version="1.3"><office:scripts/>\
<office:body><office:text>
<text:h text:style-name="H1" text:outline-level="1">The sea</text:h>
<text:p text:style-name="P1">It was <text:span text:style-name="T1">late</text:span> when we<text:tab/>saw \
<text:a xlink:href="https://example.org">the house</text:a>.<text:note><text:note-citation>1</text:note-citation>\
<text:note-body><text:p>A note.</text:p></text:note-body></text:note></text:p>
</office:text></office:body></office:document-content>
"""


def packed(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(zipfile.ZipInfo("mimetype"), "application/x")  # first, and not compressed
        for name, text in members.items():
            made.writestr(name.replace("__", "/").replace("_", "."), text)
    return out.getvalue()


def unpacked(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(i.filename, i.compress_type, i.date_time, archive.read(i).decode()) for i in archive.infolist()]


BOOK = packed(OEBPS__c1_xhtml=CHAPTER, OEBPS__a_css="p { color: red }", META__container_xml="<x>keep</x>")
TEXT = packed(content_xml=CONTENT, styles_xml="<x>keep</x>", meta_xml="<x>keep</x>")


@pytest.mark.parametrize(("data", "name"), [(BOOK, "book.epub"), (TEXT, "text.odt")])
def test_unchanged_text_gives_the_same_archive_members(translated, data, name):
    assert unpacked(translated(data, name, str)) == unpacked(data)


def changed(text, *pairs):
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_books_text_is_translated_and_its_markup_kept(translated):
    found = unpacked(translated(BOOK, "book.epub"))
    expected = changed(
        CHAPTER,
        ("The sea", "THE SEA"),
        ("It was <em>late</em> when we saw", "IT WAS <em>LATE</em> WHEN WE SAW"),
        ("the house &amp; the tree", "THE HOUSE &amp; THE TREE"),
    )
    assert [each[3] for each in found] == ["application/x", expected, "p { color: red }", "<x>keep</x>"]


def test_an_opendocument_text_is_translated_and_its_markup_kept(translated):
    expected = changed(
        CONTENT,
        ("The sea", "THE SEA"),
        ("It was ", "IT WAS "),
        (">late</text:span> when we", ">LATE</text:span> WHEN WE"),
        ("saw <", "SAW <"),
        ("the house", "THE HOUSE"),
        ("A note.", "A NOTE."),
    )
    assert unpacked(translated(TEXT, "text.odt"))[1][3] == expected


def test_an_archive_that_is_too_large_is_refused():
    with pytest.raises(TextError, match=r"book\.epub has more than 0 MB in it"):
        read_document(BOOK, "book.epub", ReadOptions(max_unpacked=100))


def test_an_archive_with_false_sizes_is_refused():
    bomb = packed(content_xml="<x>" + " " * 10_000_000)
    lying = bomb.replace((10_000_003).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lying != bomb
    with pytest.raises(TextError, match=r"text\.odt is damaged, or of another format"):
        read_document(lying, "text.odt", ReadOptions(max_unpacked=5000))


@pytest.mark.parametrize("at", range(60, 400, 20))
def test_a_damaged_archive_is_refused_or_read(at):
    damaged = bytearray(BOOK)
    damaged[at : at + 8] = b"\xff" * 8
    with contextlib.suppress(TextError):
        read_document(bytes(damaged), "book.epub")
