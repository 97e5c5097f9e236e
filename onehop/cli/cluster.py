"""`--ray`: what the command line checks before a cluster is joined."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onehop.errors import OnehopError, SettingsError, require

if TYPE_CHECKING:
    from onehop.pipelines.bulk import BulkJob

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<path>.*)")  # a Path has one slash of a URL's two
RayAddress = Annotated[
    str | None,
    typer.Option("--ray", metavar="local|ADDRESS", help="Use a Ray cluster: of this machine, or at an address."),
]


def local_path(out: Path | None) -> Path | None:
    """The local path that -o means, which may be a file:// URL."""
    url = _URL.match(out.as_posix()) if out else None
    if url is None:
        return out
    if url["scheme"] == "file":
        return Path("/", url["path"])
    what = f"-o {url['scheme']}:// is not on this machine, and outputs are written here."
    raise SettingsError(what, "Give a local path or a mounted one, and copy it when the command has ended.")


def inputs_of(
    address: str | None, words: Sequence[str] | None, files: Sequence[Path] | None, out: Path | None, **unused: object
) -> list[str]:
    """The inputs of a translation on a cluster; none without one. `unused` are options that it has no use for."""
    if address is None:
        return []
    require("ray")
    if out is None:
        raise SettingsError("--ray writes one output for each input.", "Give a folder with -o.")
    if out.is_file():
        raise SettingsError(f"{out} is a file.", "Give a folder with -o.")
    for name, value in unused.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise SettingsError(f"{option} does not work with --ray.", "Leave one of them out.")
    found = [*(words or ()), *map(str, files or ())]
    if not found or found == ["-"]:
        raise SettingsError("--ray translates files.", "Name files, folders, patterns or URLs.")
    return found


def sample_of(inputs: Sequence[str], out: Path | None) -> Callable[[], str] | None:
    """What gives text of the first input, whose language can be identified; None without inputs."""
    if not inputs or out is None:
        return None

    def sample() -> str:
        from onehop.cluster.inputs import find_inputs, first_lines

        return "\n".join(first_lines(find_inputs(inputs, out)[0]))

    return sample


def refuse(inputs: Sequence[str], error: OnehopError) -> None:
    """Raise the error of inputs on a cluster, of which only the first was looked at."""
    if inputs:
        raise error


def translate(job: "BulkJob", inputs: Sequence[str], out: Path | None, *, address: str | None, **how: Any) -> None:
    from onehop.cluster.translate import translate_on_cluster

    assert address is not None
    assert out is not None, "`inputs_of` has checked it"
    translate_on_cluster(job, inputs, out, address=address, **how)
