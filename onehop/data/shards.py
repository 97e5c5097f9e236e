"""A store in shards, made by tasks that may run on any machine that sees the work folder.

    filter       each part of a file → its pairs and their hashes
    deduplicate  each partition of the hashes → the duplicates of earlier pairs
    keep         each part without its duplicates
    encode       each part → a shard

A task writes its result atomically and may be repeated anywhere. The concatenated shards equal the store that
`prepare` makes on one machine.
"""

import json
import pickle
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from onehop.atomic import new_file, write_whole
from onehop.config import DataSettings, Settings
from onehop.console import StageProgress
from onehop.data import clean, encode
from onehop.data.chunks import CHUNK, Plain, RawChunk, read_chunks
from onehop.data.clean import FILTERED, Inputs
from onehop.data.corpus import ParallelFile
from onehop.data.filters import Dropped, FilterReport, HeldOut, sample_of
from onehop.data.store import TOKENIZER, PairsWriter, write_description
from onehop.text.tokenizer import Tokenizer

_Item = TypeVar("_Item")
PARTS = "parts"
_Part = tuple[str, int, int, int]  # its name, the index of its first pair, its pairs, the number of its file
PART_CHUNKS = 256  # chunks of 4,096 pairs per part: about a million pairs


@runtime_checkable
class TaskRunner(Protocol):
    """Runs tasks on this machine or on others."""

    def map(self, task: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """The results of the task for each item's arguments, in order."""

    def parts_of(self, file: ParallelFile, plain: Plain, chunks: int) -> Iterator[Any]:
        """The raw parts of a file, or references to them."""


def raw_parts(file: ParallelFile, plain: Plain, chunks: int) -> Iterator[list[RawChunk]]:
    """Lists of at most `chunks` chunks of a file."""
    return _batched(read_chunks(file, plain=plain), chunks)


# --- tasks ----------------------------------------------------------------------------------------------------


def _filter_part(
    work: Path, name: str, file: int, chunks: list[RawChunk], settings: DataSettings, held_out: HeldOut
) -> str:
    """Filter the pairs of a part and write them with their hashes. A part that exists is kept."""
    facts = work / PARTS / f"{name}.facts"
    if not facts.exists():
        clean.set_up_checks(settings, held_out)
        filtered = [clean.filter_chunk((file, chunk)) for chunk in chunks]
        write_whole(work / PARTS / f"{name}.tsv", b"".join(line for chunk in filtered for line in chunk.lines))
        _write_array(work / PARTS / f"{name}.hashes.npy", np.concatenate([chunk.hashes for chunk in filtered]))
        counts = [replace(chunk, lines=[], hashes=chunk.hashes[:0]) for chunk in filtered]
        write_whole(facts, pickle.dumps(counts))
    return name


def _deduplicate(work: Path, names: Sequence[str], partition: int, of: int) -> Path:
    """Write the duplicates in one partition of all hashes, by their index in the corpus."""
    hashes, indices, first = [], [], 0
    for name in names:
        part = np.load(work / PARTS / f"{name}.hashes.npy")
        chosen = np.flatnonzero(part % np.uint64(of) == partition)
        hashes.append(part[chosen])
        indices.append(chosen + first)
        first += len(part)
    all_hashes = np.concatenate(hashes)
    is_repeated = np.ones(len(all_hashes), bool)
    is_repeated[np.unique(all_hashes, return_index=True)[1]] = False
    out = work / PARTS / f"duplicates-{partition}.npy"
    _write_array(out, np.concatenate(indices)[is_repeated])
    return out


def _keep_part(work: Path, name: str, first: int, count: int, duplicates: Sequence[Path]) -> tuple[int, Dropped]:
    """Write a part without its duplicates; returns the number of pairs left, and the dropped ones."""
    indices = np.concatenate([_between(np.load(path, mmap_mode="r"), first, first + count) for path in duplicates])
    repeated, dropped, kept = frozenset((indices - first).tolist()), Dropped(), 0
    with new_file(work / PARTS / f"{name}.kept") as out, out.open("wb") as stream:
        for i, line in enumerate(_lines(work / PARTS / f"{name}.tsv")):
            if i not in repeated:
                stream.write(line)
                kept += 1
                continue
            source, target, location = line.rstrip(b"\n").split(b"\t")
            dropped.add(sample_of(location.decode(), (source, target)))
    return kept, dropped


def _select_lines(work: Path, name: str, chosen: Sequence[int]) -> list[bytes]:
    return list(clean.lines_at(work / PARTS / f"{name}.kept", chosen)) if chosen else []


@dataclass(frozen=True)
class _Shard:
    pairs: int
    tokens: tuple[int, int]
    dropped: dict[str, Dropped]
    added: int


def _encode_part(encoding: encode.Encoding, folder: Path, name: str, number: int, first: int, file: int) -> _Shard:
    """Encode a part into a shard; `first` is the index of its first pair in the corpus."""
    encode.set_up_encoding(encoding)
    temporary = folder / f".{secrets.token_hex(4)}"
    temporary.mkdir()
    writer, dropped, added, read = PairsWriter(temporary, f"train-{number:05d}"), FilterReport(files={}), 0, 0
    try:
        for lines in _batched(_lines(encoding.pairs / f"{name}.kept"), CHUNK):
            chunk = encode.encode_lines([line[:-1] for line in lines], first + read, file)
            writer.write(chunk.pairs)
            dropped.merge(chunk.dropped)
            added, read = added + chunk.added, read + len(lines)
        writer.close()
        for path in temporary.iterdir():
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    kept = {reason: pairs for reason, pairs in dropped.dropped.items() if pairs.count}
    return _Shard(writer.count, (writer.source.tokens, writer.target.tokens), kept, added)


def _write_array(path: Path, array: npt.NDArray[Any]) -> None:
    with new_file(path) as out, out.open("wb") as stream:
        np.save(stream, array)


def _between(indices: npt.NDArray[Any], first: int, last: int) -> npt.NDArray[Any]:
    return np.asarray(indices[np.searchsorted(indices, first) : np.searchsorted(indices, last)])


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from stream


def _batched(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    while batch := list(islice(items, size)):
        yield batch


# --- the whole store ------------------------------------------------------------------------------------------


def make_shards(
    work: Path,
    settings: Settings,
    inputs: Inputs,
    tokenizer: bytes | None,
    progress: StageProgress,
    *,
    runner: TaskRunner,
    partitions: int,
    part_chunks: int,
) -> None:
    """Make a store in shards in the work folder. Finished tasks of an earlier run are kept."""
    work = work.absolute()  # tasks run in other working directories
    (work / PARTS).mkdir(exist_ok=True)
    job = _Job(work, settings, inputs, progress, runner)
    if not (work / FILTERED).exists():
        job.filter(partitions, part_chunks)
    values = json.loads((work / FILTERED).read_text(encoding="utf-8"))
    filtered = clean.read_filtered(work)
    parts: list[_Part] = [tuple(part) for part in values["parts"]]
    if not (work / TOKENIZER).exists():
        if tokenizer is None:
            progress.stage("learning the vocabulary", None, "")
            chosen = encode.sample_indices(filtered, settings.tokenizer)
            wanted = np.setdiff1d(chosen, np.array(filtered.cut, np.int64))
            tokenizer = Tokenizer.learn(encode.sides_of(job.lines(parts, wanted)), settings.tokenizer).model
        Tokenizer(tokenizer)
        write_whole(work / TOKENIZER, tokenizer)
    job.encode(filtered, parts)


@dataclass(frozen=True)
class _Job:
    """The stages of a store in shards, each as tasks of the runner."""

    work: Path
    settings: Settings
    inputs: Inputs
    progress: StageProgress
    runner: TaskRunner

    def filter(self, partitions: int, part_chunks: int) -> None:
        data = self.settings.data
        files, report, held_out = clean.begin_filtering(self.inputs, data, self.progress)
        items = (
            (self.work, f"{i:05d}-{n:05d}", i, raw, data, held_out)
            for i, file in enumerate(files)
            for n, raw in enumerate(self.runner.parts_of(file, data.plain, part_chunks))
        )
        names, sizes, owners, filter_progress = [], [], [], clean.FilterProgress(files, report, self.progress)
        for name in self.runner.map(_filter_part, items):
            facts = pickle.loads((self.work / PARTS / f"{name}.facts").read_bytes())
            for chunk in facts:
                filter_progress.add(chunk)
            names.append(name)
            owners.append(facts[0].file)
            sizes.append(len(np.load(self.work / PARTS / f"{name}.hashes.npy", mmap_mode="r")))
        counts = self._without_duplicates(names, sizes, report, partitions * data.duplicates)
        kept = Counter[int]()
        for owner, count in zip(owners, counts, strict=True):
            kept[owner] += count
        parts = list(zip(names, np.cumsum([0, *counts]).tolist(), counts, owners, strict=False))
        lines_at = partial(self.lines, parts)
        clean.finish_filtering(self.work, data, self.inputs, report, kept, lines_at, chunks=[], parts=parts)

    def _without_duplicates(
        self, names: Sequence[str], sizes: Sequence[int], report: FilterReport, partitions: int
    ) -> list[int]:
        """Drop duplicates; returns the number of pairs left in each part. Without partitions nothing is dropped."""
        self.progress.stage("removing duplicates", sum(sizes), "pairs")
        tasks = ((self.work, names, partition, partitions) for partition in range(partitions))
        duplicates = list(self.runner.map(_deduplicate, tasks)) if names else []
        if not duplicates:
            duplicates = [self.work / PARTS / "duplicates-none.npy"]
            _write_array(duplicates[0], np.empty(0, np.int64))
        firsts = np.cumsum([0, *sizes]).tolist()
        items = ((self.work, *part, duplicates) for part in zip(names, firsts, sizes, strict=False))
        counts = []
        for size, (count, dropped) in zip(sizes, self.runner.map(_keep_part, items), strict=True):
            report.dropped["duplicate"].merge(dropped)
            counts.append(count)
            self.progress.advance(size)
        return counts

    def lines(self, parts: Sequence[_Part], indices: "Sequence[int] | npt.NDArray[Any]") -> Iterator[bytes]:
        """The lines at these indices of the corpus, in order."""
        wanted = np.sort(np.asarray(indices, np.int64))
        items = ((self.work, name, (_between(wanted, a, a + n) - a).tolist()) for name, a, n, _ in parts)
        for lines in self.runner.map(_select_lines, items):
            yield from lines

    def encode(self, filtered: clean.Filtered, parts: Sequence[_Part]) -> None:
        folder, report, data = self.work / "store", filtered.report, self.settings.data
        encoding, tokenizer = encode.start_encoding(self.work, folder, data, filtered, self.work / PARTS, self.progress)
        counts, shards, tokens = Counter[int](), [], [0, 0]
        items = ((encoding, folder, name, i, a, file) for i, (name, a, _, file) in enumerate(parts))
        for (_, _, count, file), shard in zip(parts, self.runner.map(_encode_part, items), strict=True):
            counts[file] += shard.pairs
            shards.append({"pairs": shard.pairs, "tokens": list(shard.tokens)})
            tokens = [a + b for a, b in zip(tokens, shard.tokens, strict=True)]
            report.merge(shard.dropped)
            report.added += shard.added
            self.progress.advance(count)
        report.train, report.train_tokens = sum(counts.values()), (tokens[0], tokens[1])
        description = encode.describe_store(data, self.inputs, filtered, tokenizer, counts)
        write_description(folder, {**description, "shards": shards})
