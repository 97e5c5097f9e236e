"""`onehop embed`: sentences as vectors of length 1, whose products say how near in meaning two of them are."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int

from onehop.data.filters import counted
from onehop.errors import ModelFileError, SettingsError, TextError
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.pipelines.load import load_variant
from onehop.text.tokenizer import EOS, PAD, Classes, Tokenizer, WordPieces, vocabulary_of

_BATCH = 64
Vectors = Float32[np.ndarray, "texts d_model"]
Queries = Float32[np.ndarray, "queries d_model"]


class Embedder:
    """An encoder ready to be asked for vectors.

    Embedder.load("minilm.safetensors").vectors(["A cat.", "A dog."])
    """

    def __init__(self, model: EncoderOnly, vocabulary: Tokenizer | WordPieces) -> None:
        self.model, self.vocabulary = model.eval(), vocabulary
        self.cut = 0  # texts that were longer than the model reads

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Embedder":
        """Read a model file."""
        model, stored = load_variant(path, "encoder", device)
        vocabulary = vocabulary_of(stored.tokenizer)
        if isinstance(vocabulary, Classes) or not isinstance(model, EncoderOnly):
            raise ModelFileError(f"{path} has no pieces to read text with.", "Make it again.")
        return cls(model, vocabulary)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """A row for each text, in order; neighbours of one length are computed together."""
        encoded = [self.fitting(ids) for ids in self.encoded(texts)]
        out = np.zeros((len(texts), self.model.settings.d_model), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        for begin in range(0, len(order), _BATCH):
            places = order[begin : begin + _BATCH]
            out[places] = self.of_ids([encoded[i] for i in places])
        return out

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with the marks that the model knows."""
        if isinstance(self.vocabulary, WordPieces):
            return self.vocabulary.encode_batch(texts)
        return [[*ids, EOS] for ids in self.vocabulary.encode_batch(texts)]

    def fitting(self, ids: list[int]) -> list[int]:
        """As much as the model reads, with the last mark at the end."""
        longest = self.model.settings.max_length
        if len(ids) <= longest:
            return ids
        self.cut += 1
        return [*ids[: longest - 1], ids[-1]]

    @torch.inference_mode()
    def of_ids(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """The vectors of some texts of about one length."""
        rows = [torch.tensor(ids) for ids in batch]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        device = next(self.model.parameters()).device
        self.model.source_input.reach(ids.shape[1])
        found: Vectors = self.model.sentence_vectors(Tokens.padded(ids.to(device), PAD)).float().cpu().numpy()
        return found


@dataclass(frozen=True)
class Neighbour:
    """A text that is near, its place among the others from 0, and the cosine between the two."""

    place: int
    text: str
    cosine: float


def nearest(query: Queries, vectors: Vectors, texts: Sequence[str], count: int) -> list[list[Neighbour]]:
    """For each row of the query the texts whose vectors are nearest, nearest first."""
    cosines = query @ vectors.T
    best: Int[np.ndarray, "queries best"] = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return [
        [Neighbour(int(i), texts[i], float(row[i])) for i in places] for row, places in zip(cosines, best, strict=True)
    ]


# --- for the command line -------------------------------------------------------------------------------------


def vector_lines(vectors: Vectors) -> Iterator[str]:
    """Each vector as a JSON list on a line of its own."""
    return (json.dumps([round(float(x), 6) for x in vector]) for vector in vectors)


def check_target(file: Path) -> None:
    """Refuse a name that does not say what is written, before anything is computed."""
    if file.suffix != ".npy":
        raise SettingsError(f"{file} does not end in .npy, as numpy's files do.", "Name it so, or print without -o.")


def save(vectors: Vectors, file: Path) -> str:
    """Write the vectors as numpy's file; a line about it."""
    try:
        with file.open("wb") as out:
            np.save(out, vectors)
    except OSError as e:
        raise TextError(f"{file} cannot be written: {e.strerror}.", "Give another -o.") from None
    return f"{file}: {counted(len(vectors), 'vector')} of {vectors.shape[1]} numbers"


def neighbours(
    query: Queries, vectors: Vectors, sentences: Sequence[str], others: Sequence[str], count: int
) -> Iterator[str]:
    """Each sentence, and below it the cosine, the line and the text of what is nearest."""
    for sentence, found in zip(sentences, nearest(query, vectors, others, count), strict=True):
        yield sentence
        yield from (f"{near.cosine:8.3f}  line {near.place + 1}: {near.text}" for near in found)
