"""What the sentences with measures share: English numbers and dates, frames, and the lists of units."""

# ruff: noqa: SIM905 (a list of words is easier to read as one string)

import random
from collections.abc import Callable
from typing import NamedTuple

Pair = tuple[str, str]

ONES_EN = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen""".split()
TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
CITIES = """Berlin Hamburg Paris London Dresden Leipzig Bremen Oslo Madrid Stuttgart Frankfurt Dublin Boston Chicago
    Amsterdam Kiel Potsdam Bonn Zagreb Manchester Bristol Barcelona Stockholm Helsinki Budapest""".split()
MONTHS_EN = "January February March April May June July August September October November December".split()
WEEKDAYS_EN = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def english_number(n: int) -> str:
    """Write a number below a hundred in English words."""
    if n < 20:
        return ONES_EN[n]
    tens = TENS_EN[n // 10 - 2]
    return f"{tens}-{ONES_EN[n % 10]}" if n % 10 else tens


def frames(text: str) -> list[Pair]:
    """Read frames, one a line. {q} is the quantity, {d} the same in another case, {city} a city."""
    both = (line.split(" | ") for line in text.strip().splitlines())
    return [(english.strip(), other.strip()) for english, other in both]


def filled(frame: Pair, english: str, other: str, city: str, dative: str = "") -> Pair:
    """Put a quantity and a city into a frame. The point of "p.m." also ends the sentence."""
    made = frame[0].format(q=english, city=city).replace("m..", "m.")
    return made, frame[1].format(q=other, d=dative, city=city)


class Measure(NamedTuple):
    """A measure has a greatest number, units (English, other language, its dative), and frames."""

    most: int
    units: list[tuple[str, str, str]]
    frames: list[Pair]


def measures(text: str) -> list[Measure]:
    """Read measures with an empty line between them. "days=Tage:Tagen" is a unit with its dative."""
    made = []
    for block in text.strip().split("\n\n"):
        most, *lines = block.splitlines()
        units = [unit.strip().split("=") for line in lines if "=" in line for unit in line.split(",")]
        named = [(english, other.split(":")[0], other.split(":")[-1]) for english, other in units]
        made.append(Measure(int(most.split()[1]), named, frames("\n".join(line for line in lines if "=" not in line))))
    return made


def distinct(makers: list[Callable[[random.Random], Pair]], count: int, rng: random.Random) -> list[Pair]:
    """Draw makers until there are this many different pairs."""
    made: dict[Pair, None] = {}
    while len(made) < count:
        made[rng.choice(makers)(rng)] = None
    return list(made)
