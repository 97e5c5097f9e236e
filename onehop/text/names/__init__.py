"""Lists of names that two languages spell alike, and of capitalised words that they translate.

`recipes/copied_names.py` made the lists from parallel text.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

# Determiners of languages with lowercase nouns. A capitalised word after one is often no name: "the President".
_DETERMINERS = {
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
_MAX_LOOKBEHIND = 40  # characters


@lru_cache
def copied_names(one: str, two: str) -> frozenset[str]:
    """The names of a language pair in either direction; empty without a list."""
    return _words(f"{one}-{two}.txt") or _words(f"{two}-{one}.txt")


@lru_cache
def translated_words(source: str, target: str) -> frozenset[str]:
    """Capitalised words of the source language that are translated: Germany, Monday, Congress."""
    return _words(f"{source}-{target}.translated.txt")


def _words(name: str) -> frozenset[str]:
    file = files(__name__) / name
    return frozenset(file.read_text(encoding="utf-8").split() if file.is_file() else ())


def lone_capitalised_words(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Position and text of capitalised words inside a sentence, after a lowercase word that is no determiner.

    Most of them are names. Another capitalised word must not follow. A language that capitalises nouns yields none.
    """
    determiners = _DETERMINERS.get(language, "").split()
    for m in _WORD.finditer(text) if determiners else ():
        if not (m[0][0].isupper() and m[0][1:].islower()) or text[m.end() + 1 : m.end() + 2].isupper():
            continue
        before = _word_before(text, m.start())
        if before.islower() and before not in determiners:
            yield m.start(), m[0]


def follows_determiner(text: str, at: int, language: str) -> bool:
    return _word_before(text, at).lower() in _DETERMINERS.get(language, "").split()


def _word_before(text: str, at: int) -> str:
    match = _WORD_BEFORE.search(text, max(0, at - _MAX_LOOKBEHIND), at)
    return match[1] if match else ""
