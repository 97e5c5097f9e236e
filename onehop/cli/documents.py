"""`onehop translate` for documents: which arguments are files, and the progress of their translation."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop.cli.app import print_message
from onehop.cli.line_filter import LineWarnings
from onehop.errors import SettingsError, TextError
from onehop.pipelines.documents import OPTIONS, ReadOptions, format_of
from onehop.pipelines.result import short_repr
from onehop.pipelines.route import AlreadyTranslatedError

if TYPE_CHECKING:
    from onehop.pipelines.bulk import BulkJob
    from onehop.pipelines.documents.job import File, Job


def existing(words: Sequence[str]) -> list[Path]:
    """The words as paths if all exist, and an empty list if they are a text."""
    exists = [bool(word) and os.path.exists(word) for word in words]
    if words and all(exists):
        return [Path(word) for word in words]
    if any(exists) or (words and all(format_of(word, None) and not set(word) & set(" \n") for word in words)):
        missing = words[exists.index(False)]
        raise TextError(f"{missing} does not exist.", "Check the path, or use --text to translate it as text.")
    return []


def document_inputs(
    paths: Sequence[Path], out: Path | None, options: ReadOptions, *, as_json: bool
) -> "DocumentInputs | None":
    """The documents at these paths, or None if there are no paths."""
    if paths:
        if as_json:
            remedy = "Give the file with --input, to translate its lines."
            raise SettingsError("--json does not work with documents.", remedy)
        from onehop.pipelines.documents.job import job_of  # imported late, so that a text is fast

        return DocumentInputs(job_of(paths, out, options), out)
    for name, option in {"format": "--format", **OPTIONS}.items():
        if getattr(options, name):
            raise SettingsError(f"{option} is for documents.", "Give the file without --input.")
    return None


class _Display:
    """Shows a progress bar per file, and the first warnings of each kind."""

    def __init__(self, bar: Any, say: Callable[[str], None]) -> None:
        self.bar, self.say = bar, say
        self.warnings = LineWarnings(say)

    def begin(self, file: "File", flows: int) -> None:
        if self.bar:
            self.bar.stage(file.name, flows, "segments")

    def advance(self, flows: int) -> None:
        if self.bar:
            self.bar.advance(flows)

    def warn(self, file: "File", text: str, warnings: Sequence[str]) -> None:
        self.warnings.add(f"{short_repr(' '.join(text.split()))} of {file.source}", warnings)


class DocumentInputs:
    """Documents to translate; `out` is None for standard output."""

    def __init__(self, job: "Job", out: Path | None) -> None:
        self.job, self.out = job, out

    def sample(self) -> str:
        """Text of the first document, for language identification."""
        return self.job.sample()

    def give_back(self, error: AlreadyTranslatedError, job: "BulkJob") -> None:
        """Write a document unchanged. Several documents are refused, since only the first was identified."""
        from onehop.pipelines.documents.job import write_document

        if len(self.job.files) > 1:
            raise error
        print_message(error.warning())
        (file,) = self.job.files
        write_document(file.target, file.data())

    def translate(self, job: "BulkJob") -> None:
        """Translate, with a progress bar on stderr unless the translation goes to stdout."""
        translator = job.translator()
        pipeline = job.pipeline(translator)
        identity = translator.identity(job.options, job.terms, job.whole_lines, job.keep_capitals)
        if self.out is None:
            display = _Display(None, print_message)
            self.job.run(pipeline, identity, display)
            display.warnings.close()
            return
        from onehop.console import PrepareDisplay  # imported late, so that a text on the command line is fast

        files = self.job.files
        with PrepareDisplay() as bar:
            display = _Display(bar, lambda text: bar.note(f"onehop: {text}"))
            try:
                self.job.run(pipeline, identity, display)
                bar.note(str(self.out) if len(files) == 1 else f"{self.out}: {len(files):,} files")
            except KeyboardInterrupt:
                bar.note("onehop: Stopped. The same command resumes.")
                raise
            finally:
                display.warnings.close()
