"""`onehop paper heads`: heads with a recognisable attention pattern, and scores with some heads removed."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from onehop.decoding.torch_engine import with_source_end
from onehop.evaluation.curves import COLOURS, new_figure
from onehop.experiments.coreference import PRONOUNS, coreference_sentences
from onehop.experiments.provenance import Json, markdown
from onehop.experiments.pruning import pruning
from onehop.experiments.sentence_attention import (
    Weights,
    attention_weights,
    best_heads,
    sentence_attention,
    token_indices,
    words,
)
from onehop.interpret.ablations import Role
from onehop.interpret.tracer import Tracer

_Wanted = Bool[Tensor, "query key"]

_Pattern = Callable[[Sequence[str]], _Wanted]


def _shifted(by: int) -> _Pattern:
    """Each position attends to the position at this offset."""
    return lambda tokens: torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(by).tril(by)


def _same_word(tokens: Sequence[str]) -> _Wanted:
    """Each position attends to other occurrences of the same token."""
    rows = [[a == b and i != j for j, b in enumerate(tokens)] for i, a in enumerate(tokens)]
    return torch.tensor(rows, dtype=torch.bool)


def _one_position(position: int) -> _Pattern:
    """Every other position attends to one position."""

    def wanted(tokens: Sequence[str]) -> _Wanted:
        mask = _nothing(tokens)
        mask[:, position] = True
        mask[position, position] = False
        return mask

    return wanted


def _nothing(tokens: Sequence[str]) -> _Wanted:
    return torch.zeros(len(tokens), len(tokens), dtype=torch.bool)


PATTERNS: dict[tuple[str, Role], _Pattern] = {
    ("previous token", "encoder"): _shifted(-1),
    ("next token", "encoder"): _shifted(1),
    ("itself", "encoder"): _shifted(0),
    ("first token", "encoder"): _one_position(0),
    ("end mark", "encoder"): _one_position(-1),
    ("same word", "encoder"): _same_word,
    ("previous token", "decoder"): _shifted(-1),
    ("itself", "decoder"): _shifted(0),
    ("first token", "decoder"): _one_position(0),
    ("same word", "decoder"): lambda tokens: _same_word(tokens).tril(),
}


class Tally:
    """Counts in how many sentences each head follows a pattern."""

    def __init__(self) -> None:
        self.sentences, self.chance = 0, 0.0
        self.holds = self.weight = torch.zeros(())

    def add(self, weights: Weights, wanted: _Wanted, *, causal: bool) -> None:
        """Count one sentence. A head follows a pattern if most queries give the wanted key the most weight."""
        rows = wanted.any(-1)
        if not rows.any():
            return
        wanted, weights = wanted[rows], weights[:, :, rows]
        hits = wanted.expand(*weights.shape[:2], -1, -1).gather(3, weights.argmax(-1, keepdim=True))
        holds = (hits[..., 0].float().mean(-1) > 0.5).float()
        weight = (weights * wanted).sum(-1).mean(-1)
        visible_keys = torch.arange(1, len(rows) + 1)[rows] if causal else wanted.shape[1]
        self.chance += float((wanted.sum(-1) / visible_keys).mean())
        self.sentences += 1
        self.holds, self.weight = self.holds + holds, self.weight + weight

    def result(self, name: str, role: Role) -> Json | None:
        """The shares of sentences, best heads first."""
        if not self.sentences:
            return None
        share, weight = self.holds / self.sentences, self.weight / self.sentences
        best = [
            {"role": role, "layer": i, "head": j, "share": float(share[i, j]), "weight": float(weight[i, j])}
            for i, j in best_heads(share + 1e-3 * weight)
        ]
        facts: Json = {"name": name, "role": role, "sentences": self.sentences, "chance": self.chance / self.sentences}
        return {**facts, "heads": best, "all": share.tolist(), "weights": weight.tolist()}


SUBJECTS = ("cat", "dog", "man", "woman", "girl", "teacher", "bird", "horse")
_VERBS = ("chased", "saw", "found", "followed", "heard")
_OBJECTS = ("ball", "car", "house", "child")
_PLACES = ("in the garden", "on the street")


def subject_sentences() -> Iterator[tuple[str, str, str]]:
    """Sentences with a verb and its subject, which is not the word before it."""
    for subject, verb, thing, where in itertools.product(SUBJECTS, _VERBS, _OBJECTS, _PLACES):
        yield f"The {subject} {where} {verb} the {thing}.", verb, subject


def patterns(tracer: Tracer, sources: Sequence[str]) -> Json:
    """The share of sentences in which each head follows each pattern, with the model's own translations."""
    tallies = {key: Tally() for key in PATTERNS}
    for text in sources:
        attention = sentence_attention(tracer, text)
        for key, pattern in PATTERNS.items():
            role = key[1]
            tokens = attention.source_tokens if role == "encoder" else attention.target_tokens
            tallies[key].add(attention.weights[role], pattern(tokens), causal=role == "decoder")
    coreferences = coreference_sentences()
    tallies["verb to subject", "encoder"] = _tally_pairs(tracer, subject_sentences())
    tallies["pronoun to noun", "encoder"] = _tally_pairs(tracer, ((c.source, "it", c.noun) for c in coreferences))
    tallies["pronoun to its noun's article", "decoder"] = articles = Tally()
    for example in coreferences:
        attention = sentence_attention(tracer, example.source)
        wanted = article_of_noun(attention.target_tokens, example.german)
        articles.add(attention.weights["decoder"], wanted, causal=True)
    results = [tally.result(name, role) for (name, role), tally in tallies.items()]
    return {"sentences": len(sources), "patterns": [result for result in results if result]}


def _tally_pairs(tracer: Tracer, examples: Iterable[tuple[str, str, str]]) -> Tally:
    """Counts how often one word of each sentence attends to another, in the encoder."""
    tally = Tally()
    for text, query, key in examples:
        ids = tracer.translator.tokenizer.encode(text)
        wanted = word_pair(query, key, tracer.pieces(with_source_end(tracer.model, ids)))
        tally.add(attention_weights(tracer.model, ids, [])["encoder"], wanted, causal=False)
    return tally


def word_pair(query: str, key: str, tokens: Sequence[str]) -> _Wanted:
    """Attention from the tokens of one word to those of another."""
    mask = _nothing(tokens)
    for i, j in itertools.product(token_indices(query, tokens), token_indices(key, tokens)):
        mask[i, j] = True
    return mask


_ARTICLES = ("der", "die", "das", "den", "dem", "ein", "eine", "einen", "einem", "einer")


def article_of_noun(tokens: Sequence[str], noun: str) -> _Wanted:
    """At the step of the pronoun, attention to the article of a German noun; empty if any of the three is missing."""
    mask = _nothing(tokens)
    sentence = words(tokens)
    at = next((i for i, word in enumerate(sentence) if noun.lower() in word.bare), 0)
    pronoun = next((word for word in sentence[at:] if word.bare in PRONOUNS), None)
    if pronoun is not None and (article := sentence[at - 1]).bare in _ARTICLES:
        mask[pronoun.indices[0] - 1, list(article.indices)] = True
    return mask


_OFTEN = 0.5  # a head follows a pattern if it does so in more than this share of the sentences


def heads(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> Json:
    """Patterns over the sentences, and scores of their translations with heads removed."""
    return {"patterns": patterns(tracer, sources), "pruning": pruning(tracer, sources, references)}


def table_text(results: Json) -> str:
    header = ["pattern", "stack", "sentences", "heads that follow it", "best head", "its share", "its weight", "chance"]
    rows = [pattern_row(pattern) for pattern in results["patterns"]["patterns"]]
    total = results["pruning"]["heads"]
    scores = [
        [str(removed := row["removed"]), f"{removed / total:.0%}", f"{row['bleu']:.1f}", f"{row['chrf']:.1f}"]
        for row in results["pruning"]["rows"]
    ]
    return markdown(header, rows) + "\n" + markdown(["heads removed", "share", "BLEU", "chrF2++"], scores)


def pattern_row(pattern: Json) -> list[str]:
    """The row of one pattern; layers and heads count from 1."""
    best, shares = pattern["heads"][0], [share for layer in pattern["all"] for share in layer]
    return [
        pattern["name"],
        pattern["role"],
        str(pattern["sentences"]),
        f"{sum(share > _OFTEN for share in shares)} of {len(shares)}",
        f"{best['layer'] + 1}.{best['head'] + 1}",
        f"{best['share']:.0%}",
        f"{best['weight']:.2f}",
        f"{pattern['chance']:.2f}",
    ]


def picture(results: Json) -> Any:
    """The best heads of each pattern, and quality by the share of removed heads."""
    figure, (bars, curve) = new_figure(1, 2, (10, 4))
    listed = results["patterns"]["patterns"][::-1]
    bars.barh(
        [f"{p['name']} ({p['role']})" for p in listed], [p["heads"][0]["share"] for p in listed], color=COLOURS[0]
    )
    bars.set_xlim(0, 1)
    bars.set_title("share of sentences in which the best head follows it", fontsize=10, loc="left")
    rows, total = results["pruning"]["rows"], results["pruning"]["heads"]
    shares = [row["removed"] / total for row in rows]
    curve.plot(shares, [row["bleu"] for row in rows], color=COLOURS[0], marker=".", label="BLEU")
    curve.plot(shares, [row["chrf"] for row in rows], color=COLOURS[1], marker=".", label="chrF2++")
    curve.set_ylim(bottom=0)
    curve.set_xlabel("share of heads removed, the least important first")
    curve.legend(frameon=False)
    return figure
