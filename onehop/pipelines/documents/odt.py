"""OpenDocument text: paragraphs of XML whose spans are placed like HTML's inline tags."""

from onehop.pipelines.documents.archive import Archive, read_archive
from onehop.pipelines.documents.flow import Pieces, decoded, keep_placeholders
from onehop.pipelines.html_markup import Parser

_INLINE = {"text:span", "text:a", "text:s", "text:bookmark", "text:bookmark-start", "text:bookmark-end"}
_INLINE |= {"text:soft-page-break", "text:reference-mark", "text:reference-mark-start", "text:reference-mark-end"}
# Computed values, metadata, and the author and date of a comment.
_NO_TEXT = {"office:scripts", "office:font-face-decls", "office:automatic-styles", "text:sequence-decls", "dc:creator"}
_NO_TEXT |= {"dc:date", "meta:creator-initials", "text:page-number", "text:date", "text:time", "text:note-citation"}
_NO_TEXT |= {"text:tracked-changes", "office:binary-data", "math:math", "text:sequence"}


def read(data: bytes, name: str, *, max_unpacked: int) -> Archive:
    return read_archive(data, name, _content, max_unpacked)


def _content(name: str, data: bytes) -> Pieces | None:
    if name != "content.xml":
        return None
    source = decoded(data, name)
    return Pieces(source, keep_placeholders(Parser(source.text, inline=_INLINE, no_text=_NO_TEXT).pieces()))
