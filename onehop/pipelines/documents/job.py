"""Files and folders through a translator: where each translation goes, and how a stopped job resumes."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from onehop.atomic import write_whole
from onehop.data.corpus import read_errors
from onehop.errors import CHECK_FOLDER, OnehopError, SettingsError, TextError, check_folder, write_errors
from onehop.pipelines.documents import FORMATS, OPTIONS, ReadOptions, format_of, read_document
from onehop.pipelines.documents.translate import Memory, translate_document
from onehop.pipelines.html import model_text
from onehop.pipelines.pivot import LinePipeline
from onehop.pipelines.result import short_repr
from onehop.text.language_id import LanguageWatch

_STATE = Path(".onehop") / "segments.jsonl"
_COMPRESSED = (".gz", ".xz", ".zst")
_SAMPLE = 20  # flows of the first file whose language is identified


@dataclass(frozen=True)
class File:
    """A file to translate. `name` is its path inside the folder, and `target` is None for standard output."""

    source: Path
    name: str
    target: Path | None

    def data(self) -> bytes:
        with read_errors(self.source):
            return self.source.read_bytes()


@runtime_checkable
class _Listener(Protocol):
    """Callbacks of a job: progress in flows, warnings about parts of a file, and messages about the whole job."""

    def begin(self, file: File, flows: int) -> None: ...

    def advance(self, flows: int) -> None: ...

    def warn(self, file: File, text: str, warnings: Sequence[str]) -> None: ...

    def say(self, text: str) -> None: ...


class CollectedMessages:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def begin(self, file: File, flows: int) -> None: ...

    def advance(self, flows: int) -> None: ...

    def warn(self, file: File, text: str, warnings: Sequence[str]) -> None:
        self.messages += [f"{short_repr(text)} of {file.source}: {warning}" for warning in warnings]

    def say(self, text: str) -> None:
        self.messages.append(text)


@dataclass(frozen=True)
class Job:
    """Files to translate one after the other. `state` is the file that keeps the translations so far."""

    files: Sequence[File]
    state: Path | None
    options: ReadOptions = field(default_factory=ReadOptions)

    def sample(self) -> str:
        """Text of the first file, for language identification."""
        document = read_document(self.files[0].data(), str(self.files[0].source), self.options)
        return "\n".join(model_text(flow) for flow in document.flows[:_SAMPLE])

    def run(self, pipeline: LinePipeline, identity: Mapping[str, Any], listener: _Listener) -> None:
        """Translate all files. An error in one of several files is reported, and the others are translated."""
        memory, watch = Memory(self.state, identity), LanguageWatch(pipeline.source)
        failures = 0
        for file in self.files:
            try:
                data = file.data()
                if not (file.target and file.target.exists() and memory.is_finished(file.name, data)):
                    write_document(file.target, self._translate(file, data, pipeline, memory, watch, listener))
                    memory.finish(file.name, data)
            except OnehopError as e:
                if len(self.files) == 1:
                    memory.discard_if_empty()
                    raise
                listener.say(str(e))
                failures += 1
        if failures:
            what = f"{failures} of {len(self.files)} files could not be translated."
            raise TextError(what, "Correct them and run the same command: it resumes.")
        if self.state is not None and self.state.name != _STATE.name:
            self.state.unlink(missing_ok=True)

    def _translate(
        self, file: File, data: bytes, pipeline: LinePipeline, memory: Memory, watch: LanguageWatch, listener: _Listener
    ) -> bytes:
        document = read_document(data, str(file.source), self.options)
        listener.begin(file, len(document.flows))
        if doubt := watch.check(map(model_text, document.flows)):
            listener.say(doubt)
        return translate_document(
            pipeline,
            document,
            memory,
            kind=self.options.format or str(format_of(file.source)),
            advance=listener.advance,
            warn=lambda text, warnings: listener.warn(file, text, warnings),
        )


def job_of(paths: Sequence[Path], out: Path | None, options: ReadOptions) -> Job:
    """The job for some paths: `out` is a file for one file, and a folder for several files or a folder."""
    for path in paths:
        if not path.exists():
            raise TextError(f"{path} does not exist.", "Check the path.")
        if path.suffix in _COMPRESSED:
            raise TextError(f"{path} is compressed.", "Give it with --input, or unpack it.")
    if len(paths) == 1 and not paths[0].is_dir():
        return _job_of_file(paths[0], out, options)
    if out is None:
        which = "Several files" if len(paths) > 1 else f"The files of {paths[0]}"
        raise SettingsError(f"{which} cannot be written to standard output.", "Give a folder with -o.")
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file.", "Give a folder with -o: there are several files to write.")
    files: dict[str, File] = {}
    for source, name in (entry for path in paths for entry in _sources(path, out, options)):
        file = File(source, name, out / name)
        _check_target(file)
        if name in files:
            what = f"{files[name].source} and {source} would both become {file.target}."
            raise SettingsError(what, "Translate them one after the other, into two folders.")
        files[name] = file
    if not files:
        what = f"{paths[0]} has no file that can be translated."
        raise TextError(what, f"Formats: {', '.join(FORMATS)}; --format says which one the files have.")
    return Job(list(files.values()), out / _STATE, options)


def _job_of_file(path: Path, out: Path | None, options: ReadOptions) -> Job:
    name = options.format or str(format_of(path))
    for option, value in (("join_lines", options.join_lines), ("fields", options.fields)):
        if value and option not in FORMATS[name].options:
            formats = ", ".join(other for other, format in FORMATS.items() if option in format.options)
            raise SettingsError(f"{OPTIONS[option]} does not work with the format {name}.", f"It is for: {formats}.")
    if out is None and FORMATS[name].binary:
        raise SettingsError(f"{path} is binary, and a terminal cannot show it.", "Give a file with -o.")
    if out is not None and out.is_dir():
        out = out / path.name
    other = format_of(out, None) if out is not None else None
    if other not in (None, name) and (FORMATS[name].binary or FORMATS[str(other)].binary):
        what = f"{out} would be {name}, not {other}."
        raise SettingsError(what, f"A document keeps its format. Give -o a name that ends in {path.suffix or '.txt'}.")
    file = File(path, path.name, out)
    _check_target(file)
    has_state = out is not None and (out.is_file() or not out.exists())  # not for a pipe or a device
    return Job([file], out.with_name(f"{out.name}.partial") if out and has_state else None, options)


def _check_target(file: File) -> None:
    """Refuse to overwrite a file with its own translation, and a folder that cannot be written."""
    if file.target is None:
        return
    if not file.target.exists():
        check_folder(file.target.parent)
    elif file.target.samefile(file.source):
        raise TextError(f"{file.target} is also an input.", "Give another -o.")


def _sources(path: Path, out: Path, options: ReadOptions) -> Iterator[tuple[Path, str]]:
    """A file, or a folder's files of known formats, each with its relative name. Hidden files and `out` are skipped."""
    if not path.is_dir():
        yield path, path.name
        return
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        folders[:] = sorted(
            name for name in folders if not (name.startswith(".") or (out.exists() and (here / name).samefile(out)))
        )
        for file in (here / name for name in sorted(names) if not name.startswith(".")):
            if options.format or format_of(file, None):
                yield file, str(file.relative_to(path))


def write_document(path: Path | None, data: bytes) -> None:
    """Write to standard output, or atomically to a file whose folder is created."""
    if path is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(path))  # replace what a link points to, not the link
    with write_errors(path, CHECK_FOLDER):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_whole(path, data)
