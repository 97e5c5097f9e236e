"""API keys, stored as hashes, so that a leaked file or variable reveals no key.

A key is 32 random bytes, so one round of SHA-256 is enough: it cannot be guessed.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from onehop.errors import SettingsError

_VARIABLE = "ONEHOP_API_KEYS"
_LINE = re.compile(r"(?P<name>[\w.@-]{1,64})[ \t]+(?P<hash>[0-9a-f]{64})")


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def make(name: str) -> tuple[str, str]:
    """A new key, and its line for the key file."""
    if not re.fullmatch(r"[\w.@-]{1,64}", name):
        raise SettingsError(f"{name!r} cannot be a key's name.", "Use only letters, digits and . @ - _.")
    key = secrets.token_urlsafe(32)
    return key, f"{name} {hashed(key)}"


def read(file: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Names by hash, from a file and the environment. If there are none, no key is required."""
    keys: dict[str, str] = {}
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise SettingsError(f"{file} cannot be read.", "Give a file of API keys that you may read.") from None
        keys |= parse(text.splitlines(), file)
    keys |= parse(re.split(r"[,\n]", environment.get(_VARIABLE, "")), _VARIABLE)
    if file is not None and not keys:
        raise SettingsError(f"{file} has no key.", "Make one: onehop serve --make-key NAME.")
    return keys


def parse(lines: list[str], origin: str) -> dict[str, str]:
    """Parse lines of name and hash; empty lines and comments are skipped."""
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise SettingsError(
                f"Line {number} of {origin} is not a name and a SHA-256.", "Make one: onehop serve --make-key NAME."
            )
        keys[match["hash"]] = match["name"]
    return keys
