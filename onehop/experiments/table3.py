"""Table 3 at another scale: each row is a change to given settings, trained with several seeds.

A row is relative to the base, so with the paper's base it is the paper's row. Each finished row is in its own file; the
same command trains the missing ones.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from onehop.atomic import new_folder, write_json
from onehop.config import ModelSettings, Settings, settings_to_dict, with_changes
from onehop.data.filters import report_to_dict
from onehop.data.prepare import prepare
from onehop.data.store import DESCRIPTION, Pairs, PairsWriter, Side, Store, read_description, write_description
from onehop.decoding.options import SearchOptions
from onehop.errors import SettingsError, StoreError
from onehop.evaluation.metrics import bleu
from onehop.experiments.parallel_runs import ParallelTask, run_parallel
from onehop.experiments.provenance import Json
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.setting_fields import nearest
from onehop.storage.run_folder import Run, read_metrics
from onehop.training.workflow import train

# The search of the paper.
_SEARCH = SearchOptions(beam=4, alpha=0.6, penalty="paper")
_Say = Callable[[str], None]
_Change = Callable[[ModelSettings, float], list[str]]  # the model and its label smoothing -> changed settings
_LAYERS = ("n_encoder_layers", "n_decoder_layers")


@dataclass(frozen=True)
class Row:
    """A row of the table: its letter, its changes, and the paper's perplexity, BLEU and millions of parameters."""

    name: str
    letter: str
    change: _Change
    perplexity: float
    bleu: float
    parameters: float | None = None


def _heads(times: float) -> _Change:
    """`times` as many heads, each narrower by the same factor."""

    def change(model: ModelSettings, _: float) -> list[str]:
        count = max(1, round(model.n_heads * times))
        width = max(1, model.n_heads * model.key_width // count)
        return [f"model.n_heads={count}", f"model.d_k={width}", f"model.d_v={width}"]

    return change


def _key_width(times: float) -> _Change:
    """Narrower queries and keys with unchanged values."""
    return lambda m, _: [f"model.d_k={max(1, round(m.key_width * times))}", f"model.d_v={m.value_width}"]


def _scaled(times: float, *names: str, least: int = 1) -> _Change:
    """Integer settings of the model, multiplied."""
    return lambda m, _: [f"model.{name}={max(least, round(getattr(m, name) * times))}" for name in names]


def _dropout(times: float) -> _Change:
    return lambda m, _: [f"model.dropout={min(0.9, m.dropout * times)}"]


def _smoothing(times: float) -> _Change:
    return lambda _, smoothed: [f"train.label_smoothing={min(0.9, smoothed * times)}"]


def _big(model: ModelSettings, _: float) -> list[str]:
    """Twice the width everywhere with twice the heads, and three times the dropout."""
    sizes = {"d_model": 2 * model.d_model, "d_ff": 2 * model.d_ff, "n_heads": 2 * model.n_heads}
    return [*(f"model.{k}={v}" for k, v in sizes.items()), f"model.dropout={min(0.9, 3 * model.dropout)}"]


ROWS = (
    Row("base", "", lambda model, _: [], 4.92, 25.8, 65),
    Row("heads-1/8", "A", _heads(1 / 8), 5.29, 24.9),
    Row("heads-1/2", "A", _heads(1 / 2), 5.00, 25.5),
    Row("heads-2", "A", _heads(2), 4.91, 25.8),
    Row("heads-4", "A", _heads(4), 5.01, 25.4),
    Row("key-width-1/4", "B", _key_width(1 / 4), 5.16, 25.1, 58),
    Row("key-width-1/2", "B", _key_width(1 / 2), 5.01, 25.4, 60),
    Row("layers-1/3", "C", _scaled(1 / 3, *_LAYERS), 6.11, 23.7, 36),
    Row("layers-2/3", "C", _scaled(2 / 3, *_LAYERS), 5.19, 25.3, 50),
    Row("layers-4/3", "C", _scaled(4 / 3, *_LAYERS), 4.88, 25.5, 80),
    Row("width-1/2", "C", _scaled(1 / 2, "d_model", least=2), 5.75, 24.5, 28),
    Row("width-2", "C", _scaled(2, "d_model", least=2), 4.66, 26.0, 168),
    Row("inner-1/2", "C", _scaled(1 / 2, "d_ff"), 5.12, 25.4, 53),
    Row("inner-2", "C", _scaled(2, "d_ff"), 4.75, 26.2, 90),
    Row("dropout-0", "D", _dropout(0), 5.77, 24.6),
    Row("dropout-2", "D", _dropout(2), 4.95, 25.5),
    Row("smoothing-0", "D", _smoothing(0), 4.67, 25.3),
    Row("smoothing-2", "D", _smoothing(2), 5.47, 25.7),
    Row("learned-positions", "E", lambda model, _: ["model.positions=learned"], 4.92, 25.7),
    Row("big", "big", _big, 4.33, 26.4, 213),
)


def chosen_rows(names: str | None) -> list[Row]:
    """Rows by letter or name, separated by commas, and the base for comparison; all rows by default."""
    if names is None:
        return list(ROWS)
    wanted = [name.strip() for name in names.split(",")]
    known = {row.letter for row in ROWS if row.letter} | {row.name for row in ROWS}
    for name in wanted:
        if name not in known:
            raise SettingsError(f"Table 3 has no row {name!r}.", nearest(name, known))
    return [row for row in ROWS if row.name == "base" or row.letter in wanted or row.name in wanted]


def table3(
    settings: Settings,
    store: Store,
    folder: Path,
    rows: Sequence[Row] = ROWS,
    *,
    seeds: int = 1,
    device: str | None = None,
    at_once: int = 1,
    say: _Say = print,
) -> Json | None:
    """Train and score the missing rows, `at_once` at a time; returns all rows, or None if a training was stopped."""
    settings = without_averaging(settings)
    if at_once > 1 and not _train_parallel(settings, store, folder, rows, seeds, device, at_once, say):
        return None
    results = []
    for row in rows:
        for seed in range(1, seeds + 1):
            result = _train_row(settings, row, seed, store, folder, device)
            if result is None:
                return None
            if at_once == 1:
                say(_summary(result))
            results.append(result)
    return _table(settings, _data_facts(store), results)


def finished(settings: Settings, folder: Path, rows: Sequence[Row], *, seeds: int) -> Json:
    """The finished rows from their files, without any training."""
    settings = without_averaging(settings)
    file = folder / "data.json"
    if not file.exists():
        raise SettingsError(f"{folder} has no rows of table 3.", "Train some first, without --finished.")
    data: Json = json.loads(file.read_text(encoding="utf-8"))
    runs = [(row, seed) for row in rows for seed in range(1, seeds + 1)]
    results = [result for row, seed in runs if (result := _finished_row(settings, row, seed, data["data"], folder))]
    if not any(result["row"] == "base" for result in results):
        raise SettingsError(
            f"{folder} has no finished base row to compare with.", "Train it first, without --finished."
        )
    return _table(settings, data, results)


def _data_facts(store: Store) -> Json:
    return {"data": store.hash, "pairs": len(store.pairs("train")), "valid": len(store.pairs("valid"))}


def _table(settings: Settings, data: Json, results: Sequence[Json]) -> Json:
    return {**data, "steps": settings.train.steps, "search": "beam 4, α 0.6", "rows": list(results)}


def without_averaging(settings: Settings) -> Settings:
    """The weights of the last step, as in the paper's table, so that all figures of a row are of one model."""
    return with_changes(settings, ["train.average=1", "train.patience=0"])


def _train_parallel(
    settings: Settings, store: Store, folder: Path, rows: Sequence[Row], seeds: int, device: str | None,
    at_once: int, say: _Say,
) -> bool:  # fmt: skip
    """Train the missing rows, `at_once` at a time; returns whether all are finished."""
    if not settings.train.batch_tokens:
        raise SettingsError("Parallel trainings cannot search for a batch size.", "Set train.batch_tokens.")
    arguments = settings, store, folder, rows, seeds, device
    tasks = missing(*arguments)
    if tasks:
        say(f"{len(tasks)} trainings, {at_once} at once; logs: {folder / 'logs'}")
    if run_parallel(tasks, at_once, lambda task: _report_row(task, folder, say)) and not missing(*arguments):
        return True
    say("Stopped; the same command resumes.")
    return False


def missing(
    settings: Settings, store: Store, folder: Path, rows: Sequence[Row], seeds: int, device: str | None
) -> list[ParallelTask]:
    """The missing trainings: the whole table before the next seed, the longest first."""
    return [
        ParallelTask(
            _train_row_by_name,
            (settings, row.name, seed, store.path, folder, device),
            folder / "logs" / f"{_row_name(row, seed)}.txt",
        )
        for seed in range(1, seeds + 1)
        for row in reversed(rows)
        if _finished_row(settings, row, seed, store.hash, folder) is None
    ]


def _train_row_by_name(settings: Settings, row: str, seed: int, store: Path, folder: Path, device: str | None) -> None:
    """Train one row in a process of its own, given the row's name and the store's path."""
    _train_row(settings, next(r for r in ROWS if r.name == row), seed, Store.open(store), folder, device)


def _report_row(task: ParallelTask, folder: Path, say: _Say) -> None:
    """Report the row that a process has trained, unless it was stopped."""
    file = row_file(folder, task.log.stem)
    if file.exists():
        say(_summary(json.loads(file.read_text(encoding="utf-8"))))


def _summary(result: Json) -> str:
    return f"{result['row']}, seed {result['seed']}: perplexity {result['perplexity']:.2f}, BLEU {result['bleu']:.2f}"


def _row_name(row: Row, seed: int) -> str:
    return f"{row.name.replace('/', '-of-')}-seed-{seed}"


def row_file(folder: Path, name: str) -> Path:
    return folder / "rows" / f"{name}.json"


def store_for(settings: Settings, folder: Path, data: Path | None, path: Path | None, pairs: int | None) -> Store:
    """The store at `path`, or one prepared from the settings' files; a sample of it if `pairs` is set."""
    store = Store.open(path) if path is not None else prepare(settings, folder / "store", root=data)
    return store if pairs is None else sampled(store, pairs, folder / f"sample-{pairs}")


def _train_row(settings: Settings, row: Row, seed: int, store: Store, folder: Path, device: str | None) -> Json | None:
    """One row with one seed: the result from its file, or a new training. None if it was stopped."""
    if (result := _finished_row(settings, row, seed, store.hash, folder)) is not None:
        return result
    name = _row_name(row, seed)
    file, running = row_file(folder, name), folder / "runs" / name
    changed, inputs = _row_inputs(settings, row, seed, store.hash)
    start, is_new = time.monotonic(), not running.exists()
    model = train(changed, running, store=store.path, device=device, bleu_on=0)
    if model is None:
        return None
    result = {**inputs, **_scores(model, running, store, device)}
    if is_new:  # the total time of a resumed row is unknown
        result["minutes"] = (time.monotonic() - start) / 60
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, result)
    write_json(folder / "data.json", _data_facts(store))  # the table can be rebuilt without the data
    shutil.rmtree(running)  # gigabytes that are no longer needed
    return result


def _row_inputs(settings: Settings, row: Row, seed: int, data: str) -> tuple[Settings, Json]:
    """A row's settings, and the inputs that its file records."""
    changes = row.change(settings.model, settings.train.label_smoothing)
    changed = with_changes(settings, [*changes, f"train.seed={seed}"])
    tables = {table: settings_to_dict(changed)[table] for table in ("model", "train")}
    return changed, {"row": row.name, "seed": seed, "changes": changes, "data": data, "settings": tables}


def _finished_row(settings: Settings, row: Row, seed: int, data: str, folder: Path) -> Json | None:
    """The result in a finished row's file; a file of other settings or data is refused."""
    file = row_file(folder, _row_name(row, seed))
    if not file.exists():
        return None
    result: Json = json.loads(file.read_text(encoding="utf-8"))
    inputs = _row_inputs(settings, row, seed, data)[1]
    if {key: result.get(key) for key in inputs} != inputs:
        raise SettingsError(f"{file} was made with other settings or data.", "Give another -o, or remove it.")
    return result


def _scores(model: Path, running: Path, store: Store, device: str | None) -> Json:
    """Perplexity and BLEU on the validation pairs; the paper's are on newstest2013."""
    lines = read_metrics(running / "metrics.jsonl")
    perplexity = [line["valid_perplexity"] for line in lines if "valid_perplexity" in line][-1]
    translator = SentenceTranslator.load(model, device, engine="torch")
    texts = [translation.text for translation in translator.translate(store.valid_text("src"), _SEARCH)]
    return {
        "perplexity": perplexity,
        "bleu": bleu(texts, store.valid_text("tgt")).value,
        "parameters": Run(running).metadata()["parameters"],
        "machines": Run(running).metadata()["machines"],
    }


# --- a smaller store ----------------------------------------------------------------------------------------------

_SAMPLE_SEED = 1
_Indices = Int[np.ndarray, " pairs"]


def sampled(store: Store, count: int, out: Path) -> Store:
    """Sample training pairs of a store into a new store. An existing sample is reused."""
    origin = {"of": store.hash, "pairs": count, "seed": _SAMPLE_SEED}
    if out.exists():
        if read_description(out).get("sample") != origin:
            raise StoreError(
                f"{out} is not a sample of {count:,} pairs of {store.path}.", "Give another -o, or remove it."
            )
        return Store.open(out)
    available = len(store.pairs("train"))
    if count > available:
        raise StoreError(
            f"The token store {store.path} has {available:,} pairs, not {count:,}.", "Ask for fewer pairs."
        )
    indices = np.sort(np.random.default_rng(_SAMPLE_SEED).choice(available, count, replace=False))
    with new_folder(out) as partial:
        shutil.copytree(store.path, partial, ignore=shutil.ignore_patterns("train.*", DESCRIPTION), dirs_exist_ok=True)
        with closing(PairsWriter(partial, "train")) as writer:
            pairs = store.pairs("train")
            writer.write(Pairs(_take(pairs.source, indices), _take(pairs.target, indices)))
        write_description(partial, {**_description(store, indices), "sample": origin})
    return Store.open(out)


def _take(side: Side, indices: _Indices) -> Side:
    ids = np.concatenate([side[i] for i in indices.tolist()])
    return Side(ids, np.cumsum(side.lengths[indices], dtype=np.int64))


def _description(store: Store, indices: _Indices) -> dict[str, Any]:
    """The store's description with the sample's counts, in total and for each source."""
    description = {
        key: value for key, value in store.description.items() if key not in ("format", "version", "hash", "files")
    }
    description["pairs"] = {**description["pairs"], "train": len(indices)}
    pairs = store.pairs("train")
    tokens = int(pairs.src_lengths[indices].sum()), int(pairs.tgt_lengths[indices].sum())
    description["report"] = report_to_dict(replace(store.report, train=len(indices), train_tokens=tokens))
    if store.sources:
        ends = np.cumsum([size for _, size in store.sources])
        counts = np.diff(np.searchsorted(indices, ends), prepend=0).tolist()
        named = zip(description["sources"], counts, strict=True)
        description["sources"] = [{**source, "pairs": count} for source, count in named]
    return description
