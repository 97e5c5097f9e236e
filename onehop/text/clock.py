"""Clock times in digits and words of English, German and French."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from onehop.text.number_words import value_of

_HALF_DAY = 12 * 60  # "9" may be in the morning or in the evening


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


_N = r"(?:\d{1,2}|[^\W\d_]++(?:-[^\W\d_]++)?)"
_NO_SCALE, _AFTER_HOUR = r"(?! (?:hundred|thousand|million))", r"(?= ?[.,;!?]| o'clock|$| in the| when| and| on)"
_DIGITAL = re.compile(r"(?<![\d.,:])(\d{1,2})(?:[:.]|\s?[hH]\s?)([0-5]\d)(?![\d%]|[.,:]\d)")
_HALF = re.compile(r"\s?([ap])\.?\s?m\b", re.IGNORECASE)
# Words, a pattern that needs one of them, and what the pattern's numbers mean.
_PATTERNS = {
    "en": (
        ("half", rf"\bhalf past ({_N})", lambda h: (h, 30)),
        ("quarter", rf"\b(?:a )?quarter (?:past|after) ({_N})", lambda h: (h, 15)),
        ("quarter", rf"\b(?:a )?quarter (?:to|of|before) ({_N})", lambda h: (h, -15)),
        ("past|after", rf"\b({_N})(?: minutes)? (?:past|after) ({_N}){_NO_SCALE}", lambda m, h: (h, m)),
        (" to ", rf"\b({_N})(?: minutes)? to ({_N}){_AFTER_HOUR}", lambda m, h: (h, -m)),
        ("clock", rf"\b({_N}) o['’]clock", lambda h: (h, 0)),
        ("m", r"\b(\d{1,2}) ?[ap]\.?m\b", lambda h: (h, 0)),
    ),
    "de": (
        ("halb", rf"\bfünf vor halb ({_N})", lambda h: (h, -35)),
        ("halb", rf"\bfünf nach halb ({_N})", lambda h: (h, -25)),
        ("halb", rf"(?<!vor )(?<!nach )\bhalb ({_N})", lambda h: (h, -30)),
        ("viertel", rf"\bViertel nach ({_N})", lambda h: (h, 15)),
        ("viertel", rf"\bViertel vor ({_N})", lambda h: (h, -15)),
        ("viertel", rf"\bdreiviertel ({_N})", lambda h: (h, -15)),
        ("viertel", rf"\bviertel (?!nach|vor)({_N})", lambda h: (h, -45)),
        ("nach", rf"\b({_N})(?: Minuten)? nach ({_N})", lambda m, h: (h, m)),
        ("vor", rf"\b({_N})(?: Minuten)? vor ({_N})", lambda m, h: (h, -m)),
        ("uhr", rf"\b({_N}) Uhr (?:und )?({_N})", lambda h, m: (h, m)),
        ("uhr", rf"\b({_N}) Uhr", lambda h: (h, 0)),
    ),
    "fr": (
        ("heure", rf"\b({_N}) heures? et demie?", lambda h: (h, 30)),
        ("heure", rf"\b({_N}) heures? et quart", lambda h: (h, 15)),
        ("heure", rf"\b({_N}) heures? moins (?:le |un )?quart", lambda h: (h, -15)),
        ("heure", rf"\b({_N}) heures? moins ({_N})", lambda h, m: (h, -m)),
        ("heure", rf"\b({_N}) heures? ({_N})", lambda h, m: (h, m)),
        ("heure", rf"\b({_N}) heures?", lambda h: (h, 0)),
        ("h", r"\b(\d{1,2}) ?h\b", lambda h: (h, 0)),
        ("mi", r"\b(midi|minuit)(?: et demie?)?", lambda h: (h, 0)),
    ),
}
_COMPILED = {
    language: [(words.split("|"), re.compile(pattern, re.IGNORECASE), time) for words, pattern, time in patterns]
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
            yield Clock(*match.span(), (hour * 60 + minute) % _HALF_DAY, ":" in match[0], afternoon)
    folded = text.casefold()
    for words, pattern, time in _COMPILED.get(language, ()):
        for match in pattern.finditer(text) if any(word in folded for word in words) else ():
            values = [int(group) if group.isdigit() else value_of(group, language) for group in match.groups()]
            if None in values:
                continue
            hour, minute = time(*values)
            if 0 <= hour <= 24 and -60 < minute < 60:
                is_certain = minute != 0 and (len(values) == 1 or abs(minute) in _CLOCK_MINUTES)
                yield Clock(*match.span(), (hour * 60 + minute) % _HALF_DAY, is_certain)
