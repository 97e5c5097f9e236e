"""Normalises the case of sentences in capitals and headlines in Title Case, which models have rarely seen.

The number of characters never changes, so positions are the same in both forms.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from onehop.text.language_id import base_language

_Span = tuple[int, int]

_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*")  # an accent may be a separate combining character
_MIN_LETTERS = 4  # shorter words, such as OK and USA, are left to the model
_MAX_LOWER_SHARE = 0.1  # of the letters of a sentence in capitals
_CONTRACTION = re.compile(r"(?<=[^\W\d_]['’])(?:S|M|T|D|LL|RE|VE)\b")
_CAPITALISED_NOUNS = ("de", "lb")  # languages whose ordinary sentences look like titles
_MIN_TITLED, _MIN_TITLED_SHARE = 3, 0.8  # of the longer words of a title
_BEFORE_NAME = re.compile(r"(?:New|Saint|San|Los|Las|North|South|East|West) [A-Z]")  # New York
_DOTTED_I = ("tr", "az")  # languages in which I is the capital of ı, and İ that of i


def in_capitals(text: str, protected: Sequence[_Span] = ()) -> bool:
    """Whether a sentence is all or nearly all in capitals; words in the sorted spans `protected` do not count."""
    upper = sum(map(str.isupper, text))
    if upper < _MIN_LETTERS or (not protected and upper < sum(map(str.islower, text))):
        return False
    letters = [c for word in _words(text, protected) for c in word[0] if c.isupper() or _is_lower(c)]
    return len(letters) >= _MIN_LETTERS and sum(map(_is_lower, letters)) <= _MAX_LOWER_SHARE * len(letters)


def to_ordinary_case(text: str, spell: Callable[[str], str], protected: Sequence[_Span] = ()) -> str:
    """A sentence in capitals in ordinary case. `spell` spells its words; words with lowercase letters stay."""

    def change(word: re.Match[str]) -> str:
        if not _is_in_capitals(word[0]):
            return word[0]
        return lower(word[0]) if _CONTRACTION.match(text, word.start()) else spell(word[0])

    plain = _map_words(text, change, protected)
    first = _WORD.search(plain)
    if first is None or first[0] == text[first.start() : first.end()]:
        return plain
    return plain[: first.start()] + text[first.start()] + plain[first.start() + 1 :]


def in_title_case(text: str, language: str, protected: Sequence[_Span] = ()) -> bool:
    """Whether a text looks like a headline in Title Case: four words or more, no full stop, and capitals on most."""
    if text.rstrip().endswith(".") or base_language(language) in _CAPITALISED_NOUNS:
        return False
    words = [word[0] for word in _words(text, protected)]
    longer = [word for word in words if len(word) >= 4]
    titled = sum(map(_is_titled, longer))
    return len(words) >= 4 and titled >= max(_MIN_TITLED, _MIN_TITLED_SHARE * len(longer))


def to_sentence_case(text: str, encode: Callable[[str], list[int]], protected: Sequence[_Span] = ()) -> str:
    """A headline in sentence case: lower case except for the first word and possible names.

    A word of the vocabulary gets its more frequent spelling there. Any other word, such as NATO and iPhone, keeps its
    case.
    """
    first = _WORD.search(text)
    begin = first.start() if first else 0

    def change(word: re.Match[str]) -> str:
        initial = text.startswith(".", word.start() + 1)
        if word.start() == begin or initial or not _is_titled(word[0]) or _BEFORE_NAME.match(text, word.start()):
            return word[0]
        small, titled = encode(lower(word[0])), encode(word[0])
        is_known = len(small) < len(titled) or (len(small) == 1 and small < titled)
        return lower(word[0]) if is_known else word[0]

    return _map_words(text, change, protected)


def spelling(word: str, encode: Callable[[str], list[int]], language: str = "") -> str:
    """The likeliest spelling of a word in capitals: the one with the fewest tokens, so that Berlin and NATO stay names.

    Ties: the lower ids, which are more frequent. English has I for i, and it for IT.
    """
    small = lower(word, language)
    titled = word[0] + small[1:]
    ids = {form: encode(form) for form in (small, word, titled)}
    plain = min((small, word), key=lambda form: (len(ids[form]), ids[form]))
    return titled if len(ids[titled]) < len(ids[plain]) else plain


def to_capitals(text: str, source: str, protected: Sequence[_Span] = (), language: str = "") -> str:
    """A translation in capitals, except for words that have lowercase letters in the source too."""
    exempt = {word for word in _WORD.findall(source) if not _is_in_capitals(word)}
    return _map_words(text, lambda word: word[0] if word[0] in exempt else upper(word[0], language), protected)


def lower(text: str, language: str = "") -> str:
    """Lower case of the same length. İ, which would become two characters, stays in languages without ı."""
    if base_language(language) in _DOTTED_I:
        text = text.replace("I", "ı").replace("İ", "i")
    return "İ".join(part.lower() for part in text.split("İ"))


def upper(text: str, language: str = "") -> str:
    """Upper case of the same length: ß becomes ẞ, which German allows beside SS."""
    if base_language(language) in _DOTTED_I:
        text = text.replace("i", "İ")
    return "".join("ẞ" if c == "ß" else c.upper() if len(c.upper()) == 1 else c for c in text)


def _words(text: str, protected: Sequence[_Span]) -> Iterator[re.Match[str]]:
    """The words outside of the protected spans."""
    at = 0
    for begin, end in protected:
        yield from _WORD.finditer(text, at, begin)
        at = max(at, end)
    yield from _WORD.finditer(text, at)


def _map_words(text: str, change: Callable[[re.Match[str]], str], protected: Sequence[_Span]) -> str:
    """A text with each word outside of the protected spans changed."""
    parts, at = [], 0
    for word in _words(text, protected):
        parts += [text[at : word.start()], change(word)]
        at = word.end()
    return "".join([*parts, text[at:]])


def _is_titled(word: str) -> bool:
    return word[0].isupper() and all(map(_is_lower, word[1:]))


def _is_in_capitals(word: str) -> bool:
    """Whether a word has capitals, and no lowercase letters except those without a one-letter capital, such as ß."""
    return any(map(str.isupper, word)) and not any(map(_is_lower, word))


def _is_lower(letter: str) -> bool:
    """Whether a letter is lowercase and its capital is one letter."""
    return letter.islower() and len(letter.upper()) == 1 and letter.upper() != letter
