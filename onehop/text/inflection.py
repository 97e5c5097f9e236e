"""Recognises inflected forms of a term in German, French or English.

There is no dictionary: a word may gain or change a common ending, and its vowel may have an umlaut.
"""

import re

_UMLAUTS = str.maketrans("äöüÄÖÜ", "aouAOU")
_NOUN = "e|en|er|ern|es|n|s|ns|nen|se|sen|x"
_ADJECTIVE = "e|en|er|em|es|s|x"
_VERB = "e|en|est|et|n|st|t|te|ten|test|tet"
_MIN_STEM = 4  # shorter stems with an ending match too many words


def without_umlauts(text: str) -> str:
    return text.translate(_UMLAUTS)


def inflected_pattern(term: str) -> str:
    """A pattern for the forms of a term in a text without umlauts. Its first letter keeps its case, or is a capital."""
    *before, last = without_umlauts(term).split()
    words = [*((word, _ADJECTIVE) for word in before), (last, _endings(last))]
    first, *rest = [_forms(*word) for word in words]
    capital = term[:1].upper() if len(term[:1].upper()) == 1 else term[:1]
    titled = _forms(without_umlauts(capital) + words[0][0][1:], words[0][1])
    return r"\s+".join([f"(?:{first}|{titled})", *rest])


def _endings(word: str) -> str:
    if not word[:1].islower():
        return _NOUN
    return _VERB if word.endswith("en") else _ADJECTIVE


def _forms(word: str, endings: str) -> str:
    # A noun loses an e at most, since -er and -en belong to its stem more often than not.
    ending = {_NOUN: "e", _ADJECTIVE: "e|en|er|em|es", _VERB: "en"}[endings]
    stem = re.sub(f"(?:{ending})$", "", word)
    if len(stem) < _MIN_STEM or not stem.isalpha():
        return re.escape(word)
    plural = f"|{stem[:-1]}ux" if stem.endswith("al") else ""  # journal, journaux
    return f"(?:{stem}(?:{endings})?|{word}{plural})"
