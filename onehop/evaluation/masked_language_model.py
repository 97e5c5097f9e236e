"""Accuracy of an encoder on masked tokens: every token is masked once, a few at a time."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from onehop.data.objectives import MARKS, MASK
from onehop.errors import TextError
from onehop.evaluation.language_model import batches
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.pipelines.fill_mask import Filler
from onehop.text.tokenizer import EOS, WORD_MARK, Tokenizer, normalise

# One token in this many is masked at a time: about the share in training.
EVERY = 7
_GUESSES = 5


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Hidden pieces of one kind: how many, how many the first guess and the first five found, and the commonest one."""

    hidden: int
    first: int
    among_five: int
    commonest: int

    def line(self, name: str) -> str:
        found = [self.first, self.among_five, self.commonest]
        first, five, commonest = (f"{count / max(1, self.hidden):.1%}" for count in found)
        return f"{self.hidden:,} {name}: {first} found, {five} among five guesses; always the commonest: {commonest}"


@dataclass(frozen=True, kw_only=True)
class Recall:
    """What was found again: of all pieces, and of those that are a whole word."""

    texts: int
    pieces: Kind
    words: Kind
    nll: float

    @property
    def perplexity(self) -> float:
        """Of a hidden piece."""
        return math.exp(self.nll / self.pieces.hidden)

    def figures(self) -> dict[str, Any]:
        kinds = {"pieces": vars(self.pieces), "words": vars(self.words)}
        return {"texts": self.texts, **kinds, "nll": self.nll, "perplexity": self.perplexity}

    def lines(self) -> list[str]:
        head = f"{self.texts:,} texts, every piece hidden once, one in {EVERY} at a time"
        kinds = [self.pieces.line("pieces"), self.words.line("of them a whole word")]
        return [head, *kinds, f"perplexity {self.perplexity:.2f} a hidden piece"]


def recall(path: str | Path, texts: Sequence[str], device: str | None = None) -> Recall:
    """What a model file's encoder finds again in texts."""
    filler = Filler.load(path, device)
    return of_texts(filler.model, filler.tokenizer, texts)


def of_texts(model: EncoderOnly, tokenizer: Tokenizer, texts: Sequence[str]) -> Recall:
    """The same of a model that is there; a text longer than the model's positions is read in parts."""
    texts = [text for text in map(normalise, texts) if text]
    if not texts:
        raise TextError("There is no text to hide words of.", "Give lines that are not empty.")
    longest = model.settings.max_length - 1
    parts = [ids[i : i + longest] for ids in tokenizer.encode_batch(texts) for i in range(0, len(ids), longest)]
    found = [_of_parts(model, batch, turn) for batch in batches(parts) for turn in range(EVERY)]
    asked, ranks, nll, following = map(np.concatenate, zip(*found, strict=True))
    words = whole_words(tokenizer, asked, following)
    return Recall(
        texts=len(texts), pieces=kind(asked, ranks), words=kind(asked[words], ranks[words]), nll=float(nll.sum())
    )


def kind(asked: Int[np.ndarray, " hidden"], ranks: Int[np.ndarray, " hidden"]) -> Kind:
    """Counted over hidden pieces and the rank that each had among the guesses, 0 the first."""
    commonest = max(Counter(asked.tolist()).values(), default=0)
    first, five = (int((ranks < guesses).sum()) for guesses in (1, _GUESSES))
    return Kind(hidden=len(asked), first=first, among_five=five, commonest=commonest)


@torch.inference_mode()
def _of_parts(model: EncoderOnly, parts: list[list[int]], turn: int) -> list[np.ndarray]:
    """Of each piece that has its turn: its id, its rank among the guesses, its negative log-likelihood, the next id."""
    device = next(model.parameters()).device
    ids = torch.tensor([i for part in parts for i in (*part, EOS)], device=device)
    text = Tokens.packed(ids, torch.tensor([len(part) + 1 for part in parts], device=device))
    (places,) = ((text.positions[0] % EVERY == turn) & (ids != EOS)).nonzero(as_tuple=True)
    hidden = Tokens(text.ids.index_fill(1, places, MASK), text.positions, packing=text.packing)
    logits = model.logits(model.encode(hidden)[:, places])[0].float()
    logits[:, :MARKS] = -torch.inf  # marks are no words
    asked = ids[places]
    scores = logits.log_softmax(-1)
    own = scores.gather(1, asked[:, None])
    columns: list[Tensor] = [asked, (scores > own).sum(1), -own[:, 0].double(), ids[places + 1]]
    return [column.cpu().numpy() for column in columns]


def whole_words(
    tokenizer: Tokenizer, asked: Int[np.ndarray, " hidden"], following: Int[np.ndarray, " hidden"]
) -> Bool[np.ndarray, " hidden"]:
    """Which pieces begin a word, have a letter, and are not continued by letters."""
    pieces = [piece for piece, _ in tokenizer.vocabulary()]
    begins = np.array([piece.startswith(WORD_MARK) for piece in pieces])
    letters = np.array([any(map(str.isalpha, piece)) for piece in pieces])
    letters[:MARKS] = False  # marks are written as letters, too
    found: Bool[np.ndarray, " hidden"] = begins[asked] & letters[asked] & (begins[following] | ~letters[following])
    return found
