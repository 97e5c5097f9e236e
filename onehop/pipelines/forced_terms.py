"""Forces terms that a translation lacks, by a second search that must contain the term.

The prefix before the term is the model's own, and so is everything after it. So every result is a translation that
the model has scored.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onehop.decoding.options import SearchOptions
from onehop.pipelines.glossary import Term
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.tokenizer import WORD_MARK, normalise

_MAX_POSITIONS = 4  # word positions of a translation that are tried for a term
# A term may have another gender than the word that it replaces. Words of one group differ in gender only.
_LIKE_EIN = "ein kein mein dein sein ihr Ihr unser"
_LIKE_DIESER = "dies jed jen welch"
_ARTICLES = {
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
# Minimum gain in log-probability for another article before a term.
_MIN_GAIN = 3.0


def force_missing_terms(
    translator: SentenceTranslator,
    text: str,
    source: Sequence[int],
    translation: Translation,
    terms: Sequence[Term],
    options: SearchOptions,
) -> Translation:
    """A translation with as many of the terms as possible; `translation` lacks at least one.

    `source` are the ids of the text, possibly with tags.
    """
    best = translation
    for term in [term for term in terms if not term.met(translation.text)]:
        if term.met(best.text):
            continue
        prefixes = dict(_prefixes(translator, text, best, term))
        candidates = [
            (_count_met(t, terms), -_count_repeated(t, text, terms), t.score + log_weight, t)
            for t, log_weight in zip(
                translator.complete(source, list(prefixes), options), prefixes.values(), strict=True
            )
            if t.finished and not t.looped and len(t.tokens) <= 1.5 * len(translation.tokens) + 8
        ]
        met, *_, candidate = max(candidates, key=lambda ranked: ranked[:3], default=(0, 0, 0.0, best))
        if met > _count_met(best, terms):
            best = candidate
    return best


def _count_met(translation: Translation, terms: Sequence[Term]) -> int:
    return sum(term.met(translation.text) for term in terms)


def _count_repeated(translation: Translation, text: str, terms: Sequence[Term]) -> int:
    """How many terms a translation has in excess of the source."""
    counts = [(t.count(translation.text), Term(t.source, t.source).count(text)) for t in terms]
    return sum(max(0, in_target - max(1, in_source)) for in_target, in_source in counts)


def _prefixes(
    translator: SentenceTranslator, text: str, translation: Translation, term: Term
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Prefixes of a translation that end with the term, and the log-weight of its position."""
    tokenizer = translator.tokenizer
    ids = tokenizer.ids(translation.tokens)
    starts = [i for i, token in enumerate(translation.tokens) if token.startswith(WORD_MARK)] or [0]
    for start, log_weight in _ranked_positions(translator, text, ids, starts, term)[:_MAX_POSITIONS]:
        before = tokenizer.decode(ids[:start])
        target = term.target if start or term.exact else term.target[:1].upper() + term.target[1:]
        # The ids before the term stay as the model wrote them: encoding their text again may give others.
        yield (*ids[:start], *tokenizer.target.encode(target)), log_weight
        for prefix in _with_other_articles(before, translator.target):
            yield tuple(tokenizer.target.encode(prefix + target)), log_weight


def _ranked_positions(
    translator: SentenceTranslator, text: str, ids: list[int], starts: Sequence[int], term: Term
) -> list[tuple[int, float]]:
    """Word starts, sorted by their attention to the term's source words, with the logarithm of their share."""
    from onehop.pipelines.alignment import align  # imports NumPy, which most translations do not need

    source = translator.tokenizer.encode(text)
    at = normalise(text).casefold().find(term.source.casefold())
    spans = translator.tokenizer.spans(source)
    columns = [i for i, (begin, end) in enumerate(spans) if begin < at + len(term.source) and end > at >= 0]
    if not columns or not ids:
        return [(start, 0.0) for start in starts]
    attention = align(translator, [source], [ids])[0][:, columns].sum(axis=1)
    ends = [*starts[1:], len(ids)]
    strongest = [float(attention[begin:end].max()) + 1e-6 for begin, end in zip(starts, ends, strict=True)]
    log_shares = [math.log(weight / sum(strongest)) for weight in strongest]
    return sorted(zip(starts, log_shares, strict=True), key=lambda position: -position[1])


def _with_other_articles(prefix: str, language: str) -> Iterator[str]:
    """A prefix that ends in an article, with each article of another gender instead, up to the next word."""
    for articles in _ARTICLES.get(language, ()):
        for article in articles:
            match = re.search(rf"(?<!\w){re.escape(article)}$", prefix.rstrip(), re.IGNORECASE)
            for other in articles:
                if match and other != article:
                    spelled = other[:1].upper() + other[1:] if match[0][:1].isupper() else other
                    yield prefix[: match.start()] + spelled + ("" if other.endswith("'") else " ")


def fix_article(translator: SentenceTranslator, text: str, translation: Translation, term: Term) -> Translation:
    """A translation whose article before a term has the gender that the model gives the term.

    The score of the article itself does not count: the model chose it for another word. What counts is the
    log-probability of the term and the rest after each article. Tags are left out, as they make the term certain.
    """
    at = translation.text.find(term.target)
    tokenizer = translator.tokenizer
    if at <= 0 or term.exact:
        return translation
    before, after = translation.text[:at], translation.text[at:]
    if not re.search(r"[\w']\s*$", before):
        return translation
    prefixes = dict.fromkeys(_with_other_articles(before, translator.target))
    texts = [translation.text, *(prefix + after for prefix in prefixes)]
    ids = [tokenizer.target.encode(candidate) for candidate in texts]
    scores = translator.score([tokenizer.encode(text)] * len(ids), ids)
    rest = len(tokenizer.target.encode(after)) + 1  # with EOS
    log_probs = [sum(token_scores[-rest:]) for token_scores in scores]
    best = max(range(len(ids)), key=log_probs.__getitem__)
    if best == 0 or log_probs[best] < log_probs[0] + _MIN_GAIN:
        return translation
    log_prob = sum(scores[best])
    score = translation.score * log_prob / translation.log_prob if translation.log_prob else log_prob
    return replace(
        translation, text=texts[best], tokens=tuple(tokenizer.tokens(ids[best])), log_prob=log_prob, score=score
    )
