"""Groups lines into windows that fill the batches of a CPU or a GPU, translates them, and formats the translations.

Windows are independent: results do not depend on the number of processes, or on where a job was interrupted.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from onehop.data.corpus import BYTE_ORDER_MARK, LONGEST_LINE, decode_line, refuse_other_unicode
from onehop.decoding.engine import ComputeType, EngineName
from onehop.decoding.options import SearchOptions
from onehop.errors import TextError
from onehop.pipelines.glossary import Terms
from onehop.pipelines.paragraphs import LINE_BREAKS
from onehop.pipelines.pivot import LinePipeline
from onehop.pipelines.result import Result
from onehop.pipelines.translator import Translator
from onehop.storage.model_label import describe

Output = Literal["text", "json", "moses"]

# The first windows are small for low latency; later ones are large, to fill the batches.
FIRST_WINDOW, LAST_WINDOW = 64, 4096
WINDOW_BYTES = 1 << 20

# On a GPU all windows are large: their sentences, sorted by length, fill batches of few shapes.
_GPU_WINDOW, _GPU_WINDOW_BYTES = 8192, 1 << 23


class SameText:
    """Returns lines unchanged, for a text that is in the target language already."""

    def translate(self, lines: Sequence[str], begin: int = 0) -> list[Result]:
        return [Result(source=line, text=line, sentences=()) for line in lines]


Pipeline = LinePipeline | SameText


@dataclass(frozen=True)
class Window:
    """Consecutive lines of the text called `name`, whose first line has the number `first`.

    `offset` counts the lines before it in all texts. A `cut` window ends where reading failed.
    """

    name: str
    first: int
    lines: list[str]
    offset: int = 0
    cut: bool = False


def windows(name: str, groups: Iterable[list[bytes]], *, wait: bool = True, gpu: bool = False) -> Iterator[Window]:
    """Windows of text from groups of lines. Without `wait`, a window ends with its group.

    Before an error, such as a line that is not UTF-8, the lines before it are yielded.
    """
    size, max_size, max_bytes = (
        (_GPU_WINDOW, _GPU_WINDOW, _GPU_WINDOW_BYTES) if gpu else (FIRST_WINDOW, LAST_WINDOW, WINDOW_BYTES)
    )
    first, window_bytes, window = 1, 0, list[str]()
    try:
        for group in groups:
            for i, line in enumerate(group, start=1):
                number = first + len(window)
                window.append(_decode(line, name, number))
                window_bytes += len(line)
                is_group_end = not wait and i == len(group)
                if is_group_end or len(window) >= size or window_bytes >= max_bytes:
                    yield Window(name, first, window)
                    first, size, window_bytes, window = number + 1, min(2 * size, max_size), 0, []
    except TextError:
        yield Window(name, first, window, cut=True)
        raise
    if window:
        yield Window(name, first, window)


def _decode(line: bytes, name: str, number: int) -> str:
    if number == 1:
        refuse_other_unicode(line, Path(name))
        line = line.removeprefix(BYTE_ORDER_MARK)
    # The file reader truncates longer lines.
    if len(line) + len(BYTE_ORDER_MARK) >= LONGEST_LINE:
        raise TextError(f"Line {number} of {name} is longer than {LONGEST_LINE:,} bytes.", "Break it into lines.")
    return decode_line(line, number, name).rstrip("\r")


@dataclass(frozen=True)
class TranslatedWindow:
    """A window's output, and the warnings of its lines with their numbers."""

    window: Window
    data: bytes
    warnings: list[tuple[int, list[str]]]


@dataclass(frozen=True, kw_only=True)
class BulkJob:
    """All options of a translation, to be sent to other processes."""

    route: tuple[Path, ...] = ()
    device: str | None = None
    engine: Literal["auto"] | EngineName = "auto"
    compute: ComputeType | None = None
    threads: int | None = None
    options: SearchOptions = field(default_factory=SearchOptions)
    terms: Terms = field(default_factory=Terms)
    whole_lines: bool = False
    keep_capitals: bool = False
    batch_size: int | None = None
    output: Output = "text"
    alignments: bool = False

    def translator(self) -> Translator:
        return Translator(
            self.route, device=self.device, engine=self.engine, compute=self.compute, threads=self.threads
        )

    def pipeline(self, translator: Translator) -> LinePipeline:
        return translator.pipeline(
            self.options,
            self.terms,
            whole_lines=self.whole_lines,
            keep_capitals=self.keep_capitals,
            batch_size=self.batch_size,
        )

    def identity(self) -> dict[str, Any]:
        """Everything that a translation depends on, as JSON."""
        how = (self.device, self.engine, self.compute, self.whole_lines, self.keep_capitals)
        return {
            "models": [describe(path).hash for path in self.route],
            "options": asdict(self.options),
            "terms": self.terms.identity(),
            "how": [*map(str, how), str(self.batch_size), self.output, str(self.alignments)],
        }

    def translate(self, pipeline: Pipeline, window: Window) -> TranslatedWindow:
        results = pipeline.translate(window.lines, window.offset)
        formatted = (self.format(result, number) for number, result in enumerate(results, window.offset))
        data = "".join(f"{lines}\n" for lines in formatted).encode("utf-8", "replace")
        warnings = [(number, result.warnings) for number, result in enumerate(results, window.first) if result.warnings]
        return TranslatedWindow(window, data, warnings)

    def format(self, result: Result, number: int) -> str:
        """A line's translation in the output format; `number` counts the lines of all texts from 0."""
        if self.output == "text":
            return result.text
        if self.output == "moses":
            return "\n".join(moses_lines(result, number, self.options.n_best))
        return json.dumps(result.details(self.options.n_best, alignments=self.alignments), ensure_ascii=False)


def moses_lines(result: Result, number: int, n_best: int) -> Iterator[str]:
    """The n best translations of a line as Moses writes them. In a line of several sentences equal ranks are joined."""
    ranks = max((len(s.n_best) for s in result.sentences), default=1)
    for rank in range(min(n_best, max(1, ranks))):
        texts, score = [result.text], result.score
        if rank and result.sentences:
            ranked = [s.n_best[min(rank, len(s.n_best) - 1)] if s.n_best else None for s in result.sentences]
            texts = [s.text if t is None else t.text for s, t in zip(result.sentences, ranked, strict=True)]
            score = sum(t.score for t in ranked if t is not None)
        yield f"{number} ||| {LINE_BREAKS.sub(' ', ' '.join(texts))} ||| {score:.4f}"


def threads_of(workers: int, threads: int | None) -> int | None:
    """The threads of each worker: the given number, or an equal share of the cores."""
    return threads if threads is not None or workers == 1 else max(1, (os.cpu_count() or 1) // workers)
