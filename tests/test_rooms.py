"""DESIGN.md's rooms: a module imports only rooms above it in the flow. Read from the sources, not run."""

import ast
from collections.abc import Mapping
from pathlib import Path

import onehop

ROOMS: Mapping[str, set[str]] = {
    "Ground": {"errors", "config", "presets"},
    "Text": {
        *("tokenizer", "corpus", "filters", "store", "prepare", "stages", "encoding", "workers", "weights"),
        *("batches", "sampling", "score", "segments", "capitals", "tasks", "vocabulary", "shortlist"),
    },
    "Model": {"attention", "device", "model", "loss", "schedule", "taps", "kernels", "family"},
    "Storage": {"modelfile", "runs", "cache", "ct2model", "installed"},
    "Training": {"train", "passes", "listener", "feed", "plan", "state", "parallel", "validation", "checks"},
    "Decoding": {
        *("options", "search", "translator", "engines", "paragraphs", "alignment", "settling"),
        *("members", "generate", "likelihood", "embed", "fill", "gaps"),
    },
    "Showing": {"curves", "heatmap", "edits", "embeddings", "watched", "tracefile", "trace", "explorer"},
    "Doors": {
        *("__init__", "__main__", "cli", "display", "demo", "doctor", "evaluate", "export", "pipe", "recipe"),
        *("server", "verify", "digits", "paper"),
    },
}
FLOOR = {
    "Ground": 0,
    "Text": 1,
    "Model": 1,
    "Storage": 2,
    "Training": 3,
    "Decoding": 3,
    "Showing": 4,
    "Doors": 5,
}
ROOM = {module: room for room, modules in ROOMS.items() for module in modules}
WITHOUT_TORCH = ("Ground", "Text", "Storage")

Imports = Mapping[str, set[str]]


def imports_of_package(folder: Path) -> Imports:
    """For each module or subpackage at the top: every module that its sources import, wherever the import stands."""
    found: dict[str, set[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        place = file.relative_to(folder).with_suffix("").parts
        found.setdefault(place[0], set()).update(imports_of_file(file, ("onehop", *place[:-1])))
    return found


def imports_of_file(file: Path, package: tuple[str, ...]) -> set[str]:
    """Full names, relative imports resolved; `from a import b` counts as a.b, which may be a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def own(imports: Imports, module: str) -> set[str]:
    """The modules of onehop that a module imports."""
    second = {name.split(".")[1] for name in imports[module] if name.startswith("onehop.")}
    return {name for name in second if name in imports or name in ROOM} - {module}


def in_no_room(imports: Imports) -> list[str]:
    return sorted(module for module in imports if module not in ROOM)


def upward(imports: Imports) -> list[str]:
    """Imports that go against the flow, or across to another room of the same floor."""
    return sorted(
        f"{module} ({ROOM[module]}) imports {other} ({ROOM[other]})"
        for module in imports
        if module in ROOM
        for other in own(imports, module)
        if other in ROOM and ROOM[other] != ROOM[module] and FLOOR[ROOM[other]] >= FLOOR[ROOM[module]]
    )


def reaches_torch(imports: Imports) -> list[str]:
    """Modules that must do without torch and import it, themselves or through another module."""

    def reached(module: str, seen: frozenset[str] = frozenset()) -> bool:
        if any(name.split(".")[0] == "torch" for name in imports[module]):
            return True
        further = own(imports, module) & set(imports) - seen
        return any(reached(other, seen | {module}) for other in further)

    return sorted(m for m in imports if ROOM.get(m) in WITHOUT_TORCH and reached(m))


PACKAGE = imports_of_package(Path(onehop.__path__[0]))


def test_every_module_is_in_a_room():
    assert in_no_room(PACKAGE) == []


def test_no_module_imports_against_the_flow():
    assert upward(PACKAGE) == []


def test_ground_text_and_storage_never_reach_torch():
    assert reaches_torch(PACKAGE) == []


def test_the_reading_sees_what_it_must_forbid(tmp_path):
    (tmp_path / "engines").mkdir()
    (tmp_path / "attic.py").write_text("")
    (tmp_path / "config.py").write_text("import json")
    (tmp_path / "batches.py").write_text("from onehop import model")
    (tmp_path / "model.py").write_text("import torch.nn\nfrom onehop.tokenizer import BOS")
    (tmp_path / "train.py").write_text("def late():\n    from . import search")
    (tmp_path / "runs.py").write_text("from onehop.model import Transformer")
    (tmp_path / "engines" / "fast.py").write_text("from .. import cli\nfrom ..errors import OnehopError")
    planted = imports_of_package(tmp_path)
    assert in_no_room(planted) == ["attic"]
    assert upward(planted) == [
        "batches (Text) imports model (Model)",
        "engines (Decoding) imports cli (Doors)",
        "model (Model) imports tokenizer (Text)",
        "train (Training) imports search (Decoding)",
    ]
    assert reaches_torch(planted) == ["batches", "runs"]
