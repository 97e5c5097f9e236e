"""Files through a translator: which format a file is in, what of it is text, and the file again with a translation.

Each format is a module that reads bytes into a `Document`: flows of text, and everything around them as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any

from onehop.errors import SettingsError
from onehop.pipelines.documents.flow import Document

__all__ = ["FORMATS", "Format", "Reading", "format_of", "read_document"]


@dataclass(frozen=True)
class Format:
    """A format: the module that reads it and the endings of its files. `binary`: a terminal cannot show it.

    `options` are the fields of `Reading` that it knows.
    """

    module: str
    endings: tuple[str, ...]
    binary: bool = False
    options: tuple[str, ...] = ()


FORMATS = {
    "text": Format("text", ("txt", "text"), options=("join_lines",)),
    "markdown": Format("markdown", ("md", "markdown", "mdown", "qmd")),
    "html": Format("html", ("html", "htm", "xhtml")),
    "srt": Format("subtitles", ("srt",)),
    "vtt": Format("subtitles", ("vtt",)),
    "po": Format("po", ("po", "pot")),
    "json": Format("json", ("json",), options=("fields",)),
    "yaml": Format("yaml", ("yaml", "yml"), options=("fields",)),
    "csv": Format("csv", ("csv",), options=("fields",)),
    "tsv": Format("csv", ("tsv", "tab"), options=("fields",)),
    "xliff": Format("xliff", ("xliff", "xlf")),
    "docx": Format("docx", ("docx",), binary=True),
    "odt": Format("odt", ("odt", "ott"), binary=True),
    "epub": Format("epub", ("epub",), binary=True),
}
ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}
# What an option is called on the command line.
OPTIONS = {"join_lines": "--join-lines", "fields": "--field"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read: the format of all of them, hard-wrapped lines joined, only some keys or columns."""

    format: str | None = None
    join_lines: bool = False
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise SettingsError(f"There is no format {self.format!r}.", f"There are: {', '.join(FORMATS)}.")


def format_of(name: str | PurePath, otherwise: str | None = "text") -> str | None:
    """The format that a file's ending says."""
    return ENDINGS.get(PurePath(name).suffix[1:].lower(), otherwise)


def read_document(data: bytes, name: str, how: Reading | None = None) -> Document:
    """A file's content in the format that its name or `how` says."""
    how = how or Reading()
    found = how.format or str(format_of(name))
    module = import_module(f"{__name__}.{FORMATS[found].module}")
    given: dict[str, Any] = {"join_lines": how.join_lines, "fields": how.fields}
    known = {option: given[option] for option in FORMATS[found].options}
    read: Callable[..., Document] = module.read
    return read(data, name, **known)
