"""Text in, text out: tokenizer, model and search put together."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from onehop.device import pick_device
from onehop.model import Cache, Tokens, Transformer
from onehop.modelfile import StoredModel, read_model
from onehop.search import Hypothesis, SearchOptions, search
from onehop.tokenizer import EOS, PAD, Tokenizer

# Section 6.1: the output may be so many tokens longer than the source.
MORE_THAN_SOURCE = 50
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Translation:
    """One translation with what the search knows about it."""

    text: str
    tokens: tuple[str, ...]
    score: float
    log_prob: float
    finished: bool
    looped: bool


class CachedStep:
    """The model as a step function of the search: remembers every row's keys and values."""

    def __init__(self, model: Transformer, src: Int[Tensor, "sentences source"], capacity: int) -> None:
        self.model = model
        self.cache: Cache = model.begin(Tokens.padded(src, PAD), capacity)

    def __call__(
        self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"] | None
    ) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities of each row's next token."""
        if parents is not None:
            self.cache = self.cache.select(parents)
        return self.model.step(tokens[:, None], self.cache)[:, -1].float().log_softmax(-1)


class Translator:
    """A model ready to translate.

    Translator.load("model.safetensors").translate(["Hello world."])
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, source: str, target: str) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.source, self.target = source, target

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> "Translator":
        """Read a model file."""
        stored = read_model(path)
        model = model_of(stored).to(pick_device(device))
        return cls(model, Tokenizer(stored.tokenizer), stored.source, stored.target)

    def translate(self, texts: Sequence[str], options: SearchOptions | None = None) -> list[Translation]:
        """The best translation of each text; an empty text stays empty."""
        return [found[0] for found in self.n_best(texts, options)]

    def n_best(self, texts: Sequence[str], options: SearchOptions | None = None) -> list[list[Translation]]:
        """The n best translations of each text, best first."""
        encoded = self.tokenizer.encode_batch(list(texts))
        found: list[list[Translation]] = [[nothing()] for _ in texts]
        for batch in batches_by_length(encoded):
            hypotheses = self.search([encoded[i] for i in batch], options, numbers=batch)
            for i, best in zip(batch, hypotheses, strict=True):
                found[i] = [self.translation(h) for h in best]
        return found

    @torch.inference_mode()
    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions | None, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Translate ids."""
        device, model = next(self.model.parameters()).device, self.model.settings
        # Sinusoids go on for ever, a learned table ends.
        limit = model.max_length if model.positions == "learned" else math.inf
        most = [int(min(len(ids) + MORE_THAN_SOURCE, limit)) for ids in sources]
        step = CachedStep(self.model, padded(sources).to(device), max(most))
        return search(step, most, options, numbers=numbers, device=device)

    def translation(self, hypothesis: Hypothesis) -> Translation:
        """Ids as text."""
        return Translation(
            self.tokenizer.decode(hypothesis.ids),
            tuple(self.tokenizer.tokens(hypothesis.ids)),
            hypothesis.score,
            hypothesis.log_prob,
            hypothesis.finished,
            hypothesis.looped,
        )


def nothing() -> Translation:
    """The translation of an empty text."""
    return Translation("", (), 0.0, 0.0, finished=True, looped=False)


def model_of(stored: StoredModel) -> Transformer:
    """The model that a file holds."""
    weights = stored.weights()
    model = Transformer(stored.settings.model, len(weights["embedding.weight"]))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return model


def padded(sources: Sequence[Sequence[int]]) -> Int[Tensor, "sentences longest"]:
    """Sources with their end mark, a row each."""
    rows = [torch.tensor([*ids, EOS]) for ids in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def batches_by_length(sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Places of the sources that are not empty, longest first, in batches of at most BATCH_TOKENS with padding."""
    batch: list[int] = []
    for i in sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -len(sources[i])):
        if batch and (len(batch) + 1) * len(sources[batch[0]]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
