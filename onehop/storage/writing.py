"""Writing a model file, in one piece or in parts, so that at every moment the old or the new one is whole."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onehop.errors import ModelFileError
from onehop.storage.model_file import (
    FORMAT,
    PART,
    SUFFIX,
    Label,
    StoredModel,
    canonical,
    check_fits,
    content_hash,
    content_of,
    part_names,
    to_arrays,
    with_suffix,
)
from onehop.storage.number_formats import TAGS, Array, Store, plain_bytes

# A temporary that nobody has written to for so long was left by a process that was killed.
ABANDONED_SECONDS = 3600


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
            sync_folder(name.parent)  # what moved before is on the disk before the next one moves
            os.replace(temporary, name)
        sync_folder(files[0][0].parent)
    finally:
        for temporary, _ in moves:
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
