"""The second and third stage of `prepare`: learn the tokenizer, then encode on all cores."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onehop.atomic import write_whole
from onehop.config import DataSettings, Settings, TokenizerSettings
from onehop.console import StageProgress
from onehop.data import filters
from onehop.data.clean import PAIRS, VALID, ChunkSpan, Filtered, Inputs, evenly_spaced, lines_at, nothing_left_error
from onehop.data.mixture import quotas, weights_of
from onehop.data.store import END_TYPE, TOKENIZER, Pairs, PairsWriter, Side, id_type, tokenizer_hash, write_description
from onehop.data.worker_pool import in_order
from onehop.errors import TextError
from onehop.text.tokenizer import WORD_MARK, Tokenizer

# --- stage two: learn the tokenizer ---------------------------------------------------------------------------


def learn_stage(
    work: Path,
    filtered: Filtered,
    settings: TokenizerSettings,
    tokenizer: bytes | None,
    processes: int,
    progress: StageProgress,
) -> None:
    """Write the tokenizer, after learning it if there is none."""
    if tokenizer is None:
        progress.stage("learning the vocabulary", None, "")
        job = (work, filtered, settings)
        # In a separate process if there are several, so that its memory is released.
        (tokenizer,) = in_order(_learn, [job], 2 if processes > 1 else 1)
    Tokenizer(tokenizer)  # refuses a damaged one
    write_whole(work / TOKENIZER, tokenizer)


def _learn(job: tuple[Path, Filtered, TokenizerSettings]) -> bytes:
    """Learn a vocabulary from training pairs spread evenly over the corpus, or over each of its weighted sources."""
    work, filtered, settings = job
    chosen = frozenset(sample_indices(filtered, settings).tolist()) - frozenset(filtered.cut)
    return Tokenizer.learn(sides_of(lines_at(work / PAIRS, chosen)), settings).model


def sides_of(lines: Iterable[bytes]) -> Iterator[str]:
    return (side for line in lines for side in line.decode().split("\t")[:2])


def sample_indices(filtered: Filtered, settings: TokenizerSettings) -> npt.NDArray[np.int64]:
    """The indices of the pairs that the vocabulary is learned from."""
    count = min(filtered.pairs, settings.sample // 2)
    if settings.weights is None:
        return evenly_spaced(count, filtered.pairs)
    names, sizes = zip(*filtered.sources, strict=True)
    counts = quotas(sizes, weights_of(names, settings.weights, "tokenizer.weights"), count)
    parts = zip(accumulate(sizes), sizes, counts, strict=True)
    return np.concatenate([end - size + evenly_spaced(count, size) for end, size, count in parts])


# --- words and their ids --------------------------------------------------------------------------------------

MOST_CACHED = 400_000  # about 55 MB per process
LONGEST_CACHED = 40  # characters; longer words rarely repeat: they are sentences of languages without spaces
_NO_PIECE = "\U0010fffd"  # the last private-use character, which no vocabulary has


class WordIds(dict[str, bytes]):
    """A cache of words' ids, as the bytes of the store: most words repeat."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.type = id_type(tokenizer.vocab_size)
        self._by_words = encodes_by_words(tokenizer)
        self.target: WordIds = self if tokenizer.target is tokenizer else WordIds(tokenizer.target)

    def __missing__(self, word: str) -> bytes:
        if len(self) >= MOST_CACHED:
            self.clear()
        ids = self._packed(self.tokenizer.encode(word, tags=True))
        if len(word) <= LONGEST_CACHED:
            self[word] = ids
        return ids

    def encode(self, texts: Iterable[str]) -> list[bytes]:
        if not self._by_words:
            return [self._packed(ids) for ids in self.tokenizer.encode_batch(list(texts), threads=1, tags=True)]
        return [b"".join(map(self.__getitem__, text.split(" "))) for text in texts]

    def _packed(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self.type).tobytes()

    def count(self, ids: bytes) -> int:
        """The number of ids in these bytes."""
        return len(ids) // self.type.itemsize

    def side(self, sentences: Sequence[bytes]) -> Side:
        lengths = np.fromiter(map(self.count, sentences), END_TYPE, len(sentences))
        return Side(np.frombuffer(b"".join(sentences), self.type), np.cumsum(lengths, dtype=END_TYPE))


def encodes_by_words(tokenizer: Tokenizer) -> bool:
    """Whether no token crosses a space, as in every vocabulary learned here; an imported one may differ."""
    within_words = all(WORD_MARK not in piece[1:] for piece, _ in tokenizer.vocabulary())
    # Unknown words too: a word-level vocabulary merges several unknown words into one token.
    return within_words and all(tokenizer.encode(f"{w} {w}") == 2 * tokenizer.encode(w) for w in ("a", _NO_PIECE))


# --- stage three: encode --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The configuration of a process that encodes chunks."""

    pairs: Path
    model: bytes
    settings: DataSettings
    cut: frozenset[int]
    held_out: filters.HeldOut


@dataclass(frozen=True, kw_only=True)
class _EncodedChunk:
    file: int
    pairs: Pairs
    dropped: dict[str, filters.Dropped]
    read: int
    added: int  # by splitting long texts


_encoding: Encoding
_words: WordIds


def set_up_encoding(encoding: Encoding) -> None:
    global _encoding, _words
    _encoding, _words = encoding, WordIds(Tokenizer(encoding.model))


def _encode_chunk(chunk: ChunkSpan) -> _EncodedChunk:
    """Encode the training pairs in a byte range of the filtered text."""
    start, size, first, file = chunk
    with _encoding.pairs.open("rb") as stream:
        stream.seek(start)
        return encode_lines(stream.read(size).split(b"\n")[:-1], first, file)


def encode_lines(lines: list[bytes], first: int, file: int) -> _EncodedChunk:
    """Encode the training pairs among lines of filtered text, of which `first` come before these."""
    train = [line.decode().split("\t") for i, line in enumerate(lines, first) if i not in _encoding.cut]
    settings, count = _encoding.settings, len(train)
    if settings.plain:
        train = _in_pieces(_words.tokenizer, train, settings.longest)
    src, tgt = encode_sides(_words, train)
    indices, dropped = [], dict[str, filters.Dropped]()
    for i, (source, target, location) in enumerate(train):
        pieces = _words.count(tgt[i])
        reason = filters.wrong_length(pieces if settings.plain else _words.count(src[i]), pieces, settings)
        if reason is None and filters.is_held_out(_encoding.held_out, source, target):
            reason = "valid"
        if reason is None:
            indices.append(i)
        else:
            sample = filters.sample_of(location, (source.encode(), target.encode()))
            dropped.setdefault(reason, filters.Dropped()).add(sample)
    pairs = Pairs(_words.side([src[i] for i in indices]), _words.side([tgt[i] for i in indices]))
    return _EncodedChunk(file=file, pairs=pairs, dropped=dropped, read=len(lines), added=len(train) - count)


def encode_sides(words: WordIds, lines: list[list[str]]) -> tuple[list[bytes], list[bytes]]:
    return words.encode(line[0] for line in lines), words.target.encode(line[1] for line in lines)


def _in_pieces(tokenizer: Tokenizer, lines: list[list[str]], longest: int) -> list[list[str]]:
    """Lines of plain text, with long ones split into parts of at most `longest` tokens."""
    encoded = tokenizer.encode_batch([line[1] for line in lines], threads=1)
    return [
        [source, text, location]
        for (source, whole, location), ids in zip(lines, encoded, strict=True)
        for text in ([whole] if len(ids) <= longest else _cut_text(tokenizer, whole, longest))
    ]


def _cut_text(tokenizer: Tokenizer, text: str, longest: int) -> list[str]:
    """A text in parts of whole words with at most `longest` tokens each; a longer word is dropped."""
    words = text.split()
    sizes = [len(ids) for ids in tokenizer.encode_batch(words, threads=1)]
    parts: list[list[str]] = [[]]
    room = longest
    for word, size in zip(words, sizes, strict=True):
        if size > longest:
            continue
        if size > room:
            parts.append([])
            room = longest
        parts[-1].append(word)
        room -= size
    return [" ".join(part) for part in parts if part]


def encode_stage(
    work: Path, settings: Settings, inputs: Inputs, filtered: Filtered, processes: int, progress: StageProgress
) -> None:
    """Encode everything into a folder; it becomes a store when its description is written."""
    folder, data = work / "store", settings.data
    encoding, tokenizer = start_encoding(work, folder, data, filtered, work / PAIRS, progress)
    with closing(in_order(_encode_chunk, filtered.chunks, processes, set_up_encoding, (encoding,))) as chunks:
        counts = _encode_train(folder, chunks, filtered.report, progress)
    write_description(folder, describe_store(data, inputs, filtered, tokenizer, counts))


def start_encoding(
    work: Path, folder: Path, data: DataSettings, filtered: Filtered, pairs: Path, progress: StageProgress
) -> tuple[Encoding, Tokenizer]:
    """Make the folder with the tokenizer and validation pairs; returns the workers' configuration and the tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    model = (work / TOKENIZER).read_bytes()
    tokenizer = Tokenizer(model)
    write_whole(folder / TOKENIZER, model)
    valid = _encode_valid(work, folder, tokenizer, data, filtered.report)
    held_out = filters.held_out_sides(valid) if filtered.cut else filters.HeldOut()
    cut = frozenset(filtered.cut)
    progress.stage("encoding", filtered.pairs, "pairs")
    return Encoding(pairs=pairs, model=model, settings=data, cut=cut, held_out=held_out), tokenizer


def describe_store(
    data: DataSettings, inputs: Inputs, filtered: Filtered, tokenizer: Tokenizer, counts: Counter[int]
) -> dict[str, Any]:
    """The description of a store. Raises an error if no training pair is left."""
    report = filtered.report
    if report.train == 0:
        raise nothing_left_error(report, report.read, 0, data.plain)
    report.vocabulary = tokenizer.vocab_size
    return {
        "source": data.source,
        "target": data.target,
        "id_type": id_type(tokenizer.vocab_size).str,
        "pairs": {"train": report.train, "valid": report.valid},
        "sources": [{"name": name, "pairs": counts[i]} for i, (name, _) in enumerate(filtered.sources)],
        "tokenizer_hash": tokenizer_hash(tokenizer.model),
        "made_from": inputs.made_from,
        "report": filters.report_to_dict(report),
    }


def _encode_train(
    folder: Path, chunks: Iterator[_EncodedChunk], report: filters.FilterReport, progress: StageProgress
) -> Counter[int]:
    """Write the training pairs; returns the number of pairs of each file."""
    counts = Counter[int]()
    with closing(PairsWriter(folder, "train")) as writer:
        for chunk in chunks:
            writer.write(chunk.pairs)
            counts[chunk.file] += len(chunk.pairs)
            report.merge(chunk.dropped)
            report.added += chunk.added
            progress.advance(chunk.read)
    report.train, report.train_tokens = writer.count, (writer.source.tokens, writer.target.tokens)
    return counts


def _encode_valid(
    work: Path, folder: Path, tokenizer: Tokenizer, settings: DataSettings, report: filters.FilterReport
) -> list[tuple[str, str]]:
    """Write the validation pairs as ids and as text, and return the text."""
    lines = [line.split("\t") for line in (work / VALID).read_bytes().decode().split("\n")[:-1]]
    count = len(lines)
    if settings.plain:
        lines = _in_pieces(tokenizer, lines, settings.longest)
    if not settings.valid:  # otherwise they are not counted as read
        report.added += len(lines) - count
    words = WordIds(tokenizer)
    src, tgt = encode_sides(words, lines)
    indices = [i for i in range(len(lines)) if words.count(max(src[i], tgt[i], key=len)) <= settings.longest]
    if not indices:
        raise TextError("No validation pair is left.", "Give other files in data.valid, or a larger data.longest.")
    if len(indices) < len(lines):
        report.notes.append(
            f"{filters.counted(len(lines) - len(indices), 'validation pair')} dropped: too many tokens."
        )
    with closing(PairsWriter(folder, "valid")) as writer:
        writer.write(Pairs(words.side([src[i] for i in indices]), words.side([tgt[i] for i in indices])))
    for column, side in enumerate(("src", "tgt")):
        write_whole(folder / f"valid.{side}.txt", "".join(lines[i][column] + "\n" for i in indices).encode())
    report.valid = len(indices)
    return [(lines[i][0], lines[i][1]) for i in indices]
