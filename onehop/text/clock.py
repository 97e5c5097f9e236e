"""Clock times in digits and words of English, German and French."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from onehop.text.number_words import value_of

HALF_DAY = 12 * 60  # "9" may be in the morning or in the evening


class Clock(NamedTuple):
    """A time in a text, as minutes after noon or midnight.

    `is_certain`: its words can only mean a time. `afternoon` is None if the text does not say.
    """

    begin: int
    end: int
    minutes: int
    is_certain: bool
    afternoon: bool | None = None

    def may_equal(self, other: "Clock") -> bool:
        unknown = self.afternoon is None or other.afternoon is None
        return self.minutes == other.minutes and (unknown or self.afternoon == other.afternoon)


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
_CLOCK_MINUTES = (5, 10, 20, 25)


def clock_times(text: str, language: str) -> Iterator[Clock]:
    """The times of a text. If several patterns match, each gives one, since any reading may be the same time."""
    for match in _DIGITAL.finditer(text):
        hour, minute = int(match[1]), int(match[2])
        if hour < 25:
            half = _HALF.match(text, match.end())
            afternoon = True if hour > 12 else half[1].lower() == "p" if half else None
            yield Clock(*match.span(), (hour * 60 + minute) % HALF_DAY, ":" in match[0], afternoon)
    for pattern, time in _COMPILED.get(language, ()):
        for match in pattern.finditer(text):
            values = [int(group) if group.isdigit() else value_of(group, language) for group in match.groups()]
            if None in values:
                continue
            hour, minute = time(*values)
            if 0 <= hour <= 24 and -60 < minute < 60:
                is_certain = minute != 0 and (len(values) == 1 or abs(minute) in _CLOCK_MINUTES)
                yield Clock(*match.span(), (hour * 60 + minute) % HALF_DAY, is_certain)
