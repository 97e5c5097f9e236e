"""EPUB: chapters of XHTML in an archive."""

from onehop.pipelines.documents import html
from onehop.pipelines.documents.archive import Archive, read_archive
from onehop.pipelines.documents.flow import Pieces

_CHAPTERS = (".xhtml", ".html", ".htm")


def read(data: bytes, name: str, *, max_unpacked: int) -> Archive:
    return read_archive(data, name, _chapter, max_unpacked)


def _chapter(name: str, data: bytes) -> Pieces | None:
    return html.read(data, name) if name.lower().endswith(_CHAPTERS) else None
