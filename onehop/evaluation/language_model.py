"""Perplexity of a decoder per token and per word, and bits per byte."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from onehop.model.loss import cross_entropy
from onehop.model.transformer import Tokens
from onehop.model.variants import DecoderOnly
from onehop.text.tokenizer import BOS, EOS, Tokenizer, normalise

_BATCH_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """The negative log-likelihood of texts in nats, and the counts to divide it by. EOS counts as a token."""

    texts: int
    tokens: int
    words: int
    bytes: int
    nll: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """The perplexity of a word, which is comparable across vocabularies."""
        return math.exp(min(700.0, self.nll / max(1, self.words)))

    @property
    def bits_per_byte(self) -> float:
        return self.nll / math.log(2) / max(1, self.bytes)

    def figures(self) -> dict[str, float]:
        shares = {"word_perplexity": self.word_perplexity, "bits_per_byte": self.bits_per_byte}
        return {**asdict(self), "perplexity": self.perplexity, **shares}

    def lines(self) -> list[str]:
        return [
            f"{self.texts:,} texts, {self.tokens:,} tokens, {self.words:,} words, {self.bytes:,} bytes",
            f"perplexity {self.perplexity:.2f} a token, {self.word_perplexity:.2f} a word;"
            f" {self.bits_per_byte:.3f} bits a byte",
        ]


def likelihood_of(model: DecoderOnly, tokenizer: Tokenizer, texts: Sequence[str]) -> Likelihood:
    """The likelihood of texts under a model; a text beyond the model's positions is split into parts."""
    texts = [text for text in map(normalise, texts) if text]
    parts = split(tokenizer, texts, model.settings.max_length - 1)
    return Likelihood(
        texts=len(texts),
        tokens=sum(len(part) + 1 for part in parts),
        words=sum(len(text.split()) for text in texts),
        bytes=sum(len(text.encode()) for text in texts),
        nll=sum(_nll(model, batch) for batch in batches(parts)),
    )


def split(tokenizer: Tokenizer, texts: Sequence[str], longest: int) -> list[list[int]]:
    """The ids of the texts; a text with more than `longest` tokens becomes several parts."""
    return [ids[i : i + longest] for ids in tokenizer.encode_batch(texts) for i in range(0, len(ids), longest)]


def batches(parts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Batches of about _BATCH_TOKENS tokens, with parts of similar length together."""
    batch: list[list[int]] = []
    for part in sorted(parts, key=len):
        batch.append(part)
        if sum(map(len, batch)) >= _BATCH_TOKENS:
            yield batch
            batch = []
    if batch:
        yield batch


@torch.inference_mode()
def _nll(model: DecoderOnly, parts: list[list[int]]) -> float:
    device = next(model.parameters()).device
    inputs = torch.tensor([i for part in parts for i in (BOS, *part)], device=device)
    labels = torch.tensor([i for part in parts for i in (*part, EOS)], device=device)
    text = Tokens.packed(inputs, torch.tensor([len(part) + 1 for part in parts], device=device))
    return float(cross_entropy(model(text, text)[0], labels, 0.0).nll)
