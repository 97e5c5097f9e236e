"""The arrays of a checkpoint as a safetensors file with a checksum."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from onehop.errors import RunError
from onehop.storage.number_formats import plain_bytes

Arrays = dict[str, NDArray[Any]]

CHECKSUM = "crc32"


def write_arrays(arrays: Arrays, file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file with a checksum over its arrays and metadata."""
    described = dict(metadata or {})
    file.touch()
    mode = file.stat().st_mode
    save_file(arrays, file, {**described, CHECKSUM: _arrays_checksum(arrays, described)})
    file.chmod(mode)  # safetensors replaces it with a file that only its owner may read


def read_arrays(file: Path) -> Arrays:
    """The arrays of a safetensors file, if its checksum is right."""
    return read_with_metadata(file)[0]


def read_with_metadata(file: Path) -> tuple[Arrays, dict[str, str]]:
    """The same with the metadata. Files of older versions have no checksum."""
    try:
        with safe_open(file, "np") as opened:
            metadata = dict(opened.metadata() or {})
        arrays: Arrays = load_file(file)
        if metadata.pop(CHECKSUM, None) not in (None, _arrays_checksum(arrays, metadata)):
            raise ValueError("its checksum does not match")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as e:
        raise broken_checkpoint_error(file, e) from None
    return arrays, metadata


def _arrays_checksum(arrays: Arrays, metadata: Mapping[str, str]) -> str:
    """CRC-32 of the metadata and of each array's name, type, shape and bytes. It detects damage, not tampering."""
    checksum = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        checksum = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(plain_bytes(array), checksum)
    return f"{checksum:08x}"


def state_checksum(state: Mapping[str, Any]) -> str:
    """CRC-32 of what state.json holds."""
    return f"{zlib.crc32(json.dumps(state, sort_keys=True).encode()):08x}"


def broken_checkpoint_error(file: Path, reason: Exception) -> RunError:
    return RunError(
        f"The checkpoint {file} cannot be read: {reason}.",
        "Delete its folder to resume from the previous checkpoint, or from the start if there is none.",
    )
