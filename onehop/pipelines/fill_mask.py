"""`onehop fill`: an encoder says what could stand where [MASK] stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onehop.data.objectives import MARKS, MASK
from onehop.errors import ModelFileError, TextError
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.pipelines.load import load_variant
from onehop.text.tokenizer import EOS, WORD_MARK, Tokenizer, vocabulary_of

_GAP = "[MASK]"
_PRIVATE_USE = range(0xE000, 0xF900)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Filling:
    """A piece for a gap, how probable it is there, and the text with it; other gaps stay open."""

    piece: str
    probability: float
    text: str


@dataclass(frozen=True)
class Gapped:
    """A text with gaps as ids: `ids` with a mask in each gap, where the gaps are, and which of them begin a word."""

    ids: list[int]
    places: list[int]
    begins_word: list[bool]


class Filler:
    """An encoder that was trained to fill gaps.

    Filler.load("model.safetensors").fill("The [MASK] sat on the mat.", 5)
    """

    def __init__(self, model: EncoderOnly, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Filler":
        """Read a model file."""
        model, stored = load_variant(path, "encoder", device)
        tokenizer = vocabulary_of(stored.tokenizer)
        if not isinstance(tokenizer, Tokenizer) or not isinstance(model, EncoderOnly):
            raise ModelFileError(
                f"{path} was imported without an output for words.", "Use onehop embed, or train an encoder."
            )
        return cls(model, tokenizer)

    def fill(self, text: str, count: int) -> list[list[Filling]]:
        """For each gap the most probable pieces, best first."""
        gapped = self.read(text)
        probabilities = self.probabilities(gapped)
        return [
            [Filling(self.tokenizer.tokens([i])[0], share, self.shown(gapped, gap, i)) for share, i in best(row, count)]
            for gap, row in enumerate(probabilities)
        ]

    def read(self, text: str) -> Gapped:
        """The pieces around the gaps, cut as if a word stood in each: in "a [MASK]." the stop is glued to it."""
        if _GAP not in text:
            raise TextError(f"There is no {_GAP} in the text.", f"Write {_GAP} where a word is wanted.")
        stand_in, mark, pieces = self.stand_in(text)
        ids = self.tokenizer.encode(text.replace(_GAP, stand_in))
        read: list[int] = []
        places: list[int] = []
        begins: list[bool] = []
        while ids:
            begins_word = ids[0] == mark and ids[1 : 1 + len(pieces)] == pieces
            if begins_word or ids[: len(pieces)] == pieces:
                places.append(len(read))
                begins.append(begins_word)
                ids = [MASK, *ids[begins_word + len(pieces) :]]
            read.append(ids.pop(0))
        return Gapped(read, places, begins)

    def stand_in(self, text: str) -> tuple[str, int, list[int]]:
        """A character that neither the text nor the vocabulary has, with its ids: the mark of a word, then bytes.

        No piece around it can merge with bytes.
        """
        for character in map(chr, _PRIVATE_USE):
            mark, *pieces = self.tokenizer.encode(character)
            bytes_alone = all(_BYTE.fullmatch(piece) for piece in self.tokenizer.tokens(pieces))
            if character not in text and pieces and bytes_alone:
                return character, mark, pieces
        raise TextError("The text has every character that could stand for a gap.", "Give a shorter text.")

    @torch.inference_mode()
    def probabilities(self, gapped: Gapped) -> Float[Tensor, "gaps vocab"]:
        """How probable each piece is in each gap, among those that begin a word if the gap does, or else the others."""
        device = next(self.model.parameters()).device
        self.model.source_input.reach(len(gapped.ids) + 1)
        states = self.model.encode(Tokens.padded(torch.tensor([[*gapped.ids, EOS]], device=device)))
        logits = self.model.logits(states[:, gapped.places])[0].float().cpu()
        first, later = self.kinds
        fits = torch.where(torch.tensor(gapped.begins_word)[:, None], first, later)
        return logits.masked_fill(~fits, -torch.inf).softmax(-1)

    @cached_property
    def kinds(self) -> tuple[Bool[Tensor, " vocab"], Bool[Tensor, " vocab"]]:
        """Which pieces begin a word, and which go on with one; marks and single bytes do neither."""
        pieces = [piece for piece, _ in self.tokenizer.vocabulary()]
        first = torch.tensor([piece.startswith(WORD_MARK) for piece in pieces])
        neither = torch.tensor([i < MARKS or _BYTE.fullmatch(piece) is not None for i, piece in enumerate(pieces)])
        return first, ~first & ~neither

    def shown(self, gapped: Gapped, gap: int, piece: int) -> str:
        """The text with a piece in one gap; the others as they were written."""
        parts: list[str | int] = list(gapped.ids)
        for place, begins in zip(gapped.places, gapped.begins_word, strict=True):
            parts[place] = f" {_GAP}" if begins else _GAP
        parts[gapped.places[gap]] = piece
        return self.joined(parts)

    def joined(self, parts: Sequence[str | int]) -> str:
        """Ids as text, strings as they are."""
        text, run = "", list[int]()
        for part in (*parts, ""):
            if isinstance(part, int):
                run.append(part)
                continue
            # The mask in front keeps the space that decoding takes from the first piece.
            text += self.tokenizer.decode([MASK, *run]).removeprefix(self.tokenizer.decode([MASK])) + part
            run = []
        return text.strip()


def best(probabilities: Float[Tensor, " vocab"], count: int) -> list[tuple[float, int]]:
    """The most probable pieces with their probabilities; fewer where not so many can stand there."""
    shares, pieces = probabilities.topk(min(count, int((probabilities > 0).sum())))
    return list(zip(shares.tolist(), pieces.tolist(), strict=True))
