"""Make training data with tags for a translation model, from the corpora of docs/prepare.md.

    python recipes/translation_data.py CORPORA OUT --source de --target en --back BACK

CORPORA holds train/, valid/ and test/ of English and one other language. A training file has English in its first
column. The script writes the same folders to OUT, with the source language first, as `onehop prepare` expects them.
It puts these tags into some sources:

    <bt> …                               a machine wrote the source (back-translation)
    <2en> …                              the target language
    <formal> …, <informal> …             how a German or French target addresses the reader
    … <term> Haus <as> house </term> …   a term and the translation that it must get

It also makes three kinds of new sources. `back-*` are the back-translations in the folder BACK. `names` are ordinary
pairs with other names in them. `measures` are English and German sentences with clock times, dates, prices and units.
The same arguments give the same bytes.
"""

# ruff: noqa: SIM905 (a list of words is easier to read as one string)

import argparse
import json
import lzma
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from onehop.data.filters import HeldOut, held_out_sides, stands_in
from onehop.text.tokenizer import normalise

Pair = tuple[str, str]

TAGS = (
    *("<bt>", "<2en>", "<2de>", "<2fr>", "<formal>", "<informal>", "<term>", "<as>", "</term>"),
    *(f"<tag{i}>" for i in range(1, 9)),  # for later use
)

LEFT_OUT = ("bible",)  # its language is archaic, and many of its pairs are no translations
WORDS = ("dictionary", "phrases")  # the glossary comes from these
NO_SENTENCES = (*WORDS, "interface-strings")  # no terms are marked in these
COMMON = ("tatoeba", "news-clean")  # the commonest words are counted in these
NAMED = ("tatoeba", "news-clean", "news-more", "news-synthetic", "chat")  # names are replaced in these
HARVESTED = (*NAMED, "press", "games-dialogue", "europarl-0", "europarl-1")  # new names come from these

LANGUAGE_SHARE, TERM_SHARE, FORMALITY_SHARE = 0.03, 0.04, 0.3
FREQUENT = 400  # this many of the commonest words are never marked as terms
MOST_NAMES = 40_000
MEASURES = 30_000

# The project explains attention with this sentence of the paper's authors, so no model may train on it.
NEVER = re.compile(r"\banimal\b.*\bcross\b.*\bstreet\b|\bTier\b.*\bStraße\b.*\bmüde\b", re.IGNORECASE)

# --- reading and writing --------------------------------------------------------------------------------------

TAG = re.compile("|".join(map(re.escape, TAGS)))


def plain(text: str) -> str:
    """Normalise a text, and put a space behind the bracket of anything that looks like a tag."""
    text = normalise(text)
    return TAG.sub(lambda tag: f"< {tag[0][1:]}", text) if "<" in text else text


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, and unpack it if its name ends in .xz."""
    with path.open("rb") as raw, lzma.open(raw) if path.suffix == ".xz" else nullcontext(raw) as lines:
        yield from (line.decode().rstrip("\n") for line in lines)


class Corpora:
    """Corpora give pairs in the wanted direction, without the pairs that must not be trained on."""

    def __init__(self, folder: Path, source: str, held_out: HeldOut) -> None:
        self.folder, self.swapped, self.held_out = folder, source != "en", held_out
        found = {path.name.split(".")[0]: path for path in sorted((folder / "train").glob("*.xz"))}
        self.files = {name: path for name, path in found.items() if name not in LEFT_OUT}

    def pairs(self, *names: str) -> Iterator[Pair]:
        """Yield source and target of each usable line of the named files; a file may be missing."""
        for name in filter(self.files.__contains__, names):
            for english, other in self.english_first(name):
                pair = plain(english), plain(other)
                if self.usable(pair):
                    yield pair[::-1] if self.swapped else pair

    def english_first(self, name: str) -> Iterator[Pair]:
        """Yield the pairs of a file. If it has no English, the English-German file of the same name has it."""
        path = self.files[name]
        if ".tsv" in path.suffixes:
            for line in lines_of(path):
                columns = line.split("\t")
                if len(columns) == 2:
                    yield columns[0], columns[1]
            return
        english = self.folder.parent / "en-de" / "train" / f"{name}.tsv.xz"
        for line, other in zip(lines_of(english), lines_of(path), strict=True):
            if other:
                yield line.split("\t")[0], other

    def usable(self, pair: Pair) -> bool:
        """Tell whether both sides have text and neither is held out."""
        return all(pair) and not any(map(NEVER.search, pair)) and not stands_in(self.held_out, *pair)


def copy_held_out(corpora: Path, out: Path, languages: Pair) -> list[Path]:
    """Copy validation and test files, with the captions beside the corpora. Return the copies without endings."""
    places = ("valid", corpora / "valid", "*"), ("test", corpora / "test", "*")
    stems = []
    for folder, place, pattern in (*places, ("test", corpora.parent / "multi30k", "test_*")):
        (out / folder).mkdir(parents=True, exist_ok=True)
        for first in sorted(place.glob(f"{pattern}.{languages[0]}")):
            for language in languages:
                shutil.copyfile(first.with_suffix(f".{language}"), out / folder / f"{first.stem}.{language}")
            stems.append(out / folder / first.stem)
    return stems


def held_out_in(stems: Iterable[Path], keep_out: Iterable[Path], languages: Pair) -> HeldOut:
    """Collect both sides of validation and test files, and each column of other files that are held out."""
    pairs: list[Pair] = []
    for stem in stems:
        source, target = (lines_of(stem.with_name(f"{stem.name}.{language}")) for language in languages)
        pairs += zip(source, target, strict=True)
    for file in keep_out:
        pairs += [(column, "") for line in lines_of(file) for column in line.split("\t")]
    return held_out_sides((normalise(a), normalise(b)) for a, b in pairs)


def write_pairs(file: Path, pairs: Iterable[Pair]) -> int:
    """Write a line with source TAB target for each pair. Return the number of pairs."""
    count = 0
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for source, target in pairs:
            out.write(f"{source}\t{target}\n")
            count += 1
    return count


# --- terms ----------------------------------------------------------------------------------------------------

CLEAN_ENTRY = re.compile(r"[^\W\d_][\w'’-]*( [^\W\d_][\w'’-]*){0,2}")
Place = tuple[int, int, str]  # the first word of a term, its number of words, and its translation


class Glossary:
    """A glossary marks terms in a source when the target has the dictionary's translation."""

    def __init__(self, entries: Iterable[Pair], frequent: frozenset[str]) -> None:
        self.entries: dict[str, set[str]] = {}
        for source, target in entries:
            # A dictionary writes English verbs as "to go": they are entered without "to" as well.
            for s, t in ((source, target), (source.removeprefix("to "), target.removeprefix("to "))):
                if is_term(s, t, frequent):
                    self.entries.setdefault(s, set()).add(t)

    def mark(self, pair: Pair, rng: random.Random) -> Pair | None:
        """Mark one or two terms in the source. Return None if there are none."""
        source, target = pair
        words = source.split(" ")
        places = self.places(words, " " + re.sub(r"[^\w-]+", " ", target) + " ")
        if not places:
            return None
        for begin, size, term in sorted(disjoint(places, rng), reverse=True):
            core, tail = split_tail(" ".join(words[begin : begin + size]))
            words[begin : begin + size] = [marked(core, term) + tail]
        return " ".join(words), target

    def places(self, words: list[str], target: str) -> list[Place]:
        """Find the terms whose translation is in the target."""
        found = []
        for i in range(len(words)):
            for size in (1, 2, 3):  # the last word is found at each size, so it is marked more often than others
                core, _ = split_tail(" ".join(words[i : i + size]))
                found += [(i, size, term) for term in sorted(self.entries.get(core, ())) if f" {term} " in target]
        return found


def is_term(source: str, target: str, frequent: frozenset[str]) -> bool:
    """Tell whether an entry is worth marking: it has only words, is not short, and is no common word."""
    clean = CLEAN_ENTRY.fullmatch(source) and CLEAN_ENTRY.fullmatch(target)
    rare = source.lower() not in frequent and target.lower() not in frequent
    return bool(clean) and len(source) > 3 and len(target) > 2 and rare


def split_tail(text: str) -> Pair:
    """Separate a text from the punctuation at its end."""
    core = text.rstrip(".,;:!?\"“”»«)'’…")
    return core, text[len(core) :]


def marked(source: str, target: str) -> str:
    """Mark a term with the translation that it must get."""
    return f"<term> {source} <as> {target} </term>"


def disjoint(places: list[Place], rng: random.Random) -> list[Place]:
    """Choose one or two places that share no word; longer terms come first."""
    rng.shuffle(places)
    places.sort(key=lambda place: -place[1])
    chosen = places[:1]
    if rng.random() < 0.35:
        begin, size, _ = chosen[0]
        chosen += [p for p in places[1:] if p[0] >= begin + size or p[0] + p[1] <= begin][:1]
    return chosen


def frequent_words(pairs: Iterable[Pair]) -> frozenset[str]:
    """Return the commonest words of both sides in lower case."""
    counts = Counter(word for pair in pairs for side in pair for word in re.findall(r"\w+", side.lower()))
    return frozenset(word for word, _ in counts.most_common(FREQUENT))


# --- formality, and tags on ordinary pairs --------------------------------------------------------------------

FORMAL = {
    "de": re.compile(r"(?<!^)(?<![.!?:„“\"»] )\b(Sie|Ihnen|Ihr|Ihre|Ihren|Ihrem|Ihrer|Ihres)\b"),
    "fr": re.compile(r"\b(vous|votre|vos)\b", re.IGNORECASE),
}
INFORMAL = {
    "de": re.compile(r"\b(du|dich|dir|dein\w{0,2}|euch|euer|eure[mnrs]?)\b|(?<=, )ihr \w+t\b", re.IGNORECASE),
    "fr": re.compile(r"\b(tu|te|toi|ton|ta|tes)\b|\bt'", re.IGNORECASE),
}
UNCLEAR = {"de": re.compile(r"^Sie\b|[.!?:„“\"»] ?Sie\b|\bihr\b")}


def formality(text: str, language: str) -> str | None:
    """Return the tag for how a target addresses the reader, or None if that is unclear.

    German "Sie" at the start of a sentence can mean "she" or "they", and "ihr" can mean "her".
    """
    if language not in FORMAL:
        return None
    formal, informal = FORMAL[language].search(text), INFORMAL[language].search(text)
    unclear = language in UNCLEAR and UNCLEAR[language].search(text)
    if bool(formal) == bool(informal) or (informal and unclear):
        return None
    return "<formal>" if formal else "<informal>"


def tagged(pairs: Iterable[Pair], name: str, target: str, glossary: Glossary, rng: random.Random) -> Iterator[Pair]:
    """Put tags into some of the pairs of a file; a pair gets one kind of tag at most."""
    for pair in pairs:
        draw = rng.random()
        tag = formality(pair[1], target) if draw < FORMALITY_SHARE else None
        if draw > 1 - LANGUAGE_SHARE:
            yield f"<2{target}> {pair[0]}", pair[1]
        elif draw > 1 - LANGUAGE_SHARE - 2 * TERM_SHARE and name not in NO_SENTENCES:
            # The glossary finds no term in many sentences, so it tries twice the share.
            yield glossary.mark(pair, rng) or pair
        else:
            yield (f"{tag} {pair[0]}", pair[1]) if tag else pair


# --- back-translations ----------------------------------------------------------------------------------------


def back_translated(folder: Path, languages: Pair, usable: Callable[[Pair], bool]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield a name and the good pairs of each two files NAME.source, written by a machine, and NAME.target."""
    for machine in sorted(folder.glob(f"*.{languages[0]}")):
        lines = zip(lines_of(machine), lines_of(machine.with_suffix(f".{languages[1]}")), strict=True)
        pairs = dict.fromkeys((plain(source), plain(target)) for source, target in lines)
        yield f"back-{machine.stem}", [(f"<bt> {s}", t) for s, t in pairs if usable((s, t)) and is_sound(s, t)]


def is_sound(translation: str, text: str) -> bool:
    """Tell whether a machine's translation has a fitting length and the same numbers, and no loop."""
    made, given = translation.split(), text.split()
    fits = len(made) <= 1.8 * len(given) + 3 and len(given) <= 2.0 * len(made) + 3
    numbers = sorted(re.findall(r"\d+", translation)) == sorted(re.findall(r"\d+", text))
    return fits and numbers and translation != text and not loops(made)


def loops(words: list[str]) -> bool:
    """Tell whether one to four words come three times in a row."""
    return any(
        words[i : i + size] == words[i + size : i + 2 * size] == words[i + 2 * size : i + 3 * size]
        for size in range(1, 5)
        for i in range(len(words) - 3 * size + 1)
    )


# --- names ----------------------------------------------------------------------------------------------------

NAME = r"[A-ZÄÖÜÉÁŠČŽ][a-zäöüßéèêáàíóúçñšžćčãâøåë]{2,}"
CAPITALISED = re.compile(rf"(?<![\w-]){NAME}(?![\w-])")
FULL_NAME = re.compile(rf"(?<![\w-])({NAME}) ({NAME})(?![\w-])")
# These words are the same in two languages, but they are no names of people.
NO_NAMES = frozenset(
    """April August September November Sommer Winter Herr Frau Mister Internet Union Europa Europe Parlament
    Parliament Kommission Commission Microsoft Windows Linux Debian Mozilla Firefox Software""".split()
)
# Tatoeba's names, as source and target write them.
EVERYDAY_NAMES = [("Tom", "Tom"), ("Maria", "Maria"), ("Maria", "Mary"), ("Mary", "Maria"), ("Mary", "Mary")]


class Names:
    """Names are words that both sides of pairs write alike: first names, last names, and single ones."""

    def __init__(self, pairs: Iterable[Pair], words: frozenset[str]) -> None:
        single, first, last, small = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        for source, target in pairs:
            small.update(word for side in (source, target) for word in re.findall(r"(?<!\S)[a-zäöüß]{3,}", side))
            single.update(set(CAPITALISED.findall(source)) & set(CAPITALISED.findall(target)))
            for a, b in set(FULL_NAME.findall(source)) & set(FULL_NAME.findall(target)):
                first[a] += 1
                last[b] += 1

        def good(counts: Counter[str], least: int) -> list[str]:
            often = {name for name, count in counts.items() if count >= least} - NO_NAMES - words
            return sorted(name for name in often if name.lower() not in words and not small[name.lower()])

        self.single, self.first, self.last = good(single, 3), good(first, 2), good(last, 2)
        self.known = frozenset(self.single)

    def draw(self, rng: random.Random) -> str:
        """Draw a first name, a full, double or single name, or a new one made of halves of two last names."""
        kind, one, two = rng.random(), rng.choice(self.last), rng.choice(self.last)
        if kind < 0.35:
            return rng.choice(self.first)
        if kind < 0.7:
            return f"{rng.choice(self.first)} {one}"
        if kind < 0.75:
            return f"{rng.choice(self.first)} {one}-{two}"
        if kind < 0.85:
            return one[: (len(one) + 1) // 2] + two[len(two) // 2 :]
        return rng.choice(self.single)


def renamed(pairs: Iterable[Pair], names: Names, languages: Pair, rng: random.Random) -> Iterator[Pair]:
    """Replace one name on both sides of each pair that has one, and mark some of the new names as terms."""
    for source, target in pairs:
        old = name_in(source, target, names)
        if old is None:
            continue
        new = names.draw(rng)
        new_source = replace_name(source, old[0], new, languages[0])
        new_target = replace_name(target, old[1], new, languages[1])
        if rng.random() < 0.25:
            # Half of the marked names get another name as translation: otherwise the model could ignore the mark.
            other = new if rng.random() < 0.5 else names.draw(rng)
            other_target = replace_name(target, old[1], other, languages[1])
            if (marked_source := mark_name(new_source, new, other)) and other in other_target:
                new_source, new_target = marked_source, other_target
        yield new_source, new_target


def name_in(source: str, target: str, names: Names) -> Pair | None:
    """Find a name that each side has exactly once, as each side writes it. Return None if there is none."""
    for one, two in EVERYDAY_NAMES:
        if once(one, source) and once(two, target):
            return one, two
    alike = {n for n in CAPITALISED.findall(source) if n in names.known} & set(CAPITALISED.findall(target))
    return next(((n, n) for n in sorted(alike) if once(n, source) and once(n, target)), None)


def once(name: str, text: str) -> bool:
    """Tell whether a text has a name exactly once; the genitive counts too."""
    return len(re.findall(rf"(?<![\w-]){name}s?(?![\w-])", text)) == 1


def replace_name(text: str, old: str, new: str, language: str) -> str:
    """Replace a name. A German genitive ends in s, or in an apostrophe if the name ends in an s sound."""
    genitive = f"{new}’" if new[-1] in "sxzß" else f"{new}s"
    if language == "de" or f"{old}'s" not in text:
        text = re.sub(rf"(?<![\w-]){old}s(?![\w-])", genitive, text)
    return re.sub(rf"(?<![\w-]){old}(?![\w-])", new, text)


def mark_name(text: str, name: str, other: str) -> str | None:
    """Mark a name as a term, unless it is in the genitive. Return None if it is not there."""
    found, count = re.subn(rf"(?<!\S){name}(?=[.,;:!?]?(\s|$))", marked(name, other), text, count=1)
    return found if count else None


def name_pairs(corpora: Corpora, languages: Pair, rng: random.Random) -> list[Pair]:
    """Make pairs of the everyday and news files with other names in them."""
    words = frozenset(w for pair in corpora.pairs(*WORDS) for side in pair for w in re.findall(r"\w+", side))
    names = Names(corpora.pairs(*HARVESTED), words)
    print(f"{len(names.single)} names, {len(names.first)} first, {len(names.last)} last", flush=True)
    if not (names.single and names.first and names.last):
        return []
    used = list(corpora.pairs(*NAMED))
    rng.shuffle(used)
    return list(islice(filter(corpora.usable, renamed(used, names, languages, rng)), MOST_NAMES))


# --- numbers and frames of the measures -----------------------------------------------------------------------

ONES_EN = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen""".split()
TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ONES_DE = """null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn
    siebzehn achtzehn neunzehn""".split()
TENS_DE = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
CITIES = """Berlin Hamburg Paris London Dresden Leipzig Bremen Oslo Madrid Stuttgart Frankfurt Dublin Boston Chicago
    Amsterdam Kiel Potsdam Bonn Zagreb Manchester Bristol Barcelona Stockholm Helsinki Budapest""".split()


def english_number(n: int) -> str:
    """Write a number below a hundred in English words."""
    if n < 20:
        return ONES_EN[n]
    tens = TENS_EN[n // 10 - 2]
    return f"{tens}-{ONES_EN[n % 10]}" if n % 10 else tens


def german_number(n: int) -> str:
    """Write a number below a hundred in German words."""
    if n < 20:
        return ONES_DE[n]
    ones = "ein" if n % 10 == 1 else ONES_DE[n % 10]
    return f"{ones}und{TENS_DE[n // 10 - 2]}" if n % 10 else TENS_DE[n // 10 - 2]


def in_digits(whole: int, part: str = "") -> Pair:
    """Write a number as English and German do: 1,234.5 and 1.234,5."""
    english = f"{whole:,}.{part}" if part else f"{whole:,}"
    return english, english.translate(str.maketrans(",.", ".,"))


def number(rng: random.Random, most: int) -> Pair:
    """Draw a number for a quantity of about `most` at most, in words or in digits, in English and German."""
    kind = rng.random()
    if kind < 0.25:
        n = rng.choice([*range(2, 13), rng.randint(13, 99)])
        return english_number(n), german_number(n)
    if kind < 0.55 or (kind >= 0.78 and most < 2000):
        return in_digits(rng.choice([rng.randint(2, 30), rng.randint(2, min(most, 999))]))
    if kind < 0.78:
        tenth = str(rng.randint(1, 9))
        n, part = rng.randint(0, min(most, 250)), rng.choice([tenth, tenth, f"{rng.randint(0, 9)}{tenth}"])
        return in_digits(n, part)
    n = rng.choice([rng.randint(1000, 9999), rng.randint(1000, most), 100 * rng.randint(11, most // 100)])
    return in_digits(n) if kind < 0.92 else in_digits(n, str(rng.randint(1, 9)))


def frames(text: str) -> list[Pair]:
    """Read frames, one a line. {q} is the quantity, {d} the same in the German dative, {city} a city."""
    english_german = (line.split(" | ") for line in text.strip().splitlines())
    return [(english.strip(), german.strip()) for english, german in english_german]


def filled(frame: Pair, english: str, german: str, city: str, dative: str = "") -> Pair:
    """Put a quantity and a city into a frame. The point of "p.m." also ends the sentence."""
    made = frame[0].format(q=english, city=city).replace("m..", "m.")
    return made, frame[1].format(q=german, d=dative, city=city)


# --- clock times ----------------------------------------------------------------------------------------------

AT = [("at", "um"), ("at", "um"), ("at", "um"), ("around", "gegen")]
EXACTLY = [*AT, ("shortly after", "kurz nach"), ("shortly before", "kurz vor"), ("at exactly", "um Punkt")]
ROUND = re.compile("o'clock|half|quarter")
CLOCKED = frames("""
    The train to {city} leaves {q}. | Der Zug nach {city} fährt {q} ab.
    Our flight to {city} departs {q}. | Unser Flug nach {city} startet {q}.
    The bus from {city} arrives {q}. | Der Bus aus {city} kommt {q} an.
    The meeting begins {q}. | Die Sitzung beginnt {q}.
    The lecture starts {q} in the great hall. | Die Vorlesung beginnt {q} im großen Saal.
    The concert ended {q}. | Das Konzert endete {q}.
    The shop opens {q}. | Das Geschäft öffnet {q}.
    The museum closes {q} on Sundays. | Das Museum schließt sonntags {q}.
    She usually gets up {q}. | Sie steht gewöhnlich {q} auf.
    He went to bed {q}. | Er ging {q} ins Bett.
    We had dinner {q}. | Wir aßen {q} zu Abend.
    They called me {q}. | Sie riefen mich {q} an.
    The police were called {q}. | Die Polizei wurde {q} gerufen.
    The accident happened {q}. | Der Unfall ereignete sich {q}.
    The fire broke out {q}. | Das Feuer brach {q} aus.
    I have an appointment with the dentist {q}. | Ich habe {q} einen Termin beim Zahnarzt.
    Breakfast is served {q}. | Das Frühstück wird {q} serviert.
    School is over {q} today. | Die Schule ist heute {q} aus.
    Shall we meet {q}? | Wollen wir uns {q} treffen?
    The match kicked off {q}. | Das Spiel wurde {q} angepfiffen.
    The children came home {q}. | Die Kinder kamen {q} nach Hause.
    The news is broadcast {q}. | Die Nachrichten werden {q} gesendet.
    The ferry to {city} left {q} yesterday. | Die Fähre nach {city} legte gestern {q} ab.
    The doors close {q}, so don't be late. | Die Türen schließen {q}, kommen Sie also nicht zu spät.
    My grandmother drinks tea {q} every day. | Meine Großmutter trinkt jeden Tag {q} Tee.
    The press conference took place {q}. | Die Pressekonferenz fand {q} statt.
    The minister arrived in {city} {q}. | Der Minister traf {q} in {city} ein.
    Can you pick me up {q}? | Kannst du mich {q} abholen?
    The alarm clock rang {q}. | Der Wecker klingelte {q}.
    The sun rose {q}. | Die Sonne ging {q} auf.
""")
TOLD = frames("""
    It is {q}. | Es ist {q}.
    It's already {q}. | Es ist schon {q}.
    It was {q} when the phone rang. | Es war {q}, als das Telefon klingelte.
    It was almost {q} when we reached {city}. | Es war fast {q}, als wir {city} erreichten.
    My watch says {q}. | Meine Uhr zeigt {q}.
    I waited until {q}. | Ich wartete bis {q}.
    The office is open until {q}. | Das Büro ist bis {q} geöffnet.
    The library is open from {q}. | Die Bibliothek ist ab {q} geöffnet.
    Please be here by {q}. | Bitte seien Sie bis {q} hier.
    We slept until {q}. | Wir schliefen bis {q}.
""")


def spoken_time(hour: int, minute: int, quarter: str = "quarter") -> Pair:
    """Say a time that is no full hour, with a minute that five divides. German counts halves to the next hour."""
    en_now, en_next = english_number(hour), english_number(hour % 12 + 1)
    de_now, de_next = german_number(hour), german_number(hour % 12 + 1)
    special = {
        15: (f"{quarter} past {en_now}", f"Viertel nach {de_now}"),
        25: (f"twenty-five past {en_now}", f"fünf vor halb {de_next}"),
        30: (f"half past {en_now}", f"halb {de_next}"),
        35: (f"twenty-five to {en_next}", f"fünf nach halb {de_next}"),
        45: (f"{quarter} to {en_next}", f"Viertel vor {de_next}"),
    }
    if minute in special:
        return special[minute]
    if minute < 30:
        return f"{english_number(minute)} past {en_now}", f"{german_number(minute)} nach {de_now}"
    return f"{english_number(60 - minute)} to {en_next}", f"{german_number(60 - minute)} vor {de_next}"


def clock(rng: random.Random) -> Pair:
    """Draw a time of day: with digits, as a full hour, or as it is spoken."""
    hour, minute, kind = rng.randint(1, 12), rng.choice(range(0, 60, 5)), rng.random()
    if kind < 0.22:
        day, exact = rng.randint(0, 23), rng.choice([minute, rng.randint(1, 59)])
        german = f"{day}{rng.choice('::.')}{exact:02d} Uhr"
        half = "a.m." if day < 12 else "p.m."
        return f"{(day - 1) % 12 + 1}:{exact:02d} {half}" if rng.random() < 0.6 else f"{day}:{exact:02d}", german
    if kind < 0.3 or minute == 0:
        spoken = english_number(hour), "ein" if hour == 1 else german_number(hour)
        english, german = spoken if rng.random() < 0.6 else in_digits(hour)
        return f"{english} o'clock", f"{german} Uhr"
    return spoken_time(hour, minute, rng.choice(["quarter", "a quarter"]))


def clock_pair(rng: random.Random) -> Pair:
    """Make a sentence with a time of day."""
    english, german = clock(rng)
    if rng.random() < 0.25:
        return filled(rng.choice(TOLD), english, german, rng.choice(CITIES))
    at, um = rng.choice(EXACTLY if ROUND.search(english) else AT)
    return filled(rng.choice(CLOCKED), f"{at} {english}", f"{um} {german}", rng.choice(CITIES))


# --- units ----------------------------------------------------------------------------------------------------


class Measure(NamedTuple):
    """A measure has a greatest number, units (English, German, German dative), and frames."""

    most: int
    units: list[tuple[str, str, str]]
    frames: list[Pair]


def measures(text: str) -> list[Measure]:
    """Read measures with an empty line between them. "days=Tage:Tagen" is a unit with its German dative."""
    made = []
    for block in text.strip().split("\n\n"):
        most, *lines = block.splitlines()
        units = [unit.strip().split("=") for line in lines if "=" in line for unit in line.split(",")]
        named = [(english, german.split(":")[0], german.split(":")[-1]) for english, german in units]
        made.append(Measure(int(most.split()[1]), named, frames("\n".join(line for line in lines if "=" not in line))))
    return made


KINDS = measures("""
    most 300
    feet=Fuß, metres=Meter:Metern, meters=Meter:Metern, inches=Zoll, centimetres=Zentimeter:Zentimetern, cm=cm, m=m
    yards=Yards
    The tower is {q} high. | Der Turm ist {q} hoch.
    The wall is {q} thick. | Die Mauer ist {q} dick.
    The screen is {q} wide. | Der Bildschirm ist {q} breit.
    The snow was {q} deep. | Der Schnee lag {q} hoch.
    The tree has grown {q}. | Der Baum ist {q} gewachsen.
    The diver reached a depth of {q}. | Der Taucher erreichte eine Tiefe von {d}.
    The board must be {q} long. | Das Brett muss {q} lang sein.
    The river rose by {q} overnight. | Der Fluss stieg über Nacht um {q}.
    He jumped {q}. | Er sprang {q} weit.

    most 20000
    miles=Meilen, kilometres=Kilometer:Kilometern, km=km, kilometers=Kilometer:Kilometern, nautical miles=Seemeilen
    yards=Yards, feet=Fuß
    It is {q} to the nearest village. | Bis zum nächsten Dorf sind es {q}.
    We walked {q} today. | Wir sind heute {q} gelaufen.
    The town lies {q} north of {city}. | Die Stadt liegt {q} nördlich von {city}.
    The plane was flying at a distance of {q}. | Das Flugzeug flog in einer Entfernung von {d}.
    She drives {q} to work every day. | Sie fährt jeden Tag {q} zur Arbeit.
    The route is {q} long. | Die Strecke ist {q} lang.
    The road was closed for {q}. | Die Straße war auf {d} gesperrt.
    After {q} the engine stopped. | Nach {d} blieb der Motor stehen.

    most 900000
    acres=Acres, acres=Acre, hectares=Hektar, square metres=Quadratmeter:Quadratmetern, square feet=Quadratfuß
    square kilometres=Quadratkilometer:Quadratkilometern, m²=m², square miles=Quadratmeilen
    The farm covers {q}. | Der Hof umfasst {q}.
    They bought {q} of land near {city}. | Sie kauften {q} Land bei {city}.
    The fire destroyed {q} of forest. | Das Feuer zerstörte {q} Wald.
    The park has an area of {q}. | Der Park hat eine Fläche von {d}.
    The flat has {q}. | Die Wohnung hat {q}.
    He inherited {q} from his uncle. | Er erbte {q} von seinem Onkel.
    The lake extends over {q}. | Der See erstreckt sich über {q}.

    most 20000
    pounds=Pfund, kilograms=Kilogramm, kilos=Kilo, kg=kg, grams=Gramm, tonnes=Tonnen, tons=Tonnen, ounces=Unzen
    The parcel weighs {q}. | Das Paket wiegt {q}.
    I have lost {q}. | Ich habe {q} abgenommen.
    The baby weighed {q} at birth. | Das Baby wog bei der Geburt {q}.
    The truck can carry {q}. | Der Lastwagen kann {q} tragen.
    Customs officers found {q} of cocaine. | Die Zollbeamten fanden {q} Kokain.
    She bought {q} of potatoes. | Sie kaufte {q} Kartoffeln.
    The fish had a weight of {q}. | Der Fisch hatte ein Gewicht von {d}.

    most 90000
    litres=Liter:Litern, liters=Liter:Litern, gallons=Gallonen, cubic metres=Kubikmeter:Kubikmetern
    millilitres=Milliliter:Millilitern, barrels=Barrel, pints=Pints
    The tank holds {q}. | Der Tank fasst {q}.
    The car uses {q} of petrol. | Das Auto verbraucht {q} Benzin.
    You should drink {q} of water. | Man sollte {q} Wasser trinken.
    More than {q} of oil leaked into the sea. | Mehr als {q} Öl liefen ins Meer.
    Add {q} of milk. | Geben Sie {q} Milch hinzu.
    The bottle has a capacity of {q}. | Die Flasche hat ein Volumen von {d}.

    most 300
    kilometres per hour=Kilometer pro Stunde:Kilometern pro Stunde, km/h=km/h
    kilometres an hour=Stundenkilometer:Stundenkilometern, mph=Meilen pro Stunde, miles per hour=Meilen pro Stunde
    knots=Knoten, metres per second=Meter pro Sekunde:Metern pro Sekunde
    The car was travelling at {q}. | Das Auto fuhr mit {d}.
    The wind reached {q}. | Der Wind erreichte {q}.
    The speed limit here is {q}. | Die Höchstgeschwindigkeit beträgt hier {q}.
    The storm moved west at a speed of {q}. | Der Sturm zog mit einer Geschwindigkeit von {d} nach Westen.
    Gusts of up to {q} are expected in {city}. | In {city} werden Böen von bis zu {d} erwartet.

    most 60
    degrees Celsius=Grad Celsius, degrees=Grad, °C=°C, degrees Fahrenheit=Grad Fahrenheit
    The temperature rose to {q}. | Die Temperatur stieg auf {q}.
    It was {q} in {city} yesterday. | Gestern waren es in {city} {q}.
    The water boils at {q}. | Das Wasser kocht bei {d}.
    Preheat the oven to {q}. | Heizen Sie den Ofen auf {q} vor.
    At night it cooled down to minus {q}. | In der Nacht kühlte es auf minus {q} ab.
    His temperature is {q}. | Er hat {q} Fieber.

    most 90
    percent=Prozent, per cent=Prozent, percentage points=Prozentpunkte:Prozentpunkten
    Prices rose by {q}. | Die Preise stiegen um {q}.
    Unemployment fell by {q}. | Die Arbeitslosigkeit sank um {q}.
    Turnover fell by {q} compared with the previous year. | Der Umsatz ging gegenüber dem Vorjahr um {q} zurück.
    The party gained {q}. | Die Partei legte um {q} zu.
    The share in {city} is {q} higher. | In {city} liegt der Anteil um {q} höher.

    most 90
    seconds=Sekunden, minutes=Minuten, hours=Stunden, days=Tage:Tagen, weeks=Wochen, months=Monate:Monaten
    years=Jahre:Jahren
    The journey takes {q}. | Die Reise dauert {q}.
    We had to wait {q}. | Wir mussten {q} warten.
    She has lived in {city} for {q}. | Sie lebt seit {d} in {city}.
    He died {q} later. | Er starb {q} später.
    The shop closed {q} ago. | Der Laden hat vor {d} geschlossen.
    I'll be back in {q}. | Ich bin in {d} zurück.
    The trial lasted {q}. | Der Prozess dauerte {q}.

    most 9000
    watts=Watt, kilowatts=Kilowatt, volts=Volt, megawatts=Megawatt, kilowatt hours=Kilowattstunden, horsepower=PS
    The engine delivers {q}. | Der Motor leistet {q}.
    The device needs {q}. | Das Gerät braucht {q}.
    The plant near {city} generates {q}. | Das Kraftwerk bei {city} erzeugt {q}.
    The lamp has {q}. | Die Lampe hat {q}.
""")
SYMBOLS = "m cm km kg m² km/h °C mph".split()  # nobody writes "three km/h"
AROUND = [("", "")] * 8 + [("about ", "etwa "), ("almost ", "fast "), ("more than ", "mehr als ")]


def unit_pair(rng: random.Random) -> Pair:
    """Make a sentence with a quantity and its unit."""
    kind = rng.choice(KINDS)
    (unit, einheit, dative), (english, german) = rng.choice(kind.units), number(rng, kind.most)
    if unit in SYMBOLS and english[0].isalpha():
        return unit_pair(rng)
    frame = rng.choice(kind.frames)
    about, etwa = rng.choice(AROUND) if "ore than" not in frame[0] and "minus" not in frame[0] else ("", "")
    quantity = f"{etwa}{german}"
    return filled(
        frame, f"{about}{english} {unit}", f"{quantity} {einheit}", rng.choice(CITIES), f"{quantity} {dative}"
    )


# --- prices and dates -----------------------------------------------------------------------------------------

PRICED = frames("""
    The ticket costs {q}. | Die Fahrkarte kostet {q}.
    She paid {q} for the coat. | Sie bezahlte {q} für den Mantel.
    He earns {q} a month. | Er verdient {q} im Monat.
    I owe him {q}. | Ich schulde ihm {q}.
    The fine was {q}. | Die Geldstrafe betrug {q}.
    A night in {city} costs {q}. | Eine Übernachtung in {city} kostet {q}.
    They charged me {q} for the repair. | Für die Reparatur haben sie mir {q} berechnet.
    He found {q} in the street. | Er fand {q} auf der Straße.
""")
DEAR = frames("""
    The damage amounts to {q}. | Der Schaden beläuft sich auf {q}.
    The company invested {q} in {city}. | Das Unternehmen investierte {q} in {city}.
    They raised {q} for the hospital. | Sie sammelten {q} für das Krankenhaus.
    The city of {city} owes the banks {q}. | Die Stadt {city} schuldet den Banken {q}.
    The project will cost {q}. | Das Projekt wird {q} kosten.
    Last year the group made a loss of {q}. | Im vergangenen Jahr machte der Konzern einen Verlust von {q}.
    Exports rose to {q}. | Die Ausfuhren stiegen auf {q}.
    The budget was cut by {q}. | Der Haushalt wurde um {q} gekürzt.
    The bank in {city} needs {q}. | Die Bank in {city} braucht {q}.
""")
CURRENCIES = [("euros", "Euro", "€"), ("dollars", "Dollar", "$"), ("pounds", "Pfund", "£"), ("francs", "Franken", None)]
SCALES = [("million", "Millionen"), ("billion", "Milliarden"), ("billion", "Milliarden"), ("trillion", "Billionen")]


def price_pair(rng: random.Random) -> Pair:
    """Make a sentence with a sum of money."""
    unit, einheit, sign = rng.choice(CURRENCIES)
    priced, (english, german) = PRICED, number(rng, 3000)
    if rng.random() < 0.5:
        n, tenth, (scale, stufe) = rng.randint(2, 900), rng.randint(1, 9), rng.choice(SCALES)
        english, german = rng.choice([in_digits(n), in_digits(n % 30, str(tenth))])
        priced, english, german = DEAR, f"{english} {scale}", f"{german} {stufe}"
    if english[0].isdigit() and sign and rng.random() < 0.4:
        english, german = f"{sign}{english}", f"{german} {rng.choice([einheit, sign])}"
    else:
        english, german = f"{english} {unit}", f"{german} {einheit}"
    city, frame = rng.choice(CITIES), rng.choice(priced)
    return filled(frame, english, german, city)


MONTHS_EN = "January February March April May June July August September October November December".split()
MONTHS_DE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
WEEKDAYS_EN = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
WEEKDAYS_DE = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()
DATED = frames("""
    She was born on {q}. | Sie wurde am {q} geboren.
    The contract was signed on {q}. | Der Vertrag wurde am {q} unterzeichnet.
    The exhibition opens in {city} on {q}. | Die Ausstellung wird am {q} in {city} eröffnet.
    The bridge was opened on {q}. | Die Brücke wurde am {q} eröffnet.
    The deadline is {q}. | Die Frist endet am {q}.
    On {q} the war ended. | Am {q} endete der Krieg.
    The law came into force on {q}. | Das Gesetz trat am {q} in Kraft.
    The next meeting will take place on {q}. | Die nächste Sitzung findet am {q} statt.
    The team plays in {city} on {q}. | Die Mannschaft spielt am {q} in {city}.
    Since {q} he has been living in {city}. | Seit dem {q} lebt er in {city}.
""")
ON_WEEKDAY = ("The festival begins on {q}.", "Das Festival beginnt am {q}.")


def date_pair(rng: random.Random) -> Pair:
    """Make a sentence with a date."""
    day, month, year = rng.randint(1, 28), rng.choice(range(12)), rng.randint(1780, 2035)
    with_year = rng.random() < 0.75
    english = rng.choice([f"{day} {MONTHS_EN[month]}", f"{MONTHS_EN[month]} {day}"])
    german = f"{day}. {MONTHS_DE[month]}"
    if with_year:
        english += f" {year}" if english[0].isdigit() else f", {year}"
        german += f" {year}"
    if with_year and rng.random() < 0.3:
        german = rng.choice([f"{day}.{month + 1}.{year}", f"{day:02d}.{month + 1:02d}.{year}"])
    elif rng.random() < 0.2:
        weekday = rng.choice(range(7))
        english, german = f"{WEEKDAYS_EN[weekday]}, {english}", f"{WEEKDAYS_DE[weekday]}, dem {german}"
        return filled(ON_WEEKDAY, english, german, rng.choice(CITIES))
    return filled(rng.choice(DATED), english, german, rng.choice(CITIES))


def measure_pairs(count: int, rng: random.Random) -> list[Pair]:
    """Make this many different sentences in English and German with times, dates, prices and units."""
    makers = [clock_pair, clock_pair, unit_pair, unit_pair, unit_pair, price_pair, date_pair]
    made: dict[Pair, None] = {}
    while len(made) < count:
        made[rng.choice(makers)(rng)] = None
    return list(made)


# --- the whole ------------------------------------------------------------------------------------------------


def make(folder: Path, out: Path, languages: Pair, back: Path | None, keep_out: list[Path], seed: int) -> None:
    """Write all training files, and the number of pairs of each."""
    source, target = languages
    corpora = Corpora(folder, source, held_out_in(copy_held_out(folder, out, languages), keep_out, languages))
    (out / "train").mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}

    def write(name: str, pairs: Iterable[Pair]) -> None:
        counts[name] = write_pairs(out / "train" / f"{name}.tsv", pairs)
        print(f"{name} {counts[name]:,}", flush=True)

    glossary = Glossary(corpora.pairs(*WORDS), frequent_words(corpora.pairs(*COMMON)))
    for name in corpora.files:
        write(name, tagged(corpora.pairs(name), name, target, glossary, random.Random(f"{seed} {name}")))
    if back:
        for name, pairs in back_translated(back, languages, corpora.usable):
            write(name, pairs)
    write("names", name_pairs(corpora, languages, random.Random(f"{seed} names")))
    if set(languages) == {"en", "de"}:
        measures = filter(corpora.usable, measure_pairs(MEASURES, random.Random(f"{seed} measures")))
        write("measures", (pair[::-1] for pair in measures) if source == "de" else measures)
    (out / "counts.json").write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="folder with train/, valid/ and test/")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--source", required=True, choices=["en", "de", "fr"])
    parser.add_argument("--target", required=True, choices=["en", "de", "fr"])
    parser.add_argument("--back", type=Path, help="folder with NAME.source by a machine and NAME.target by people")
    parser.add_argument("--keep-out", type=Path, nargs="*", default=[], help="TSV files whose texts are held out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if "en" not in (args.source, args.target) or args.source == args.target:
        parser.error("one of the languages must be English, the other must not")
    make(args.corpora, args.out, (args.source, args.target), args.back, args.keep_out, args.seed)


if __name__ == "__main__":
    main()
