"""Normalises the case of sentences in capitals and headlines in Title Case, which models have rarely seen.

The number of characters never changes, so positions are the same in both forms.
"""

import re
from collections.abc import Callable, Iterator, Sequence

Span = tuple[int, int]

WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*")  # an accent may be a separate combining character
_FEWEST_LETTERS = 4  # shorter words, such as OK and USA, are left to the model
_MOST_SMALL = 0.1  # maximum share of lowercase letters of a sentence in capitals
_CONTRACTION = re.compile(r"(?<=[^\W\d_]['’])(?:S|M|T|D|LL|RE|VE)\b")
_NOUNS_IN_CAPITALS = ("de", "lb")  # languages whose ordinary sentences look like titles
_FEWEST_TITLED, _LEAST_TITLED = 3, 0.8  # a title has this many longer words in capitals, and at least this share
_BEFORE_NAME = re.compile(r"(?:New|Saint|San|Los|Las|North|South|East|West) [A-Z]")  # New York
_DOTTED = ("tr", "az")  # languages in which I is the capital of ı, and İ that of i


def in_capitals(text: str, untouched: Sequence[Span] = ()) -> bool:
    """Whether a sentence is all or nearly all in capitals; `untouched` are sorted spans that do not count."""
    upper = sum(map(str.isupper, text))
    if upper < _FEWEST_LETTERS or (not untouched and upper < sum(map(str.islower, text))):
        return False
    letters = [c for word in words(text, untouched) for c in word[0] if c.isupper() or _is_small(c)]
    return len(letters) >= _FEWEST_LETTERS and sum(map(_is_small, letters)) <= _MOST_SMALL * len(letters)


def ordinary(text: str, spell: Callable[[str], str], untouched: Sequence[Span] = ()) -> str:
    """A sentence in ordinary case, each word spelled by `spell`. Words that are not in capitals stay."""

    def change(word: re.Match[str]) -> str:
        if not _is_in_capitals(word[0]):
            return word[0]
        return small(word[0]) if _CONTRACTION.match(text, word.start()) else spell(word[0])

    plain = changed(text, change, untouched)
    first = WORD.search(plain)
    if first is None or first[0] == text[first.start() : first.end()]:
        return plain
    return plain[: first.start()] + text[first.start()] + plain[first.start() + 1 :]


def in_title_case(text: str, language: str, untouched: Sequence[Span] = ()) -> bool:
    """Whether a text looks like a headline in Title Case: four words or more, no full stop, and capitals on most."""
    if text.rstrip().endswith(".") or re.split("[-_]", language.lower())[0] in _NOUNS_IN_CAPITALS:
        return False
    found = [word[0] for word in words(text, untouched)]
    longer = [word for word in found if len(word) >= 4]
    titled = sum(map(_is_titled, longer))
    return len(found) >= 4 and titled >= max(_FEWEST_TITLED, _LEAST_TITLED * len(longer))


def in_sentence_case(text: str, encode: Callable[[str], list[int]], untouched: Sequence[Span] = ()) -> str:
    """A headline in sentence case: lower case except for the first word and possible names.

    A word of the vocabulary gets its more frequent spelling there. Any other word, such as NATO and iPhone, keeps its
    case.
    """
    first = WORD.search(text)
    begin = first.start() if first else 0

    def change(word: re.Match[str]) -> str:
        initial = text.startswith(".", word.start() + 1)
        if word.start() == begin or initial or not _is_titled(word[0]) or _BEFORE_NAME.match(text, word.start()):
            return word[0]
        lower, titled = encode(small(word[0])), encode(word[0])
        known = len(lower) < len(titled) or (len(lower) == 1 and lower < titled)
        return small(word[0]) if known else word[0]

    return changed(text, change, untouched)


def _is_titled(word: str) -> bool:
    return word[0].isupper() and all(map(_is_small, word[1:]))


def spelling(word: str, encode: Callable[[str], list[int]], language: str = "") -> str:
    """The likeliest spelling of a word in capitals: the one with the fewest tokens, so that Berlin and NATO stay names.

    Ties: the lower ids, which are more frequent. English has I for i, and it for IT.
    """
    lower = small(word, language)
    titled = word[0] + lower[1:]
    ids = {form: encode(form) for form in (lower, word, titled)}
    plain = min((lower, word), key=lambda form: (len(ids[form]), ids[form]))
    return titled if len(ids[titled]) < len(ids[plain]) else plain


def capitals(text: str, source: str, untouched: Sequence[Span] = (), language: str = "") -> str:
    """A translation in capitals, except for words that have small letters in the source too."""
    exempt = {word for word in WORD.findall(source) if not _is_in_capitals(word)}
    return changed(text, lambda word: word[0] if word[0] in exempt else capital(word[0], language), untouched)


def words(text: str, untouched: Sequence[Span]) -> Iterator[re.Match[str]]:
    """The words outside of some sorted spans."""
    at = 0
    for begin, end in untouched:
        yield from WORD.finditer(text, at, begin)
        at = max(at, end)
    yield from WORD.finditer(text, at)


def changed(text: str, change: Callable[[re.Match[str]], str], untouched: Sequence[Span]) -> str:
    """A text with each word outside of some spans changed."""
    parts, at = [], 0
    for word in words(text, untouched):
        parts += [text[at : word.start()], change(word)]
        at = word.end()
    return "".join([*parts, text[at:]])


def _is_in_capitals(word: str) -> bool:
    """Whether a word has capitals, and no small letters except those without a one-letter capital, such as ß."""
    return any(map(str.isupper, word)) and not any(map(_is_small, word))


def _is_small(letter: str) -> bool:
    """Whether a letter is small and has one capital."""
    return letter.islower() and len(letter.upper()) == 1 and letter.upper() != letter


def small(text: str, language: str = "") -> str:
    """Lower case of the same length. İ, which would become two characters, stays in languages without ı."""
    if _is_dotted(language):
        text = text.replace("I", "ı").replace("İ", "i")
    return "İ".join(part.lower() for part in text.split("İ"))


def capital(text: str, language: str = "") -> str:
    """Upper case of the same length: ß becomes ẞ, which German allows beside SS."""
    if _is_dotted(language):
        text = text.replace("i", "İ")
    return "".join("ẞ" if c == "ß" else c.upper() if len(c.upper()) == 1 else c for c in text)


def _is_dotted(language: str) -> bool:
    """Whether a language has dotted and dotless i."""
    return re.split("[-_]", language.lower())[0] in _DOTTED
