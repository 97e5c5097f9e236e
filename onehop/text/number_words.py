"""Values of number words in English, German and French.

It is lenient: it serves to recognise the same number on two sides, so every possible reading counts.
"""

# ruff: noqa: SIM905 (a list of words is easier to read as one string)

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_ONES = {
    "en": """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
        seventeen eighteen nineteen""",
    "de": """null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn
        siebzehn achtzehn neunzehn""",
    "fr": """zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept
        dix-huit dix-neuf""",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "fr": "vingt trente quarante cinquante soixante soixante-dix quatre-vingt quatre-vingt-dix",
}
# Ordinals and other irregular forms.
_IRREGULAR = {
    "en": """first=1
        second=2 third=3 fifth=5 eighth=8 ninth=9 twelfth=12 once=1 twice=2 both=2 half=2 dozen=12 dozens=12
        twentieth=20 thirtieth=30 fortieth=40 fiftieth=50 sixtieth=60 seventieth=70 eightieth=80
        ninetieth=90 hundredth=100 noon=12 midnight=12 single=1 double=2 triple=3 couple=2 pair=2 score=20
        quarter=4 quarters=4 ten=10""",
    "de": """ein=1
        eine=1 einen=1 einem=1 einer=1 eines=1 zwo=2 beide=2 beiden=2 erste=1 dritte=3 siebte=7 achte=8 halb=2
        dutzend=12 einmal=1 doppelt=2 hälfte=2 mittag=12 mitternacht=12 dreissig=30 paar=2 zweier=2 dreier=3
        zweien=2 dreien=3 vieren=4 achtel=8 viertel=4 viertelstunde=15 dreiviertel=3""",
    "fr": """une=1 premier=1 première=1 second=2 seconde=2 demi=2 demie=2 douzaine=12 dizaine=10 quinzaine=15
        vingtaine=20 trentaine=30 quarantaine=40 cinquantaine=50 centaine=100 midi=12 minuit=12 huitante=80
        octante=80 nonante=90 septante=70 cinquième=5 quart=4 quarts=4 neuvième=9 quatrième=4 onzième=11
        douzième=12 seizième=16 moitié=2 double=2 triple=3""",
}
_SCALES = {
    "en": {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    "de": {"hundert": 100, "tausend": 1000, "million": 10**6, "mio": 10**6, "milliarde": 10**9, "mrd": 10**9}
    | {"millionen": 10**6, "milliarden": 10**9, "billion": 10**12, "billionen": 10**12},
    "fr": {"cent": 100, "mille": 1000, "million": 10**6, "milliard": 10**9, "billion": 10**12},
}
LANGUAGES = tuple(_ONES)
# Words that are usually not numbers, or are often omitted in the other language.
_UNSURE = {
    "en": frozenset(
        """one two first second third fourth fifth tenth once twice both half single double triple couple pair score
        dozen dozens noon midnight zero quarter quarters twenties thirties forties fifties sixties seventies eighties
        nineties hundredth""".split()
    ),
    "de": frozenset(
        """ein eine einen einem einer eines eins zwei null zwo beide beiden erste halb dutzend einmal doppelt hälfte
        mittag mitternacht paar acht achte achten viertel achtel""".split()
    ),
    "fr": frozenset(
        """un une deux zéro premier première second seconde demi demie neuf midi minuit six quart quarts dixième double
        triple moitié douzaine dizaine quinzaine vingtaine trentaine quarantaine cinquantaine centaine douzaines
        dizaines centaines quarantaines""".split()
    ),
}
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_LETTERS = re.compile(r"[^\W\d_]+")


class SpelledNumber(NamedTuple):
    """A number in words, from `begin` to `end` of a text. It `is_certain` if the words can mean nothing else."""

    begin: int
    end: int
    value: int
    is_certain: bool


@lru_cache(1 << 17)
def _scale_and_value(word: str, language: str) -> tuple[int, int | None]:
    """The scale of a lowercase word such as "millions", or 0, and its number, or None."""
    scales = _SCALES[language]
    scale = scales.get(word) or scales.get(word.removesuffix("s")) or 0
    return scale, scale or value_of(word, language)


@lru_cache(1 << 17)
def value_of(word: str, language: str) -> int | None:
    word = word.lower()
    values = _values(language)
    if word in values:
        return values[word]
    return {"en": _english, "de": _german, "fr": _french}[language](word)


@lru_cache
def _values(language: str) -> dict[str, int]:
    """The values of single words below 100 and of irregular forms."""
    ones = {word: n for n, word in enumerate(_ONES[language].split())}
    tens = {word: 10 * n for n, word in enumerate(_TENS[language].split(), 2)}
    irregular = {word: int(n) for word, _, n in (entry.partition("=") for entry in _IRREGULAR[language].split())}
    return ones | tens | irregular


def _english(word: str) -> int | None:
    values = _values("en")
    if "-" in word:
        tens, _, ones = word.partition("-")
        if tens in _TENS["en"].split() and (one := value_of(ones, "en")) is not None and one < 10:
            return values[tens] + one
        # three-year, twenty-storey
        return values.get(tens) if values.get(tens, 0) > 2 else None
    if word.endswith("th"):
        return values.get(word.removesuffix("th"))
    if word.endswith("ies"):  # in his thirties
        return values.get(word.removesuffix("ies") + "y")
    return None


def _german(word: str) -> int | None:
    plain = re.sub(r"(?:jährig\w*|stündig\w*|tägig\w*|mal|fach\w*|köpfig\w*|er)$", "", word)
    if word.startswith("einfach"):
        return None
    for form in dict.fromkeys((word, plain, re.sub(r"s?te[nmrs]?$", "", word), re.sub(r"[nmrs]$", "", word))):
        if (value := _german_cardinal(form)) is not None:
            return value
    return None


def _german_cardinal(word: str) -> int | None:
    values = _values("de")
    if word in values:
        return values[word]
    for scale, size in (("tausend", 1000), ("hundert", 100)):
        if scale in word:
            before, _, after = word.partition(scale)
            factor = _german_cardinal(before) if before else 1
            rest = _german_cardinal(after.removeprefix("und")) if after else 0
            return None if factor is None or rest is None else factor * size + rest
    ones, _, tens = word.partition("und")
    if ones in values and tens in _TENS["de"].split() and values[ones] < 10:
        return values[ones] + values[tens]
    return None


def _french(word: str) -> int | None:
    values = _values("fr")
    plain = re.sub(r"(?<=[^i])ième[s]?$", "", word)
    for form in (word, plain, plain + "e", word.removesuffix("s")):
        if form in values:
            return values[form]
    total = 0
    for part in plain.replace("quatre-vingts", "quatre-vingt").replace("quatre-vingt", "octante").split("-"):
        if part in ("et", ""):
            continue
        if part not in values:
            return None
        total += values[part]
    return total or None


def has_number(text: str, language: str) -> bool:
    """Whether a text may contain a number, in digits or in words."""
    if any(map(str.isdigit, text)):
        return True
    return language in LANGUAGES and any(
        _scale_and_value(word, language)[1] is not None for word in _LETTERS.findall(text.lower())
    )


class _Word(NamedTuple):
    begin: int
    end: int
    text: str
    value: int
    is_scale: bool


def spelled_numbers(text: str, language: str) -> Iterator[SpelledNumber]:
    """The numbers in words of a text. Words of one number, such as "two hundred and five", are joined."""
    if language not in LANGUAGES:
        return
    group: list[_Word] = []
    for match in _WORD.finditer(text):
        lower = match[0].lower()
        scale, value = _scale_and_value(lower, language)
        if value is None:
            continue
        word = _Word(*match.span(), lower, value, bool(scale))
        if group and _is_one_number(group[-1], word, text[group[-1].end : word.begin], language):
            group.append(word)
        else:
            yield from _readings(group, language)
            group = [word]
    yield from _readings(group, language)


def _is_one_number(one: _Word, two: _Word, between: str, language: str) -> bool:
    """Whether two words belong to one number: a number and its scale, tens and ones, the halves of a year."""
    if between not in (" ", "-", "\u00a0", " and ", " und ", " et "):
        return False
    if two.is_scale:
        return one.is_scale or one.value < 1000
    if one.is_scale:
        return two.value < one.value and two.text not in _UNSURE[language] - {"two", "one", "deux", "un", "neuf", "six"}
    if language == "fr":
        return between == " et " and one.value in range(20, 70, 10) and two.value in (1, 11)
    is_tens = one.text in _TENS["en"].split() and two.text in _ONES["en"].split()[1:10]
    return language == "en" and between in (" ", "-") and (_is_year(one, two) or is_tens)


def _is_year(one: _Word, two: _Word) -> bool:
    return 11 <= one.value <= 20 and 10 <= two.value <= 99


def _readings(group: Sequence[_Word], language: str) -> Iterator[SpelledNumber]:
    """The number of a group of words, then the number of each word."""
    if not group:
        return
    if len(group) == 2 and _is_year(*group):
        yield SpelledNumber(group[0].begin, group[1].end, group[0].value * 100 + group[1].value, True)
        return
    total = current = 0
    for word in group:
        if not word.is_scale:
            current += word.value
        elif word.value == 100:
            current = max(current, 1) * 100
        else:
            total, current = total + max(current, 1) * word.value, 0
    # "Hundreds", or "half a million": the value is unknown.
    first = group[0]
    is_vague = first.is_scale or first.text in _UNSURE[language] - {"two", "zwei", "deux", "six", "neuf", "acht"}
    is_certain = not is_vague and (len(group) > 1 or (first.text not in _UNSURE[language] and first.value >= 3))
    yield SpelledNumber(first.begin, group[-1].end, total + current, is_certain)
    for word in group if len(group) > 1 else ():
        yield SpelledNumber(word.begin, word.end, word.value, False)


def month_numbers(text: str, language: str) -> Iterator[str]:
    named = [(n, name) for n, name in enumerate(_MONTHS.get(language, "").split(), 1) if name in text]
    words = set(_WORD.findall(text)) if named else set()
    return (str(n) for n, name in named if name in words)


def scaled_numbers(text: str, language: str) -> Iterator[tuple[str, int]]:
    """Text and value of each number in digits before a word such as "million"."""
    if language not in LANGUAGES:
        return
    names = "|".join(sorted(_SCALES[language], key=len, reverse=True))
    for match in re.finditer(rf"(\d+)(?:[.,](\d+))?[ \u00a0-]({names})s?\b", text, re.IGNORECASE):
        scale, decimals = _SCALES[language][match[3].lower()], match[2] or ""
        if len(str(scale)) > len(decimals):
            yield match[0], int(match[1] + decimals) * scale // 10 ** len(decimals)
