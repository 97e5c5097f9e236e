"""`onehop fill`: an encoder predicts the tokens at [MASK]."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onehop.data.objectives import MASK, N_SPECIAL
from onehop.errors import ModelFileError, TextError
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.pipelines.load import load_variant
from onehop.text.tokenizer import EOS, WORD_MARK, Tokenizer, vocabulary_of

_MASK = "[MASK]"
_PRIVATE_USE = range(0xE000, 0xF900)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Filling:
    """A token for one mask, its probability, and the text with it; other masks stay."""

    piece: str
    probability: float
    text: str


@dataclass(frozen=True)
class MaskedText:
    """The ids of a text, the positions of its masks, and which masks begin a word."""

    ids: list[int]
    positions: list[int]
    begins_word: list[bool]


class Filler:
    """Fills masks with an encoder that was trained on masked tokens.

    Filler.load("model.safetensors").fill("The [MASK] sat on the mat.", 5)
    """

    def __init__(self, model: EncoderOnly, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Filler":
        model, stored = load_variant(path, "encoder", device)
        tokenizer = vocabulary_of(stored.tokenizer)
        if not isinstance(tokenizer, Tokenizer) or not isinstance(model, EncoderOnly):
            raise ModelFileError(
                f"{path} was imported without an output for words.", "Use onehop embed, or train an encoder."
            )
        return cls(model, tokenizer)

    def fill(self, text: str, count: int) -> list[list[Filling]]:
        """The `count` most probable tokens for each mask, best first; fewer if fewer fit."""
        masked = self.encode(text)
        fillings: list[list[Filling]] = []
        for position, probabilities in zip(masked.positions, self.probabilities(masked), strict=True):
            best = probabilities.topk(min(count, int((probabilities > 0).sum())))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            fillings.append(
                [Filling(self.tokenizer.tokens([i])[0], p, self._filled_text(masked, position, i)) for p, i in pairs]
            )
        return fillings

    def encode(self, text: str) -> MaskedText:
        """The ids of a text, tokenized as if each mask were a word: in "a [MASK]." the full stop follows directly."""
        if _MASK not in text:
            raise TextError(f"There is no {_MASK} in the text.", f"Write {_MASK} where a word is wanted.")
        placeholder, word_mark, bytes_ = self._placeholder(text)
        rest = self.tokenizer.encode(text.replace(_MASK, placeholder))
        masked = MaskedText([], [], [])
        while rest:
            begins_word = rest[0] == word_mark and rest[1 : 1 + len(bytes_)] == bytes_
            if begins_word or rest[: len(bytes_)] == bytes_:
                masked.positions.append(len(masked.ids))
                masked.begins_word.append(begins_word)
                rest = [MASK, *rest[begins_word + len(bytes_) :]]
            masked.ids.append(rest.pop(0))
        return masked

    def _placeholder(self, text: str) -> tuple[str, int, list[int]]:
        """A character that neither the text nor the vocabulary has, with its ids: the word mark, then bytes.

        Tokens around it cannot merge with bytes.
        """
        for character in map(chr, _PRIVATE_USE):
            word_mark, *bytes_ = self.tokenizer.encode(character)
            is_bytes = bytes_ and all(map(_BYTE.fullmatch, self.tokenizer.tokens(bytes_)))
            if character not in text and is_bytes:
                return character, word_mark, bytes_
        raise TextError("The text has every character that could stand for a gap.", "Give a shorter text.")

    @torch.inference_mode()
    def probabilities(self, masked: MaskedText) -> Float[Tensor, "masks vocab"]:
        """The probabilities at each mask: of the tokens that begin a word if the mask does, else of the others."""
        device = next(self.model.parameters()).device
        self.model.source_input.ensure_length(len(masked.ids) + 1)
        states = self.model.encode(Tokens.padded(torch.tensor([[*masked.ids, EOS]], device=device)))
        logits = self.model.logits(states[:, masked.positions])[0].float().cpu()
        first, later = self._token_kinds
        allowed = torch.where(torch.tensor(masked.begins_word)[:, None], first, later)
        return logits.masked_fill(~allowed, -torch.inf).softmax(-1)

    @cached_property
    def _token_kinds(self) -> tuple[Bool[Tensor, " vocab"], Bool[Tensor, " vocab"]]:
        """Which tokens begin a word, and which continue one. Special tokens and single bytes do neither."""
        tokens = [token for token, _ in self.tokenizer.vocabulary()]
        first = torch.tensor([token.startswith(WORD_MARK) for token in tokens])
        neither = torch.tensor([i < N_SPECIAL or _BYTE.fullmatch(token) is not None for i, token in enumerate(tokens)])
        return first, ~first & ~neither

    def _filled_text(self, masked: MaskedText, position: int, token: int) -> str:
        """The text with a token at one mask; the other masks stay as they were written."""
        parts: list[int | str] = list(masked.ids)
        for other, begins_word in zip(masked.positions, masked.begins_word, strict=True):
            parts[other] = f" {_MASK}" if begins_word else _MASK
        parts[position] = token
        text, run = "", list[int]()
        for part in (*parts, ""):
            if isinstance(part, int):
                run.append(part)
                continue
            # The mask in front keeps the space that decoding takes from the first token.
            text += self.tokenizer.decode([MASK, *run]).removeprefix(self.tokenizer.decode([MASK])) + part
            run = []
        return text.strip()
