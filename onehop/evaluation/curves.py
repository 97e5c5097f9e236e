"""A run's metrics as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop.errors import RunError, SettingsError, require, write_errors
from onehop.storage.run_folder import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Title and curves with their labels.
_PANELS: list[tuple[str, dict[str, str]]] = [
    ("loss a target token", {"loss": "objective, training", "nll": "nll, training", "valid_nll": "nll, validation"}),
    ("validation scores", {"bleu": "BLEU", "chrf": "chrF2++"}),
    ("learning rate", {"learning_rate": "learning rate"}),
    ("target tokens/s", {"tokens_per_second": "target tokens/s"}),
]
# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
_FEW = 50  # up to this many points have markers: a line through a single point is invisible
_RUN = "Give the folder that `onehop train -o` wrote."


def draw(run: str | Path, out: str | Path) -> None:
    """Draw the metrics of a run folder, or of a metrics file, as PNG or SVG."""
    run, out = Path(run), Path(out)
    if out.suffix not in (".png", ".svg"):
        raise SettingsError(f"{out} is neither .png nor .svg.", "Name the picture one of the two.")
    file = run / "metrics.jsonl" if run.is_dir() else run
    lines = _reports(file)
    panels = [(title, curves) for title, curves in _PANELS if any(name in line for name in curves for line in lines)]
    if not panels:
        raise RunError(f"{file} has no report of a training.", "Wait for the first one, or give another file.")
    rows = -(-len(panels) // 2)
    figure, axes = new_figure(rows, 2, (10, 3 * rows), sharex=True)
    while len(axes) > len(panels):
        axes.pop().remove()
    for axis, (title, curves) in zip(axes, panels, strict=True):
        _panel(axis, title, curves, lines)
    with write_errors(out, error=RunError):
        figure.savefig(out, dpi=150)


def _reports(file: Path) -> list[dict[str, Any]]:
    try:
        return read_metrics(file)
    except FileNotFoundError:
        raise RunError(f"There is no {file}.", _RUN) from None
    except (OSError, UnicodeDecodeError) as e:
        raise RunError(f"{file} cannot be read: {e}.", _RUN) from None


def new_figure(rows: int, columns: int, size: tuple[int, int], **options: Any) -> tuple[Any, list["Axes"]]:
    """An empty figure of this size in inches, and its axes row by row."""
    require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axis in axes:
        axis.grid(alpha=0.3)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def _panel(axis: "Axes", title: str, curves: dict[str, str], lines: list[dict[str, Any]]) -> None:
    """Draw every curve that has points."""
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel("step")
    axis.tick_params(labelbottom=True)
    axis.locator_params(axis="x", nbins=6, integer=True)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.yaxis.set_major_formatter("{x:,.9g}")
    for colour, (name, label) in zip(COLOURS, curves.items(), strict=False):
        points = [(line["step"], line[name]) for line in lines if name in line]
        if points:
            marker = "." if len(points) <= _FEW else ""
            axis.plot(*zip(*points, strict=True), color=colour, label=label, linewidth=1.2, marker=marker)
    if "nll" not in curves:
        axis.set_ylim(bottom=0)  # a small change should look small, except in a loss
    if len(axis.lines) > 1:
        axis.legend(frameon=False)
