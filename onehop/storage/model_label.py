"""The label of a model file, read from its header without weights, NumPy or safetensors.

Every start of a translator uses it, so it imports nothing heavy.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onehop.errors import ModelChangedError, ModelFileError

FORMAT = 1
SUFFIX = ".safetensors"
CONTENT = ("format", "settings", "source", "target", "provenance")
PART = r"-[0-9a-f]{8}-\d{5}-of-\d{5}"

_REMEDY_FOREIGN = f"Give a {SUFFIX} file that onehop has written."
REMEDY_DAMAGED = "Download it or make it again."
REMEDY_SCATTERED = "Put all parts into one folder, under the names they were written with."


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a file says about itself. Only the first part of a sharded model has the content."""

    hash: str
    layout: str
    part: int
    parts: int
    content: Mapping[str, Any]

    @property
    def pair(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.content["source"], self.content["target"]

    @property
    def kind(self) -> Any:
        """None for a translator. The kind of a damaged file may be anything."""
        return self.content["settings"].get("model", {}).get("kind")


def check_unchanged(path: str | Path, expected: str) -> None:
    """Refuse a model file whose stated hash is another one."""
    with contextlib.suppress(ModelFileError):
        if describe(path).hash == expected:
            return
    raise model_changed_error()


def model_changed_error() -> ModelChangedError:
    """The error without the path, which a server's clients must not see."""
    return ModelChangedError("The model file has changed since it was loaded.", "Restart the server or load it again.")


def describe(path: str | Path) -> Label:
    """What a model file says about itself. The weights are neither read nor verified."""
    return _head(Path(path))[1]


# Name and use of each kind of model.
KINDS = {
    None: ("a translator", "onehop translate"),
    "decoder": ("a decoder", "onehop generate"),
    "encoder": ("an encoder", "onehop embed or onehop fill"),
    "vision": ("a vision model", "onehop demo digits"),
}


def check_kind(path: str | Path, wanted: str | None) -> None:
    """Refuse a model of another kind than needed. Only the description is read."""
    kind = describe(path).kind
    if kind != wanted and kind in list(KINDS):  # a list, because a damaged file's kind may not be hashable
        (name, verb), (other, _) = KINDS[kind], KINDS[wanted]
        raise ModelFileError(f"{path} is {name}, not {other}.", f"Use {verb}, or give another model.")


def find_head(path: Path) -> Path:
    """The first part of the model that a path means."""
    return _head(path)[0]


def _head(path: Path) -> tuple[Path, Label]:
    path = path if os.path.isfile(path) or not os.path.isfile(with_suffix(path)) else with_suffix(path)
    label = read_label(path, read_bytes(path, header_only=True))
    if label.part == 1:
        return path, label
    name = re.fullmatch(rf"(.+){PART}\.safetensors", path.name)
    head = path.with_name(name[1] + SUFFIX) if name else path
    if not os.path.isfile(head) or head == path:
        raise ModelFileError(
            f"{path} is part {label.part} of {label.parts}, and the first part is not beside it.", REMEDY_SCATTERED
        )
    first = read_label(head, read_bytes(head, header_only=True))
    if first.layout != label.layout:
        raise another_model_error(path, head)
    return head, first


def another_model_error(part: Path, head: Path) -> ModelFileError:
    """The error for parts of two different models in one folder."""
    return ModelFileError(f"{part} belongs to another model than {head}.", "Download all parts of the model again.")


def read_bytes(path: Path, *, header_only: bool = False) -> bytes:
    """A file's bytes, or those up to the end of the header."""
    try:
        with open(path, "rb") as file:
            if not header_only:
                return file.read()
            length = file.read(8)
            # A foreign file may claim any length; the file's own is never exceeded.
            return length + file.read(min(int.from_bytes(length, "little"), os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        raise ModelFileError(f"There is no model file {path}.", f"Give a {SUFFIX} file or a run folder.") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder.", f"Give the {SUFFIX} file in it.") from None
    except OSError as e:
        raise ModelFileError(f"{path} cannot be read ({e.strerror}).", "Check the path and its permissions.") from None


def read_label(path: Path, data: bytes) -> Label:
    length = int.from_bytes(data[:8], "little")
    if data[8:9] != b"{":
        raise ModelFileError(f"{path} is {_what_it_is(data)}.", _REMEDY_FOREIGN)
    if len(data) < 8 + length:
        raise ModelFileError(f"{path} is cut off or damaged: its header is not complete.", REMEDY_DAMAGED)
    with malformed_errors(path):
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
        if not metadata or "onehop" not in metadata:
            raise ModelFileError(f"{path} was written by another program.", _REMEDY_FOREIGN)
        return _parse_label(path, json.loads(metadata["onehop"]))


def _what_it_is(data: bytes) -> str:
    """The likely format of a foreign file, from its first bytes."""
    if not data:
        return "empty"
    if data.startswith(b"PK\x03\x04"):
        return "a zip file, such as torch.save writes, not a safetensors file"
    if data[:1] == b"\x80" and data[1:2] in b"\2\3\4\5":
        return "a pickle, which can run code when loaded, not a safetensors file"
    return "not a safetensors file"


def _parse_label(path: Path, described: Mapping[str, Any]) -> Label:
    """Check the description in a header. A KeyError, TypeError or ValueError says what is wrong."""
    version = described["format"]
    if type(version) is not int or version < 1:
        raise ValueError("the format version is not a number")
    if version > FORMAT:
        raise ModelFileError(
            f"{path} has the format {version}, and this onehop reads formats up to {FORMAT}.", "Update onehop."
        )
    label = Label(
        hash=described["hash"],
        layout=described["layout"],
        part=described["part"],
        parts=described["parts"],
        content={key: described[key] for key in CONTENT} if described["part"] == 1 else {},
    )
    # The layout becomes part of a file name, so only hexadecimal digits are allowed.
    if not (re.fullmatch("[0-9a-f]{64}", label.hash) and re.fullmatch("[0-9a-f]{8}", label.layout)):
        raise ValueError("hash or layout is not hexadecimal")
    if not (type(label.part) is int and type(label.parts) is int and 1 <= label.part <= label.parts <= 99999):
        raise ValueError("the part number is out of range")
    if label.content:
        _check_types(label.content)
    return label


def _check_types(content: Mapping[str, Any]) -> None:
    """Refuse a description whose entries have the wrong types."""
    settings = content["settings"]
    if not (isinstance(settings, dict) and all(isinstance(table, dict) for table in settings.values())):
        raise TypeError("the settings are not tables")
    if not (
        all(isinstance(content[side], str) for side in ("source", "target")) and type(content["provenance"]) is dict
    ):
        raise TypeError("languages or provenance have the wrong type")


@contextlib.contextmanager
def malformed_errors(path: Path) -> Iterator[None]:
    """Turn errors of a malformed description or array into a ModelFileError."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        reason = f"there is no {e}" if isinstance(e, KeyError) else str(e)
        raise ModelFileError(f"{path} is damaged: {' '.join(reason.split())}.", REMEDY_DAMAGED) from None


def with_suffix(path: Path) -> Path:
    """The file's name from the name of the model."""
    return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)


def part_names(head: Path, label: Label) -> list[Path]:
    """The files of the parts after the first."""
    stem = head.name.removesuffix(SUFFIX)
    return [
        head.with_name(f"{stem}-{label.layout}-{i:05d}-of-{label.parts:05d}{SUFFIX}") for i in range(2, label.parts + 1)
    ]
