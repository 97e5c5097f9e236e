"""The token store: a folder of memory-mapped ids, which opens at once at any size.

store.json                      format, inputs, and the report
tokenizer.model                 the SentencePiece model of the ids
train.src.ids  train.tgt.ids    ids end to end, without special tokens
train.src.ends train.tgt.ends   int64: the end of each sentence
valid.*                         the same for the validation pairs
valid.src.txt  valid.tgt.txt    their text, one per line
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from onehop.atomic import write_json
from onehop.data.filters import FilterReport, report_from_dict
from onehop.data.mixture import SourcePart, Weights, weights_of
from onehop.errors import StoreError

_FORMAT = "onehop token store"
VERSION = 1
DESCRIPTION = "store.json"
TOKENIZER = "tokenizer.model"
SPLITS = ("train", "valid")
SIDES = ("src", "tgt")
END_TYPE = np.dtype("<i8")
_DESCRIBED = {"version": int, "source": str, "target": str, "hash": str, "tokenizer_hash": str, "files": dict}
REMAKE = "Make it again with `onehop prepare`."


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype for all ids."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class JoinedArrays:
    """A concatenation of arrays without a copy; `offsets` are added to their values."""

    def __init__(self, parts: Sequence[npt.NDArray[Any]], offsets: Sequence[int]) -> None:
        self.parts, self.offsets = parts, offsets
        self.starts = np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            first, last, _ = key.indices(len(self))
            begin, end = np.searchsorted(self.starts, [first, last], side="right").tolist()
            return np.concatenate([self._piece(i, first, last) for i in range(begin - 1, end)])
        indices = np.asarray(key)
        shards = np.searchsorted(self.starts, indices, side="right") - 1
        out = np.empty(indices.shape, self.parts[0].dtype)
        for shard in np.unique(shards):
            in_shard = shards == shard
            out[in_shard] = self.parts[shard][indices[in_shard] - self.starts[shard]] + out.dtype.type(
                self.offsets[shard]
            )
        return out

    def _piece(self, shard: int, first: int, last: int) -> npt.NDArray[Any]:
        if shard >= len(self.parts):
            return self.parts[0][:0]
        start, part = int(self.starts[shard]), self.parts[shard]
        values: npt.NDArray[Any] = part[max(0, first - start) : max(0, last - start)]
        return values + part.dtype.type(self.offsets[shard]) if self.offsets[shard] else values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    def max(self) -> int:
        """The largest value; there must be one."""
        return max(int(part.max()) + offset for part, offset in zip(self.parts, self.offsets, strict=True) if len(part))

    def tolist(self) -> list[int]:
        values: list[int] = self[:].tolist()
        return values


class Side:
    """Sentences of one language: ids end to end, and the end of each sentence."""

    def __init__(self, ids: npt.NDArray[Any] | JoinedArrays, ends: npt.NDArray[Any] | JoinedArrays) -> None:
        self.ids: Any = ids
        self.ends: Any = ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        start = int(self.ends[i - 1]) if i else 0
        sentence: npt.NDArray[Any] = self.ids[start : int(self.ends[i])]
        return sentence

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        parts = self.ends.parts if isinstance(self.ends, JoinedArrays) else [self.ends]
        return np.concatenate([np.diff(part, prepend=0).astype(np.int32) for part in parts])

    def between(self, first: int, last: int) -> "Side":
        start = int(self.ends[first - 1]) if first else 0
        stop = int(self.ends[last - 1]) if last else 0
        return Side(self.ids[start:stop], np.asarray(self.ends[first:last]) - start)

    def lists(self) -> list[list[int]]:
        ids = self.ids.tolist()
        starts = [0, *self.ends.tolist()]
        return [ids[a:b] for a, b in pairwise(starts)]


def side_from_lists(sentences: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> Side:
    lengths = np.fromiter(map(len, sentences), END_TYPE, len(sentences))
    ends = np.cumsum(lengths, dtype=END_TYPE)
    total = int(ends[-1]) if len(ends) else 0
    ids = np.fromiter((i for sentence in sentences for i in sentence), dtype, total)
    return Side(ids, ends)


class Pairs:
    """Sentence pairs as ids without special tokens; `parts` is given if their sources have weights."""

    def __init__(self, source: Side, target: Side, parts: Sequence[SourcePart] = ()) -> None:
        self.source = source
        self.target = target
        self.parts = parts

    def __len__(self) -> int:
        return len(self.source)

    @property
    def src_lengths(self) -> npt.NDArray[np.int32]:
        return self.source.lengths

    @property
    def tgt_lengths(self) -> npt.NDArray[np.int32]:
        return self.target.lengths

    def src(self, i: int) -> npt.NDArray[Any]:
        return self.source[i]

    def tgt(self, i: int) -> npt.NDArray[Any]:
        return self.target[i]


class Store:
    """A token store on disk. Open one with `Store.open`."""

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        self.path = path
        self.description = description
        self.source: str = description["source"]
        self.target: str = description["target"]
        self.hash: str = description["hash"]
        self.tokenizer_hash: str = description["tokenizer_hash"]

    @classmethod
    def open(cls, path: Path | str) -> "Store":
        """Open a store and check that every file has its full size; `verify` checks the contents."""
        store = cls(Path(path), read_description(Path(path)))
        for name, size in store.description["files"].items():
            with _missing_file_errors(store.path, name):
                actual = (store.path / name).stat().st_size
            if actual != size:
                what = f"The token store {path} is damaged: {name} has {actual} bytes instead of {size}."
                raise StoreError(what, REMAKE)
        return store

    def pairs(self, split: str, weights: Weights | None = None) -> Pairs:
        """The pairs of "train" or "valid", memory-mapped. Training pairs may have a weight per source."""
        if split not in SPLITS:
            raise ValueError(f"no split {split!r}: there are {', '.join(SPLITS)}")
        src, tgt = (self._side(split, side) for side in SIDES)
        return Pairs(src, tgt, self._parts(weights) if weights and split == "train" else ())

    @property
    def holds(self) -> str:
        """The content: parallel text, plain text or images."""
        plain = self.description.get("made_from", {}).get("data", {}).get("plain")
        return str(self.description.get("holds", "plain text" if plain else "parallel text"))

    @property
    def sources(self) -> list[tuple[str, int]]:
        """The names of the training files and their numbers of pairs, in order. Old stores have none."""
        return [(source["name"], source["pairs"]) for source in self.description.get("sources", [])]

    def _parts(self, weights: Weights) -> list[SourcePart]:
        if not self.sources:
            raise StoreError(
                f"The token store {self.path} does not record the files of its pairs, which train.weights needs.",
                "Make it again with `onehop prepare --force`.",
            )
        names, sizes = zip(*self.sources, strict=True)
        ends = np.cumsum(sizes).tolist()
        return [
            SourcePart(name, end - size, end, weight)
            for name, size, end, weight in zip(
                names, sizes, ends, weights_of(names, weights, "train.weights"), strict=True
            )
        ]

    def _side(self, split: str, side: str) -> Side:
        ids = self._joined(split, f"{side}.ids", np.dtype(self.description["id_type"]))
        return Side(ids, self._joined(split, f"{side}.ends", END_TYPE, SIDES.index(side)))

    def _joined(
        self, split: str, name: str, dtype: np.dtype[Any], side: int | None = None
    ) -> npt.NDArray[Any] | JoinedArrays:
        """A file of the store, or of all shards; ends continue from the previous shard."""
        shards = self.description.get("shards", []) if split == "train" else []
        if not shards:
            return _mapped(self.path / f"{split}.{name}", dtype)
        tokens = [0 if side is None else shard["tokens"][side] for shard in shards]
        parts = [_mapped(self.path / f"{split}-{i:05d}.{name}", dtype) for i in range(len(shards))]
        return JoinedArrays(parts, np.cumsum([0, *tokens])[:-1].tolist())

    @cached_property
    def tokenizer(self) -> bytes:
        return self._content(TOKENIZER)

    def _content(self, name: str) -> bytes:
        with _missing_file_errors(self.path, name):
            return (self.path / name).read_bytes()

    def valid_text(self, side: str) -> list[str]:
        """The validation sentences of "src" or "tgt" as text."""
        return self._content(f"valid.{side}.txt").decode().split("\n")[:-1]

    @property
    def report(self) -> FilterReport:
        return report_from_dict(self.description["report"])

    def verify(self) -> None:
        """Read every byte and compare with the stored hash."""
        if hash_files(self.path, list(self.description["files"])) != self.hash:
            raise StoreError(f"The token store {self.path} is damaged: its content does not match its hash.", REMAKE)


@contextmanager
def _missing_file_errors(store: Path, name: str) -> Iterator[None]:
    """Turn a disk error into one that names the file that the store lacks."""
    try:
        yield
    except OSError:
        raise StoreError(f"The token store {store} lacks its file {name}.", REMAKE) from None


def _mapped(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A file as a read-only array. An empty file cannot be mapped."""
    with _missing_file_errors(path.parent, path.name):
        if path.stat().st_size == 0:
            return np.empty(0, dtype)
        # A plain array over the mapping: slices of np.memmap are ten times as slow.
        return np.asarray(np.memmap(path, dtype, "r"))


def read_description(path: Path) -> dict[str, Any]:
    """`store.json`, checked for its format and version."""
    if not path.exists():
        raise StoreError(f"There is no token store {path}.", "Make one with `onehop prepare`.")
    try:
        description = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        _refuse_foreign(path)
    except (OSError, ValueError, RecursionError):
        raise StoreError(f"The token store {path} is damaged: {DESCRIPTION} cannot be read.", REMAKE) from None
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        _refuse_foreign(path)
    wrong = [name for name, kind in _DESCRIBED.items() if not isinstance(description.get(name), kind)]
    if wrong or description.get("id_type") not in ("<u2", "<u4"):
        raise StoreError(
            f"The token store {path} is damaged: {DESCRIPTION} has no valid {(wrong or ['id_type'])[0]}.", REMAKE
        )
    if description["version"] != VERSION:
        raise StoreError(
            f"The token store {path} has format {description['version']}; this onehop reads format {VERSION}.", REMAKE
        )
    return description


def _refuse_foreign(path: Path) -> NoReturn:
    raise StoreError(f"{path} is not a token store.", "Give the folder that `onehop prepare` wrote.") from None


def hash_files(folder: Path, names: Sequence[str]) -> str:
    """A hash over the contents of files, in the order of their names."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(names):
        with _missing_file_errors(folder, name), (folder / name).open("rb") as stream:
            digest.update(name.encode() + b"\0" + hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()


def tokenizer_hash(model: bytes) -> str:
    return hashlib.blake2b(model, digest_size=16).hexdigest()


# --- writing --------------------------------------------------------------------------------------------------


class _SideWriter:
    def __init__(self, folder: Path, split: str, side: str) -> None:
        self._ids = (folder / f"{split}.{side}.ids").open("wb")
        self._ends = (folder / f"{split}.{side}.ends").open("wb")
        self.tokens = 0

    def write(self, chunk: Side) -> None:
        self._ids.write(chunk.ids.tobytes())
        self._ends.write((chunk.ends + self.tokens).astype(END_TYPE).tobytes())
        self.tokens += len(chunk.ids)

    def close(self) -> None:
        for stream in (self._ids, self._ends):
            with stream:
                stream.flush()
                os.fsync(stream.fileno())


class PairsWriter:
    """Writes a split of a store, chunk by chunk."""

    def __init__(self, folder: Path, split: str) -> None:
        self.source, self.target = (_SideWriter(folder, split, side) for side in SIDES)
        self.count = 0

    def write(self, chunk: Pairs) -> None:
        self.source.write(chunk.source)
        self.target.write(chunk.target)
        self.count += len(chunk)

    def close(self) -> None:
        self.source.close()
        self.target.close()


def write_description(folder: Path, values: dict[str, Any]) -> None:
    """Finish a folder as a store: write `values` and the names, sizes and hash of its files."""
    names = sorted(path.name for path in folder.iterdir() if path.name != DESCRIPTION)
    description = {
        "format": _FORMAT,
        "version": VERSION,
        "hash": hash_files(folder, names),
        "files": {name: (folder / name).stat().st_size for name in names},
        **values,
    }
    write_json(folder / DESCRIPTION, description)
