"""Names of a source that its translation has changed: Alice must not become Elke.

A name is a word that both languages write alike in training text, so that Munich may become München. Where a capital is
a sign of a name, a word that stands alone with one is a name too, unless training text has it translated. A word that
begins a sentence is a name only if the model's vocabulary does not have it in small letters.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

from onehop.text.names import copied_names, has_article, standing_alone, translated_words

_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{3,}(?![\w-])")
# A name may become another word with the same beginning: Georgia georgisch, Francis Franziskus, Gaza Gazastreifen.
STEM = 4
# A name that stands alone may only be a part of a word (Gazastreifen) or have an ending (Londoner): Paul is not Paulus.
_ENDING = r"(?:s|er|ers|ern|isch\w*|\w{4,})?"
# After these a sentence, or a quoted one, begins.
_BEGINNING = re.compile(r"(?:^|[.!?:…–—]|[\"“”„«»'‘’(])\s*$")
# Words that are written with a capital in English and are no names: Tajiks, Nicaraguan, Catholicism.
_NO_NAME = re.compile(r"(?:ians?|eans?|[gk]ans?|ese|ish|ists?|ism|ites?|ics?|ois|ais|iens?|ienne|s)$")
# Only a person does this, so an unknown word before it is a name, even at the beginning of a sentence.
_PERSON = re.compile(
    r" (?:and (?:I|me|my)|said|says|told|tells|asked|asks|called|answered|replied|laughed|smiled|thinks|thought|knows"
    r"|knew|wants|wanted|loves|loved|likes|liked|lives|lived|works|worked|bought|sold|married|died|came|went|got|met"
    r"|wrote|writes|read|reads|spoke|speaks|sat|slept|ate|felt|remembered|forgot|promised|wondered|nodded|himself"
    r"|herself)\b"
)


def missing_names(
    source: str, translation: str, languages: tuple[str, str], encode: Callable[[str], list[int]]
) -> list[str]:
    known = copied_names(*languages)
    if not known:
        return []
    there = _plain(translation)
    names = dict(_names(source, known, languages, encode))
    return [name for name, is_alone in names.items() if not _is_kept(_plain(name), there, is_alone)]


def _is_kept(name: str, translation: str, is_alone: bool) -> bool:
    if is_alone:
        return re.search(rf"(?<!\w){re.escape(name)}{_ENDING}(?!\w)", translation) is not None
    return name[:STEM] in translation


def _plain(text: str) -> str:
    """A text in small letters without accents."""
    return "".join(c for c in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(c))


def _names(
    source: str, known: frozenset[str], languages: tuple[str, str], encode: Callable[[str], list[int]]
) -> Iterator[tuple[str, bool]]:
    """Each name of a source, and whether it stands alone."""
    alone, translated = dict(standing_alone(source, languages[0])), translated_words(*languages)
    for word in _WORD.finditer(source):
        name, is_alone = word[0], word.start() in alone
        if not name[0].isupper() or name in translated or has_article(source, word.start(), languages[0]):
            continue
        begins = _BEGINNING.search(source, 0, word.start())
        if name in known:
            if not begins or len(encode(name.lower())) > 1:
                yield name, is_alone or (bool(begins) and bool(translated) and not _capital_follows(source, word.end()))
        elif translated and not _NO_NAME.search(name) and len(encode(name.lower())) > 1:
            does = languages[0] == "en" and begins and _PERSON.match(source, word.end())
            if is_alone or (does and name[1:].islower()):
                yield name, True


def _capital_follows(source: str, end: int) -> bool:
    return source[end + 1 : end + 2].isupper()
