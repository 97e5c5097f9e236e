"""BPE-dropout (Provilkov et al., 2020): every epoch segments the same sentences differently.

SentencePiece can sample too, but its result differs between processes with the same seed, which would break exact
resume.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import lru_cache

import numpy as np

from onehop.config import Settings
from onehop.data.store import Pairs, Side, Store, side_from_lists
from onehop.data.worker_pool import spawned_pool
from onehop.machine import available_cores
from onehop.text.tokenizer import WORD_MARK, Tokenizer

CHUNK = 4096
_Chunk = tuple[int, int, Pairs]  # epoch, number of the first pair, pairs

# An epoch draws from 2^6 segmentations of each word: few enough to cache, and more would not change the training.
_VARIANT_BITS = 6
_MOST_CACHED = 400_000


class Resegmenter:
    """The same pairs with another segmentation in each epoch, which depends only on (seed, epoch).

    A side that would exceed `longest` tokens keeps its original segmentation. An epoch is held in memory; with several
    processes, the next one is made meanwhile.
    """

    def __init__(
        self,
        pairs: Pairs,
        tokenizer: Tokenizer,
        dropout: float,
        *,
        seed: int,
        longest: int | None = None,
        processes: int = 1,
    ) -> None:
        self.pairs = pairs
        self.configuration = (tokenizer.model, dropout, seed, longest)
        self.pool = spawned_pool(processes, _set_up, self.configuration) if processes > 1 else None
        self.next_epoch: tuple[int, list[Future[Pairs]]] = (-1, [])
        self.closed = False

    def epoch(self, number: int) -> Pairs:
        """The pairs of an epoch. Raises CancelledError if `close` is called meanwhile."""
        if self.pool is None:
            _set_up(*self.configuration)
            chunks = [_resegment_chunk(work) for work in self._until_closed(_chunks(self.pairs, number))]
        else:
            if self.next_epoch[0] != number:
                self._submit(number)
            chunks = [future.result() for future in self.next_epoch[1]]
            self._submit(number + 1)
        return Pairs(_joined([c.source for c in chunks]), _joined([c.target for c in chunks]), self.pairs.parts)

    def _submit(self, number: int) -> None:
        assert self.pool is not None
        for future in self.next_epoch[1]:
            future.cancel()
        self.next_epoch = (number, [self.pool.submit(_resegment_chunk, work) for work in _chunks(self.pairs, number)])

    def _until_closed(self, work: Iterator[_Chunk]) -> Iterator[_Chunk]:
        for chunk in work:
            if self.closed:
                raise CancelledError
            yield chunk

    def close(self) -> None:
        """Stop the processes and an epoch that another thread is making, after the running chunks."""
        self.closed = True
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)


def _chunks(pairs: Pairs, epoch: int) -> Iterator[_Chunk]:
    """Chunks of a fixed size with their epoch and first pair, so the result does not depend on the process."""
    for first in range(0, len(pairs), CHUNK):
        last = min(first + CHUNK, len(pairs))
        yield epoch, first, Pairs(pairs.source.between(first, last), pairs.target.between(first, last))


def _joined(sides: list[Side]) -> Side:
    starts = np.cumsum([0, *(len(side.ids) for side in sides)])
    ends = [side.ends + start for side, start in zip(sides, starts[:-1], strict=True)]
    return Side(np.concatenate([side.ids for side in sides]), np.concatenate(ends))


_configuration: tuple[bytes, float, int, int | None]


def _set_up(model: bytes, dropout: float, seed: int, longest: int | None) -> None:
    global _configuration
    _configuration = (model, dropout, seed, longest)


@lru_cache(1)
def _segmenter_of(model: bytes, dropout: float, seed: int, epoch: int) -> "Segmenter":
    """The segmenter of an epoch, cached for all its chunks."""
    return Segmenter(Tokenizer(model), dropout, f"{seed} {epoch}")


def _resegment_chunk(work: _Chunk) -> Pairs:
    epoch, first, chunk = work
    source = _resegment_side(chunk.source, epoch, f"{first} src")
    return Pairs(source, _resegment_side(chunk.target, epoch, f"{first} tgt"))


def _resegment_side(side: Side, epoch: int, position: str) -> Side:
    """Resegment one side. The random numbers depend on its position in the corpus."""
    model, dropout, seed, longest = _configuration
    original = side.lists()
    resampled = _segmenter_of(model, dropout, seed, epoch).segment(original, position)
    if longest is not None:
        resampled = [old if len(new) > longest else new for old, new in zip(original, resampled, strict=True)]
    return side_from_lists(resampled, side.ids.dtype)


def _seed_from(text: str) -> int:
    """A seed that is the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


class Segmenter:
    """Segments words at random; the result depends on the key, the word and the number of the variant."""

    def __init__(self, tokenizer: Tokenizer, dropout: float, key: str) -> None:
        self.tokenizer = tokenizer
        self.dropout = dropout
        self.key = key
        vocabulary = tokenizer.vocabulary()
        self.ids = {piece: i for i, (piece, _) in enumerate(vocabulary)}
        self.priority = {piece: -score for piece, score in vocabulary}
        self._cache: dict[tuple[int, str], list[int]] = {}
        self._random = random.Random()

    def segment(self, sentences: Sequence[list[int]], position: str) -> list[list[int]]:
        words = [text.split(" ") for text in self.tokenizer.decode_batch(sentences)]
        total = sum(map(len, words))
        bits = np.random.Philox(key=_seed_from(f"{self.key} {position}")).random_raw(total)
        variants = iter((bits >> np.uint64(64 - _VARIANT_BITS)).tolist())
        return [[i for word in sentence for i in self.word(word, next(variants))] for sentence in words]

    def word(self, word: str, variant: int) -> list[int]:
        ids = self._cache.get((variant, word))
        if ids is None:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._random.seed(_seed_from(f"{self.key} {variant} {word}"))
            ids = self._cache[variant, word] = self.ids_of(self.pieces(word))
        return ids

    def pieces(self, word: str) -> list[str]:
        """Algorithm 1 of the paper: each round drops merges at random and applies the best one that is left."""
        symbols = list(WORD_MARK + word)
        draw, dropout, priority = self._random.random, self.dropout, self.priority
        while True:
            best, index = float("inf"), -1
            for i in range(len(symbols) - 1):
                rank = priority.get(symbols[i] + symbols[i + 1])
                if rank is not None and draw() >= dropout and rank < best:
                    best, index = rank, i
            if index < 0:
                return symbols
            symbols[index : index + 2] = [symbols[index] + symbols[index + 1]]

    def ids_of(self, pieces: list[str]) -> list[int]:
        """Ids of pieces; a character outside the vocabulary becomes its bytes."""
        ids = []
        for piece in pieces:
            id_ = self.ids.get(piece)
            ids += [id_] if id_ is not None else [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]
        return ids


def make_resegmenter(settings: Settings, store: Store) -> Resegmenter | None:
    """BPE-dropout on all cores but one, which trains; None if it is off."""
    dropout, longest = settings.tokenizer.dropout, settings.model.max_length - 1
    if settings.train.batch_tokens:
        longest = min(longest, settings.train.batch_tokens - 1)  # every segmentation has to fit into a batch
    if not dropout:
        return None
    pairs, tokenizer = store.pairs("train", settings.train.weights), Tokenizer(store.tokenizer)
    processes = min(8, available_cores() - 1)
    return Resegmenter(pairs, tokenizer, dropout, seed=settings.train.seed, longest=longest, processes=processes)
