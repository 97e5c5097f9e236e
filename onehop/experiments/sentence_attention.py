"""The attention weights of one sentence and its translation, and which tokens make up which word."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from onehop.decoding.options import SearchOptions
from onehop.decoding.torch_engine import with_source_end
from onehop.interpret.ablations import ROLES, Role, parse_attention_name
from onehop.interpret.recorded_search import teacher_forced
from onehop.interpret.tracer import Tracer
from onehop.model.taps import watch
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import BOS, WORD_MARK

GREEDY = SearchOptions(beam=1)
Weights = Float[Tensor, "layer head query key"]


@dataclass(frozen=True)
class SentenceAttention:
    """A sentence, its translation, and the attention weights over their tokens."""

    source_tokens: list[str]
    target_tokens: list[str]  # the decoder's inputs, from BOS
    translation: str
    weights: dict[Role, Weights]


def sentence_attention(tracer: Tracer, text: str) -> SentenceAttention:
    """Translate a sentence and record the attention over both."""
    translation = tracer.translator.translate([text], GREEDY)[0].text
    source, target = map(tracer.translator.tokenizer.encode, (text, translation))
    return SentenceAttention(
        tracer.pieces(with_source_end(tracer.model, source)),
        tracer.pieces([BOS, *target]),
        translation,
        attention_weights(tracer.model, source, target),
    )


@torch.inference_mode()
def attention_weights(model: Transformer, source: Sequence[int], target: Sequence[int]) -> dict[Role, Weights]:
    """The weights of every head for one sentence and its translation, with special tokens."""
    layers: dict[Role, list[Tensor]] = {role: [] for role in ROLES}

    def record(name: str, value: Tensor) -> Tensor:
        attention = parse_attention_name(name)
        if attention and attention.quantity == "weights":
            layers[attention.role].append(value[0])
        return value

    teacher_forced(watch(model, record), source, target)
    return {role: torch.stack(weights).float().cpu() for role, weights in layers.items()}


@dataclass(frozen=True)
class Word:
    """A word of a sentence, with the punctuation after it, and the indices of its tokens."""

    text: str
    indices: tuple[int, ...]

    @property
    def bare(self) -> str:
        return bare(self.text)


def bare(word: str) -> str:
    """The word in lower case, without surrounding punctuation."""
    return word.strip(".,;:!?\"'()„“”»«").lower()


def words(tokens: Sequence[str]) -> list[Word]:
    starts = [i for i, token in enumerate(tokens) if token.startswith(WORD_MARK) or i == 0]
    spans = [range(a, b) for a, b in itertools.pairwise([*starts, len(tokens)])]
    return [Word("".join(tokens[i] for i in span).strip(WORD_MARK), tuple(span)) for span in spans]


def token_indices(word: str, tokens: Sequence[str]) -> list[int]:
    """The indices of the tokens of the first occurrence of a word, without punctuation."""
    for candidate in words(tokens):
        if candidate.bare == word.lower():
            letters = [i for i in candidate.indices if re.search(r"\w", tokens[i])]
            return letters or list(candidate.indices)
    return []


def best_heads(values: Float[Tensor, "layer head"]) -> list[tuple[int, int]]:
    """The layers and heads of the five largest values."""
    order = values.flatten().argsort(descending=True)[:5].tolist()
    return [divmod(i, values.shape[1]) for i in order]
