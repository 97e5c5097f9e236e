"""Make training data with tags for a translation model, from the corpora of docs/guide/prepare.md.

    python recipes/translation_data.py CORPORA OUT --source de --target en --back BACK

CORPORA holds train/, valid/ and test/ of English and one other language. A training file has English in its first
column. The script writes the same folders to OUT, with the source language first, as `onehop prepare` expects them.
It puts these tags into some sources:

    <bt> …                               a machine wrote the source (back-translation)
    <2en> …                              the target language
    <formal> …, <informal> …             how a German or French target addresses the reader
    … <term> Haus <as> house </term> …   a term and the translation that it must get

It also makes three kinds of new sources. `back-*` are the back-translations in the folder BACK. `names` are ordinary
pairs with other names in them. `measures` are sentences with clock times, dates, prices and units.
A French target gets one way of writing: a straight apostrophe, a space before ? ! : ;, and the quotation marks of
its source, which are « » if that has “ ” or none.
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

import french_measures
import german_measures
from measures import Pair

from onehop.data.filters import HeldOut, held_out_sides, is_held_out
from onehop.text.formality import formality
from onehop.text.tokenizer import normalise

TAGS = (
    *("<bt>", "<2en>", "<2de>", "<2fr>", "<formal>", "<informal>", "<term>", "<as>", "</term>"),
    *(f"<tag{i}>" for i in range(1, 9)),  # for later use
)

LEFT_OUT = ("bible",)  # its language is archaic, and many of its pairs are no translations
WORDS = ("dictionary", "phrases")  # the glossary comes from these, or from SHORT if there are none
SHORT = ("tatoeba", "games-dialogue", "news-clean", "press")
NO_SENTENCES = (*WORDS, "interface-strings")  # no terms are marked in these
COMMON = ("tatoeba", "news-clean")  # the commonest words are counted in these
NAMED = ("tatoeba", "news-clean", "news-more", "news-synthetic", "chat")  # names are replaced in these
HARVESTED = (*NAMED, "press", "games-dialogue", "europarl-0", "europarl-1")  # new names come from these

LANGUAGE_SHARE, TERM_SHARE, FORMALITY_SHARE = 0.03, 0.04, 0.3
FREQUENT = 400  # this many of the commonest words are never marked as terms
MOST_NAMES = 40_000
MEASURES = 30_000

# The project explains attention with this sentence of the paper's authors, so no model may train on it.
NEVER = re.compile(
    r"\banimal\b.*\bcross\b.*\bstreet\b|\bTier\b.*\bStraße\b.*\bmüde\b|\banimal\b.*\brue\b.*\bfatigué", re.IGNORECASE
)

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

    def __init__(self, folder: Path, languages: Pair, held_out: HeldOut) -> None:
        self.folder, self.languages, self.held_out = folder, languages, held_out
        found = {path.name.split(".")[0]: path for path in sorted((folder / "train").glob("*.xz"))}
        self.files = {name: path for name, path in found.items() if name not in LEFT_OUT}

    def pairs(self, *names: str) -> Iterator[Pair]:
        """Yield source and target of each usable line of the named files; a file may be missing."""
        for name in filter(self.files.__contains__, names):
            for english, other in self.english_first(name):
                pair = plain(english), plain(other)
                if self.usable(pair):
                    yield self.directed(pair)

    def directed(self, pair: Pair) -> Pair:
        """Turn a pair with English first into the wanted direction."""
        if self.languages[0] != "en":
            return pair[::-1]
        return french_typography(*pair) if self.languages[1] == "fr" else pair

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
        return all(pair) and not any(map(NEVER.search, pair)) and not is_held_out(self.held_out, *pair)


def french_typography(source: str, target: str) -> Pair:
    """Write a French target in one way; the corpora mix several."""
    target = re.sub(r"(?<=\w)([?!:;])(?=\s|$)", r" \1", target.replace("’", "'"))
    if '"' in source and "«" in target:
        target = re.sub(r"«\s*|\s*»", '"', target)
    elif '"' not in source and target.count('"') == 2:
        target = re.sub(r'"\s*(.*?)\s*"', r"« \1 »", target)
    return source, target


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


def learned_entries(pairs: Iterable[Pair]) -> list[Pair]:
    """Find words that translate each other: no other word stands beside them in as many pairs (Dice's coefficient)."""
    sources, targets, both = Counter[str](), Counter[str](), Counter[Pair]()
    for pair in pairs:
        one, two = (set(re.findall(r"[^\W\d_][\w-]{3,}", side)) for side in pair)
        if len(one) * len(two) <= 200:
            sources.update(one)
            targets.update(two)
            both.update((s, t) for s in one for t in two)
    dice = {p: 2 * n / (sources[p[0]] + targets[p[1]]) for p, n in both.items() if n >= 4}
    best: dict[tuple[int, str], float] = {}
    for pair, score in dice.items():
        for side in enumerate(pair):
            best[side] = max(score, best.get(side, 0.5))
    return [p for p, score in dice.items() if p[0] != p[1] and score == best[0, p[0]] == best[1, p[1]]]


def frequent_words(pairs: Iterable[Pair]) -> frozenset[str]:
    """Return the commonest words of both sides in lower case."""
    counts = Counter(word for pair in pairs for side in pair for word in re.findall(r"\w+", side.lower()))
    return frozenset(word for word, _ in counts.most_common(FREQUENT))


# --- formality, and tags on ordinary pairs --------------------------------------------------------------------


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
            yield (f"<{tag}> {pair[0]}", pair[1]) if tag else pair


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


# --- the whole ------------------------------------------------------------------------------------------------


def make(folder: Path, out: Path, languages: Pair, back: Path | None, keep_out: list[Path], seed: int) -> None:
    """Write all training files, and the number of pairs of each."""
    source, target = languages
    corpora = Corpora(folder, languages, held_out_in(copy_held_out(folder, out, languages), keep_out, languages))
    (out / "train").mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}

    def write(name: str, pairs: Iterable[Pair]) -> None:
        counts[name] = write_pairs(out / "train" / f"{name}.tsv", pairs)
        print(f"{name} {counts[name]:,}", flush=True)

    known = list(corpora.pairs(*WORDS)) or learned_entries(corpora.pairs(*SHORT))
    glossary = Glossary(known, frequent_words(corpora.pairs(*COMMON)))
    for name in corpora.files:
        write(name, tagged(corpora.pairs(name), name, target, glossary, random.Random(f"{seed} {name}")))
    if back:
        for name, pairs in back_translated(back, languages, corpora.usable):
            write(name, pairs)
    write("names", name_pairs(corpora, languages, random.Random(f"{seed} names")))
    makers = {"de": german_measures.measure_pairs, "fr": french_measures.measure_pairs}
    other = target if source == "en" else source
    measures = makers[other](MEASURES, random.Random(f"{seed} measures"))
    write("measures", map(corpora.directed, filter(corpora.usable, measures)))
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
