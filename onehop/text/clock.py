"""Clock times in digits and words of English, German and French."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from onehop.text.number_words import LANGUAGES, value_of

HALF_DAY = 12 * 60  # "9" may be in the morning or in the evening


class Clock(NamedTuple):
    """A time in a text, as minutes after noon or midnight.

    `plain`: its words are unambiguous. `afternoon` is None if the text does not say.
    """

    begin: int
    end: int
    minutes: int
    plain: bool
    afternoon: bool | None = None

    def same(self, other: "Clock") -> bool:
        """Whether two times may be the same."""
        apart = self.afternoon is not None and other.afternoon is not None and self.afternoon != other.afternoon
        return self.minutes == other.minutes and not apart


_N = r"(?:\d{1,2}|[^\W\d_]+(?:-[^\W\d_]+)?)"
_DIGITAL = re.compile(r"(?<![\d.,:])(\d{1,2})(?:[:.]|\s?[hH]\s?)([0-5]\d)(?![\d%]|[.,:]\d)")
_HALF = re.compile(r"\s?([ap])\.?\s?m\b", re.IGNORECASE)
_PATTERNS = {
    "en": (
        (rf"\bhalf past ({_N})", lambda h: (h, 30)),
        (rf"\b(?:a )?quarter (?:past|after) ({_N})", lambda h: (h, 15)),
        (rf"\b(?:a )?quarter (?:to|of|before) ({_N})", lambda h: (h, -15)),
        (rf"\b({_N})(?: minutes)? (?:past|after) ({_N})(?! (?:hundred|thousand|million))", lambda m, h: (h, m)),
        (rf"\b({_N})(?: minutes)? to ({_N})(?= ?[.,;!?]| o'clock|$| in the| when| and| on)", lambda m, h: (h, -m)),
        (rf"\b({_N}) o['’]clock", lambda h: (h, 0)),
        (r"\b(\d{1,2}) ?[ap]\.?m\b", lambda h: (h, 0)),
    ),
    "de": (
        (rf"\bfünf vor halb ({_N})", lambda h: (h, -35)),
        (rf"\bfünf nach halb ({_N})", lambda h: (h, -25)),
        (rf"(?<!vor )(?<!nach )\bhalb ({_N})", lambda h: (h, -30)),
        (rf"\bViertel nach ({_N})", lambda h: (h, 15)),
        (rf"\bViertel vor ({_N})", lambda h: (h, -15)),
        (rf"\bdreiviertel ({_N})", lambda h: (h, -15)),
        (rf"\bviertel (?!nach|vor)({_N})", lambda h: (h, -45)),
        (rf"\b({_N})(?: Minuten)? nach ({_N})", lambda m, h: (h, m)),
        (rf"\b({_N})(?: Minuten)? vor ({_N})", lambda m, h: (h, -m)),
        (rf"\b({_N}) Uhr (?:und )?({_N})", lambda h, m: (h, m)),
        (rf"\b({_N}) Uhr", lambda h: (h, 0)),
    ),
    "fr": (
        (rf"\b({_N}) heures? et demie?", lambda h: (h, 30)),
        (rf"\b({_N}) heures? et quart", lambda h: (h, 15)),
        (rf"\b({_N}) heures? moins (?:le |un )?quart", lambda h: (h, -15)),
        (rf"\b({_N}) heures? moins ({_N})", lambda h, m: (h, -m)),
        (rf"\b({_N}) heures? ({_N})", lambda h, m: (h, m)),
        (rf"\b({_N}) heures?", lambda h: (h, 0)),
        (r"\b(\d{1,2}) ?h\b", lambda h: (h, 0)),
        (r"\b(midi|minuit)(?: et demie?)?", lambda h: (h, 0)),
    ),
}
_COMPILED = {
    language: [(re.compile(pattern, re.IGNORECASE), time) for pattern, time in patterns]
    for language, patterns in _PATTERNS.items()
}
# "three to five" may be a range; these minutes are rarely part of one.
_SAID_MINUTES = (5, 10, 20, 25)


def clocks(text: str, language: str) -> Iterator[Clock]:
    """The times of a text. If several patterns match, each gives one, since any reading may be the same time."""
    for found in _DIGITAL.finditer(text):
        if int(found[1]) < 25:
            hour, minute = int(found[1]), int(found[2])
            half = _HALF.match(text, found.end())
            afternoon = True if hour > 12 else half[1].lower() == "p" if half else None
            yield Clock(*found.span(), (hour * 60 + minute) % HALF_DAY, ":" in found[0], afternoon)
    for pattern, time in _COMPILED.get(language, ()):
        for found in pattern.finditer(text):
            numbers = [n for group in found.groups() if (n := _number(group, language)) is not None]
            if len(numbers) < pattern.groups:
                continue
            hour, minute = time(*numbers)
            if 0 <= hour <= 24 and -60 < minute < 60:
                plain = minute != 0 and (len(numbers) == 1 or abs(minute) in _SAID_MINUTES)
                yield Clock(*found.span(), (hour * 60 + minute) % HALF_DAY, plain)


def _number(word: str, language: str) -> int | None:
    if word.isdigit():
        return int(word)
    return value_of(word, language) if language in LANGUAGES else None
