"""BPE-dropout (Provilkov et al., 2020): every epoch sees the same sentences cut into other pieces.

SentencePiece can sample too, but its random numbers differ from process to process whatever the seed, and a run
that resumes must see the pieces it would have seen.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence

import numpy as np

from onehop.store import Pairs, Side, side_from_lists
from onehop.tokenizer import WORD_MARK, Tokenizer
from onehop.workers import in_order

CHUNK = 4096

# A word has this many segmentations an epoch, drawn afresh in the next: few enough that those of frequent words
# are computed once, many enough that nobody could tell.
VARIANT_BITS = 6
CACHED = 400_000


def resegment(
    pairs: Pairs,
    tokenizer: Tokenizer,
    dropout: float,
    *,
    seed: int,
    epoch: int,
    longest: int | None = None,
    processes: int = 1,
) -> Pairs:
    """The same pairs under another random segmentation, which depends on (seed, epoch) alone.

    A side that would have more than `longest` pieces keeps the segmentation it had. The result is in memory.
    """
    if dropout == 0 or len(pairs) == 0:
        return pairs
    given = (tokenizer.model, dropout, seed, epoch, longest)
    chunks = list(in_order(resegment_chunk, chunks_of(pairs), processes, set_up, given))
    return Pairs(joined([c.source for c in chunks]), joined([c.target for c in chunks]))


def chunks_of(pairs: Pairs) -> Iterator[tuple[int, Pairs]]:
    """Chunks of a fixed size with the number of their first pair, so that it does not matter who does which."""
    for first in range(0, len(pairs), CHUNK):
        last = min(first + CHUNK, len(pairs))
        yield first, Pairs(pairs.source.between(first, last), pairs.target.between(first, last))


def joined(sides: list[Side]) -> Side:
    """Sides one after the other."""
    starts = np.cumsum([0, *(len(side.ids) for side in sides)])
    ends = [side.ends + start for side, start in zip(sides, starts[:-1], strict=True)]
    return Side(np.concatenate([side.ids for side in sides]), np.concatenate(ends))


# --- one chunk ------------------------------------------------------------------------------------------------

_segmenter: "Segmenter"
_longest: int | None


def set_up(model: bytes, dropout: float, seed: int, epoch: int, longest: int | None) -> None:
    """Prepare a process for `resegment_chunk`."""
    global _segmenter, _longest
    _segmenter, _longest = Segmenter(Tokenizer(model), dropout, f"{seed} {epoch}"), longest


def resegment_chunk(work: tuple[int, Pairs]) -> Pairs:
    """New pieces for both sides of a chunk."""
    first, chunk = work
    return Pairs(resegment_side(chunk.source, f"{first} src"), resegment_side(chunk.target, f"{first} tgt"))


def resegment_side(side: Side, place: str) -> Side:
    """New pieces for the sentences of one side, the random numbers of which belong to its place."""
    before = side.lists()
    after = _segmenter.segment(before, place)
    if _longest is not None:
        after = [old if len(new) > _longest else new for old, new in zip(before, after, strict=True)]
    return side_from_lists(after, side.ids.dtype)


def number_from(text: str) -> int:
    """A number that the text alone decides, on any machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


class Segmenter:
    """Cuts words into random pieces; what a word becomes depends on the key, the word and a variant's number."""

    def __init__(self, tokenizer: Tokenizer, dropout: float, key: str) -> None:
        self.tokenizer = tokenizer
        self.dropout = dropout
        self.key = key
        vocabulary = tokenizer.vocabulary()
        self.ids = {piece: i for i, (piece, _) in enumerate(vocabulary)}
        self.priority = {piece: -score for piece, score in vocabulary}
        self._known: dict[tuple[int, str], list[int]] = {}
        self._random = random.Random()

    def segment(self, sentences: Sequence[list[int]], place: str) -> list[list[int]]:
        """Other pieces for sentences of ids."""
        words = [text.split(" ") for text in self.tokenizer.decode_batch(sentences)]
        total = sum(map(len, words))
        bits = np.random.Philox(key=number_from(f"{self.key} {place}")).random_raw(total)
        variants = iter((bits >> np.uint64(64 - VARIANT_BITS)).tolist())
        return [[i for word in sentence for i in self.word(word, next(variants))] for sentence in words]

    def word(self, word: str, variant: int) -> list[int]:
        """The ids of one variant of a word."""
        known = self._known.get((variant, word))
        if known is None:
            if len(self._known) >= CACHED:
                self._known.clear()
            self._random.seed(number_from(f"{self.key} {variant} {word}"))
            known = self._known[variant, word] = self.ids_of(self.pieces(word))
        return known

    def pieces(self, word: str) -> list[str]:
        """Algorithm 1 of the paper: in each round every possible merge is dropped by chance, the best rest is made."""
        symbols = list(WORD_MARK + word)
        draw, dropout, priority = self._random.random, self.dropout, self.priority
        while True:
            best, place = float("inf"), -1
            for i in range(len(symbols) - 1):
                rank = priority.get(symbols[i] + symbols[i + 1])
                if rank is not None and draw() >= dropout and rank < best:
                    best, place = rank, i
            if place < 0:
                return symbols
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]

    def ids_of(self, pieces: list[str]) -> list[int]:
        """Ids of pieces; a character that is no piece is spelt in its bytes."""
        ids = []
        for piece in pieces:
            known = self.ids.get(piece)
            ids += [known] if known is not None else [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]
        return ids
