"""The report of table 3: the paper's findings judged at this scale, the table, and the picture."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onehop.evaluation.curves import COLOURS, new_figure
from onehop.experiments.provenance import Json, markdown
from onehop.experiments.table3 import ROWS, Row


@dataclass(frozen=True)
class _Finding:
    """A finding of section 6.2, and the row and metric to judge it against the base."""

    text: str
    row: str
    key: Literal["bleu", "perplexity"]
    says: Literal["less", "more", "the same"]


FINDINGS = (
    _Finding("one head is worse", "heads-1/8", "bleu", "less"),
    _Finding("too many heads are worse", "heads-4", "bleu", "less"),
    _Finding("a small d_k is worse", "key-width-1/4", "bleu", "less"),
    _Finding("fewer layers are worse", "layers-1/3", "bleu", "less"),
    _Finding("a narrower model is worse", "width-1/2", "bleu", "less"),
    _Finding("a wider model is better", "width-2", "bleu", "more"),
    _Finding("a wider feed-forward network is better", "inner-2", "bleu", "more"),
    _Finding("without dropout it is worse", "dropout-0", "bleu", "less"),
    _Finding("without label smoothing BLEU is worse", "smoothing-0", "bleu", "less"),
    _Finding("… and perplexity better", "smoothing-0", "perplexity", "less"),
    _Finding("learned positions are as good", "learned-positions", "bleu", "the same"),
    _Finding("the big model is better", "big", "bleu", "more"),
)


def verdict(says: str, ours: Sequence[float], base: Sequence[float]) -> str:
    """Whether a finding holds: every seed of the row is on the stated side of every seed of the base."""
    side = "less" if max(ours) < min(base) else "more" if min(ours) > max(base) else "the same"
    if len(ours) == 1 or len(base) == 1:
        return "one seed cannot tell" if says == "the same" else f"{'holds' if side == says else 'not'} with one seed"
    if side == says:
        return "holds"
    return "within the spread" if side == "the same" else "does not hold"


def judged(table: Json) -> Iterator[tuple[_Finding, float, float, str]]:
    """Each finding whose row was trained: the paper's difference to the base, ours, and the verdict."""
    results = {result.row.name: result for result in _results(table)}
    base = results["base"]
    for finding in FINDINGS:
        if finding.row in results:
            result, key = results[finding.row], finding.key
            ours, base_values = getattr(result, key), getattr(base, key)
            theirs = getattr(result.row, key) - getattr(base.row, key)
            difference = statistics.mean(ours) - statistics.mean(base_values)
            yield finding, theirs, difference, verdict(finding.says, ours, base_values)


@dataclass(frozen=True)
class _RowResult:
    """A row, with one value for each seed."""

    row: Row
    changes: list[str]
    perplexity: list[float]
    bleu: list[float]
    parameters: int


def _results(table: Json) -> Iterator[_RowResult]:
    for row in ROWS:
        runs = [run for run in table["rows"] if run["row"] == row.name]
        if runs:
            perplexity, scores = ([run[key] for run in runs] for key in ("perplexity", "bleu"))
            yield _RowResult(row, runs[0]["changes"], perplexity, scores, runs[0]["parameters"])


def table_text(table: Json) -> str:
    """Our values and the paper's side by side."""
    header = ["row", "", "change", "seeds", "PPL", "BLEU", "parameters (M)", "paper: PPL", "BLEU", "parameters (M)"]
    rows = [
        [
            line.row.letter,
            line.row.name,
            ", ".join(map(_change_text, line.changes)),
            str(len(line.bleu)),
            _spread(line.perplexity),
            _spread(line.bleu),
            f"{line.parameters / 1e6:.1f}",
            f"{line.row.perplexity:.2f}",
            f"{line.row.bleu:.1f}",
            "" if line.row.parameters is None else f"{line.row.parameters:.0f}",
        ]
        for line in _results(table)
    ]
    findings = [
        [finding.text, finding.row, finding.key.replace("bleu", "BLEU"), f"{theirs:+.2f}", f"{ours:+.2f}", verdict_text]
        for finding, theirs, ours, verdict_text in judged(table)
    ]
    header_of_findings = ["what the paper found", "row", "by", "paper: to the base", "here", "at this scale"]
    judgement = "\n" + markdown(header_of_findings, findings) if findings else ""
    return markdown(header, rows) + judgement


def _change_text(change: str) -> str:
    """A change without its section name; 0.3 for 0.30000000000000004."""
    name, _, value = change.partition(".")[2].partition("=")
    return f"{name} {float(value):g}" if "." in value else f"{name} {value}"


def _spread(values: Sequence[float]) -> str:
    """The mean, and the standard deviation if there are several seeds."""
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {_deviation(values):.2f}"


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation over seeds; 0 for one seed."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def picture(table: Json) -> Any:
    """The difference of each row to the base, here and in the paper, with the standard deviation over seeds."""
    figure, axes = new_figure(1, 2, (10, 4))
    lines = list(_results(table))
    base, others = lines[0], lines[1:]
    heights = range(len(others), 0, -1)
    for axis, key in zip(axes, ("bleu", "perplexity"), strict=True):
        ours = [statistics.mean(getattr(line, key)) - statistics.mean(getattr(base, key)) for line in others]
        theirs = [getattr(line.row, key) - getattr(base.row, key) for line in others]
        axis.axvline(0, color=COLOURS[-1], linewidth=0.8)
        noise = [math.hypot(_deviation(getattr(line, key)), _deviation(getattr(base, key))) for line in others]
        axis.errorbar(ours, list(heights), xerr=noise, fmt="o", color=COLOURS[0], label="here")
        axis.plot(theirs, heights, "D", color=COLOURS[1], markersize=4, zorder=3, label="paper")
        axis.set_yticks(list(heights), [line.row.name for line in others], fontsize=7)
        axis.set_title(f"{'BLEU' if key == 'bleu' else key}, difference to the base", fontsize=10, loc="left")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
