"""Finds names of the source that a translation has changed: Alice must not become Elke.

A name is a word that both languages spell alike in training text, so Munich may become München. A lone capitalised
word is a name too, unless training text translates it. A word at the beginning of a sentence is a name only if the
model's vocabulary does not have it in lower case. `recipes/copied_names.py` made the lists from parallel text.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files

# Determiners of languages with lowercase nouns. A capitalised word after one is often no name: "the President".
_DETERMINERS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the a an this that these those my your his her its our their no any some every each all both which what"
        " such another one two three",
        "fr": "le la les un une des du au aux ce cet cette ces mon ton son ma ta sa mes tes ses notre votre leur nos"
        " vos leurs aucun aucune chaque quel quelle quelque",
    }.items()
}
# (?![a-z]) passes over most words that do not begin with a capital, without a match to look at.
_WORD = re.compile(r"(?<![\w'’-])(?![a-z])[^\W\d_]{3,}(?![\w-]|['’](?!s\b))")
_WORD_BEFORE = re.compile(r"([^\W\d_]+),? $")
_MAX_LOOKBEHIND = 40  # characters
_POSSIBLE_NAME = re.compile(r"(?<![\w'’-])(?![a-z])[^\W\d_]{3,}(?![\w-])")
_WHOLE_WORD, _NOT_ASCII = re.compile(r"\w+"), re.compile(r"[^\x00-\x7f]")
# A name may become another word with the same stem: Georgia georgisch, Francis Franziskus, Gaza Gazastreifen.
_STEM = 4
# A lone name may only be a part of a word (Gazastreifen) or have an ending (Londoner): Paul is not Paulus.
_ENDING = re.compile(r"(?:s|er|ers|ern|isch\w*|\w{4,})?")
_BEFORE_SENTENCE = ".!?:…–—\"“”„«»'‘’("  # a sentence may be quoted
# Endings of capitalised words of English and French that are not names: Tajiks, Nicaraguan, Catholicism.
_NOT_A_NAME = re.compile(r"(?:ians?|eans?|[gk]ans?|ese|ish|ists?|ism|ites?|ics?|ois|ais|iens?|ienne|s)$")
# Only a person does this, so an unknown word before it is a name, even at the beginning of a sentence.
_PERSONAL_VERB = re.compile(
    r" (?:and (?:I|me|my)|said|says|told|tells|asked|asks|called|answered|replied|laughed|smiled|thinks|thought|knows"
    r"|knew|wants|wanted|loves|loved|likes|liked|lives|lived|works|worked|bought|sold|married|died|came|went|got|met"
    r"|wrote|writes|read|reads|spoke|speaks|sat|slept|ate|felt|remembered|forgot|promised|wondered|nodded|himself"
    r"|herself)\b"
)


def copied_names(one: str, two: str) -> frozenset[str]:
    """The names of a language pair in either direction; empty without a list."""
    return _words(f"{one}-{two}.txt") or _words(f"{two}-{one}.txt")


@lru_cache
def _words(name: str) -> frozenset[str]:
    file = files(__name__) / name
    return frozenset(file.read_text(encoding="utf-8").split() if file.is_file() else ())


def lone_capitalised_words(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Position and text of capitalised words inside a sentence, after a lowercase word that is no determiner.

    Most of them are names. Another capitalised word must not follow. A language that capitalises nouns yields none.
    """
    determiners = _DETERMINERS.get(language, frozenset())
    for m in _WORD.finditer(text) if determiners else ():
        if not (m[0][0].isupper() and m[0][1:].islower()) or text[m.end() + 1 : m.end() + 2].isupper():
            continue
        before = _word_before(text, m.start())
        if before.islower() and before not in determiners:
            yield m.start(), m[0]


def _word_before(text: str, at: int) -> str:
    match = _WORD_BEFORE.search(text, max(0, at - _MAX_LOOKBEHIND, text.rfind(" ", 0, max(0, at - 1))), at)
    return match[1] if match else ""


def missing_names(
    source: str, translation: str, languages: tuple[str, str], encode: Callable[[str], list[int]]
) -> list[str]:
    known = copied_names(*languages)
    if not known:
        return []
    names = dict(_names(source, known, languages, encode))
    plain = _plain(translation) if names else ""
    return [name for name, is_alone in names.items() if not _is_kept(_plain(name), plain, is_alone)]


def _is_kept(name: str, translation: str, is_alone: bool) -> bool:
    if is_alone:
        words = _WHOLE_WORD.findall(translation)  # a pattern for each name would have to be compiled
        return any(word.startswith(name) and _ENDING.fullmatch(word, len(name)) for word in words)
    return name[:_STEM] in translation


def _plain(text: str) -> str:
    """A text in lower case without accents."""
    decomposed = unicodedata.normalize("NFD", text.casefold())
    return _NOT_ASCII.sub(lambda c: "" if unicodedata.combining(c[0]) else c[0], decomposed)


def _names(
    source: str, known: frozenset[str], languages: tuple[str, str], encode: Callable[[str], list[int]]
) -> Iterator[tuple[str, bool]]:
    """Each name of a source, and whether no other capitalised word is beside it."""
    alone = dict(lone_capitalised_words(source, languages[0]))
    translated = _words(f"{'-'.join(languages)}.translated.txt")  # Germany, Monday, Congress
    determiners = _DETERMINERS.get(languages[0], frozenset())
    for word in _POSSIBLE_NAME.finditer(source):
        name, is_alone = word[0], word.start() in alone
        if not name[0].isupper() or name in translated or _word_before(source, word.start()).lower() in determiners:
            continue
        before = source[: word.start()].rstrip()
        is_first = not before or before[-1] in _BEFORE_SENTENCE
        if name in known:
            if not is_first or len(encode(name.lower())) > 1:
                next_is_capital = source[word.end() + 1 : word.end() + 2].isupper()
                yield name, is_alone or (is_first and bool(translated) and not next_is_capital)
        elif translated and not _NOT_A_NAME.search(name) and len(encode(name.lower())) > 1:
            is_person = languages[0] == "en" and is_first and _PERSONAL_VERB.match(source, word.end())
            if is_alone or (is_person and name[1:].islower()):
                yield name, True
