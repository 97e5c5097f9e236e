"""The filters of parallel text, and the report that counts and shows what they drop."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from onehop.config import DataSettings
from onehop.data.chunks import RawChunk
from onehop.data.corpus import LANG
from onehop.text.language_id import IDENTIFIER, LETTERS, LanguageCheck, identifier_version
from onehop.text.sentences import UNSPACED
from onehop.text.tokenizer import normalise

_SAMPLES = 3
_SAMPLE_LENGTH = 100  # characters of a side in a sample

# In the order of the checks: a pair is counted at the first one that it fails.
REASONS = {
    "columns": "not two sides",
    "utf8": "invalid UTF-8",
    "empty": "empty side",
    "identical": "identical sides",
    "alphabetic": "too few letters",
    "test": "in a test or validation file",
    "language": "wrong language",
    "duplicate": "duplicate pair",
    "long": "too many tokens",
    "ratio": "length ratio",
    "valid": "in the held-out validation pairs",
}

# The same for plain text, which has one side; the other reasons cannot occur there.
PLAIN_REASONS = {
    "utf8": "invalid UTF-8",
    "empty": "empty",
    "alphabetic": "too few letters",
    "test": "in a test or validation file",
    "language": "wrong language",
    "duplicate": "duplicate text",
    "long": "too many tokens",
    "valid": "in the held-out validation texts",
}

# Each character of a script without spaces counts as a word.
_WORD = re.compile(rf"[{UNSPACED}]|\w+")
_FEWEST_WORDS = 4  # shorter sides, such as "Thank you.", may occur anywhere

_ASCII = bytes(range(128))

_RATIO_FREE = 20  # tokens always allowed: "Start over." and "Fangen Sie noch mal von vorne an." are a good pair


# --- the report -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A dropped pair, and its file and line."""

    place: str
    source: str
    target: str


@dataclass(kw_only=True)
class Dropped:
    """The number of pairs that one filter dropped, with the first few of them."""

    count: int = 0
    samples: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        self.count += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(sample)

    def merge(self, later: "Dropped") -> None:
        self.count += later.count
        self.samples = [*self.samples, *later.samples][:_SAMPLES]


@dataclass(kw_only=True)
class FilterReport:
    """Counts of the pairs that were read, dropped by each filter, and stored."""

    files: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, Dropped] = field(default_factory=lambda: {reason: Dropped() for reason in REASONS})
    train: int = 0
    valid: int = 0
    train_tokens: tuple[int, int] = (0, 0)
    vocabulary: int = 0
    notes: list[str] = field(default_factory=list)
    added: int = 0  # additional texts from splitting long ones

    @property
    def read(self) -> int:
        return sum(self.files.values())

    def merge(self, dropped: Mapping[str, Dropped]) -> None:
        for reason, later in dropped.items():
            self.dropped[reason].merge(later)


def report_to_dict(report: FilterReport) -> dict[str, Any]:
    values = {**asdict(report), "train_tokens": list(report.train_tokens)}
    # Without splits the key is omitted, so that older stores keep their description.
    return values if report.added else {name: value for name, value in values.items() if name != "added"}


def report_from_dict(values: Mapping[str, Any]) -> FilterReport:
    dropped = {
        reason: Dropped(count=d["count"], samples=[Sample(**s) for s in d["samples"]])
        for reason, d in values["dropped"].items()
    }
    src, tgt = values["train_tokens"]
    return FilterReport(**{**values, "dropped": dropped, "train_tokens": (src, tgt)})


def report_to_text(report: FilterReport) -> str:
    src, tgt = report.train_tokens
    what, tokens = ("pair", f"{src:,} source and {tgt:,} target tokens") if src else ("text", f"{tgt:,} tokens")
    cut = f", cut into {report.read + report.added:,}" if report.added else ""
    files = sum(2 if LANG in name else 1 for name in report.files)  # name.{lang} is a pair of files
    lines = [
        f"{counted(report.read, what)} read from {counted(files, 'file')}{cut}",
        f"{report.train:,} for training ({tokens}, vocabulary of {report.vocabulary:,})",
        f"{report.valid:,} for validation",
    ]
    for reason, words in (REASONS if src else PLAIN_REASONS).items():
        if not (dropped := report.dropped[reason]).count:
            continue
        lines.append(f"{dropped.count:>12,} dropped: {words}")
        for sample in dropped.samples:
            text = f"{sample.source!r} → {sample.target!r}" if src else repr(sample.target)
            lines.append(f"{'':14}{sample.place}  {text}")
    return "\n".join(lines + report.notes) + "\n"


def counted(count: int, thing: str) -> str:
    """A count with its noun, singular for 1."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def hash64(text: str) -> int:
    """A hash that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def side_hash(text: str) -> int | None:
    """The hash to compare with the test set: words without case and punctuation; None for short sides."""
    words = _WORD.findall(text.casefold())
    return hash64(" ".join(words)) if len(words) >= _FEWEST_WORDS else None


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Sides that must not be trained on, compared by their words. Short sides are not included."""

    openings: frozenset[str] = frozenset()
    hashes: frozenset[int] = frozenset()

    def __contains__(self, side: str) -> bool:
        # Nearly every side differs within its first words, so the full hash is rarely computed.
        return _opening(side) in self.openings and side_hash(side) in self.hashes


def _opening(side: str) -> str:
    """The first words of a side, without case and punctuation."""
    return " ".join(word[0] for word in islice(_WORD.finditer(side.casefold()), _FEWEST_WORDS))


def held_out_sides(pairs: Iterable[tuple[str, str]]) -> HeldOut:
    """All sides of the pairs, except short ones."""
    known = {h: _opening(side) for pair in pairs for side in pair if (h := side_hash(side)) is not None}
    return HeldOut(openings=frozenset(known.values()), hashes=frozenset(known))


class SeenHashes:
    """A set of 64-bit hashes in about eight bytes each: sorted arrays of decreasing size."""

    def __init__(self) -> None:
        self._sorted: list[npt.NDArray[Any]] = []

    def add(self, hashes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Add hashes; returns a mask of the new ones. A repeated new hash counts as new once."""
        values, first = np.unique(hashes, return_index=True)
        unseen = np.ones(len(values), bool)
        for known in self._sorted:
            index = np.minimum(np.searchsorted(known, values), len(known) - 1)
            unseen &= known[index] != values
        is_new = np.zeros(len(hashes), bool)
        is_new[first[unseen]] = True
        if is_new.any():
            added = values[unseen]
            while self._sorted and len(self._sorted[-1]) <= 2 * len(added):
                added = np.sort(np.concatenate([self._sorted.pop(), added]), kind="stable")
            self._sorted.append(added)
        return is_new


def language_notes(settings: DataSettings) -> list[str]:
    """Why the language filter is off although it was requested."""
    if not settings.language:
        return []
    if identifier_version() is None:
        return [f"The language filter was off: {IDENTIFIER} is not installed. Run: pip install {IDENTIFIER}"]
    known = LanguageCheck().known
    return [
        f"The language filter was off for {language!r}, which {IDENTIFIER} does not know."
        for language in (settings.source, settings.target)
        if language not in known
    ]


def letters_share(text: str) -> float:
    """The share of letters among the characters other than spaces."""
    characters = len(text) - text.count(" ")
    raw = text.encode()
    letters = len(raw) - len(raw.translate(None, LETTERS))
    if len(raw) > len(text):  # only non-ASCII characters are checked one by one
        letters += sum(map(str.isalpha, raw.translate(None, _ASCII).decode()))
    return letters / characters if characters else 0.0


# --- checks on a pair -----------------------------------------------------------------------------------------


class PairChecks:
    """The checks that need only one pair."""

    def __init__(self, settings: DataSettings, held_out: HeldOut) -> None:
        self.settings = settings
        self.held_out = held_out
        check_language = settings.language and identifier_version() is not None
        self.language = LanguageCheck() if check_language else None

    def reason(self, src: str, tgt: str) -> str | None:
        """The reason to drop a normalised pair, or None. Plain text is checked as both sides."""
        if self.settings.plain:
            src = tgt
        if not src or not tgt:
            return "empty"
        if self.settings.identical and src == tgt and not self.settings.plain:
            return "identical"
        if min(letters_share(src), letters_share(tgt)) < self.settings.alphabetic:
            return "alphabetic"
        if is_held_out(self.held_out, src, tgt):
            return "test"
        sides = ((src, self.settings.source), (tgt, self.settings.target))
        return "language" if self.language and any(self.language.is_wrong(*side) for side in sides) else None


def is_held_out(held_out: HeldOut, src: str, tgt: str) -> bool:
    return bool(held_out.hashes) and (src in held_out or tgt in held_out)


def wrong_length(src: int, tgt: int, settings: DataSettings) -> str | None:
    """The reason to drop a pair for its number of tokens, or None."""
    longer, shorter = max(src, tgt), min(src, tgt)
    if longer > settings.longest:
        return "long"
    return "ratio" if longer > max(settings.ratio * shorter, _RATIO_FREE) else None


# --- raw lines to pairs ---------------------------------------------------------------------------------------


def columns_of(chunk: RawChunk) -> Iterable[tuple[bytes, ...]]:
    """The raw columns of each line. An empty line of a TSV counts as two empty sides."""
    if chunk.tgt is None:
        return (tuple(line.split(b"\t")) if line else (b"", b"") for line in chunk.src)
    return ((src,) if tgt is None else (src, tgt) for src, tgt in zip(chunk.src, chunk.tgt, strict=True))


def decoded(columns: tuple[bytes, ...]) -> tuple[str, str] | str:
    """The normalised pair, or the reason to drop it."""
    if len(columns) != 2:
        return "columns"
    try:
        return normalise(columns[0].decode()), normalise(columns[1].decode())
    except UnicodeDecodeError:
        return "utf8"


def undecodable(columns: tuple[bytes, ...]) -> list[int]:
    return [i for i, column in enumerate(columns) if column.decode(errors="ignore").encode() != column]


def sample_of(location: str, columns: tuple[bytes, ...]) -> Sample:
    """A pair for the report, truncated, with U+FFFD for undecodable bytes."""
    source, target = (*columns, b"")[:2]
    return Sample(place=location, source=_truncated(source), target=_truncated(target))


def _truncated(side: bytes) -> str:
    text = side[: _SAMPLE_LENGTH * 4].decode(errors="replace")
    return text[:_SAMPLE_LENGTH] + ("…" if len(text) > _SAMPLE_LENGTH else "")
