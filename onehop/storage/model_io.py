"""Reads and writes model files: a damaged file is refused with its reason, and every write is atomic."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from onehop.config import settings_from_dict
from onehop.errors import ModelChangedError, ModelFileError, OnehopError
from onehop.machine import sync
from onehop.storage.model_file import (
    CONTENT,
    FORMAT,
    PART,
    SUFFIX,
    Label,
    StoredModel,
    canonical,
    check_fits,
    content_hash,
    content_of,
    from_arrays,
    part_names,
    to_arrays,
    with_suffix,
)
from onehop.storage.number_formats import DTYPES, TAGS, Array, Store, plain_bytes

OURS = f"Give a {SUFFIX} file that onehop has written."
AGAIN = "Download it or make it again."
TOGETHER = "Put all parts into one folder, under the names they were written with."
# A temporary that nobody has written to for so long was left by a process that was killed.
ABANDONED_SECONDS = 3600


# --- reading --------------------------------------------------------------------------------------------------


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


def read_unchanged(path: str | Path, expected: str) -> StoredModel:
    """Read a model again whose hash is known. One that was replaced or removed in the meantime is refused."""
    check_unchanged(path, expected)
    model = read_model(path)
    if model.hash != expected:
        raise changed()
    return model


def check_unchanged(path: str | Path, expected: str) -> None:
    """Refuse a model file that is not the one of this hash, by what it says about itself."""
    with contextlib.suppress(ModelFileError):
        if describe(path).hash == expected:
            return
    raise changed()


def changed() -> ModelChangedError:
    """Without the path, which is nobody's business who asks a server."""
    return ModelChangedError("The model file has changed since it was loaded.", "Restart the server or load it again.")


def describe(path: str | Path) -> Label:
    """What a model file says about itself. The weights are neither read nor verified."""
    head = find_head(Path(path))
    return read_label(head, read_bytes(head, header_only=True))


# What each member of the family is called and for.
MEMBERS = {
    None: ("a translator", "onehop translate"),
    "decoder": ("a decoder", "onehop generate"),
    "encoder": ("an encoder", "onehop embed or onehop fill"),
    "vision": ("a vision model", "onehop demo digits"),
}


def check_kind(path: str | Path, wanted: str | None) -> None:
    """Refuse another member of the family than the one that is needed, by the file's description alone."""
    kind = describe(path).content["settings"].get("model", {}).get("kind")
    if kind != wanted and kind in list(MEMBERS):  # a list, because a damaged file's kind may not be hashable
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
    missing = [name.name for name in names if not os.path.isfile(name)]
    if missing:
        shown = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
        raise ModelFileError(f"{head} is the first of {len(names) + 1} parts, and {shown} is missing.", TOGETHER)


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
    if label.content:
        check_types(label.content)
    return label


def check_types(content: Mapping[str, Any]) -> None:
    """Refuse a description whose entries are of other types than ours."""
    settings = content["settings"]
    if not (isinstance(settings, dict) and all(isinstance(table, dict) for table in settings.values())):
        raise TypeError("the settings are no tables")
    if not (
        all(isinstance(content[side], str) for side in ("source", "target")) and type(content["provenance"]) is dict
    ):
        raise TypeError("languages or provenance are of another type")


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
    try:
        settings = settings_from_dict(content["settings"])
    except OnehopError as e:
        raise ModelFileError(
            f"{path} has settings that this onehop does not know: {e.what}", "Update onehop."
        ) from None
    about = {key: content[key] for key in ("source", "target", "provenance")}
    return StoredModel(settings=settings, tokenizer=tokenizer, tensors=tensors, **about)


@contextlib.contextmanager
def refused_if_malformed(path: Path) -> Iterator[None]:
    """Turn the errors that a malformed description or array leads to into the one that says so."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        reason = f"there is no {e}" if isinstance(e, KeyError) else str(e)
        raise ModelFileError(f"{path} is damaged: {' '.join(reason.split())}.", AGAIN) from None


# --- writing --------------------------------------------------------------------------------------------------


def write_model(
    path: str | Path, model: StoredModel, *, store: Store | None = None, shard_bytes: int | None = None
) -> list[Path]:
    """Write a model, in another number format if `store` is given, in files of at most `shard_bytes`.

    The first of the returned files bears the given name, and moving it into place is the moment in which the new
    model takes the place of the old one. One process at a time may write to a name.
    """
    head = with_suffix(Path(path))
    model = model if store is None else model.stored_as(store)
    check_fits(head, model)
    content, arrays = content_of(model), to_arrays(model)
    digest = content_hash(content, arrays)
    parts = plan_parts(arrays, canonical(content), shard_bytes)
    # Another split of the same model gets other names, so that parts of two writings are never mixed.
    layout = hashlib.sha256(canonical([digest, [{n: a.shape for n, a in p.items()} for p in parts]]).encode())
    label = Label(hash=digest, layout=layout.hexdigest()[:8], part=1, parts=len(parts), content=content)
    names = [head, *part_names(head, label)]
    files = [encode_part(replace(label, part=i), part) for i, part in enumerate(parts, start=1)]
    try:
        replace_together(list(zip(names, files, strict=True)))
    except OSError as e:
        raise writing_error(head, e) from None
    with contextlib.suppress(OSError):  # the new model is in place: what cannot be tidied now is tidied next time
        remove_leftovers(head, keep=names)
    return names


def plan_parts(arrays: Mapping[str, Array], content: str, limit: int | None) -> list[dict[str, Array]]:
    """Distribute arrays over parts; one that is too large for a part of its own is cut between rows."""
    if limit is None:
        return [dict(arrays)]
    # Upper bounds of what surrounds the arrays: label, length and padding; an array's entry in the header.
    around = 400
    entries = {name: len(json.dumps([name, array.shape])) + 100 for name, array in arrays.items()}
    rows = {name: array.nbytes // max((1, *array.shape[:1])) for name, array in arrays.items()}
    least = around + max(len(json.dumps(content)), *(entries[name] + rows[name] for name in arrays))
    if limit < least:
        raise ModelFileError(f"Files of {limit} bytes are too small for this model.", f"Allow {least} or more.")
    fresh, room = limit - around, limit - around - len(json.dumps(content))
    parts: list[dict[str, Array]] = [{}]
    for name, array in sorted(arrays.items()):
        while entries[name] + array.nbytes > room:
            fitting = (room - entries[name]) // max(1, rows[name])
            if fitting > 0 and entries[name] + array.nbytes > fresh:
                parts[-1][name], array = array[:fitting], array[fitting:]
            parts.append({})
            room = fresh
        parts[-1][name] = array
        room -= entries[name] + array.nbytes
    return parts


def encode_part(label: Label, arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """A safetensors file as the pieces to write one after the other.

    Written by hand because the library can do it only from torch, by copying everything, or from raw addresses.
    """
    described = {"hash": label.hash, "layout": label.layout, "part": label.part, "parts": label.parts}
    described |= label.content if label.part == 1 else {"format": FORMAT}
    header: dict[str, Any] = {"__metadata__": {"onehop": canonical(described)}}
    end = 0
    # Wide numbers first, so that each array begins at a multiple of its width.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": TAGS[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(plain_bytes(array) for _, array in ordered)]


def replace_together(files: Sequence[tuple[Path, Sequence[bytes | memoryview]]]) -> None:
    """Write every file beside its place, then move them there, the first one last."""
    moves = [(name.with_name(f".{name.name}.{secrets.token_hex(4)}.tmp"), name) for name, _ in files]
    try:
        for (temporary, _), (_, pieces) in zip(moves, files, strict=True):
            with open(temporary, "xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        for temporary, name in reversed(moves):
            sync(name.parent)  # what moved before is on the disk before the next one moves
            os.replace(temporary, name)
        sync(files[0][0].parent)
    finally:
        for temporary, _ in moves:
            temporary.unlink(missing_ok=True)


def remove_leftovers(head: Path, keep: Sequence[Path]) -> None:
    """Remove the parts of the model that was here before, and what a killed process left of a half-written one."""
    stem = re.escape(head.name.removesuffix(SUFFIX))
    part = re.compile(rf"{stem}{PART}\.safetensors")
    temporary = re.compile(rf"\.{stem}({PART})?\.safetensors\.[0-9a-f]{{8}}\.tmp")
    for file in head.parent.iterdir():
        abandoned = temporary.fullmatch(file.name) and time.time() - file.stat().st_mtime > ABANDONED_SECONDS
        if abandoned or (part.fullmatch(file.name) and file not in keep):
            file.unlink()


def writing_error(head: Path, e: OSError) -> ModelFileError:
    """Why a model could not be written, and what to do."""
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelFileError(
            f"The disk is full: {head} was not written, and what was there before is unharmed.",
            "Free some space or choose another disk.",
        )
    if isinstance(e, FileNotFoundError):
        return ModelFileError(f"There is no folder {head.parent} to write the model to.", "Create it first.")
    return ModelFileError(f"The model cannot be written to {head} ({e.strerror}).", "Choose another place.")
