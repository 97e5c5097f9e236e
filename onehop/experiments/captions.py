"""`onehop demo captions`: download parallel text for a first training, and verify it."""

import gzip
import hashlib
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path

from onehop.atomic import write_whole
from onehop.errors import TextError, write_errors

# Multi30k, task 1, at one commit: captions of photographs, English and German, one per line.
_SOURCE = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
_SECONDS = 30  # timeout without a byte
# Names are those of the tutorial; hashes are of the decompressed content.
FILES = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
}


def fetch(folder: Path, say: Callable[[str], None], source: str = _SOURCE) -> None:
    """Write the missing files, each atomically. A file with other content is not replaced."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, digest in FILES.items():
            file = folder / name
            if not file.exists():
                content = download(name, digest, source)
                write_whole(file, content)
                say(f"{file}: {len(content.splitlines()):,} lines")
            elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                raise TextError(f"{file} already exists, with other content.", "Give another -o.")


def download(name: str, digest: str, source: str) -> bytes:
    """A decompressed file of the source, verified by its hash."""
    address = f"{source}/{name}.gz"
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as response:
            content = gzip.decompress(response.read())
    except (OSError, EOFError, zlib.error) as e:  # urllib's network errors are OSErrors
        reason = getattr(e, "reason", e)
        raise TextError(
            f"{address} cannot be downloaded: {reason}.", "Connect to the network, or use text of your own."
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise TextError(f"{address} has changed.", "Use text of your own, or a newer onehop.")
    return content
