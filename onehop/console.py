"""Progress while onehop works: live bars on a terminal, plain lines in a pipe or a log."""

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

_Report = Mapping[str, Any]

# The end of a stopped run's message, if its folder is kept.
RESUMES = "the same command resumes."
_EXAMPLES = {"parallel text": "pairs", "plain text": "texts", "images": "images"}  # units by what a store holds


def console(*, stderr: bool = True) -> Console:
    """A console on standard error, since standard output is for results. NO_COLOR turns off everything live.

    Sentences and paths are printed as they are, without markup, emoji names or line breaks.
    """
    plain = False if os.environ.get("NO_COLOR") else None
    return Console(stderr=stderr, force_terminal=plain, highlight=False, markup=False, emoji=False, soft_wrap=True)


@runtime_checkable
class StageProgress(Protocol):
    """The callbacks of `prepare`."""

    def stage(self, name: str, total: int | None, unit: str) -> None:
        """A stage begins; `total` is its size, if known."""
        return

    def advance(self, amount: int) -> None:
        """This much more of the stage is done."""
        return

    def note(self, text: str) -> None:
        """Print a line."""
        return


class NoProgress(StageProgress):
    """Reports nothing."""


# Seconds between two lines about a long stage in a log.
_LOG_SECONDS = 30.0


class PrepareDisplay:
    """Progress of `onehop prepare` and `translate`: a bar with rate and time left for each stage, or lines in a log."""

    def __init__(self) -> None:
        self.out = console()
        self.bars = Progress(
            TextColumn("{task.description:<24}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:>12,.0f}"),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=self.out,
            disable=not self.out.is_terminal,
        )
        self.task: TaskID | None = None
        self.began = self.logged = 0.0
        self.resumed = 0  # the amount done by an earlier process

    def __enter__(self) -> "PrepareDisplay":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def stage(self, name: str, total: int | None, unit: str) -> None:
        if self.task is not None:
            self.bars.update(self.task, total=self.bars.tasks[self.task].completed)
        self.began = self.logged = time.monotonic()
        self.resumed = 0
        self.task = self.bars.add_task(name, total=total, unit=unit, rate="")
        if not self.out.is_terminal:
            self.out.print(name)

    def advance(self, amount: int) -> None:
        if self.task is None:
            return
        self.bars.advance(self.task, amount)
        now = time.monotonic()
        rate = (self.done - self.resumed) / max(1e-6, now - self.began)
        self.bars.update(self.task, rate=f"{rate:,.0f}/s")
        if not self.out.is_terminal and now - self.logged >= _LOG_SECONDS:
            self.logged = now
            self.out.print(self.line(rate))

    def line(self, rate: float) -> str:
        """The progress of a stage, for a log."""
        assert self.task is not None
        task = self.bars.tasks[self.task]
        unit, total = task.fields["unit"], task.total
        if total is None or rate <= 0:
            return f"{self.done:,} {unit}, {rate:,.0f}/s"
        return f"{self.done:,} of {total:,.0f} {unit}, {rate:,.0f}/s, {(total - self.done) / rate / 60:,.0f} min left"

    def resume(self, amount: int) -> None:
        """This much was done by an earlier process: it does not count for the rate."""
        if self.task is None:
            return
        self.resumed, self.began = amount, time.monotonic()
        self.bars.reset(self.task, completed=amount)
        self.note(f"{amount:,} {self.bars.tasks[self.task].fields['unit']} were done before")

    @property
    def done(self) -> int:
        return int(self.bars.tasks[self.task].completed) if self.task is not None else 0

    def note(self, text: str) -> None:
        self.out.print(text)


class _BarAndLine(Progress):
    line = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.line, no_wrap=True, overflow="ellipsis")


class TrainDisplay:
    """Progress of `onehop train`: a live bar and line; validations and events stay above them.

    Without `kept` the run's folder is temporary, so a stopped run cannot be resumed.
    """

    def __init__(self, *, every: int = 50, kept: bool = True) -> None:
        self.out = console()
        self.kept = kept
        self.every = every
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=50)
        self.bar = _BarAndLine(
            TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(),
            TimeRemainingColumn(compact=True),
            console=self.out,
            disable=not self.out.is_terminal,
        )
        self.task: TaskID | None = None
        self.last = 0

    def __enter__(self) -> "TrainDisplay":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def began(self, metadata: _Report) -> None:
        """A run starts or resumes."""
        self.last = int(metadata["steps"])
        self.task = self.bar.add_task("", total=self.last)
        device = f"{metadata['device']}, {metadata['processes']} process" + ("es" if metadata["processes"] > 1 else "")
        examples = f"{metadata['pairs']:,} {_EXAMPLES[metadata['holds']]}"
        text = f"{metadata['parameters']:,} parameters, {examples}, batches of {metadata['batch_tokens']:,} tokens"
        self.out.print(f"{metadata['run']}: {text}, {device}")

    def stepped(self, report: _Report) -> None:
        if self.task is not None and not self.recent:
            # Steps before a resume do not count for the time left.
            self.bar.reset(self.task, total=self.last, completed=report["step"] - 1)
        self.recent.append((report["seconds"], report["tokens_per_second"], report["share_of_peak"]))
        self.bar.line = line = self.line(report)
        if self.task is not None:
            self.bar.update(self.task, completed=report["step"])
        if not self.out.is_terminal and (report["step"] % self.every == 0 or report["step"] == self.last):
            self.out.print(f"step {report['step']:,}/{self.last:,}  {line}")

    def line(self, report: _Report) -> str:
        """The numbers of a step; speeds are averaged over the last few steps."""
        seconds = sum(r[0] for r in self.recent)
        rate = sum(r[0] * r[1] for r in self.recent) / seconds
        share = sum(r[0] * r[2] for r in self.recent) / seconds
        return (
            f"objective {report['loss']:.3f}  nll {report['nll']:.3f}  "
            f"rate {report['learning_rate']:.1e}  {rate:,.0f} target tokens/s, {share:.0%} of peak"
        )

    def validated(self, report: _Report) -> None:
        scores = "  ".join(f"{name} {report[name]:.2f}" for name in ("bleu", "chrf") if name in report)
        self.out.print(
            f"[bold]step {report['step']:,}[/bold]  validation: nll {report['valid_nll']:.3f}  "
            f"perplexity {report['valid_perplexity']:.2f}  {scores}".rstrip(),
            markup=True,
        )
        for source, translation in report.get("samples", ()):
            self.out.print(f"    {source}\n  → {translation}")

    def said(self, text: str) -> None:
        self.out.print(text if self.kept else text.replace(RESUMES, "nothing is kept without -o."))
