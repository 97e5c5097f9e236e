"""Names that two languages write alike, and capitalised words that they do not: lists of recipes/copied_names.py."""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

# Of languages that write nouns in small letters: words before a noun, after which a capital is no sign of a name.
_BEFORE_NOUNS = {
    "en": (
        "the a an this that these those my your his her its our their no any some every each all both which what such"
        " another one two three"
    ),
    "fr": (
        "le la les un une des du au aux ce cet cette ces mon ton son ma ta sa mes tes ses notre votre leur nos vos"
        " leurs aucun aucune chaque quel quelle quelque"
    ),
}
_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{3,}(?![\w-]|['’](?!s\b))")
_WORD_BEFORE = re.compile(r"([^\W\d_]+),? $")
_LONGEST_BEFORE = 40  # characters that are looked at before a word


@lru_cache
def copied_names(one: str, two: str) -> frozenset[str]:
    """The names of a pair of languages, in either direction; none where there is no list."""
    return _words(f"{one}-{two}.txt") or _words(f"{two}-{one}.txt")


@lru_cache
def translated_words(source: str, target: str) -> frozenset[str]:
    """Words of the source language that stand alone with a capital and are translated: Germany, Monday, Congress."""
    return _words(f"{source}-{target}.translated.txt")


def _words(name: str) -> frozenset[str]:
    file = files(__name__) / name
    return frozenset(file.read_text(encoding="utf-8").split() if file.is_file() else ())


def standing_alone(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Where words with a capital stand inside of a sentence, without an article and another capital beside them.

    Such a word is mostly a name. There are none in a language that writes every noun with a capital.
    """
    articles = _BEFORE_NOUNS.get(language, "").split()
    for m in _WORD.finditer(text) if articles else ():
        if not (m[0][0].isupper() and m[0][1:].islower()) or text[m.end() + 1 : m.end() + 2].isupper():
            continue
        before = _word_before(text, m.start())
        if before.islower() and before not in articles:
            yield m.start(), m[0]


def has_article(text: str, at: int, language: str) -> bool:
    """Whether the word at a place of a text has an article or the like before it."""
    return _word_before(text, at).lower() in _BEFORE_NOUNS.get(language, "").split()


def _word_before(text: str, at: int) -> str:
    found = _WORD_BEFORE.search(text, max(0, at - _LONGEST_BEFORE), at)
    return found[1] if found else ""
