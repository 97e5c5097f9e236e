"""EPUB: chapters of XHTML in an archive."""

from onehop.pipelines.documents import html
from onehop.pipelines.documents.archive import Archive, read_archive
from onehop.pipelines.documents.flow import Pieces


def read(data: bytes, name: str, *, max_unpacked: int) -> Archive:
    def chapter(member: str, content: bytes) -> Pieces | None:
        return html.read(content, member) if member.lower().endswith((".xhtml", ".html", ".htm")) else None

    return read_archive(data, name, chapter, max_unpacked)
