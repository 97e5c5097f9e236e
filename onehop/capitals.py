"""Sentences in capitals, of which models meet few: in ordinary letters for the model, in capitals for the reader.

Neither way changes the number of characters, so that a place in one form is the same place in the other.
"""

import re
from collections.abc import Callable, Sequence

Span = tuple[int, int]

WORD = re.compile(r"[^\W\d_]+")
FEWEST_LETTERS = 4  # OK, USA: what is shorter is left to the model
MOST_SMALL = 0.1  # the share of small letters up to which a sentence counts as one in capitals
APOSTROPHES = ("'", "’")


def in_capitals(text: str, untouched: Sequence[Span] = ()) -> bool:
    """Whether a sentence is in capitals, all of it or nearly; `untouched` are places that do not count."""
    words = (m[0] for m in WORD.finditer(text) if not within(m, untouched))
    letters = [c for word in words for c in word if c.isupper() or c.islower()]
    return len(letters) >= FEWEST_LETTERS and sum(map(str.islower, letters)) <= MOST_SMALL * len(letters)


def ordinary(text: str, encode: Callable[[str], list[int]], untouched: Sequence[Span] = ()) -> str:
    """A sentence in ordinary letters; what is not in capitals in it stays as it is."""

    def changed(word: re.Match[str]) -> str:
        if within(word, untouched) or not word[0].isupper():
            return word[0]
        if word.string[max(0, word.start() - 1) : word.start()] in APOSTROPHES:  # what I'M ends in
            return small(word[0])
        return spelling(word[0], encode)

    plain = WORD.sub(changed, text)
    first = WORD.search(plain)
    if first is None or first[0] == text[first.start() : first.end()]:
        return plain
    return plain[: first.start()] + text[first.start()] + plain[first.start() + 1 :]


def spelling(word: str, encode: Callable[[str], list[int]]) -> str:
    """A word in capitals as the model has most likely met it: in the fewest pieces, so that Berlin and NATO stay names.

    Of as many pieces those with lower ids are more frequent: English has I for i, and it for IT.
    """
    plain = min((small(word), word), key=lambda w: (len(encode(w)), encode(w)))
    titled = word[0] + small(word[1:])
    return titled if len(encode(titled)) < len(encode(plain)) else plain


def capitals(text: str, source: str, untouched: Sequence[Span] = ()) -> str:
    """A translation in capitals, but for the words that the source, itself in capitals, has with small letters."""
    exempt = {word for word in WORD.findall(source) if not word.isupper()}
    return WORD.sub(lambda m: m[0] if m[0] in exempt or within(m, untouched) else capital(m[0]), text)


def within(word: re.Match[str], spans: Sequence[Span]) -> bool:
    """Whether a word lies in one of some places."""
    return any(begin <= word.start() < end for begin, end in spans)


def small(text: str) -> str:
    """In small letters, as many."""
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def capital(text: str) -> str:
    """In capitals, as many: ß becomes ẞ, as German's rules have it beside SS."""
    return "".join("ẞ" if c == "ß" else c.upper() if len(c.upper()) == 1 else c for c in text)
