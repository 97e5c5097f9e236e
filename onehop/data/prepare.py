"""Make a token store from raw text in three stages: filter, learn the tokenizer, encode.

Each stage writes its result to a work folder next to the store, so a killed run resumes and ends with the same bytes.
The store appears by an atomic rename at the end.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from onehop.atomic import write_json
from onehop.config import Settings
from onehop.console import NoProgress, StageProgress
from onehop.data.clean import FILTERED, Inputs, filter_stage, read_filtered
from onehop.data.corpus import STDIN, ParallelFile, content_hash, find_files
from onehop.data.encode import encode_stage, learn_stage
from onehop.data.shards import PARTS
from onehop.data.store import DESCRIPTION, TOKENIZER, VERSION, Store, tokenizer_hash
from onehop.errors import OtherStoreError, StoreError, TextError, write_errors
from onehop.machine import available_cores, sync
from onehop.text.language_id import identifier_version

_MADE_FROM = "made_from.json"
_Maker = Callable[[Path, Settings, Inputs, bytes | None, StageProgress], None]


def prepare(
    settings: Settings,
    out: Path,
    *,
    root: Path | None = None,
    tokenizer: bytes | None = None,
    processes: int | None = None,
    force: bool = False,
    stdin: BufferedIOBase | None = None,
    progress: StageProgress | None = None,
    make: _Maker | None = None,
) -> Store:
    """Make a token store from the files in `settings.data`. Relative paths are below `root`; `-` is `stdin`.

    Without `tokenizer` (a SentencePiece model) one is learned. A store of the same settings and files is returned
    unchanged; another one is replaced only with `force`. The bytes do not depend on `processes`. `make` replaces the
    stages here, and makes the store in the work folder.
    """
    progress = progress or NoProgress()
    _refuse_foreign_folder(out)
    with work_folder(out) as work:
        inputs = _find_inputs(settings, root or Path(), work, tokenizer, stdin)
        if not force and _same_store_exists(out, inputs.made_from):
            progress.note(f"{out} was already made from these settings and files.")
        else:
            _keep_or_reset(work, inputs.made_from)
            make = make or partial(_make_store, processes=processes or available_cores())
            if not (work / "store" / DESCRIPTION).exists():
                make(work, settings, inputs, tokenizer, progress)
            _move_into_place(work, out)
        shutil.rmtree(work)
    return Store.open(out)


def _make_store(
    work: Path,
    settings: Settings,
    inputs: Inputs,
    tokenizer: bytes | None,
    progress: StageProgress,
    *,
    processes: int,
) -> None:
    """Run the stages that have no result yet."""
    if not (work / FILTERED).exists():
        filter_stage(work, settings.data, inputs, processes, progress)
    filtered = read_filtered(work)
    if not (work / TOKENIZER).exists():
        learn_stage(work, filtered, settings.tokenizer, tokenizer, processes, progress)
    encode_stage(work, settings, inputs, filtered, processes, progress)


# --- the work folder ------------------------------------------------------------------------------------------


@contextmanager
def work_folder(out: Path) -> Iterator[Path]:
    """A work folder next to the store, locked by one process. Finished stages stay after an error."""
    work = out.with_name(out.name + ".partial")
    with write_errors(work, error=StoreError, full="Free some space and start again."):
        work.mkdir(parents=True, exist_ok=True)
        with _lock(work / "lock", out):
            try:
                yield work
            finally:
                if not (work / _MADE_FROM).exists():
                    shutil.rmtree(work, ignore_errors=True)  # it has no finished stage


def _lock(lock: Path, out: Path) -> AbstractContextManager[Any]:
    """Lock the work folder. The lock ends with its process."""
    try:
        return FileLock(lock).acquire(timeout=0)
    except Timeout:
        raise StoreError(f"Another process is writing {out}.", "Wait for it, or give another -o.") from None


def _keep_or_reset(work: Path, made_from: dict[str, Any]) -> None:
    """Keep the finished stages if they have the same inputs; else delete them."""
    record = work / _MADE_FROM
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) == made_from:
        return
    for name in (_MADE_FROM, FILTERED, TOKENIZER):
        (work / name).unlink(missing_ok=True)
    for name in ("store", PARTS):
        shutil.rmtree(work / name, ignore_errors=True)
    write_json(record, made_from)


def _move_into_place(work: Path, out: Path) -> None:
    if out.exists():
        shutil.rmtree(work / "old", ignore_errors=True)
        out.rename(work / "old")
    (work / "store").rename(out)
    sync(out.parent)


def _refuse_foreign_folder(out: Path) -> None:
    """Refuse a folder that is not a store, even with force."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / DESCRIPTION).is_file():
        raise StoreError(f"{out} exists and is not a token store.", "Give another folder with -o.")
    if (out / "run.json").exists():
        raise StoreError(f"{out} also holds a training run.", "Give another folder with -o.")


def _same_store_exists(out: Path, made_from: dict[str, Any]) -> bool:
    """Whether `out` was made from the same inputs; an error if it is another store."""
    if not (out / DESCRIPTION).exists():
        return False
    try:
        stored = Store.open(out).description["made_from"]
    except StoreError as e:
        raise StoreError(e.what, "Make it again with --force, or give another folder with -o.") from None
    if stored == made_from:
        return True
    raise OtherStoreError(
        f"{out} already exists and was made differently: {_difference(stored, made_from)}.",
        "Give another folder with -o, or --force to replace it.",
    )


def _difference(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first difference between the inputs of two stores. Lists of files are too long to show."""
    for table, values in wanted.items():
        old = stored.get(table)
        pairs = [(table, old, values)]
        if isinstance(values, dict) and isinstance(old, dict):
            pairs = [(f"{table}.{key}", old.get(key), value) for key, value in values.items()]
        for name, before, now in pairs:
            if before != now:
                return f"{name} were other files" if isinstance(now, list) else f"{name} was {before}, now it is {now}"
    return "by another version"


def _find_inputs(
    settings: Settings, root: Path, work: Path, tokenizer: bytes | None, stdin: BufferedIOBase | None
) -> Inputs:
    """Find every file, and collect the inputs that identify a store."""
    data = settings.data
    if not data.train:
        raise TextError("No training text is given.", "Name files on the command line or in data.train.")

    def find(entries: Sequence[str]) -> list[ParallelFile]:
        languages = data.source, data.target
        matches = [
            [_stdin_file(stdin, work)] if entry == STDIN else find_files([entry], root, *languages, data.columns)
            for entry in entries
        ]
        return list(chain.from_iterable(matches))

    files = {split: find(getattr(data, split) or ()) for split in ("train", "mix", "valid", "test")}
    # Unset settings are omitted, so that a store keeps its identity when a version adds one.
    options = {k: v for k, v in asdict(data).items() if k not in files and v is not None}
    learned = {k: v for k, v in asdict(settings.tokenizer).items() if k != "dropout" and v is not None}
    made_from = {
        "version": VERSION,
        "files": {
            split: [[f.name, content_hash(f)] for f in matches]
            for split, matches in files.items()
            if matches or split != "mix"  # as above: `mix` was added later
        },
        "data": options,
        "tokenizer": learned if tokenizer is None else {"given": tokenizer_hash(tokenizer)},
        "identifier": identifier_version() if data.language else None,
    }
    return Inputs(**files, made_from=made_from)


def _stdin_file(stdin: BufferedIOBase | None, work: Path) -> ParallelFile:
    """Standard input, which can be read only once, as a file."""
    if stdin is None:
        raise TextError("The training text is -, but there is no standard input.", "Pipe a TSV into the command.")
    with (work / "stdin.tsv").open("wb") as copy:
        shutil.copyfileobj(stdin, copy)
    return ParallelFile(name="stdin", paths=(work / "stdin.tsv",))
