"""API keys, stored as hashes, so that a leaked file or variable reveals no key; and the rate limit.

A key is 32 random bytes, so one round of SHA-256 is enough: it cannot be guessed.
"""

import hashlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
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


# Maximum clients remembered. The least recent one is forgotten first; its bucket is full by then.
_MOST_CLIENTS = 100_000


class Rates:
    """A token bucket per client, refilled steadily up to one minute's requests; 0 per minute means no limit."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.now = per_minute, now
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token from a client's bucket and return 0, or return the seconds until there is one."""
        if not self.per_minute:
            return 0.0
        now = self.now()
        left, then = self.buckets.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
        self.buckets[client] = (left - 1 if left >= 1 else left, now)
        while len(self.buckets) > _MOST_CLIENTS:
            self.buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) * 60 / self.per_minute
