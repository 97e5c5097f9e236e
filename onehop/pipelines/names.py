"""Finds names of the source that a translation has changed: Alice must not become Elke.

A name is a word that both languages spell alike in training text, so Munich may become München. A lone capitalised
word is a name too, unless training text translates it. A word at the beginning of a sentence is a name only if the
model's vocabulary does not have it in lower case.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

from onehop.text.names import copied_names, follows_determiner, lone_capitalised_words, translated_words

_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{3,}(?![\w-])")
# A name may become another word with the same stem: Georgia georgisch, Francis Franziskus, Gaza Gazastreifen.
_STEM = 4
# A lone name may only be a part of a word (Gazastreifen) or have an ending (Londoner): Paul is not Paulus.
_ENDING = r"(?:s|er|ers|ern|isch\w*|\w{4,})?"
# What precedes the beginning of a sentence, possibly a quoted one.
_SENTENCE_START = re.compile(r"(?:^|[.!?:…–—]|[\"“”„«»'‘’(])\s*$")
# Endings of capitalised words of English and French that are not names: Tajiks, Nicaraguan, Catholicism.
_NOT_A_NAME = re.compile(r"(?:ians?|eans?|[gk]ans?|ese|ish|ists?|ism|ites?|ics?|ois|ais|iens?|ienne|s)$")
# Only a person does this, so an unknown word before it is a name, even at the beginning of a sentence.
_PERSONAL_VERB = re.compile(
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
    plain = _plain(translation)
    names = dict(_names(source, known, languages, encode))
    return [name for name, is_alone in names.items() if not _is_kept(_plain(name), plain, is_alone)]


def _is_kept(name: str, translation: str, is_alone: bool) -> bool:
    if is_alone:
        return re.search(rf"(?<!\w){re.escape(name)}{_ENDING}(?!\w)", translation) is not None
    return name[:_STEM] in translation


def _plain(text: str) -> str:
    """A text in lower case without accents."""
    return "".join(c for c in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(c))


def _names(
    source: str, known: frozenset[str], languages: tuple[str, str], encode: Callable[[str], list[int]]
) -> Iterator[tuple[str, bool]]:
    """Each name of a source, and whether no other capitalised word is beside it."""
    alone, translated = dict(lone_capitalised_words(source, languages[0])), translated_words(*languages)
    for word in _WORD.finditer(source):
        name, is_alone = word[0], word.start() in alone
        if not name[0].isupper() or name in translated or follows_determiner(source, word.start(), languages[0]):
            continue
        is_first = _SENTENCE_START.search(source, 0, word.start()) is not None
        if name in known:
            if not is_first or len(encode(name.lower())) > 1:
                next_is_capital = source[word.end() + 1 : word.end() + 2].isupper()
                yield name, is_alone or (is_first and bool(translated) and not next_is_capital)
        elif translated and not _NOT_A_NAME.search(name) and len(encode(name.lower())) > 1:
            is_person = languages[0] == "en" and is_first and _PERSONAL_VERB.match(source, word.end())
            if is_alone or (is_person and name[1:].islower()):
                yield name, True
