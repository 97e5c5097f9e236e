"""`onehop translate` for documents: which arguments are files, and the progress of their translation."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop.cli.line_filter import LineWarnings
from onehop.errors import SettingsError, TextError
from onehop.pipelines.documents import OPTIONS, ReadOptions, format_of
from onehop.pipelines.result import shortened
from onehop.pipelines.route import AlreadyTranslatedError

if TYPE_CHECKING:
    from onehop.pipelines.documents import job
    from onehop.pipelines.documents.job import Pipeline


def existing(words: Sequence[str]) -> list[Path]:
    """The words as files and folders; none if they are a text."""
    there = [bool(word) and os.path.exists(word) for word in words]
    if words and all(there):
        return [Path(word) for word in words]
    if any(there) or (words and all(format_of(word, None) and not set(word) & set(" \n") for word in words)):
        missing = words[there.index(False)]
        raise TextError(f"{missing} does not exist.", "Check the path, or give --text to translate the words.")
    return []


def job_of(
    paths: Sequence[Path], out: Path | None, *, as_json: bool, fields: Sequence[str] | None, **how: Any
) -> "job.Job | None":
    """The job for the documents, or None if there are none."""
    if paths and as_json:
        raise SettingsError(
            "--json does not work with documents.", "Give the file with --input, to translate its lines."
        )
    reading = ReadOptions(fields=tuple(fields or ()), **how)
    if paths:
        from onehop.pipelines.documents import job  # only here: a text on the command line shall come soon

        return job.job_of(paths, out, reading)
    for name, option in {"format": "--format", **OPTIONS}.items():
        if getattr(reading, name):
            raise SettingsError(f"{option} is for documents.", "Give the file without --input.")
    return None


class _Display:
    """Shows a progress bar per file, and the first warnings of each kind."""

    def __init__(self, bar: Any, say: Callable[[str], None]) -> None:
        self.bar, self.say = bar, say
        self.warnings = LineWarnings(say)

    def begin(self, file: "job.File", flows: int) -> None:
        if self.bar:
            self.bar.stage(file.name, flows, "segments")

    def advance(self, flows: int) -> None:
        """Advance the current file's bar."""
        if self.bar:
            self.bar.advance(flows)

    def warn(self, file: "job.File", text: str, warnings: Sequence[str]) -> None:
        """Print a warning about a part of a file."""
        self.warnings.add(f"{shortened(' '.join(text.split()))} of {file.source}", warnings)


def give_back(work: "job.Job", already: AlreadyTranslatedError) -> None:
    """Write a document unchanged. Several documents are refused, since only the first was identified."""
    if len(work.files) > 1:
        raise already
    print(f"onehop: {already.given_back()}", file=sys.stderr)
    from onehop.pipelines.documents import job

    (file,) = work.files
    job.write_document(file.target, file.data())


def run(work: "job.Job", pipeline: "Pipeline", identity: Mapping[str, Any], out: Path | None) -> None:
    """Translate, with a progress bar on stderr unless the translation goes to stdout."""
    if out is None:
        display = _Display(None, lambda text: print(f"onehop: {text}", file=sys.stderr))
        work.run(pipeline, identity, display)
        display.warnings.close()
        return
    from onehop.console import PrepareDisplay  # only here: it takes time to import

    with PrepareDisplay() as bar:
        display = _Display(bar, lambda text: bar.note(f"onehop: {text}"))
        try:
            work.run(pipeline, identity, display)
            bar.note(str(out) if len(work.files) == 1 else f"{out}: {len(work.files):,} files")
        except KeyboardInterrupt:
            bar.note("onehop: Stopped. The same command resumes.")
            raise
        finally:
            display.warnings.close()
