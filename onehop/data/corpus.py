"""Find the files that the settings name, and read them line by line, plain or compressed."""

import codecs
import gzip
import hashlib
import importlib
import io
import lzma
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from onehop.errors import SettingsError, TextError, require

STDIN = "-"
LANG = "{lang}"  # in the name of a pair of files, its two languages
CONVERT = "Convert it, e.g. with `iconv -f latin1 -t utf-8`."
GLOB_MARKS = "*?["
PACKED = (".gz", ".xz", ".zst")
# Endings of files of records; each has a reader in onehop/data/records.py.
FORMATS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".tmx": "tmx",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The limit prevents a broken file from filling memory.
LONGEST_LINE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ParallelFile:
    """One entry of the settings: a TSV file (one path), two aligned files (source and target path), or records.

    The columns of records are found by the languages, or by `columns` if given.
    """

    name: str
    paths: tuple[Path, ...]
    format: str | None = None  # of records; None: lines
    languages: tuple[str, str] = ("", "")
    columns: tuple[str, ...] | None = None

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    @property
    def names(self) -> str:
        shards = self.format is not None and len(self.paths) > 1
        return str(self.paths[0].parent) if shards else " and ".join(str(path) for path in self.paths)


# --- which files ----------------------------------------------------------------------------------------------

ENDINGS = ".tsv, .csv, .jsonl, .parquet and .tmx"
_PAIR_REMEDY = f"Name aligned files like train.en train.de, or give files with both sides ({ENDINGS})."


def _format_of(path: Path) -> str | None:
    """The format of a file of records, by its extension; None for lines."""
    name = path.name.lower()
    packed = next((ending for ending in PACKED if name.endswith(ending)), "")
    return FORMATS.get(Path(name.removesuffix(packed)).suffix)


def find_files(
    entries: Sequence[str], root: Path, source: str, target: str, columns: tuple[str, ...] | None = None
) -> list[ParallelFile]:
    """The files of the settings' entries, checked to exist. Relative paths are below `root`."""
    if columns is not None and len(columns) != 2:
        raise SettingsError(
            f"data.columns names {len(columns)} columns.", "Name two: the source column and the target column."
        )
    files = (file for entry in entries for file in _files_of_entry(entry, root, source, target))
    return [replace(file, columns=columns) for file in files]


def _files_of_entry(entry: str, root: Path, source: str, target: str) -> list[ParallelFile]:
    """The files of one entry: a file with both sides, a pattern of such files in the order of names, or {lang}."""

    def file(path: Path) -> ParallelFile:
        paths = _dataset_files(path) if path.is_dir() else (path,)
        format = _format_of(paths[0])
        return _checked(ParallelFile(name=path.name, paths=paths, format=format, languages=(source, target)))

    if LANG in entry:
        paths = tuple(root / entry.replace(LANG, lang) for lang in (source, target))
        return [_checked(ParallelFile(name=Path(entry).name, paths=paths))]
    path = root / entry
    if any(mark in entry for mark in GLOB_MARKS) and not path.exists():
        base = Path(path.anchor) if path.is_absolute() else Path()
        matches = sorted(base.glob(str(path.relative_to(base))))
        if not matches:
            raise TextError(f"No file matches {path}.", "Correct the pattern or the data root.")
        return [file(match) for match in matches]
    return [file(path)]


def _dataset_files(folder: Path) -> tuple[Path, ...]:
    """The Arrow files of a folder written by Hugging Face's `save_to_disk`; the folder itself if it is none."""
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(path.parent.name for path in folder.glob("*/dataset_info.json"))
        raise TextError(
            f"{folder} is a dataset with several splits: {', '.join(splits)}.", f"Give one, such as {folder}/train."
        )
    if not (folder / "dataset_info.json").is_file():
        return (folder,)
    return tuple(sorted(folder.glob("*.arrow"))) or (folder,)


def entries_from_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """The entries for files named on the command line, and the two languages if the names tell them.

    Files with both sides, `-` and names with {lang} are entries by themselves. Others come in pairs, such as
    train.en train.de.
    """
    whole = [name for name in names if _needs_no_partner(name)]
    sides = [name for name in names if not _needs_no_partner(name)]
    if len(sides) % 2:
        raise TextError(f"{sides[-1]} has no partner.", _PAIR_REMEDY)
    pairs = [_entry_of_pair(*sides[i : i + 2]) for i in range(0, len(sides), 2)]
    languages = {pair for _, pair in pairs}
    if len(languages) > 1:
        raise TextError(f"The files have {len(languages)} language pairs.", "Give one language pair at a time.")
    return (*whole, *(entry for entry, _ in pairs)), languages.pop() if languages else None


def _needs_no_partner(name: str) -> bool:
    path = Path(name)
    return (
        LANG in name or name == STDIN or ".tsv" in path.suffixes or _format_of(path) is not None or os.path.isdir(path)
    )


def _entry_of_pair(one: str, two: str) -> tuple[str, tuple[str, str]]:
    """The entry with {lang} for two names that differ in one part between dots, and their languages."""
    first, second = one.split("."), two.split(".")
    differ = [i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
    if len(first) != len(second) or len(differ) != 1 or differ[0] == 0:
        missing = [name for name in (one, two) if not Path(name).exists()]
        if len(missing) == 1:  # if both are missing, they may be meant below a data root
            raise TextError(f"{missing[0]} does not exist.", _PAIR_REMEDY)
        raise TextError(f"{one} and {two} are not named as a pair.", _PAIR_REMEDY)
    index = differ[0]
    return ".".join([*first[:index], LANG, *first[index + 1 :]]), (first[index], second[index])


def _checked(file: ParallelFile) -> ParallelFile:
    """The file, after a check that all its paths can be opened."""
    for path in file.paths:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            remedy = "Give a pair of files written as name.{lang}, a file with both sides, or a Hugging Face dataset."
            raise TextError(f"{path} {what}.", remedy)
    return file


def content_hash(file: ParallelFile) -> str:
    """A hash of the bytes on disk. It identifies an input regardless of its name or date."""
    digest = hashlib.blake2b(digest_size=16)
    for path in file.paths:
        with read_errors(path), path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()


# --- reading bytes --------------------------------------------------------------------------------------------


@contextmanager
def read_errors(path: Path | str) -> Iterator[None]:
    """Turn errors while reading a file into one that names the file."""
    try:
        yield
    except Exception as e:
        damaged = (EOFError, lzma.LZMAError, gzip.BadGzipFile)
        if isinstance(e, damaged) or type(e).__name__ in ("ArrowInvalid", "ZstdError", "error"):
            raise TextError(f"{path} is cut off or damaged ({e}).", "Download it again.") from None
        if isinstance(e, OSError):
            reason = e.strerror or str(e)
            raise TextError(f"{path} cannot be read: {reason}.", "Check the file and its permissions.") from None
        raise


def unpacked(raw: IO[bytes], path: Path) -> Any:
    """The content of an open file as a stream, decompressed according to its suffix."""
    if path.suffix == ".gz":
        return gzip.open(raw, "rb")
    if path.suffix == ".xz":
        return lzma.open(raw, "rb")
    if path.suffix == ".zst":
        name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        require(name, instead=f"unpack {path}")
        return importlib.import_module(name).open(raw, "rb")
    return raw


class RawFile:
    """A file's decompressed bytes, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw: IO[bytes] | None = None

    @property
    def consumed(self) -> int:
        """Bytes read from disk, for a progress bar."""
        if self._raw is None:
            return 0
        return self.path.stat().st_size if self._raw.closed else self._raw.tell()

    @contextmanager
    def opened(self) -> Iterator[io.BufferedReader]:
        with read_errors(self.path), self.path.open("rb") as raw, unpacked(raw, self.path) as stream:
            self._raw = raw
            # The decompressors look for line ends in Python; this buffer does it in C.
            yield io.BufferedReader(stream, 1 << 18)


class Lines(RawFile):
    """Lines of a file without their end. Only a newline ends a line, so that aligned files agree with `wc -l`."""

    def __iter__(self) -> Iterator[bytes]:
        with self.opened() as buffered:
            first = True
            while line := buffered.readline(LONGEST_LINE):
                if first:
                    refuse_other_unicode(line, self.path)
                    line, first = line.removeprefix(BYTE_ORDER_MARK), False
                rest = line
                while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):  # the rest of a longer line is skipped
                    rest = buffered.readline(LONGEST_LINE)
                yield line.rstrip(b"\r\n")


def decode_line(line: bytes, number: int, name: Path | str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise TextError(f"Line {number} of {name} is not UTF-8.", CONVERT) from None


def refuse_other_unicode(first_line: bytes, path: Path) -> None:
    """Refuse a file that begins with the byte order mark of UTF-16 or UTF-32, or with many NUL bytes."""
    if first_line.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # BOM_UTF32_LE begins with UTF-16's
        encoding = "UTF-32"
    elif first_line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "UTF-16"
    elif 4 * first_line.count(0) > len(first_line):
        raise TextError(f"{path} is not UTF-8: line 1 has many NUL bytes.", "Give a text in UTF-8.")
    else:
        return
    name = f" {shlex.quote(str(path))}" if path.exists() else ""  # standard input has no name
    remedy = f"Convert it with `iconv -f {encoding} -t UTF-8{name}`."
    raise TextError(f"{path} is {encoding} (line 1), not UTF-8.", remedy)


# --- misaligned files -----------------------------------------------------------------------------------------------


def unequal_lines_error(file: ParallelFile) -> TextError:
    """The error for two files that cannot be aligned, with the line where they seem to diverge."""
    src, tgt = ([len(line) for line in Lines(path)] for path in file.paths)
    line = first_suspicious_line(src, tgt)
    return TextError(
        f"{file.paths[0]} has {len(src)} lines and {file.paths[1]} has {len(tgt)}.",
        f"They must be aligned line by line. Check line {line}, where sentence lengths stop matching.",
    )


def first_suspicious_line(src: Sequence[int], tgt: Sequence[int]) -> int:
    """The line, counted from 1, where one of two aligned files lost or gained lines, judged by line lengths.

    Before it, line i matches line i. After it, line i matches the line that is lower by the difference of the lengths.
    The result minimises the sum of both mismatches.
    """
    import numpy as np  # imported here: translating lines does not need it

    longer, shorter = map(np.asarray, (src, tgt) if len(src) > len(tgt) else (tgt, src))
    shift, n = len(longer) - len(shorter), len(shorter)
    if n == 0:
        return 1
    unshifted = np.log((longer[:n] + 1) / (shorter + 1))
    shifted = np.log((longer[shift:] + 1) / (shorter + 1))
    usual = np.median(np.concatenate([unshifted, shifted]))
    # Limited, so that one outlier does not outweigh many good lines.
    misfit_unshifted, misfit_shifted = (np.minimum(np.abs(d - usual), 2.0) for d in (unshifted, shifted))
    before = np.concatenate([[0.0], np.cumsum(misfit_unshifted)])
    after = np.sum(misfit_shifted) - np.concatenate([[0.0], np.cumsum(misfit_shifted)])
    return int(np.argmin(before + after)) + 1
