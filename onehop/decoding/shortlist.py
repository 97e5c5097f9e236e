"""A vocabulary shortlist: the candidate target tokens of each source token, learned from a token store.

With it, CTranslate2 scores a few thousand tokens at each step instead of the whole vocabulary. Alignments come from
IBM model 1 (Brown et al., 1993): t(target | source) by expectation maximisation, with a uniform prior over the source
tokens of a sentence and an empty token.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from onehop.atomic import write_whole
from onehop.data.store import Ids, Pairs, Side, Store, id_type, side_from_lists, tokenizer_hash
from onehop.errors import ShortlistError, StoreError
from onehop.text.tokenizer import Tokenizer

_FORMAT, VERSION = "onehop shortlist", 1
_REMAKE = "Make it again with `onehop shortlist`."

# What the shipped table was made with; docs/results/translation-speed.md says how these were chosen.
BEST, FREQUENT, PAIRS = 40, 1000, 1_000_000
_ROUNDS = 5  # of expectation maximisation
LEAST = 1e-3  # less likely translations are no candidates, so that plain words have few
# Bounds on memory while learning: translations per token, and sentences per block.
KEPT, BLOCK = 1000, 1 << 14

Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.integer[Any]]
Rows = list[tuple[Places, Floats]]  # per source token: target ids and their probabilities
Progress = Callable[[int], None]


# --- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Shortlist:
    """Candidates of each source token, concatenated, and those that are always allowed; `made` has the provenance."""

    candidates: Side
    frequent: Ids
    tokenizer: str
    made: Mapping[str, Any]

    def __str__(self) -> str:
        mean = len(self.candidates.ids) / len(self.candidates)
        return f"{mean:.1f} candidates a piece and {len(self.frequent):,} always, from {self.made['pairs']:,} pairs"

    def allowed(self, source: Iterable[int]) -> set[int]:
        """Every token that the translation of a sentence may contain."""
        return set(self.frequent.tolist()).union(*(self.candidates[piece].tolist() for piece in source))


def check_target(path: Path) -> None:
    """Refuse a path that cannot be written, before the table is learned, which takes minutes."""
    if path.is_dir():
        raise _not_written(path, os.strerror(errno.EISDIR))
    if not path.parent.is_dir():
        raise _not_written(path, os.strerror(errno.ENOENT))
    if not os.access(path.parent, os.W_OK):
        raise _not_written(path, os.strerror(errno.EACCES))


def _not_written(path: Path, why: str | None) -> ShortlistError:
    """The error for a table that cannot be written."""
    return ShortlistError(f"{path} cannot be written: {why}.", "Give another -o.")


def write_shortlist(path: Path, table: Shortlist) -> None:
    """Write one small file: ids as safetensors, with the tokenizer's hash in its header."""
    arrays = {"ids": table.candidates.ids, "ends": table.candidates.ends.astype("<u4"), "frequent": table.frequent}
    about = {"version": VERSION, "hash": _hash_of(arrays), "tokenizer": table.tokenizer, "made": table.made}
    try:
        write_whole(path, save(arrays, {_FORMAT: json.dumps(about)}))
    except OSError as e:
        raise _not_written(path, e.strerror) from None


def read_shortlist(path: Path, tokenizer: bytes) -> Shortlist:
    """Read a table. It must be complete and belong to this tokenizer."""
    about, arrays = contents(path)
    if about["version"] != VERSION:
        raise ShortlistError(f"{path} has format {about['version']}; this onehop reads format {VERSION}.", _REMAKE)
    if about["tokenizer"] != tokenizer_hash(tokenizer):
        raise ShortlistError(f"{path} belongs to another vocabulary than the model's.", _REMAKE)
    if about["hash"] != _hash_of(arrays):
        raise ShortlistError(f"{path} is damaged: its content does not match its hash.", _REMAKE)
    return Shortlist(
        candidates=Side(arrays["ids"], arrays["ends"].astype(np.int64)),
        frequent=arrays["frequent"],
        tokenizer=about["tokenizer"],
        made=about["made"],
    )


def contents(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """A file's metadata and arrays."""
    if not path.is_file():
        make = f"Make it with `onehop shortlist STORE -o {path}`, or translate without it."
        raise ShortlistError(f"There is no shortlist {path}.", make)
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})[_FORMAT])
            return about, {name: file.get_tensor(name) for name in list(file.keys())}
    except (SafetensorError, OSError, KeyError, ValueError):
        what = f"{path} is not a shortlist, or damaged."
        raise ShortlistError(what, "Give a file that `onehop shortlist` has written.") from None


def _hash_of(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """A hash over the ids, which safetensors does not verify."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode() + b"\0" + arrays[name].tobytes())
    return digest.hexdigest()


# --- made -----------------------------------------------------------------------------------------------------


def steps_of(store: Store) -> int:
    """The number of progress reports of `make_shortlist`."""
    return _ROUNDS * (_vocabulary_size(store) + 1)


def _vocabulary_size(store: Store) -> int:
    """The vocabulary size of a store of pairs; other stores are refused."""
    if store.holds != "parallel text":
        raise StoreError(f"The token store {store.path} holds no parallel text.", "Give one of sentence pairs.")
    return Tokenizer(store.tokenizer).vocab_size


def make_shortlist(
    store: Store, *, best: int = BEST, frequent: int = FREQUENT, pairs: int = PAIRS, progress: Progress | None = None
) -> Shortlist:
    """The table of a store's training pairs, of which at most so many are looked at, from all over it."""
    vocab_size = _vocabulary_size(store)
    sample = spread(store.pairs("train"), pairs)
    always = _most_frequent(sample.target.ids, frequent, vocab_size)
    return Shortlist(
        candidates=candidates(translations(sample, vocab_size, progress=progress), always, best),
        frequent=always,
        tokenizer=store.tokenizer_hash,
        made={"store": store.hash, "pairs": len(sample), "best": best, "frequent": frequent, "least": LEAST},
    )


def spread(pairs: Pairs, most: int) -> Pairs:
    """So many pairs at most, at equal distances: the files of a store lie one behind the other."""
    count = min(most, len(pairs))
    places = np.arange(count) * len(pairs) // max(count, 1)
    return Pairs(_gathered(pairs.source, places), _gathered(pairs.target, places))


def _gathered(side: Side, places: Places) -> Side:
    ends, lengths = side.ends[places], side.lengths[places]
    return Side(side.ids[_ranges(ends - lengths, lengths)], np.cumsum(lengths, dtype=np.int64))


def _ranges(starts: Places, lengths: Places) -> Places:
    """Many integer ranges, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _most_frequent(ids: Ids, count: int, vocab_size: int) -> Ids:
    """The most frequent ids. Ties: the lower id."""
    times = np.bincount(ids, minlength=vocab_size)
    order = np.argsort(-times, kind="stable")[:count]
    return np.sort(order[times[order] > 0]).astype(id_type(vocab_size))


def candidates(rows: Rows, always: Ids, best: int) -> Side:
    """For each token its likeliest translations besides those always allowed, and itself, since names are copied."""
    chosen = []
    for piece, (ids, likely) in enumerate(rows):
        apart = ~np.isin(ids, always) & (likely >= LEAST)
        ids, likely = ids[apart], likely[apart]
        chosen.append(np.union1d(ids[np.argsort(-likely, kind="stable")[:best]], [piece]))
    return side_from_lists([ids.tolist() for ids in chosen], id_type(len(rows)))


# --- learned --------------------------------------------------------------------------------------------------


def translations(pairs: Pairs, vocab_size: int, *, rounds: int = _ROUNDS, progress: Progress | None = None) -> Rows:
    """t(target | source) of each source piece, by expectation maximisation from a uniform start."""
    text = _Together(pairs, vocab_size)
    rows: Rows = [(np.arange(vocab_size), np.ones(vocab_size, dtype=np.float32))] * (vocab_size + 1)
    totals = np.repeat(text.pieces_of_sentence, text.lengths).astype(np.float32)
    for _ in range(rounds):
        rows, totals = _maximised(text, rows, totals, progress)
    return rows[:-1]


class _Together:
    """The target tokens that occur in a pair with each source token."""

    def __init__(self, pairs: Pairs, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.targets = pairs.target.ids
        self.lengths = pairs.target.lengths
        self.starts = pairs.target.ends - self.lengths
        sentences, pieces = _once_each(pairs.source, vocab_size)
        self.pieces_of_sentence = np.bincount(sentences, minlength=len(pairs))
        self.sentences = sentences[np.argsort(pieces, kind="stable")]
        self.ends = np.cumsum(np.bincount(pieces, minlength=vocab_size + 1))

    def tokens_with(self, piece: int) -> Iterator[Places]:
        """Indices of all target tokens in sentences whose source has a token, in blocks of sentences."""
        for begin in range(self.ends[piece - 1] if piece else 0, self.ends[piece], BLOCK):
            sentences = self.sentences[begin : min(begin + BLOCK, self.ends[piece])]
            yield _ranges(self.starts[sentences], self.lengths[sentences])


def _once_each(source: Side, empty: int) -> tuple[Places, Places]:
    """Sentence numbers and tokens: each distinct token of a sentence once, and the empty token last."""
    sentences, pieces = [], []
    for first in range(0, len(source), BLOCK):
        block = source.between(first, min(first + BLOCK, len(source)))
        numbers, width = np.arange(len(block)), empty + 1
        named = [np.repeat(numbers, block.lengths) * width + block.ids, numbers * width + empty]
        of, piece = np.divmod(np.unique(np.concatenate(named)), width)
        sentences.append((first + of).astype(np.int32))
        pieces.append(piece.astype(np.int32))
    return np.concatenate(sentences), np.concatenate(pieces)


def _maximised(text: _Together, rows: Rows, totals: Floats, progress: Progress | None) -> tuple[Rows, Floats]:
    """One EM round: each target token is divided among the tokens of its source, and each source token sums its shares.

    `totals` is, for every target token, the sum of t over the tokens of its source.
    """
    found: Rows = []
    next_totals = np.zeros_like(totals)
    for piece, row in enumerate(rows):
        before = spelled_out(row, text.vocab_size)
        counts = np.zeros(text.vocab_size)
        for places in text.tokens_with(piece):
            tokens = text.targets[places]
            counts += np.bincount(tokens, weights=before[tokens] / totals[places], minlength=text.vocab_size)
        found.append(_likeliest(counts))
        after = spelled_out(found[-1], text.vocab_size)
        for places in text.tokens_with(piece):
            next_totals[places] += after[text.targets[places]]
        if progress:
            progress(1)
    # A total of 0 gives shares of 0.
    return found, np.maximum(next_totals, np.finfo(np.float32).tiny)


def spelled_out(row: tuple[Places, Floats], vocab_size: int) -> Floats:
    """The probability of every target token."""
    full = np.zeros(vocab_size, dtype=np.float32)
    full[row[0]] = row[1]
    return full


def _likeliest(counts: Floats) -> tuple[Places, Floats]:
    """The largest shares, as probabilities."""
    ids = np.flatnonzero(counts)
    if len(ids) > KEPT:
        ids = np.sort(ids[np.argpartition(-counts[ids], KEPT)[:KEPT]])
    return ids.astype(np.int32), (counts[ids] / max(counts.sum(), 1.0e-30)).astype(np.float32)
