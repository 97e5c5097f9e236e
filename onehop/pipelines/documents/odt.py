"""OpenDocument text: the paragraphs of its XML, whose spans are placed as HTML's inline tags are."""

from onehop.pipelines.documents.archive import Archive, read_archive
from onehop.pipelines.documents.flow import Pieces, decoded, keep_placeholders
from onehop.pipelines.html_markup import Parser

_INLINE = {"text:span", "text:a", "text:s", "text:bookmark", "text:bookmark-start", "text:bookmark-end"}
_INLINE |= {"text:soft-page-break", "text:reference-mark", "text:reference-mark-start", "text:reference-mark-end"}
# What is computed, counted or about the document, and who has written a comment when.
_NO_TEXT = {"office:scripts", "office:font-face-decls", "office:automatic-styles", "text:sequence-decls", "dc:creator"}
_NO_TEXT |= {"dc:date", "meta:creator-initials", "text:page-number", "text:date", "text:time", "text:note-citation"}
_NO_TEXT |= {"text:tracked-changes", "office:binary-data", "math:math", "text:sequence"}


def read(data: bytes, name: str, *, most_unpacked: int) -> Archive:
    """A text document of LibreOffice and others."""
    return read_archive(data, name, content, most_unpacked)


def content(name: str, data: bytes) -> Pieces | None:
    if name != "content.xml":
        return None
    source = decoded(data, name)
    return Pieces(source, keep_placeholders(Parser(source.text, inline=_INLINE, no_text=_NO_TEXT).pieces()))
