"""`onehop embed`: sentences as unit vectors, whose dot products measure similarity of meaning."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int

from onehop.errors import ModelFileError
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.pipelines.load import load_variant
from onehop.text.tokenizer import EOS, PAD, Classes, Tokenizer, WordPieces, vocabulary_of

_BATCH = 64
Vectors = Float32[np.ndarray, "texts d_model"]
Queries = Float32[np.ndarray, "queries d_model"]


class Embedder:
    """Embeds texts with an encoder.

    Embedder.load("minilm.safetensors").vectors(["A cat.", "A dog."])
    """

    def __init__(self, model: EncoderOnly, vocabulary: Tokenizer | WordPieces) -> None:
        self.model, self.vocabulary = model.eval(), vocabulary
        self.cut = 0  # texts that were truncated

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Embedder":
        model, stored = load_variant(path, "encoder", device)
        vocabulary = vocabulary_of(stored.tokenizer)
        if isinstance(vocabulary, Classes) or not isinstance(model, EncoderOnly):
            raise ModelFileError(f"{path} has no pieces to read text with.", "Make it again.")
        return cls(model, vocabulary)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """A row for each text, in order."""
        encoded = self.vocabulary.encode_batch(texts)
        if isinstance(self.vocabulary, Tokenizer):  # word pieces come with their special tokens
            encoded = [[*ids, EOS] for ids in encoded]
        encoded = [self._truncated(ids) for ids in encoded]
        vectors = np.zeros((len(texts), self.model.settings.d_model), dtype=np.float32)
        by_length = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        for begin in range(0, len(by_length), _BATCH):
            batch = by_length[begin : begin + _BATCH]
            vectors[batch] = self._embed([encoded[i] for i in batch])
        return vectors

    def _truncated(self, ids: list[int]) -> list[int]:
        """At most `max_length` ids. The last one, a special token, stays last."""
        max_length = self.model.settings.max_length
        if len(ids) <= max_length:
            return ids
        self.cut += 1
        return [*ids[: max_length - 1], ids[-1]]

    @torch.inference_mode()
    def _embed(self, batch: Sequence[Sequence[int]]) -> Vectors:
        rows = [torch.tensor(ids) for ids in batch]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        device = next(self.model.parameters()).device
        self.model.source_input.ensure_length(ids.shape[1])
        vectors: Vectors = self.model.sentence_vectors(Tokens.padded(ids.to(device), PAD)).float().cpu().numpy()
        return vectors


@dataclass(frozen=True)
class Neighbour:
    """A text with its index and the cosine between it and the query."""

    index: int
    text: str
    cosine: float


def nearest(query: Queries, vectors: Vectors, texts: Sequence[str], count: int) -> list[list[Neighbour]]:
    """The `count` texts with the nearest vectors for each query, nearest first."""
    cosines = query @ vectors.T
    best: Int[np.ndarray, "queries best"] = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return [
        [Neighbour(int(i), texts[i], float(row[i])) for i in indices]
        for row, indices in zip(cosines, best, strict=True)
    ]
