"""Whether the numbers, units and times of a source are in its translation, in digits or in words."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from onehop.text.clock import Clock, clocks
from onehop.text.number_words import LANGUAGES, has_number, months, scaled, spoken
from onehop.text.units import measures

NUMBER, NUMBER_PARTS = re.compile(r"\d(?:[\d.,:]*\d)?"), re.compile(r"\d+")
SPACED_THOUSANDS = re.compile(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))")  # as French writes 3 000
AFTERNOON = re.compile(r"\s?p\.?\s?m\b", re.IGNORECASE)


def missing_numbers(source: str, translation: str, languages: tuple[str, str] = ("", "")) -> list[str]:
    """The numbers of a source that are not in its translation, whatever marks stand in them: 1,000 is 1.000 is 1 000.

    A number may be a part of another one, as 20 thousand is 20.000, and an hour p.m. twelve more. In English, German
    and French a number may stand in words on either side, a time may be said in another way ("halb drei" is 2:30),
    and a unit must not become another one.
    """
    if not has_number(source, languages[0]):
        return []
    said = list(clocks(translation, languages[1]))
    known = _known(translation, languages[1], said)
    times = _missing_times(source, said, known, languages)
    plain = _without(source, [(begin, end) for begin, end, _ in times])
    lost = [source[begin:end] for begin, end, is_met in times if not is_met]
    return list(
        dict.fromkeys([*lost, *_missing(plain, known, languages), *_changed_units(plain, translation, languages)])
    )


def _missing_times(
    source: str, said: Sequence[Clock], known: set[str], languages: tuple[str, str]
) -> list[tuple[int, int, bool]]:
    """Where plain times stand in a source, and whether the translation has them; of others only those that it has."""
    found: list[tuple[int, int, bool]] = []
    for clock in clocks(source, languages[0]):
        digits = NUMBER_PARTS.findall(source[clock.begin : clock.end])
        is_met = any(map(clock.same, said)) or (len(digits) == 2 and _is_known(digits, known))
        checked = clock.plain and (languages[1] in LANGUAGES or len(digits) == 2)
        if is_met or (checked and not _afternoon(source, clock.end, digits, known)):
            found.append((clock.begin, clock.end, is_met))
    return [each for each in found if not any(_holds(other, each) for other in found)]


def _afternoon(source: str, end: int, digits: Sequence[str], known: set[str]) -> bool:
    later = bool(AFTERNOON.match(source, end)) and len(digits) == 2
    return later and _is_known([str(int(digits[0]) + 12), digits[1]], known)


def _holds(outer: tuple[int, int, bool], inner: tuple[int, int, bool]) -> bool:
    wide = outer[1] - outer[0] > inner[1] - inner[0] or (outer[2] and not inner[2])
    return outer is not inner and outer[0] < inner[1] and inner[0] < outer[1] and wide


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for begin, end in spans:
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text


def _known(translation: str, language: str, said: Sequence[Clock]) -> set[str]:
    """All numbers of a translation: digits, their parts, words, and the hours of its clock times."""
    texts = translation, SPACED_THOUSANDS.sub("", translation)
    found = [NUMBER_PARTS.findall(number) for text in texts for number in NUMBER.findall(text)]
    words = {str(each.value) for each in spoken(translation, language)}
    large = {str(value) for _, value in scaled(translation, language)}
    hours = {str(clock.minutes // 60 + add) for clock in said if clock.afternoon is None for add in (0, 12)}
    known = {*chain.from_iterable(found), *map("".join, found), *words, *large, *hours, *months(translation, language)}
    return {*known, *(each.lstrip("0") for each in known)}


def _missing(source: str, known: set[str], languages: tuple[str, str]) -> list[str]:
    values = {shown: str(value) for shown, value in scaled(source, languages[0])}

    def in_digits(text: str) -> list[str]:
        lost = (m for m in NUMBER.finditer(text) if not any(_is_known(form, known) for form in _forms(m)))
        return [m[0] for m in lost if not any(s.startswith(m[0]) and v in known for s, v in values.items())]

    # "3 000" may be one number or two, so the reading with fewer missing numbers counts.
    apart, together = in_digits(source), in_digits(SPACED_THOUSANDS.sub("", source))
    in_words = [
        source[each.begin : each.end]
        for each in (spoken(source, languages[0]) if languages[1] in LANGUAGES else ())
        if each.sure and str(each.value) not in known
    ]
    return [*(together if len(together) < len(apart) else apart), *in_words]


def _forms(number: re.Match[str]) -> Iterator[list[str]]:
    """The parts of a number in the forms that a translation may give it."""
    parts = NUMBER_PARTS.findall(number[0])
    yield parts
    if AFTERNOON.match(number.string, number.end()):
        yield [str(int(parts[0]) + 12), *parts[1:]]
    if len(parts) == 2 and len(parts[1]) < 3:  # 5.0 is 5, and 11.5 is 11.50
        yield [parts[0], parts[1] + "0"]
        yield [part for part in (parts[0], parts[1].rstrip("0")) if part]
    if re.fullmatch(r"(?:19|20)\d0", number[0]) and number.string.startswith("s", number.end()):  # the 1980s
        yield [number[0][2:]]


def _is_known(parts: Sequence[str], known: set[str]) -> bool:
    """Whether a number is among some, as a whole or part by part."""
    return "".join(parts) in known or known.issuperset(parts)


def _changed_units(source: str, translation: str, languages: tuple[str, str]) -> Iterator[str]:
    """Numbers that have another unit of the same kind in the translation."""
    there = list(measures(translation, languages[1]))
    for each in measures(source, languages[0]):
        same = [other for other in there if (other.value, other.dimension) == (each.value, each.dimension)]
        if same and all(other.unit != each.unit for other in same):
            yield f"{each.words} → {same[0].words}"
