"""A run's metrics as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop.errors import RunError, SettingsError
from onehop.runs import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Title and curves with their labels.
PANELS: list[tuple[str, dict[str, str]]] = [
    ("loss a target token", {"nll": "training", "valid_nll": "validation"}),
    ("validation scores", {"bleu": "BLEU", "chrf": "chrF2++"}),
    ("learning rate", {"learning_rate": "learning rate"}),
    ("target tokens/s", {"tokens_per_second": "target tokens/s"}),
]
# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ["#0072b2", "#d55e00"]


def draw(run: Path, out: Path) -> None:
    """Draw the metrics of a run folder, or of a metrics file, as PNG or SVG."""
    file = run / "metrics.jsonl" if run.is_dir() else run
    if not file.exists():
        raise RunError(f"There is no {file}.", "Give the folder that `onehop train -o` wrote.")
    lines = read_metrics(file)
    if not lines:
        raise RunError(f"{file} has no line yet.", "Wait for the first report of the training.")
    if out.suffix not in (".png", ".svg"):
        raise SettingsError(f"{out} is neither .png nor .svg.", "Name the picture one of the two.")
    figure, axes = panels(len(PANELS))
    for axis, (title, curves) in zip(axes, PANELS, strict=True):
        panel(axis, title, curves, lines)
    figure.savefig(out)


def panels(count: int) -> tuple[Any, list["Axes"]]:
    """An empty figure with panels side by side, two in a row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError("matplotlib is not installed.", "Run: pip install 'onehop[plots]'.") from None
    figure = Figure(figsize=(10, 3 * (count // 2)), layout="constrained")
    return figure, list(figure.subplots(count // 2, 2).flat)


def panel(axis: "Axes", title: str, curves: dict[str, str], lines: list[dict[str, Any]]) -> None:
    """One panel: every curve that has points."""
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel("step")
    axis.grid(alpha=0.3)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for colour, (name, label) in zip(COLOURS, curves.items(), strict=False):
        points = [(line["step"], line[name]) for line in lines if name in line]
        if points:
            axis.plot(*zip(*points, strict=True), color=colour, label=label, linewidth=1.5)
    if len(axis.lines) > 1:
        axis.legend(frameon=False)
