"""What a person sees while onehop works: live bars on a terminal, plain lines in a pipe or a log."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

Report = Mapping[str, Any]


def console() -> Console:
    """Standard error: standard output belongs to results. Colours only on a terminal and without NO_COLOR."""
    return Console(stderr=True, highlight=False)


class PrepareDisplay:
    """Progress of `onehop prepare`: a bar with rate and time left for each stage, or a line when it begins."""

    def __init__(self) -> None:
        self.out = console()
        self.bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.completed:>12,.0f}"),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=self.out,
            disable=not self.out.is_terminal,
        )
        self.task: TaskID | None = None
        self.began = 0.0

    def __enter__(self) -> "PrepareDisplay":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def stage(self, name: str, total: int | None, unit: str) -> None:
        """A stage begins."""
        self.began = time.monotonic()
        self.task = self.bars.add_task(name, total=total, unit=unit, rate="")
        if not self.out.is_terminal:
            self.out.print(name)

    def advance(self, amount: int) -> None:
        """So much more is done."""
        if self.task is None:
            return
        self.bars.advance(self.task, amount)
        done = self.bars.tasks[self.task].completed
        self.bars.update(self.task, rate=f"{done / max(1e-6, time.monotonic() - self.began):,.0f}/s")

    def note(self, text: str) -> None:
        """A line."""
        self.out.print(text)


class TrainDisplay:
    """Progress of `onehop train`: one live line; validations and events stay above it."""

    def __init__(self, *, every: int = 50) -> None:
        self.out = console()
        self.every = every
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=50)
        self.bar = Progress(
            TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[line]}"),
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

    def began(self, facts: Report) -> None:
        """The run starts or goes on."""
        self.last = int(facts["steps"])
        self.task = self.bar.add_task("", total=self.last, line="")
        device = f"{facts['device']}, {facts['processes']} process" + ("es" if facts["processes"] > 1 else "")
        text = (
            f"{facts['parameters']:,} parameters, {facts['pairs']:,} pairs, batches of {facts['batch_tokens']:,} tokens"
        )
        self.out.print(f"{facts['run']}: {text}, {device}")

    def stepped(self, report: Report) -> None:
        """A step is done."""
        self.recent.append((report["seconds"], report["tokens_per_second"], report["share_of_peak"]))
        line = self.line(report)
        if self.task is not None:
            self.bar.update(self.task, completed=report["step"], line=line)
        if not self.out.is_terminal and (report["step"] % self.every == 0 or report["step"] == self.last):
            self.out.print(f"step {report['step']:,}/{self.last:,}  {line}", soft_wrap=True)

    def line(self, report: Report) -> str:
        """The numbers of a step, speeds averaged over the last few."""
        seconds = sum(r[0] for r in self.recent)
        rate = sum(r[0] * r[1] for r in self.recent) / seconds
        share = sum(r[0] * r[2] for r in self.recent) / seconds
        return (
            f"loss {report['loss']:.3f}  perplexity {report['perplexity']:.2f}  "
            f"rate {report['learning_rate']:.2e}  {rate:,.0f} target tokens/s ({share:.0%} of peak)"
        )

    def validated(self, report: Report) -> None:
        """A validation is done."""
        scores = "  ".join(f"{name} {report[name]:.2f}" for name in ("bleu", "chrf") if name in report)
        self.out.print(
            f"[bold]step {report['step']:,}[/bold]  validation: loss {report['valid_nll']:.3f}  "
            f"perplexity {report['valid_perplexity']:.2f}  {scores}",
            soft_wrap=True,
        )
        for source, translation in report.get("samples", ()):
            self.out.print(f"    {source}\n  → {translation}", markup=False, soft_wrap=True)

    def said(self, text: str) -> None:
        """A line."""
        self.out.print(text, markup=False, soft_wrap=True)
