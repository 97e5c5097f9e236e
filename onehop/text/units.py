"""Units of measure in English, German and French, to detect that one was replaced by another."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from onehop.text.number_words import LANGUAGES, value_of

# One dimension per block, one unit per line: patterns for English | German | French.
_TABLE = r"""
length
kilomet(?:er|re)s?|km | Kilometern?|km | kilomètres?|km
met(?:er|re)s?|m | Metern?|m | mètres?|m
centimet(?:er|re)s?|cm | Zentimetern?|cm | centimètres?|cm
millimet(?:er|re)s?|mm | Millimetern?|mm | millimètres?|mm
miles? | Meilen?|Mile | miles?|milles?
inch(?:es)? | Zoll|Inch | pouces?
foot|feet|ft | Fuß|Fuss | pieds?
yards? | Yards? | yards?

area
acres? | Acres?|Acre | acres?
hectares?|ha | Hektar|ha | hectares?|ha
square (?:met(?:er|re)s?) | Quadratmetern? | mètres? carrés?
square (?:kilomet(?:er|re)s?) | Quadratkilometern? | kilomètres? carrés?
square (?:feet|foot) | Quadratfuß | pieds? carrés?
square miles? | Quadratmeilen? | mil(?:le|e)s? carrés?

mass
kilo(?:gram(?:me)?)?s?|kg | Kilo(?:gramm)?s?|kg | kilo(?:gramme)?s?|kg
gram(?:me)?s?|g | Gramm|g | grammes?|g
ounces?|oz | Unzen? | onces?
tons?|tonnes? | Tonnen? | tonnes?
pounds?|lbs? | Pfund | livres?

volume
lit(?:er|re)s? | Litern? | litres?
gallons? | Gallonen? | gallons?
pints? | Pints? | pintes?
millilit(?:er|re)s?|ml | Millilitern?|ml | millilitres?|ml

temperature
degrees? Fahrenheit|°F | Grad Fahrenheit|°F | degrés? Fahrenheit|°F
degrees? (?:Celsius|centigrade)|°C | Grad Celsius|°C | degrés? Celsius|°C

speed
miles (?:per|an) hour|mph | Meilen (?:pro|in der) Stunde|mph | miles (?:à l'|par )heure
kilomet(?:er|re)s (?:per|an) hour|km/h | (?:Kilometern? pro Stunde|Stundenkilometern?|km/h) | kilomètres?.heure|km/h

money
dollars?|\$ | Dollars?|\$ | dollars?|\$
euros?|€ | Euros?|€ | euros?|€
yen | Yen | yens?
rubles?|roubles? | Rubeln? | roubles?

time
seconds? | Sekunden? | secondes?
minutes? | Minuten? | minutes?
hours? | Stunden? | heures?
days? | Tagen?|Tage? | jours?
weeks? | Wochen? | semaines?
months? | Monaten?|Monate? | mois
years? | Jahren?|Jahre? | ans?|années?
"""


class Measure(NamedTuple):
    """A number with a unit, as text and as value."""

    words: str
    value: str
    dimension: str
    unit: int


@lru_cache
def _pattern(language: str) -> tuple[re.Pattern[str], list[tuple[str, int]]]:
    units: list[tuple[str, int, str]] = []
    dimension = ""
    for row, line in enumerate(_TABLE.splitlines()):
        names = line.split(" | ")
        if len(names) == 1:
            dimension = line or dimension
        else:
            units.append((dimension, row, names[LANGUAGES.index(language)].strip()))
    units.sort(key=lambda unit: -len(unit[2]))  # square miles before miles
    alternatives = "|".join(f"({pattern})" for *_, pattern in units)
    number = r"(?:(?P<digits>\d[\d.,\u00a0\u202f]*)[ \u00a0-]?|(?P<words>[^\W\d_]++(?:-[^\W\d_]++)?)[ \u00a0-])"
    return re.compile(rf"(?<![\w.,-]){number}(?:{alternatives})(?!\w)"), [(d, n) for d, n, _ in units]


def measures(text: str, language: str) -> Iterator[Measure]:
    """Numbers directly before a unit."""
    if language not in LANGUAGES:
        return
    pattern, units = _pattern(language)
    for match in pattern.finditer(text):
        value = re.sub(r"\D", "", match["digits"]) if match["digits"] else value_of(match["words"], language)
        unit = next(i for i, name in enumerate(match.groups()[2:]) if name is not None)
        if value is not None:
            yield Measure(match[0], str(value), *units[unit])
