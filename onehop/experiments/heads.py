"""Heads with a recognisable function, found over many sentences: attention patterns, and the attention of "it".

`onehop paper heads` makes its table from the patterns and from scores with some heads removed.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onehop.decoding.options import SearchOptions
from onehop.experiments.provenance import COLOURS, markdown, new_figure
from onehop.experiments.pruning import pruning
from onehop.interpret.ablations import ATTENTION, Role
from onehop.interpret.recorded_search import read_by, unpadded
from onehop.interpret.tracer import Tracer
from onehop.model.taps import watch
from onehop.text.tokenizer import BOS, WORD_MARK

Json = dict[str, Any]
Weights = Float[Tensor, "layer head query key"]
Wanted = Bool[Tensor, "query key"]
_BEST = 5
_GREEDY = SearchOptions(beam=1)


# --- attention -------------------------------------------------------------------------------------------------


@torch.inference_mode()
def attention_weights(tracer: Tracer, source: Sequence[int], target: Sequence[int]) -> dict[Role, Weights]:
    """The weights of every head for one sentence and its translation, with special tokens."""
    kept: dict[Role, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    def keep(name: str, value: Tensor) -> Tensor:
        if (found := ATTENTION.fullmatch(name)) and found[4] == "weights":
            role: Role = "cross" if found[3] == "cross" else "encoder" if found[1] == "encoder" else "decoder"
            kept[role].append(value[0])
        return value

    watched = watch(tracer.model, keep)
    ids = [torch.tensor([read_by(tracer.model, source)]), torch.tensor([[BOS, *target]])]
    device = next(tracer.model.parameters()).device
    watched.source_input.reach(ids[0].shape[1])
    watched.target_input.reach(ids[1].shape[1])
    watched(*(unpadded(row.to(device)) for row in ids))
    return {role: torch.stack(layers).float().cpu() for role, layers in kept.items()}


@dataclass(frozen=True)
class Word:
    """A word of a sentence and the indices of its tokens, with the punctuation after it."""

    text: str
    places: tuple[int, ...]


def words(tokens: Sequence[str]) -> list[Word]:
    """The words of a sequence of tokens."""
    starts = [i for i, token in enumerate(tokens) if token.startswith(WORD_MARK) or i == 0]
    spans = [range(a, b) for a, b in itertools.pairwise([*starts, len(tokens)])]
    return [Word("".join(tokens[i] for i in span).strip(WORD_MARK), tuple(span)) for span in spans]


def places_of(word: str, tokens: Sequence[str]) -> list[int]:
    """The indices of the tokens of the first occurrence of a word, without punctuation."""
    for found in words(tokens):
        if _bare(found.text) == word.lower():
            letters = [i for i in found.places if re.search(r"\w", tokens[i])]
            return letters or list(found.places)
    return []


def _bare(word: str) -> str:
    """A word without surrounding punctuation."""
    return word.strip(".,;:!?\"'()„“”»«").lower()


# --- patterns --------------------------------------------------------------------------------------------------

Pattern = Callable[[Sequence[str]], Wanted]


def _shifted(by: int) -> Pattern:
    """Each position attends to the position at this offset."""
    return lambda tokens: torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(by).tril(by)


def _same_word(tokens: Sequence[str]) -> Wanted:
    """Each position attends to other occurrences of the same token."""
    rows = [[a == b and i != j for j, b in enumerate(tokens)] for i, a in enumerate(tokens)]
    return torch.tensor(rows, dtype=torch.bool)


def _one_place(place: int) -> Pattern:
    """Every other position attends to one position."""

    def wanted(tokens: Sequence[str]) -> Wanted:
        found = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
        found[:, place] = True
        found[place, place] = False
        return found

    return wanted


def pair(query: str, key: str) -> Pattern:
    def wanted(tokens: Sequence[str]) -> Wanted:
        found = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
        for i, j in itertools.product(places_of(query, tokens), places_of(key, tokens)):
            found[i, j] = True
        return found

    return wanted


PATTERNS: dict[tuple[str, Role], Pattern] = {
    ("previous token", "encoder"): _shifted(-1),
    ("next token", "encoder"): _shifted(1),
    ("itself", "encoder"): _shifted(0),
    ("first token", "encoder"): _one_place(0),
    ("end mark", "encoder"): _one_place(-1),
    ("same word", "encoder"): _same_word,
    ("previous token", "decoder"): _shifted(-1),
    ("itself", "decoder"): _shifted(0),
    ("first token", "decoder"): _one_place(0),
    ("same word", "decoder"): lambda tokens: _same_word(tokens).tril(),
}


class Tally:
    """Counts in how many sentences each head follows a pattern."""

    def __init__(self) -> None:
        self.sentences, self.chance = 0, 0.0
        self.holds: Tensor | None = None
        self.weight: Tensor | None = None

    def add(self, weights: Weights, wanted: Wanted, *, causal: bool) -> None:
        """Count one sentence. A head follows a pattern if most queries give the wanted key the most weight."""
        rows = wanted.any(-1)
        if not rows.any():
            return
        asked = wanted[rows]
        hits = asked.expand(*weights.shape[:2], -1, -1).gather(3, weights[:, :, rows].argmax(-1, keepdim=True))
        holds = (hits[..., 0].float().mean(-1) > 0.5).float()
        weight = (weights[:, :, rows] * asked).sum(-1).mean(-1)
        there = torch.arange(1, len(rows) + 1)[rows] if causal else wanted.shape[1]
        self.chance += float((asked.sum(-1) / there).mean())
        self.sentences += 1
        self.holds = holds if self.holds is None else self.holds + holds
        self.weight = weight if self.weight is None else self.weight + weight

    def result(self, name: str, role: Role) -> Json | None:
        """The shares of sentences, best heads first."""
        if self.holds is None or self.weight is None:
            return None
        share, weight = self.holds / self.sentences, self.weight / self.sentences
        order = (share + 1e-3 * weight).flatten().argsort(descending=True)[:_BEST].tolist()
        places = [divmod(i, share.shape[1]) for i in order]
        best = [
            {"role": role, "layer": i, "head": j, "share": float(share[i, j]), "weight": float(weight[i, j])}
            for i, j in places
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
        sentence = read(tracer, text)
        for key, pattern in PATTERNS.items():
            role = key[1]
            tokens = sentence.source if role == "encoder" else sentence.target
            tallies[key].add(sentence.weights[role], pattern(tokens), causal=role == "decoder")
    of_words: dict[tuple[str, Role], Iterable[tuple[str, str, str]]] = {
        ("verb to subject", "encoder"): subject_sentences(),
        ("pronoun to noun", "encoder"): ((s.source, "it", s.noun) for s in coreference_sentences()),
    }
    for word_key, examples in of_words.items():
        tallies[word_key] = _tally_pairs(tracer, examples)
    tallies["pronoun to its noun's article", "decoder"] = articles = Tally()
    for example in coreference_sentences():
        sentence = read(tracer, example.source)
        articles.add(sentence.weights["decoder"], article_of_noun(sentence.target, example.german), causal=True)
    found = [tally.result(name, role) for (name, role), tally in tallies.items()]
    return {"sentences": len(sources), "patterns": [result for result in found if result]}


_ARTICLES = ("der", "die", "das", "den", "dem", "ein", "eine", "einen", "einem", "einer")
PRONOUNS = ("er", "sie", "es")


def article_of_noun(tokens: Sequence[str], noun: str) -> Wanted:
    """At the step of the pronoun, attention to the article of a German noun; empty if any of the three is missing."""
    found = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    written = words(tokens)
    texts = [_bare(word.text) for word in written]
    at = next((i for i, text in enumerate(texts) if noun.lower() in text), 0)
    pronoun = next((word for word, text in zip(written[at:], texts[at:], strict=True) if text in PRONOUNS), None)
    if pronoun is not None and texts[at - 1] in _ARTICLES:
        found[pronoun.places[0] - 1, list(written[at - 1].places)] = True
    return found


def _tally_pairs(tracer: Tracer, examples: Iterable[tuple[str, str, str]]) -> Tally:
    """Counts how often one word of each sentence attends to another, in the encoder."""
    tally = Tally()
    for text, query, key in examples:
        ids = tracer.translator.tokenizer.encode(text)
        tokens = tracer.pieces(read_by(tracer.model, ids))
        tally.add(attention_weights(tracer, ids, [])["encoder"], pair(query, key)(tokens), causal=False)
    return tally


@dataclass(frozen=True)
class ReadSentence:
    """A sentence as the model read it: source tokens, decoder inputs, and attention weights."""

    source: list[str]
    target: list[str]
    text: str
    weights: dict[Role, Weights]


def read(tracer: Tracer, text: str) -> ReadSentence:
    """Translate a sentence and record the attention over both."""
    tokenizer = tracer.translator.tokenizer
    translation = tracer.translator.translate([text], _GREEDY)[0].text
    source, target = tokenizer.encode(text), tokenizer.encode(translation)
    weights = attention_weights(tracer, source, target)
    read_ids = read_by(tracer.model, source)
    return ReadSentence(tracer.pieces(read_ids), tracer.pieces([BOS, *target]), translation, weights)


# --- it --------------------------------------------------------------------------------------------------------

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
    for sentence in coreference_sentences():
        found = read(tracer, sentence.source)
        it, noun = places_of("it", found.source), places_of(sentence.noun, found.source)
        on_noun = found.weights["encoder"][:, :, it][..., noun].sum(-1).mean(-1)
        largest = found.weights["encoder"][:, :, it].mean(2).argmax(-1)
        shares.append(torch.isin(largest, torch.tensor(noun)).float())
        weights.append(on_noun)
        rows.append(_described(sentence, found, it, noun, on_noun))
    share, weight = torch.stack(shares).mean(0), torch.stack(weights).mean(0)
    best = _best_heads(share + 1e-3 * weight)
    heads = [{"layer": i, "head": j, "mean": float(weight[i, j]), "share": float(share[i, j])} for i, j in best]
    return {"sentences": rows, "best": heads, "none": heads[0]["share"] <= 0.5}


def _described(sentence: Coreference, found: ReadSentence, it: list[int], noun: list[int], weight: Tensor) -> Json:
    """One sentence: the translation of "it", and the heads that attend to its noun."""
    written = [_bare(word) for word in found.text.split()]
    pronoun = next((word for word in written[1:] if word in PRONOUNS), None)
    heads = [{"layer": i, "head": j, "weight": float(weight[i, j])} for i, j in _best_heads(weight)]
    return {
        "source": sentence.source,
        "tokens": found.source,
        "it": it,
        "noun": noun,
        "expected": sentence.pronoun,
        "german": sentence.german,
        "noun_found": any(sentence.german.lower() in word for word in written),
        "translation": found.text,
        "pronoun": pronoun,
        "right": pronoun == sentence.pronoun,
        "heads": heads,
        "base": len(noun) / len(found.source),
    }


def _best_heads(values: Float[Tensor, "layer head"]) -> list[tuple[int, int]]:
    """The layers and heads of the largest values."""
    order = values.flatten().argsort(descending=True)[:_BEST].tolist()
    return [(i // values.shape[1], i % values.shape[1]) for i in order]


# --- the table ------------------------------------------------------------------------------------------------

# A head follows a pattern if it does so in this share of the sentences.
_OFTEN = 0.5


def heads(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> Json:
    """Patterns over the sentences, and scores of their translations with heads removed."""
    return {"patterns": patterns(tracer, sources), "pruning": pruning(tracer, sources, references)}


def table_text(found: Json) -> str:
    """The heads of each pattern, then the scores."""
    header = ["pattern", "stack", "sentences", "heads that follow it", "best head", "its share", "its weight", "chance"]
    rows = [pattern_row(pattern) for pattern in found["patterns"]["patterns"]]
    scores = [
        [
            str(row["removed"]),
            f"{row['removed'] / found['pruning']['heads']:.0%}",
            f"{row['bleu']:.1f}",
            f"{row['chrf']:.1f}",
        ]
        for row in found["pruning"]["rows"]
    ]
    return markdown(header, rows) + "\n" + markdown(["heads removed", "share", "BLEU", "chrF2++"], scores)


def pattern_row(pattern: Json) -> list[str]:
    """The row of one pattern; layers and heads count from 1."""
    best, every = pattern["heads"][0], [share for layer in pattern["all"] for share in layer]
    follow = sum(share > _OFTEN for share in every)
    return [
        pattern["name"],
        pattern["role"],
        str(pattern["sentences"]),
        f"{follow} of {len(every)}",
        f"{best['layer'] + 1}.{best['head'] + 1}",
        f"{best['share']:.0%}",
        f"{best['weight']:.2f}",
        f"{pattern['chance']:.2f}",
    ]


def picture(found: Json) -> Any:
    """The best heads of each pattern, and quality by the share of removed heads."""
    figure, (bars, curve) = new_figure(2)
    listed = found["patterns"]["patterns"][::-1]
    bars.barh(
        [f"{p['name']} ({p['role']})" for p in listed], [p["heads"][0]["share"] for p in listed], color=COLOURS[0]
    )
    bars.set_xlim(0, 1)
    bars.set_title("share of sentences in which the best head follows it", fontsize=10, loc="left")
    rows, total = found["pruning"]["rows"], found["pruning"]["heads"]
    shares = [row["removed"] / total for row in rows]
    curve.plot(shares, [row["bleu"] for row in rows], color=COLOURS[0], marker=".", label="BLEU")
    curve.plot(shares, [row["chrf"] for row in rows], color=COLOURS[1], marker=".", label="chrF2++")
    curve.set_ylim(bottom=0)
    curve.set_xlabel("share of heads removed, the least important first")
    curve.legend(frameon=False)
    return figure
