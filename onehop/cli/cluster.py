"""`--ray`: translation on a cluster, and the checks before it is joined."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from onehop.cli.app import machine_option
from onehop.errors import OnehopError, SettingsError, require

if TYPE_CHECKING:
    from onehop.pipelines.bulk import BulkJob

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<path>.*)")  # Path makes one slash of two
RayAddress = Annotated[
    str | None,
    machine_option("--ray", metavar="local|ADDRESS", help="Use a Ray cluster: of this machine, or at an address."),
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


@dataclass(frozen=True)
class ClusterInputs:
    """Inputs of a translation on a cluster: files, folders, patterns and URLs."""

    address: str
    inputs: Sequence[str]
    out: Path
    workers: int | None
    fields: Sequence[str]

    def sample(self) -> str:
        """Text of the first input, for language identification."""
        from onehop.cluster.inputs import find_inputs, first_lines

        return "\n".join(first_lines(find_inputs(self.inputs, self.out)[0]))

    def give_back(self, error: OnehopError, job: "BulkJob") -> None:
        """Raise the error: only the first input was identified, so the others may need a translation."""
        raise error

    def translate(self, job: "BulkJob") -> None:
        from onehop.cluster.translate import translate_on_cluster

        translate_on_cluster(job, self.inputs, self.out, address=self.address, workers=self.workers, fields=self.fields)


def cluster_inputs(
    address: str,
    inputs: Sequence[str],
    out: Path | None,
    *,
    workers: int | None,
    fields: Sequence[str],
    **unsupported: object,
) -> ClusterInputs:
    """Check the options of a translation on a cluster; `unsupported` ones must not be set."""
    require("ray")
    if out is None:
        raise SettingsError("--ray writes one output for each input.", "Give a folder with -o.")
    if out.is_file():
        raise SettingsError(f"{out} is a file.", "Give a folder with -o.")
    for name, value in unsupported.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise SettingsError(f"{option} does not work with --ray.", "Leave one of them out.")
    if not inputs or inputs == ["-"]:
        raise SettingsError("--ray translates files.", "Name files, folders, patterns or URLs.")
    return ClusterInputs(address, inputs, out, workers, fields)
