"""The files of every table: raw numbers with their provenance, a table in Markdown, a picture."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onehop.atomic import write_json, write_whole
from onehop.errors import MissingPackageError, RunError, write_errors

Json = dict[str, Any]


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


def machine() -> Json:
    import torch  # only here, so that the arguments of a measurement are checked before it is imported

    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
