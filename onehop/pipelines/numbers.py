"""Finds numbers, units and times of the source that are not in a translation, in digits or in words."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from onehop.text.clock import Clock, clock_times
from onehop.text.number_words import LANGUAGES, has_number, month_numbers, scaled_numbers, spelled_numbers
from onehop.text.units import measures

_NUMBER, _DIGITS = re.compile(r"\d(?:[\d.,:]*\d)?"), re.compile(r"\d+")
_SPACED_THOUSANDS = re.compile(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))")  # as French writes 3 000
_PM = re.compile(r"\s?p\.?\s?m\b", re.IGNORECASE)


def missing_numbers(source: str, translation: str, languages: tuple[str, str] = ("", "")) -> list[str]:
    """The numbers of a source that are not in its translation, with any separators: 1,000 is 1.000 is 1 000.

    A number may be a part of another one, as 20 thousand is 20.000, and an hour p.m. may be twelve more. In English,
    German and French a number may be in words on either side, a time may be said in another way ("halb drei" is
    2:30), and a unit must not become another one.
    """
    if not has_number(source, languages[0]):
        return []
    target_times = list(clock_times(translation, languages[1]))
    known = _known_numbers(translation, languages[1], target_times)
    times = _times(source, target_times, known, languages)
    rest = source  # without the times
    for begin, end, _ in times:
        rest = rest[:begin] + " " * (end - begin) + rest[end:]
    missing_times = [source[begin:end] for begin, end, is_met in times if not is_met]
    missing = [*missing_times, *_missing(rest, known, languages), *_changed_units(rest, translation, languages)]
    return list(dict.fromkeys(missing))


def _times(
    source: str, target_times: Sequence[Clock], known: set[str], languages: tuple[str, str]
) -> list[tuple[int, int, bool]]:
    """Spans of times in a source, and whether the translation has them. An uncertain time must be met to count."""
    times: list[tuple[int, int, bool]] = []
    for clock in clock_times(source, languages[0]):
        digits = _DIGITS.findall(source[clock.begin : clock.end])
        is_met = any(map(clock.may_equal, target_times)) or (len(digits) == 2 and _is_known(digits, known))
        is_checked = clock.is_certain and (languages[1] in LANGUAGES or len(digits) == 2)
        is_pm = len(digits) == 2 and _PM.match(source, clock.end) is not None
        if is_met or (is_checked and not (is_pm and _is_known([str(int(digits[0]) + 12), digits[1]], known))):
            times.append((clock.begin, clock.end, is_met))
    return [time for time in times if not any(_overrides(other, time) for other in times)]


def _overrides(one: tuple[int, int, bool], other: tuple[int, int, bool]) -> bool:
    """Whether two readings of a time overlap and the first is longer, or is the only one that is met."""
    is_better = one[1] - one[0] > other[1] - other[0] or (one[2] and not other[2])
    return one is not other and one[0] < other[1] and other[0] < one[1] and is_better


def _known_numbers(translation: str, language: str, times: Sequence[Clock]) -> set[str]:
    """All numbers of a translation: digits, their parts, words, and the hours of its clock times."""
    texts = {translation, _SPACED_THOUSANDS.sub("", translation)}
    digits = [_DIGITS.findall(number) for text in texts for number in _NUMBER.findall(text)]
    words = {str(number.value) for number in spelled_numbers(translation, language)}
    large = {str(value) for _, value in scaled_numbers(translation, language)}
    hours = {str(time.minutes // 60 + add) for time in times if time.afternoon is None for add in (0, 12)}
    months = month_numbers(translation, language)
    known = {*chain.from_iterable(digits), *map("".join, digits), *words, *large, *hours, *months}
    return {*known, *(number.lstrip("0") for number in known)}


def _missing(source: str, known: set[str], languages: tuple[str, str]) -> list[str]:
    scaled = dict(scaled_numbers(source, languages[0]))

    def in_digits(text: str) -> list[str]:
        missing = [m[0] for m in _NUMBER.finditer(text) if not any(_is_known(form, known) for form in _forms(m))]
        return [n for n in missing if not any(s.startswith(n) and str(v) in known for s, v in scaled.items())]

    # "3 000" may be one number or two, so the reading with fewer missing numbers counts.
    apart, together = in_digits(source), in_digits(_SPACED_THOUSANDS.sub("", source))
    in_words = [
        source[number.begin : number.end]
        for number in (spelled_numbers(source, languages[0]) if languages[1] in LANGUAGES else ())
        if number.is_certain and str(number.value) not in known
    ]
    return [*(together if len(together) < len(apart) else apart), *in_words]


def _forms(number: re.Match[str]) -> Iterator[list[str]]:
    """The parts of a number in the forms that a translation may use."""
    parts = _DIGITS.findall(number[0])
    yield parts
    if _PM.match(number.string, number.end()):
        yield [str(int(parts[0]) + 12), *parts[1:]]
    if len(parts) == 2 and len(parts[1]) < 3:  # 5.0 is 5, and 11.5 is 11.50
        yield [parts[0], parts[1] + "0"]
        yield [part for part in (parts[0], parts[1].rstrip("0")) if part]
    if re.fullmatch(r"(?:19|20)\d0", number[0]) and number.string.startswith("s", number.end()):  # the 1980s
        yield [number[0][2:]]


def _is_known(parts: Sequence[str], known: set[str]) -> bool:
    """Whether a number is known, as a whole or part by part."""
    return "".join(parts) in known or known.issuperset(parts)


def _changed_units(source: str, translation: str, languages: tuple[str, str]) -> Iterator[str]:
    """Numbers that have another unit of the same dimension in the translation."""
    sources = list(measures(source, languages[0]))
    targets = list(measures(translation, languages[1])) if sources else []
    for measure in sources:
        same = [t for t in targets if (t.value, t.dimension) == (measure.value, measure.dimension)]
        if same and all(t.unit != measure.unit for t in same):
            yield f"{measure.words} → {same[0].words}"
