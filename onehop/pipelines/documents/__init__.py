"""Files through a translator: which format a file is in, what of it is text, and the file again with a translation.

Each format is a module that reads bytes into a `Document`: flows of text, and everything around them as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from onehop.errors import SettingsError, TextError, is_installed, require

if TYPE_CHECKING:  # a text on the command line asks for the endings alone
    from onehop.pipelines.documents.flow import Document

__all__ = ["FORMATS", "Format", "Reading", "format_of", "read_document", "readable_endings"]


@dataclass(frozen=True)
class Format:
    """A format: the module that reads it and the endings of its files. `binary`: a terminal cannot show it.

    `options` are the fields of `Reading` that it knows, and `needs` is what it takes of the extra `formats`.
    """

    module: str
    endings: tuple[str, ...]
    binary: bool = False
    options: tuple[str, ...] = ()
    needs: str | None = None


FORMATS = {
    "text": Format("text", ("txt", "text"), options=("join_lines",)),
    "markdown": Format("markdown", ("md", "markdown", "mdown", "qmd")),
    "html": Format("html", ("html", "htm", "xhtml")),
    "srt": Format("subtitles", ("srt",)),
    "vtt": Format("subtitles", ("vtt",)),
    "po": Format("po", ("po", "pot"), needs="polib"),
    "json": Format("json", ("json",), options=("fields",)),
    "yaml": Format("yaml", ("yaml", "yml"), options=("fields",), needs="yaml"),
    "csv": Format("csv", ("csv",), options=("fields",)),
    "tsv": Format("csv", ("tsv", "tab"), options=("fields",)),
    "xliff": Format("xliff", ("xliff", "xlf"), needs="lxml"),
    "docx": Format("docx", ("docx",), binary=True, options=("most_unpacked",), needs="lxml"),
    "odt": Format("odt", ("odt", "ott"), binary=True, options=("most_unpacked",)),
    "epub": Format("epub", ("epub",), binary=True, options=("most_unpacked",)),
}
_ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}
# What an option is called on the command line.
OPTIONS = {"join_lines": "--join-lines", "fields": "--field"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read: the format of all of them, hard-wrapped lines joined, only some keys or columns.

    An archive may have `most_unpacked` bytes in it.
    """

    format: str | None = None
    join_lines: bool = False
    fields: tuple[str, ...] = ()
    most_unpacked: int = 1 << 29

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise SettingsError(f"There is no format {self.format!r}.", f"There are: {', '.join(FORMATS)}.")


def format_of(name: str | PurePath, otherwise: str | None = "text") -> str | None:
    """The format that a file's ending says."""
    return _ENDINGS.get(PurePath(name).suffix[1:].lower(), otherwise)


def readable_endings() -> list[str]:
    """The endings of files that can be read with the packages that are installed."""
    there = [each for each in FORMATS.values() if each.needs is None or is_installed(each.needs)]
    return [ending for each in there for ending in each.endings]


def read_document(data: bytes, name: str, how: Reading | None = None) -> "Document":
    """A file's content in the format that its name or `how` says."""
    how = how or Reading()
    found = how.format or str(format_of(name))
    if needed := FORMATS[found].needs:
        require(needed)
    module = import_module(f"{__name__}.{FORMATS[found].module}")
    known: dict[str, Any] = {option: getattr(how, option) for option in FORMATS[found].options}
    read: Callable[..., Document] = module.read
    try:
        return read(data, name, **known)
    except RecursionError:
        raise TextError(f"{name} has too much within one another.", "Part it into several files.") from None
