"""Coreference: the pronoun that a model writes for "it", and the heads that attend from "it" to its noun."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.experiments.provenance import Json
from onehop.experiments.sentence_attention import SentenceAttention, bare, best_heads, sentence_attention, token_indices
from onehop.interpret.tracer import Tracer

PRONOUNS = ("er", "sie", "es")
_ANIMALS = {
    "cat": ("Katze", "sie"),
    "cow": ("Kuh", "sie"),
    "dog": ("Hund", "er"),
    "bird": ("Vogel", "er"),
    "animal": ("Tier", "es"),
    "horse": ("Pferd", "es"),
}
_THINGS = {
    "lamp": ("Lampe", "sie"),
    "door": ("Tür", "sie"),
    "table": ("Tisch", "er"),
    "key": ("Schlüssel", "er"),
    "book": ("Buch", "es"),
    "car": ("Auto", "es"),
}
_FRAMES = (
    (_ANIMALS, ("The {} sat because it was sleepy.", "The {} stopped because it was tired.")),
    (_ANIMALS, ("The {} ate because it was hungry.",)),
    (_THINGS, ("I sold the {} because it was old.", "I like the {} because it is beautiful.")),
    (_THINGS, ("The {} is cheap because it is broken.",)),
)
_STREET = "The animal didn't cross the street because it was too {}."


@dataclass(frozen=True)
class Coreference:
    """A sentence in which "it" refers to a noun that has a gender in German."""

    source: str
    noun: str
    german: str
    pronoun: str


def coreference_sentences() -> list[Coreference]:
    """All sentences. The pair with the street comes first: one word decides the referent of "it"."""
    street = [
        Coreference(_STREET.format("tired"), "animal", "Tier", "es"),
        Coreference(_STREET.format("wide"), "street", "Straße", "sie"),
    ]
    return street + [
        Coreference(frame.format(noun), noun, german, pronoun)
        for nouns, frames in _FRAMES
        for frame in frames
        for noun, (german, pronoun) in nouns.items()
    ]


def coreference(tracer: Tracer) -> Json:
    """The pronoun that the model writes for "it", and the encoder heads that attend from "it" to its noun."""
    rows, shares, weights = [], [], []
    for example in coreference_sentences():
        attention = sentence_attention(tracer, example.source)
        it, noun = (token_indices(word, attention.source_tokens) for word in ("it", example.noun))
        from_it = attention.weights["encoder"][:, :, it]
        on_noun = from_it[..., noun].sum(-1).mean(-1)
        shares.append(torch.isin(from_it.mean(2).argmax(-1), torch.tensor(noun)).float())
        weights.append(on_noun)
        rows.append(_row(example, attention, it, noun, on_noun))
    share, weight = torch.stack(shares).mean(0), torch.stack(weights).mean(0)
    best = best_heads(share + 1e-3 * weight)
    heads = [{"layer": i, "head": j, "mean": float(weight[i, j]), "share": float(share[i, j])} for i, j in best]
    return {"sentences": rows, "best": heads, "none": heads[0]["share"] <= 0.5}


def _row(example: Coreference, attention: SentenceAttention, it: list[int], noun: list[int], on_noun: Tensor) -> Json:
    """One sentence: the translation of "it", and the heads that attend to its noun."""
    translated = [bare(word) for word in attention.translation.split()]
    pronoun = next((word for word in translated[1:] if word in PRONOUNS), None)
    return {
        "source": example.source,
        "tokens": attention.source_tokens,
        "it": it,
        "noun": noun,
        "expected": example.pronoun,
        "german": example.german,
        "noun_found": any(example.german.lower() in word for word in translated),
        "translation": attention.translation,
        "pronoun": pronoun,
        "right": pronoun == example.pronoun,
        "heads": [{"layer": i, "head": j, "weight": float(on_noun[i, j])} for i, j in best_heads(on_noun)],
        "base": len(noun) / len(attention.source_tokens),
    }
