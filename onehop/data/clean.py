"""The first stage of `prepare`: read and filter the text, and split off the validation pairs."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onehop.atomic import write_json, write_whole
from onehop.config import DataSettings
from onehop.console import StageProgress
from onehop.data import filters
from onehop.data.chunks import Plain, RawChunk, read_chunks
from onehop.data.corpus import CONVERT, ParallelFile
from onehop.data.mixture import source_name
from onehop.data.worker_pool import in_order
from onehop.errors import TextError

# The number is the version of the layout. Files of an older version are recomputed.
PAIRS, VALID, FILTERED = "pairs.tsv", "valid.tsv", "filtered-3.json"

# A German text in Latin-1 fails in most lines; UTF-8 with a few broken lines is accepted.
_BAD_LINES = 10
_BAD_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The files that the settings name, found and hashed."""

    train: list[ParallelFile]
    mix: list[ParallelFile]
    valid: list[ParallelFile]
    test: list[ParallelFile]
    made_from: dict[str, Any]


ChunkSpan = tuple[int, int, int, int]  # a chunk of filtered text: first byte, bytes, first pair, number of its file


@dataclass(frozen=True, kw_only=True)
class Filtered:
    """The result of the first stage. The pairs are in the work folder; `chunks` has their byte ranges."""

    report: filters.FilterReport
    chunks: list[ChunkSpan]
    sources: list[tuple[str, int]]  # each file's name as a source, and its pairs
    pairs: int
    cut: list[int]  # indices of the validation pairs


@dataclass(frozen=True, kw_only=True)
class FilteredChunk:
    """The result of one chunk of raw lines: `lines` are source TAB target TAB file:line.

    `unreadable` has the column and line number of everything that is not UTF-8.
    """

    file: int
    consumed: int
    read: int
    lines: list[bytes]
    hashes: npt.NDArray[np.uint64]
    dropped: dict[str, filters.Dropped]
    unreadable: list[tuple[int, int]]


_checks: filters.PairChecks


def set_up_checks(settings: DataSettings, held_out: filters.HeldOut) -> None:
    global _checks
    _checks = filters.PairChecks(settings, held_out)


def filter_chunk(work: tuple[int, RawChunk]) -> FilteredChunk:
    file, raw = work
    lines, hashes, dropped, unreadable = [], [], dict[str, filters.Dropped](), list[tuple[int, int]]()
    for number, columns in enumerate(filters.columns_of(raw), raw.first_line):
        location = f"{raw.file}:{number}"
        pair = filters.decoded(columns)
        reason = pair if isinstance(pair, str) else _checks.reason(*pair)
        if reason is not None:
            dropped.setdefault(reason, filters.Dropped()).add(filters.sample_of(location, columns))
            if reason == "utf8":
                unreadable += [(i, number) for i in filters.undecodable(columns)]
        else:
            text = "\t".join(pair)
            hashes.append(filters.hash64(text))
            lines.append(f"{text}\t{location}\n".encode())
    return FilteredChunk(
        file=file,
        consumed=raw.consumed,
        read=len(raw.src),
        lines=lines,
        hashes=np.array(hashes, np.uint64),
        dropped=dropped,
        unreadable=unreadable,
    )


def filter_stage(work: Path, settings: DataSettings, inputs: Inputs, processes: int, progress: StageProgress) -> None:
    """Write the pairs that pass every check to `pairs.tsv`, and validation pairs to `valid.tsv`."""
    files, report, held_out = begin_filtering(inputs, settings, progress)
    raw = ((i, chunk) for i, file in enumerate(files) for chunk in read_chunks(file, plain=settings.plain))
    with closing(in_order(filter_chunk, raw, processes, set_up_checks, (settings, held_out))) as filtered:
        chunks, kept = _write_filtered(work, settings, files, filtered, report, progress)
    finish_filtering(work, settings, inputs, report, kept, partial(lines_at, work / PAIRS), chunks)


def finish_filtering(
    work: Path,
    settings: DataSettings,
    inputs: Inputs,
    report: filters.FilterReport,
    kept: Counter[int],
    lines_at: Callable[[list[int]], Iterable[bytes]],
    chunks: list[ChunkSpan],
    **layout: Any,
) -> None:
    """Split off the validation pairs and write the stage's result; `lines_at` returns the pairs at some indices."""
    own_pairs = sum(kept[i] for i in range(len(inputs.train)))
    if own_pairs < 2:
        raise nothing_left_error(
            report, sum(report.files[file.name] for file in inputs.train), own_pairs, settings.plain
        )
    # At most a tenth of the pairs is held out.
    cut = [] if inputs.valid else evenly_spaced(min(settings.valid_size, max(1, own_pairs // 10)), own_pairs).tolist()
    valid = _valid_lines(inputs.valid, settings, report) if inputs.valid else lines_at(cut)
    write_whole(work / VALID, b"".join(valid))
    files = inputs.train + inputs.mix
    values = {
        "report": filters.report_to_dict(report),
        "chunks": chunks,
        "sources": [(source_name(file.name), kept[i]) for i, file in enumerate(files)],
        "pairs": sum(kept.values()),
        "cut": cut,
    }
    write_json(work / FILTERED, {**values, **layout})


def begin_filtering(
    inputs: Inputs, settings: DataSettings, progress: StageProgress
) -> tuple[list[ParallelFile], filters.FilterReport, filters.HeldOut]:
    """The files to filter, their report, and the test and validation pairs, which must not be trained on."""
    files = inputs.train + inputs.mix
    report = filters.FilterReport(files={f.name: 0 for f in files}, notes=filters.language_notes(settings))
    lines = _lines_in(inputs.test + inputs.valid, settings.plain)
    held_out = filters.held_out_sides(pair for _, pair in lines if not isinstance(pair, str))
    progress.stage("reading and filtering", sum(f.size for f in files), "bytes")
    return files, report, held_out


def _write_filtered(
    work: Path,
    settings: DataSettings,
    files: list[ParallelFile],
    filtered: Iterator[FilteredChunk],
    report: filters.FilterReport,
    progress: StageProgress,
) -> tuple[list[ChunkSpan], Counter[int]]:
    """Write the pairs without duplicates; returns the start of each chunk, and the number of pairs of each file."""
    seen, filter_progress, kept = filters.SeenHashes(), FilterProgress(files, report, progress), Counter[int]()
    chunks, size, pairs = [], 0, 0
    with (work / PAIRS).open("wb") as out:
        for chunk in filtered:
            lines = _without_duplicates(chunk, seen, report) if settings.duplicates else chunk.lines
            text = b"".join(lines)
            out.write(text)
            chunks.append((size, len(text), pairs, chunk.file))
            size, pairs = size + len(text), pairs + len(lines)
            kept[chunk.file] += len(lines)
            filter_progress.add(chunk)
        out.flush()
        os.fsync(out.fileno())
    return chunks, kept


class FilterProgress:
    """Counts and reports the chunks that were read.

    Over a tenth of a file's lines that are not UTF-8 is an error: the file has another encoding.
    """

    def __init__(self, files: list[ParallelFile], report: filters.FilterReport, progress: StageProgress) -> None:
        self.files, self.report, self.progress = files, report, progress
        self._consumed, self._read, self._bad = Counter[int](), Counter[int](), Counter[tuple[int, Path]]()
        self._first: dict[tuple[int, Path], int] = {}

    def add(self, chunk: FilteredChunk) -> None:
        file = self.files[chunk.file]
        self._check_encoding(file, chunk)
        self.report.files[file.name] += chunk.read
        self.report.merge(chunk.dropped)
        self.progress.advance(chunk.consumed - self._consumed[chunk.file])
        self._consumed[chunk.file] = chunk.consumed

    def _check_encoding(self, file: ParallelFile, chunk: FilteredChunk) -> None:
        self._read[chunk.file] += chunk.read
        read = self._read[chunk.file]
        bad: dict[Path, set[int]] = {}
        for column, line in chunk.unreadable:  # both columns of a TSV are in one path
            bad.setdefault(file.paths[min(column, len(file.paths) - 1)], set()).add(line)
        for path, lines in bad.items():
            key = chunk.file, path
            self._bad[key] += len(lines)
            first, count = self._first.setdefault(key, min(lines)), self._bad[key]
            if count >= _BAD_LINES and count > _BAD_SHARE * read:
                raise TextError(
                    f"{path} is not UTF-8: {count} of its first {read} lines cannot be read, "
                    f"beginning with line {first}.",
                    CONVERT,
                )


def _without_duplicates(chunk: FilteredChunk, seen: filters.SeenHashes, report: filters.FilterReport) -> list[bytes]:
    kept = []
    for line, fresh in zip(chunk.lines, seen.add(chunk.hashes).tolist(), strict=True):
        if fresh:
            kept.append(line)
        else:
            source, target, location = line.rstrip(b"\n").split(b"\t")
            report.dropped["duplicate"].add(filters.sample_of(location.decode(), (source, target)))
    return kept


def _lines_in(files: list[ParallelFile], plain: Plain) -> Iterator[tuple[str, tuple[str, str] | str]]:
    """The file and number of each line, and its normalised pair or the reason to drop it."""
    for file in files:
        for raw in read_chunks(file, plain=plain):
            for number, columns in enumerate(filters.columns_of(raw), raw.first_line):
                yield f"{raw.file}:{number}", filters.decoded(columns)


def _valid_lines(files: list[ParallelFile], settings: DataSettings, report: filters.FilterReport) -> Iterator[bytes]:
    """Validation pairs from files: all pairs with two sides, or a number of each file, spread evenly over it."""
    unusable, most, sides = 0, settings.valid_most, slice(1 if settings.plain else 0, 2)
    for file in files:
        lines = []
        for location, pair in _lines_in([file], settings.plain):
            if isinstance(pair, str) or not all(pair[sides]):
                unusable += 1
            else:
                lines.append(f"{pair[0]}\t{pair[1]}\t{location}\n".encode())
        yield from (lines[i] for i in evenly_spaced(min(most or len(lines), len(lines)), len(lines)))
    if unusable:
        report.notes.append(f"{filters.counted(unusable, 'validation line')} dropped: empty or not readable.")


def nothing_left_error(report: filters.FilterReport, read: int, pairs: int, plain: Plain) -> TextError:
    """The error if there is too little text, or if the filters leave too little."""
    noun = "training text" if plain else "training pair"
    if pairs == read:
        return TextError(f"There is {'only 1' if pairs else 'no'} {noun}.", "Give more text: at least two are needed.")
    remaining = "1 is" if pairs == 1 else "none is" if read == 1 else "none are"
    reason = max(report.dropped, key=lambda reason: report.dropped[reason].count)
    why = (filters.PLAIN_REASONS if plain else filters.REASONS)[reason]
    return TextError(
        f"Of {filters.counted(read, noun)} {remaining} left after the filters. Most common reason: {why}.",
        "Check the files, or loosen the filters in [data].",
    )


def evenly_spaced(count: int, among: int) -> npt.NDArray[np.int64]:
    return (2 * np.arange(count) + 1) * among // (2 * max(count, 1))


def lines_at(path: Path, indices: Iterable[int]) -> Iterator[bytes]:
    chosen = frozenset(indices)
    with path.open("rb") as lines:
        yield from (line for i, line in enumerate(lines) if i in chosen)


def read_filtered(work: Path) -> Filtered:
    values = json.loads((work / FILTERED).read_text(encoding="utf-8"))
    return Filtered(
        report=filters.report_from_dict(values["report"]),
        chunks=[(start, size, first, file) for start, size, first, file in values["chunks"]],
        sources=[(name, pairs) for name, pairs in values["sources"]],
        pairs=values["pairs"],
        cut=values["cut"],
    )
