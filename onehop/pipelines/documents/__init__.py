"""Document formats: files in, translated files of the same format out.

Each format is a module that reads bytes into a `Document`: flows of text, and everything around them unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from onehop.errors import SettingsError, TextError, is_installed, require

if TYPE_CHECKING:  # a text on the command line needs only the endings
    from onehop.pipelines.documents.flow import Document

__all__ = ["FORMATS", "Format", "ReadOptions", "format_of", "read_document", "readable_endings"]


@dataclass(frozen=True)
class Format:
    """A format: the module that reads it and the endings of its files. A terminal cannot show a `binary` one.

    `options` are the fields of `ReadOptions` that it supports; `needs` is the package of the extra `formats`.
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
    "docx": Format("docx", ("docx",), binary=True, options=("max_unpacked",), needs="lxml"),
    "odt": Format("odt", ("odt", "ott"), binary=True, options=("max_unpacked",)),
    "epub": Format("epub", ("epub",), binary=True, options=("max_unpacked",)),
}
_ENDINGS = {ending: name for name, format in FORMATS.items() for ending in format.endings}
# The command line's names of options.
OPTIONS = {"join_lines": "--join-lines", "fields": "--field"}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How files are read: their format, whether lines are joined to paragraphs, and which keys or columns.

    `max_unpacked` limits the bytes inside an archive.
    """

    format: str | None = None
    join_lines: bool = False
    fields: tuple[str, ...] = ()
    max_unpacked: int = 1 << 29

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise SettingsError(f"There is no format {self.format!r}.", f"There are: {', '.join(FORMATS)}.")


def format_of(name: str | PurePath, otherwise: str | None = "text") -> str | None:
    """The name of the format that a file's ending stands for."""
    return _ENDINGS.get(PurePath(name).suffix[1:].lower(), otherwise)


def readable_endings() -> list[str]:
    """The endings of files that can be read with the installed packages."""
    formats = [format for format in FORMATS.values() if format.needs is None or is_installed(format.needs)]
    return [ending for format in formats for ending in format.endings]


def read_document(data: bytes, name: str, options: ReadOptions | None = None) -> "Document":
    """Read a file's content in the format of `options`, or else of its name."""
    options = options or ReadOptions()
    format = FORMATS[options.format or str(format_of(name))]
    if format.needs:
        require(format.needs)
    read: Callable[..., Document] = import_module(f"{__name__}.{format.module}").read
    supported: dict[str, Any] = {option: getattr(options, option) for option in format.options}
    try:
        return read(data, name, **supported)
    except RecursionError:
        raise TextError(f"{name} is nested too deeply.", "Split it into several files.") from None
