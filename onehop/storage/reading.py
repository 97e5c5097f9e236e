"""Reading a model file, and refusing with a reason what is none, is damaged or is incomplete."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from onehop.config import settings_from_dict
from onehop.errors import ModelFileError, OnehopError
from onehop.storage.model_file import (
    CONTENT,
    FORMAT,
    PART,
    SUFFIX,
    Label,
    StoredModel,
    check_fits,
    content_hash,
    from_arrays,
    part_names,
    with_suffix,
)
from onehop.storage.number_formats import DTYPES, Array

OURS = f"Give a {SUFFIX} file that onehop has written."
AGAIN = "Download it or make it again."
TOGETHER = "Put all parts into one folder, under the names they were written with."


def read_model(path: str | Path) -> StoredModel:
    """Read a model from its file, or from any part or the common name of its parts, and verify its hash."""
    head = find_head(Path(path))
    data = read_bytes(head)
    label = read_label(head, data)
    pieces = {key: [array] for key, array in decode_arrays(head, data).items()}
    names = part_names(head, label)
    refuse_incomplete(head, names)
    for part, name in enumerate(names, start=2):
        data = read_bytes(name)
        if read_label(name, data) != replace(label, part=part, content={}):
            raise another_model(name, head)
        for key, array in decode_arrays(name, data).items():
            pieces.setdefault(key, []).append(array)
    with refused_if_malformed(head):
        arrays = {key: joined(array) for key, array in pieces.items()}
        actual = content_hash(label.content, arrays)
        if actual != label.hash:
            raise ModelFileError(f"{head} is damaged: its hash is {actual}, not {label.hash}.", AGAIN)
        model = to_model(head, label.content, arrays)
    check_fits(head, model)
    return model


def describe(path: str | Path) -> Label:
    """What a model file says about itself. The weights are neither read nor verified."""
    head = find_head(Path(path))
    return read_label(head, read_bytes(head, header_only=True))


# What each member of the family is called and for.
MEMBERS = {
    None: ("a translator", "onehop translate"),
    "decoder": ("a decoder", "onehop generate"),
    "encoder": ("an encoder", "onehop embed or onehop fill"),
    "vision": ("a vision model", "onehop digits"),
}


def check_kind(path: str | Path, wanted: str | None) -> None:
    """Refuse another member of the family than the one that is needed, by the file's description alone."""
    kind = describe(path).content["settings"].get("model", {}).get("kind")
    if kind != wanted and kind in MEMBERS:
        (name, verb), (other, _) = MEMBERS[kind], MEMBERS[wanted]
        raise ModelFileError(f"{path} is {name}, not {other}.", f"Use {verb}, or give another model.")


def find_head(path: Path) -> Path:
    """The first part of the model that a path means."""
    path = path if os.path.isfile(path) or not os.path.isfile(with_suffix(path)) else with_suffix(path)
    label = read_label(path, read_bytes(path, header_only=True))
    if label.part == 1:
        return path
    name = re.fullmatch(rf"(.+){PART}\.safetensors", path.name)
    head = path.with_name(name[1] + SUFFIX) if name else path
    if not os.path.isfile(head) or head == path:
        raise ModelFileError(
            f"{path} is part {label.part} of {label.parts}, and the first part is not beside it.", TOGETHER
        )
    if read_label(head, read_bytes(head, header_only=True)).layout != label.layout:
        raise another_model(path, head)
    return head


def refuse_incomplete(head: Path, names: Sequence[Path]) -> None:
    """Name the parts that are missing."""
    missing = ", ".join(name.name for name in names if not os.path.isfile(name))
    if missing:
        raise ModelFileError(f"{head} is the first of {len(names) + 1} parts, and {missing} is missing.", TOGETHER)


def another_model(part: Path, head: Path) -> ModelFileError:
    """Parts of two writings lie beside each other."""
    return ModelFileError(f"{part} belongs to another model than {head}.", "Fetch all parts of one model again.")


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
        raise ModelFileError(f"There is no model file {path}.", f"Give the path of a {SUFFIX} file.") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder.", f"Give the {SUFFIX} file in it.") from None
    except OSError as e:
        raise ModelFileError(f"{path} cannot be read ({e.strerror}).", "Check the path and its permissions.") from None


def read_label(path: Path, data: bytes) -> Label:
    """What the header of a file says about it."""
    length = int.from_bytes(data[:8], "little")
    if data[8:9] != b"{":
        raise ModelFileError(f"{path} is {what_it_is(data)}.", OURS)
    if len(data) < 8 + length:
        raise ModelFileError(f"{path} is cut off or damaged: its header is not complete.", AGAIN)
    with refused_if_malformed(path):
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
        if not metadata or "onehop" not in metadata:
            raise ModelFileError(f"{path} was written by another program.", OURS)
        return parse_label(path, json.loads(metadata["onehop"]))


def what_it_is(data: bytes) -> str:
    """A guess at a file that is none of ours, from how it begins. Nothing of it is unpacked."""
    if not data:
        return "empty"
    if data.startswith(b"PK\x03\x04"):
        return "a zip file, such as torch.save writes, and no safetensors file"
    if data[:1] == b"\x80" and data[1:2] in b"\2\3\4\5":
        return "a pickle, which could run anything when it is read, and no safetensors file"
    return "no safetensors file"


def parse_label(path: Path, described: Mapping[str, Any]) -> Label:
    """Check the description in a header. A KeyError, TypeError or ValueError says what is wrong."""
    version = described["format"]
    if type(version) is not int or version < 1:
        raise ValueError("the format is no number")
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
    # The layout becomes part of a file's name, so that nothing but hexadecimal digits may stand in it.
    if not (re.fullmatch("[0-9a-f]{64}", label.hash) and re.fullmatch("[0-9a-f]{8}", label.layout)):
        raise ValueError("hash or layout is not hexadecimal")
    if not (type(label.part) is int and type(label.parts) is int and 1 <= label.part <= label.parts <= 99999):
        raise ValueError("the number of the part is impossible")
    return label


def decode_arrays(path: Path, data: bytes) -> dict[str, Array]:
    """The arrays of one file. The safetensors library checks that they lie within it and do not overlap."""
    try:
        found = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as e:
        reason = str(e).removeprefix("Error while deserializing: ")
        raise ModelFileError(f"{path} is cut off or damaged: {reason}.", AGAIN) from None
    with refused_if_malformed(path):
        return {
            name: np.frombuffer(tensor["data"], dtype=DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
            for name, tensor in found
        }


def joined(pieces: list[Array]) -> Array:
    """One array from the pieces that the parts hold of it."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, dtype=pieces[0].dtype, casting="no")


def to_model(path: Path, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> StoredModel:
    """A model from what was read, now that its hash is right."""
    tokenizer, tensors = from_arrays(arrays)
    source, target, provenance = content["source"], content["target"], content["provenance"]
    if not (isinstance(source, str) and isinstance(target, str) and isinstance(provenance, dict)):
        raise TypeError("languages or provenance are of another type")
    try:
        settings = settings_from_dict(content["settings"])
    except OnehopError as e:
        raise ModelFileError(
            f"{path} has settings that this onehop does not know: {e.what}", "Update onehop."
        ) from None
    return StoredModel(
        settings=settings, tokenizer=tokenizer, source=source, target=target, provenance=provenance, tensors=tensors
    )


@contextlib.contextmanager
def refused_if_malformed(path: Path) -> Iterator[None]:
    """Turn the errors that a malformed description or array leads to into the one that says so."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        reason = f"there is no {e}" if isinstance(e, KeyError) else str(e)
        raise ModelFileError(f"{path} is damaged: {' '.join(reason.split())}.", AGAIN) from None
