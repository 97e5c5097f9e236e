"""A second try for terms that a translation has not: the term is put where its source words are translated.

Before it stands what the model wrote; what follows the model writes anew. So the sentence stays the model's own, and
every translation that comes out is one that it has scored.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onehop.decoding.options import SearchOptions
from onehop.pipelines.glossary import Term
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.tokenizer import WORD_MARK, normalise

POSITIONS = 4  # words of a translation that a term may take the place of
# A term may have another gender than the word that it replaces: of these words one fits where another stands.
_LIKE_EIN = "ein kein mein dein sein ihr Ihr unser"
_LIKE_DIESER = "dies jed jen welch"
ARTICLES = {
    "de": (
        *(("der", "die", "das"), ("den", "die", "das"), ("dem", "der"), ("zum", "zur"), ("im", "in der")),
        *((stem, stem + "e") for stem in _LIKE_EIN.split()),
        *((stem + "en", stem + "e", stem) for stem in _LIKE_EIN.split()),
        *((stem + "er", stem + "e", stem + "es") for stem in _LIKE_DIESER.split()),
        *((stem + "en", stem + "e", stem + "es") for stem in _LIKE_DIESER.split()),
        *((stem + "em", stem + "er") for stem in f"{_LIKE_EIN} {_LIKE_DIESER}".split()),
    ),
    "fr": (
        *(("le", "la", "l'"), ("un", "une"), ("du", "de la", "de l'"), ("au", "à la", "à l'"), ("ce", "cette", "cet")),
        *(("mon", "ma"), ("ton", "ta"), ("son", "sa"), ("aucun", "aucune"), ("quel", "quelle")),
    ),
}
# So much likelier, as a logarithm, a term must be after another article.
MARGIN = 3.0


def insisted(
    translator: SentenceTranslator,
    text: str,
    source: Sequence[int],
    begun: Translation,
    wanted: Sequence[Term],
    options: SearchOptions,
) -> Translation:
    """The translation with the most terms that can be had: `begun` has not all of them.

    `text` is what the sentence says, and `source` the ids that the model reads, which may hold tags.
    """
    best = begun
    for term in [term for term in wanted if not term.met(begun.text)]:
        if term.met(best.text):
            continue
        prefixes = dict(_prefixes(translator, text, best, term))
        found = translator.complete(source, list(prefixes), options)
        sound = [
            (_met(t, wanted), -_said_again(t, text, wanted), t.score + likely, t)
            for t, likely in zip(found, prefixes.values(), strict=True)
            if t.finished and not t.looped and len(t.tokens) <= 1.5 * len(begun.tokens) + 8
        ]
        met, *_, candidate = max(sound, key=lambda each: each[:3], default=(0, 0, 0.0, best))
        best = candidate if met > _met(best, wanted) else best
    return best


def _met(translation: Translation, wanted: Sequence[Term]) -> int:
    return sum(term.met(translation.text) for term in wanted)


def _said_again(translation: Translation, text: str, wanted: Sequence[Term]) -> int:
    """How often terms come that the source does not have as often."""
    times = [(t.count(translation.text), Term(t.source, t.source).count(text)) for t in wanted]
    return sum(max(0, found - max(1, said)) for found, said in times)


def _prefixes(
    translator: SentenceTranslator, text: str, begun: Translation, term: Term
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Beginnings of a translation up to the term, and the logarithm of how likely the term is there."""
    tokenizer = translator.tokenizer
    written = tokenizer.ids(begun.tokens)
    starts = [i for i, piece in enumerate(begun.tokens) if piece.startswith(WORD_MARK)] or [0]
    for start, likely in _likely(translator, text, written, starts, term)[:POSITIONS]:
        before = tokenizer.decode(written[:start])
        target = term.target if start or term.exact else term.target[:1].upper() + term.target[1:]
        yield (*written[:start], *tokenizer.target.encode(target)), likely  # as it was cut, not as it would be again
        for other in _other_articles(before, translator.target):
            yield tuple(tokenizer.target.encode(other + target)), likely


def _likely(
    translator: SentenceTranslator, text: str, written: list[int], starts: Sequence[int], term: Term
) -> list[tuple[int, float]]:
    """Where words begin, those first that look at the term's source words most, with the logarithm of their share."""
    from onehop.pipelines.alignment import align  # brings NumPy, which most translations are made without

    ids = translator.tokenizer.encode(text)
    at = normalise(text).casefold().find(term.source.casefold())
    spans = translator.tokenizer.spans(ids)
    columns = [i for i, (begin, end) in enumerate(spans) if begin < at + len(term.source) and end > at >= 0]
    if not columns or not written:
        return [(start, 0.0) for start in starts]
    weight = align(translator, [ids], [written])[0][:, columns].sum(axis=1)
    ends = [*starts[1:], len(written)]
    strongest = [float(weight[begin:end].max()) + 1e-6 for begin, end in zip(starts, ends, strict=True)]
    shares = [math.log(each / sum(strongest)) for each in strongest]
    return sorted(zip(starts, shares, strict=True), key=lambda each: -each[1])


def _other_articles(before: str, language: str) -> Iterator[str]:
    """A beginning that ends in an article, with each other article that may stand there, up to the next word."""
    for articles in ARTICLES.get(language, ()):
        for article in articles:
            found = re.search(rf"(?<!\w){re.escape(article)}$", before.rstrip(), re.IGNORECASE)
            for other in articles if found else ():
                if found and other != article:
                    spelled = other[:1].upper() + other[1:] if found[0][:1].isupper() else other
                    yield before[: found.start()] + spelled + ("" if other.endswith("'") else " ")


def agreeing(translator: SentenceTranslator, text: str, translation: Translation, term: Term) -> Translation:
    """A translation whose article before a term has the term's gender, as far as the model knows it.

    The article itself does not count: the model chose it for the word that it would have written. What counts is how
    likely the term and the rest are after each article, without tags: with them the term is sure after any.
    """
    at = translation.text.find(term.target)
    tokenizer = translator.tokenizer
    if at <= 0 or term.exact:
        return translation
    before, after = translation.text[:at], translation.text[at:]
    if not re.search(r"[\w']\s*$", before):
        return translation
    others = list(dict.fromkeys(_other_articles(before, translator.target)))
    texts = [translation.text, *(other + after for other in others)]
    ids = [tokenizer.target.encode(text) for text in texts]
    scores = translator.score([tokenizer.encode(text)] * len(ids), ids)
    rest = len(tokenizer.target.encode(after))
    likely = [sum(each[-rest - 1 :]) for each in scores]
    best = max(range(len(ids)), key=likely.__getitem__)
    if best == 0 or likely[best] < likely[0] + MARGIN:
        return translation
    log_prob = sum(scores[best])
    score = translation.score * log_prob / translation.log_prob if translation.log_prob else log_prob
    return replace(
        translation, text=texts[best], tokens=tuple(tokenizer.tokens(ids[best])), log_prob=log_prob, score=score
    )
