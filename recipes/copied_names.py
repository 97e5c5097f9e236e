"""Learn which names two languages write alike, from the training pairs of docs/guide/prepare.md.

    python recipes/copied_names.py CORPORA LANGUAGE -o onehop/text/names

It writes en-LANGUAGE.txt, the names, and SOURCE-TARGET.translated.txt for each source language that writes nouns in
small letters: words that occur alone with a capital letter and are still translated.

A name is a word with a capital letter inside a sentence. It is listed if both sides mostly have it together: Paul and
Denver are, Munich, Monday and Parliament are not. Words that are common in lower case are left out.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from translation_data import Corpora

from onehop.text.names import lone_capitalised_words

SOURCES = ("tatoeba", "news-clean", "news-more", "news-synthetic", "chat", "press", "games-dialogue", "books")
# Single names are counted in these: Tatoeba's authors change names freely, and Mary becomes Maria.
PLAIN = (*(name for name in SOURCES if name != "tatoeba"), "europarl-0", "europarl-1", "europarl-2", "stories-guides")
# Inside a sentence: after a lower-case word or a comma, not after a full stop, a colon or a quotation mark.
INSIDE = re.compile(r"(?<=[a-zäöüß,àéèê] )([A-ZÄÖÜÉÁŠČŽ][a-zäöüßéèêáàíóúçñšžćčãâøåë]{2,})(?![\w-])")
# Adjacent words, which may be a first and a last name.
FULL = re.compile(r"(?<![\w-])(?=([A-Z]\w*[a-z]) ([A-Z]\w*[a-z])(?![\w-]))")
WORD = re.compile(r"[^\W\d_]+")
LEAST = 2
# Least share of the English sentences with a name that have it on the other side, and of those with it there.
SHARE, SHARE_BACK, SHARE_ALONE = 0.5, 0.7, 0.25
MOST_SMALL = 0.5  # a word with more lower-case occurrences than this for each capitalised one is no name


def copied(pairs: Iterator[tuple[str, str]]) -> list[str]:
    """Find the words that have a capital in English sentences and are nearly always copied."""
    seen, kept, others, both, small, full, full_kept = (Counter[str]() for _ in range(7))
    for english, other in pairs:
        words, theirs, ours = set(INSIDE.findall(english)), set(WORD.findall(other)), set(WORD.findall(english))
        seen.update(words)
        kept.update(w for w in words if w in theirs or f"{w}s" in theirs)
        others.update(w for w in theirs if w[0].isupper())
        both.update(theirs & ours)
        small.update(w.capitalize() for w in ours if w.islower())
        for pair in set(FULL.findall(english)):
            full.update(pair)
            full_kept.update(pair if " ".join(pair) in other else ())
    alone = {w for w, n in seen.items() if n >= LEAST and kept[w] >= SHARE * n and small[w] <= MOST_SMALL * n}
    # "John" may become "Johannes" in an everyday sentence, but nobody translates "John Smith". Scotland Yard is copied
    # too, but "Scotland" alone hardly ever.
    together = {w for w, n in full_kept.items() if n >= LEAST and n >= SHARE_BACK * full[w] and small[w] <= full[w]}
    together = {w for w in together if kept[w] >= SHARE_ALONE * seen[w]}
    return sorted(w for w in alone | together if len(w) > 2 and both[w] >= SHARE_BACK * others[w])


def translated(pairs: Iterator[tuple[str, str]], source: str) -> list[str]:
    """Find the words that occur alone with a capital and are copied in less than half of the sentences."""
    seen, kept = Counter[str](), Counter[str]()
    for text, other in pairs:
        words, theirs = {word for _, word in lone_capitalised_words(text, source)}, set(WORD.findall(other))
        seen.update(words)
        kept.update(w for w in words if w in theirs or f"{w}s" in theirs)
    return sorted(w for w, n in seen.items() if kept[w] < SHARE * n)


def write(file: Path, words: list[str]) -> None:
    """Write a word a line."""
    file.write_text("\n".join(words) + "\n", encoding="utf-8")
    print(f"{file}: {len(words)} words")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="folder with train/")
    parser.add_argument("language", choices=["de", "fr"])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the lists")
    args = parser.parse_args()
    corpora = Corpora(args.corpora, ("en", args.language), frozenset())

    def pairs(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        return (pair for name in names if name in corpora.files for pair in corpora.english_first(name))

    args.out.mkdir(parents=True, exist_ok=True)
    write(args.out / f"en-{args.language}.txt", copied(pairs(SOURCES)))
    write(args.out / f"en-{args.language}.translated.txt", translated(pairs(PLAIN), "en"))
    if args.language == "fr":  # German writes every noun with a capital
        back = ((other, english) for english, other in pairs(PLAIN))
        write(args.out / "fr-en.translated.txt", translated(back, "fr"))


if __name__ == "__main__":
    main()
