"""Files that are ZIP archives of documents; other members are copied unchanged."""

import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from onehop.errors import TextError
from onehop.pipelines.documents.flow import Document
from onehop.pipelines.html_markup import Flow

_DAMAGED = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(NotImplementedError, RuntimeError, EOFError, OSError, ValueError),
)


@dataclass(frozen=True)
class Archive:
    """The documents of an archive, by member name."""

    data: bytes
    members: Mapping[str, Document]

    @property
    def flows(self) -> list[Flow]:
        return [flow for member in self.members.values() for flow in member.flows]

    def written(self, texts: Sequence[str]) -> bytes:
        remaining = iter(texts)
        contents = {n: member.written(list(islice(remaining, len(member.flows)))) for n, member in self.members.items()}
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.data)) as old, zipfile.ZipFile(out, "w") as new:
            for info in old.infolist():
                new.writestr(info, contents.get(info.filename, old.read(info)), info.compress_type)
        return out.getvalue()


def read_archive(
    data: bytes, name: str, read_member: Callable[[str, bytes], Document | None], max_unpacked: int
) -> Archive:
    """Read an archive; `read_member` returns a member's document, or None if it is not one.

    The declared sizes can be trusted, since zipfile unpacks no more of a member than its declared size.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > max_unpacked:
                what = f"{name} has more than {max_unpacked / 1e6:,.0f} MB in it."
                raise TextError(what, "Split it into several files.")
            members = {info.filename: read_member(info.filename, archive.read(info)) for info in archive.infolist()}
    except RecursionError:
        raise
    except _DAMAGED as e:
        raise TextError(f"{name} is damaged, or of another format: {e}.", "Save it again.") from None
    return Archive(data, {member: document for member, document in members.items() if document is not None})
