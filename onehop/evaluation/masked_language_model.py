"""Accuracy of an encoder on masked tokens: every token is masked once, a few at a time."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from onehop.data.objectives import MASK, N_SPECIAL
from onehop.errors import TextError
from onehop.evaluation.language_model import batches, split
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.text.tokenizer import EOS, WORD_MARK, Tokenizer, normalise

# One token in this many is masked at a time: about the share in training.
EVERY = 7
_GUESSES = 5


@dataclass(frozen=True, kw_only=True)
class MaskedTokens:
    """Counts of masked tokens: all, those that the first guess or the first five contain, and the most common one."""

    hidden: int
    first: int
    among_five: int
    commonest: int

    def line(self, name: str) -> str:
        counts = [self.first, self.among_five, self.commonest]
        first, five, commonest = (f"{count / max(1, self.hidden):.1%}" for count in counts)
        return f"{self.hidden:,} {name}: {first} found, {five} among five guesses; always the commonest: {commonest}"


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The accuracy on masked tokens: on all of them, and on those that are a whole word."""

    texts: int
    pieces: MaskedTokens
    words: MaskedTokens
    nll: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.nll / self.pieces.hidden)

    def figures(self) -> dict[str, Any]:
        kinds = {"pieces": vars(self.pieces), "words": vars(self.words)}
        return {"texts": self.texts, **kinds, "nll": self.nll, "perplexity": self.perplexity}

    def lines(self) -> list[str]:
        head = f"{self.texts:,} texts, every piece hidden once, one in {EVERY} at a time"
        kinds = [self.pieces.line("pieces"), self.words.line("of them a whole word")]
        return [head, *kinds, f"perplexity {self.perplexity:.2f} a hidden piece"]


def recall_of(model: EncoderOnly, tokenizer: Tokenizer, texts: Sequence[str]) -> Recall:
    """The accuracy of a model; a text beyond the model's positions is split into parts."""
    texts = [text for text in map(normalise, texts) if text]
    if not texts:
        raise TextError("There is no text to hide words of.", "Give lines that are not empty.")
    parts = split(tokenizer, texts, model.settings.max_length - 1)
    results = [_predictions(model, batch, offset) for batch in batches(parts) for offset in range(EVERY)]
    targets, ranks, nll, next_ids = map(np.concatenate, zip(*results, strict=True))
    words = whole_words(tokenizer, targets, next_ids)
    return Recall(
        texts=len(texts),
        pieces=_count_tokens(targets, ranks),
        words=_count_tokens(targets[words], ranks[words]),
        nll=float(nll.sum()),
    )


def _count_tokens(targets: Int[np.ndarray, " hidden"], ranks: Int[np.ndarray, " hidden"]) -> MaskedTokens:
    """`ranks` has the rank of each target among the guesses, from 0."""
    commonest = max(Counter(targets.tolist()).values(), default=0)
    first, five = (int((ranks < guesses).sum()) for guesses in (1, _GUESSES))
    return MaskedTokens(hidden=len(targets), first=first, among_five=five, commonest=commonest)


@torch.inference_mode()
def _predictions(model: EncoderOnly, parts: list[list[int]], offset: int) -> list[np.ndarray]:
    """Of every EVERY-th token, from `offset`: its id, its rank among the guesses, its nll, and the next id."""
    device = next(model.parameters()).device
    ids = torch.tensor([i for part in parts for i in (*part, EOS)], device=device)
    text = Tokens.packed(ids, torch.tensor([len(part) + 1 for part in parts], device=device))
    (indices,) = ((text.positions[0] % EVERY == offset) & (ids != EOS)).nonzero(as_tuple=True)
    hidden = Tokens(text.ids.index_fill(1, indices, MASK), text.positions, packing=text.packing)
    logits = model.logits(model.encode(hidden)[:, indices])[0].float()
    logits[:, :N_SPECIAL] = -torch.inf  # special tokens are no guesses
    targets = ids[indices]
    scores = logits.log_softmax(-1)
    own = scores.gather(1, targets[:, None])
    columns: list[Tensor] = [targets, (scores > own).sum(1), -own[:, 0].double(), ids[indices + 1]]
    return [column.cpu().numpy() for column in columns]


def whole_words(
    tokenizer: Tokenizer, targets: Int[np.ndarray, " hidden"], next_ids: Int[np.ndarray, " hidden"]
) -> Bool[np.ndarray, " hidden"]:
    """Which tokens are a whole word: they start one, have a letter, and no letters follow."""
    pieces = [piece for piece, _ in tokenizer.vocabulary()]
    begins = np.array([piece.startswith(WORD_MARK) for piece in pieces])
    letters = np.array([any(map(str.isalpha, piece)) for piece in pieces])
    letters[:N_SPECIAL] = False  # special tokens are written with letters, too
    whole: Bool[np.ndarray, " hidden"] = begins[targets] & letters[targets] & (begins[next_ids] | ~letters[next_ids])
    return whole
