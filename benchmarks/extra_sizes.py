"""Measure the size of each extra: the files of its packages and their dependencies that the base install lacks.

    python benchmarks/extra_sizes.py [-o results/extra_sizes.json]

Run it where every extra is installed. Sizes are summed over the files that each package lists, in MB of 2²⁰ bytes.
"""

import argparse
import json
import re
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from onehop.experiments.provenance import origin

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    installed = {named(each.metadata["Name"]): each for each in distributions() if each.metadata["Name"]}
    base = needed(PROJECT["dependencies"], installed)
    found = {}
    for extra, wishes in PROJECT["optional-dependencies"].items():
        if extra not in ("all", "dev"):
            packages = sorted(needed(wishes, installed) - base)
            found[extra] = {"MB": round(sum(megabytes(installed[name]) for name in packages), 1), "packages": packages}
            print(f"{extra}: {found[extra]['MB']} MB, {len(packages)} packages")
    if arguments.out:
        result = {**origin("benchmarks/extra_sizes.py"), "extras": found}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def named(package: str) -> str:
    """Return the name of a package as PyPI normalises it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def needed(wishes: list[str], installed: dict[str, Distribution]) -> set[str]:
    """Return the packages that these requirements install on this machine."""
    todo, seen = [Requirement(wish) for wish in wishes], set()
    while todo:
        wish = todo.pop()
        key = named(wish.name), tuple(sorted(wish.extras))
        if key in seen or key[0] == "onehop":
            continue
        seen.add(key)
        for line in installed[key[0]].requires or []:
            other = Requirement(line)
            if other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in ("", *wish.extras)):
                todo.append(other)
    return {name for name, _ in seen}


def megabytes(package: Distribution) -> float:
    files = [Path(str(file.locate())) for file in package.files or []]
    return sum(file.stat().st_size for file in files if file.exists()) / 2**20


if __name__ == "__main__":
    main()
