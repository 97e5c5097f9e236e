"""API keys, kept as hashes: a file or a variable that is read by others gives no key away.

A key is 32 random bytes, so that one round of SHA-256 is enough: there is nothing to guess.
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
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def make(name: str) -> tuple[str, str]:
    """A new key, and the line that lets it in."""
    if not re.fullmatch(r"[\w.@-]{1,64}", name):
        raise SettingsError(f"{name!r} cannot be a key's name.", "Take letters, digits and . @ - _ only.")
    key = secrets.token_urlsafe(32)
    return key, f"{name} {hashed(key)}"


def read(file: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Names by hash, from a file and from the environment; none: everybody may translate."""
    found: dict[str, str] = {}
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise SettingsError(f"{file} cannot be read.", "Give a file of API keys that you may read.") from None
        found |= parsed(text.splitlines(), file)
    found |= parsed(re.split(r"[,\n]", environment.get(_VARIABLE, "")), _VARIABLE)
    if file is not None and not found:
        raise SettingsError(f"{file} holds no key.", "Make one: onehop serve --make-key NAME.")
    return found


def parsed(lines: list[str], place: str) -> dict[str, str]:
    """Lines of name and hash; empty ones and those with # are passed over."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise SettingsError(
                f"Line {number} of {place} is not a name and a SHA-256.", "Make one: onehop serve --make-key NAME."
            )
        found[match["hash"]] = match["name"]
    return found
