"""Files and folders through a translator: which file becomes which, and what a stopped job had done already."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from onehop.atomic import write_whole
from onehop.errors import OnehopError, SettingsError, TextError, check_folder
from onehop.pipelines.documents import FORMATS, OPTIONS, Reading, format_of, read_document
from onehop.pipelines.documents.translate import Memory, translate_document
from onehop.pipelines.html import reading
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.result import shortened
from onehop.text.language_id import LanguageWatch

_STATE = Path(".onehop") / "segments.jsonl"
_COMPRESSED = (".gz", ".xz", ".zst")
Pipeline = ParagraphTranslator | PivotTranslator

_SAMPLE = 20  # flows of the first file whose language is identified


@dataclass(frozen=True)
class File:
    """A file to translate, what it is called below the folder of all, and where its translation goes."""

    source: Path
    name: str
    target: Path | None

    def data(self) -> bytes:
        try:
            return self.source.read_bytes()
        except OSError as e:
            raise TextError(f"{self.source} cannot be read: {e.strerror}.", "Check the path.") from None


@runtime_checkable
class Listener(Protocol):
    """Who is told what happens."""

    def begin(self, file: File, flows: int) -> None:
        """A file is begun."""

    def advance(self, flows: int) -> None:
        """So many more flows of it are done."""

    def warn(self, file: File, text: str, warnings: Sequence[str]) -> None:
        """What a reader of a part of the file should know."""

    def say(self, text: str) -> None:
        """What is true of the whole job."""


class Warnings:
    """A listener that keeps what was said."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin(self, file: File, flows: int) -> None:
        """A file is begun."""

    def advance(self, flows: int) -> None:
        """So many more flows of it are done."""

    def warn(self, file: File, text: str, warnings: Sequence[str]) -> None:
        """What a reader of a part of the file should know."""
        self.heard += [f"{shortened(text)} of {file.source}: {warning}" for warning in warnings]

    def say(self, text: str) -> None:
        """What is true of the whole job."""
        self.heard.append(text)


@dataclass(frozen=True)
class Job:
    """Files that are translated one after the other. `state` is where the translations so far are kept."""

    files: Sequence[File]
    state: Path | None
    how: Reading = field(default_factory=Reading)

    def sample(self) -> str:
        """Text whose language can be identified."""
        document = read_document(self.files[0].data(), str(self.files[0].source), self.how)
        return "\n".join(reading(flow) for flow in document.flows[:_SAMPLE])

    def run(
        self,
        pipeline: Pipeline,
        identity: Mapping[str, Any],
        listener: Listener,
    ) -> None:
        """Translate. A file that cannot be read is told of, and does not keep the others from it."""
        memory, watch = Memory(self.state, identity), LanguageWatch(pipeline.source)
        failed: list[OnehopError] = []
        for file in self.files:
            try:
                data = file.data()
                if not (file.target and file.target.exists() and memory.is_finished(file.name, data)):
                    write_document(file.target, self._translated(file, data, pipeline, memory, watch, listener))
                    memory.finish(file.name, data)
            except OnehopError as e:
                if len(self.files) == 1:
                    memory.discard_if_empty()
                    raise
                listener.say(str(e))
                failed.append(e)
        if failed:
            what = f"{len(failed)} of {len(self.files)} files could not be translated."
            raise TextError(what, "Put them right and run the same command: it goes on where it was.")
        if self.state is not None and self.state.name != _STATE.name:
            self.state.unlink(missing_ok=True)

    def _translated(
        self,
        file: File,
        data: bytes,
        pipeline: Pipeline,
        memory: Memory,
        watch: LanguageWatch,
        listener: Listener,
    ) -> bytes:
        document = read_document(data, str(file.source), self.how)
        listener.begin(file, len(document.flows))
        if doubt := watch.look_at(map(reading, document.flows)):
            listener.say(doubt)
        return translate_document(
            pipeline,
            document,
            memory,
            kind=self.how.format or str(format_of(file.source)),
            advance=listener.advance,
            warn=lambda text, warnings: listener.warn(file, text, warnings),
        )


def job_of(paths: Sequence[Path], out: Path | None, how: Reading) -> Job:
    """What is to be done: one file becomes the file `out`, several and folders become the folder `out`."""
    for path in paths:
        if path.suffix in _COMPRESSED:
            raise TextError(f"{path} is compressed.", "Give it with --input, or unpack it.")
    if len(paths) == 1 and not paths[0].is_dir():
        file = single(paths[0], out, how)
        return Job([file], _state_beside(file.target), how)
    if out is None:
        raise SettingsError("Several files have no room on standard output.", "Give a folder with -o.")
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file.", "Give a folder with -o: there are several files to write.")
    files: dict[str, File] = {}
    for file in chain.from_iterable(below(path, out, how) for path in paths):
        _check_target(file)
        if file.name in files:
            what = f"{files[file.name].source} and {file.source} would both become {file.target}."
            raise SettingsError(what, "Translate them one after the other, into two folders.")
        files[file.name] = file
    if not files:
        what = f"{paths[0]} has no file that can be translated."
        raise TextError(what, f"Formats: {', '.join(FORMATS)}; --format says which one the files have.")
    return Job(list(files.values()), out / _STATE, how)


def existing(path: Path) -> Path:
    if not path.exists():
        raise TextError(f"{path} does not exist.", "Check the path.")
    return path


def single(path: Path, out: Path | None, how: Reading) -> File:
    name = how.format or str(format_of(path))
    for option, given in (("join_lines", how.join_lines), ("fields", how.fields)):
        if given and option not in FORMATS[name].options:
            which = ", ".join(other for other, each in FORMATS.items() if option in each.options)
            raise SettingsError(f"{OPTIONS[option]} means nothing in the format {name}.", f"It is for: {which}.")
    if out is None and FORMATS[name].binary:
        raise SettingsError(f"{path} has no form that a terminal could show.", "Give a file with -o.")
    if out is not None and out.is_dir():
        out = out / path.name
    file = File(path, path.name, out)
    _check_target(file)
    return file


def _state_beside(target: Path | None) -> Path | None:
    """Where the translations so far are kept until a file is complete: beside it, unless it is a pipe or a device."""
    if target is None or (target.exists() and not target.is_file()):
        return None
    return target.with_name(f"{target.name}.partial")


def _check_target(file: File) -> None:
    """Refuse to replace a file by its own translation, and to begin what could not be written in the end."""
    if file.target is None:
        return
    if file.target.exists():
        if file.target.samefile(file.source):
            raise TextError(f"{file.target} is also an input.", "Give another -o.")
        return
    check_folder(file.target.parent)


def below(path: Path, out: Path, how: Reading) -> Iterator[File]:
    """A file, or the files of a folder that have a known format, without hidden ones and without the output."""
    if not path.is_dir():
        yield File(path, path.name, out / path.name)
        return
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        folders[:] = sorted(n for n in folders if not n.startswith(".") and not _is_same(here / n, out))
        for name in sorted(names):
            file = here / name
            if not name.startswith(".") and (how.format or format_of(file, None)):
                relative = file.relative_to(path)
                yield File(file, str(relative), out / relative)


def _is_same(one: Path, other: Path) -> bool:
    """Whether both are the same folder."""
    return other.exists() and one.samefile(other)


def write_document(path: Path | None, data: bytes) -> None:
    """Write to standard output, or a file that appears when it is complete, with the folders around it."""
    if path is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(path))  # what a link points to is replaced, and not the link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_whole(path, data)
    except OSError as e:
        raise TextError(f"{path} cannot be written: {e.strerror}.", "Check the folder and its free space.") from None
