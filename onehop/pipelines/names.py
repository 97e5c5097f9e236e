"""Names of a source that its translation has changed: Alice must not become Elke.

Only names count that both languages write alike in training text, so that Munich may become München. A word that
begins a sentence is a name only if the model's vocabulary does not have it in small letters.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

from onehop.text.names import copied_names

_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{3,}(?![\w-])")
# A name may become another word with the same beginning: Georgia georgisch, Francis Franziskus, Gaza Gazastreifen.
STEM = 4
# After these a sentence, or a quoted one, begins.
_BEGINNING = re.compile(r"(?:^|[.!?:…–—]|[\"“”„«»'‘’(])\s*$")


def missing_names(
    source: str, translation: str, languages: tuple[str, str], encode: Callable[[str], list[int]]
) -> list[str]:
    """The names of a source that are not in its translation."""
    known = copied_names(*languages)
    if not known:
        return []
    there, names = _plain(translation), dict.fromkeys(_names(source, known, encode))
    return [name for name in names if _plain(name)[:STEM] not in there]


def _plain(text: str) -> str:
    """A text in small letters without accents."""
    return "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))


def _names(source: str, known: frozenset[str], encode: Callable[[str], list[int]]) -> Iterator[str]:
    for word in _WORD.finditer(source):
        name = word[0]
        if name not in known:
            continue
        begins = _BEGINNING.search(source, 0, word.start())
        if not begins or len(encode(name.lower())) > 1:
            yield name
