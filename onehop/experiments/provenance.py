"""The files of every table: raw numbers with their provenance, a table in Markdown, a picture."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from onehop.atomic import write_json, write_whole
from onehop.errors import MissingPackageError, RunError, require, write_errors

Json = dict[str, Any]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")


def origin(command: str) -> Json:
    """The command, date and machine of a measurement."""
    return {"made_by": command, "date": datetime.now(UTC).date().isoformat(), "machine": machine()}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def write_table(
    folder: Path, name: str, results: Mapping[str, Any], text: str, figure: Callable[[], Any]
) -> list[Path]:
    """Write the three files of a table. The picture is last: if it fails, the others are kept."""
    files = [folder / f"{name}.{suffix}" for suffix in ("json", "md", "svg")]
    try:
        with write_errors(folder, error=RunError):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(files[0], results)
            write_whole(files[1], text.encode())
            figure().savefig(files[2])
    except MissingPackageError as e:
        raise MissingPackageError(f"The table is in {files[1]}, without a picture: {e.what}", e.remedy) from None
    return files


def new_figure(panels: int) -> tuple[Any, list[Any]]:
    """An empty figure, and its axes side by side."""
    require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * panels, 4), layout="constrained")
    axes = list(figure.subplots(1, panels, squeeze=False).flat)
    for axis in axes:
        axis.grid(alpha=0.3)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def machine() -> Json:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
