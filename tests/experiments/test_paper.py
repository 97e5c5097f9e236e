"""The paper's tables: what is computed from the measurements, small measurements, and table 3 row by row."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from onehop.cli import app
from onehop.config import load_settings, settings_to_toml, with_changes
from onehop.errors import RunError, SettingsError, StoreError
from onehop.experiments import family_figure, heads, parallel_runs, provenance, table1, table3
from onehop.experiments.sample_store import sampled
from onehop.training import trainer as trainer_module

NO_LOAD = {
    "paths": {"rows": [{"distance": d, "attention": 1.0, "recurrent": 0.1, "lstm": 0.2} for d in (1, 4, 16, 64)]}
}


def onehop(*words: str):
    return CliRunner().invoke(app, list(words))


# --- table 1 --------------------------------------------------------------------------------------------------


def test_a_power_law_is_found_again():
    assert table1.power([(n, 3 * n**1.7) for n in (64, 128, 512)]) == pytest.approx(1.7)
    assert table1.power([(64, 0.0), (128, 0.0)]) is None
    assert table1.power([(64, 1.0)]) is None


def test_a_crossing_is_where_the_ratio_passes_one_for_good():
    assert table1.crossing([(64, 0.25), (128, 0.5), (256, 2.0)]) == pytest.approx(math.sqrt(128 * 256))
    assert table1.crossing([(64, 0.1), (128, 0.9)]) is None
    assert table1.crossing([(64, 2.0), (128, 3.0)]) == 64
    assert table1.crossing([(64, 2.0), (128, 0.5), (256, 2.0)]) == pytest.approx(math.sqrt(128 * 256))


def test_the_spelled_out_layer_is_the_fused_one_and_keeps_its_scores():
    x = torch.randn(1, 64, 32)
    layers = table1.layers_of(32)
    torch.testing.assert_close(layers["spelled_out"](x), layers["self_attention"](x), rtol=0, atol=1e-5)
    scores = table1.HEADS * 64 * 64 * 4
    assert table1.kept_bytes(layers["spelled_out"], x) >= 2 * scores
    assert table1.kept_bytes(layers["self_attention"], x) < scores


def test_kept_memory_is_counted_once_without_input_and_weights():
    linear = nn.Linear(8, 8)
    assert table1.kept_bytes(linear, torch.randn(4, 8)) == 0
    assert table1.kept_bytes(lambda x: linear(x).relu().square(), torch.randn(4, 8)) == 4 * 8 * 4


def rows_that_grow_as_printed() -> list[dict]:
    found = []
    for d in (64, 128):
        for n in (64, 128, 256):
            costs = {name: float(n**p * d**q) for name, (_, _, p, q, _) in table1.PAPER.items()}
            found.append({"n": n, "d": d, "seconds": costs, "bytes": {k: int(v) for k, v in costs.items()}})
    return found


def test_growth_finds_the_papers_exponents_in_numbers_that_have_them():
    rows = rows_that_grow_as_printed()
    for name, found in table1.growth(rows).items():
        _, _, p, q, _ = table1.PAPER[name]
        assert [found[key] for key in ("time_n", "time_d")] == pytest.approx([p, q])
    # n² d against n d²: the same at n = d.
    places = {c["d"]: c["n"] for c in table1.crossings(rows) if c["against"] == "lstm"}
    assert places == pytest.approx({64: 64, 128: 128})


def test_the_table_shows_exponents_crossings_and_paths():
    rows = rows_that_grow_as_printed()
    found = {"rows": rows, "n": [64, 128, 256], "d": [64, 128], "growth": table1.growth(rows)}
    found |= {"crossings": list(table1.crossings(rows)), **NO_LOAD}
    text = table1.table_text(found)
    assert "| recurrent, LSTM | O(n·d²) | n^1.00 · d^2.00 | n^1.00 · d^2.00 | O(n) |" in text
    assert "| recurrent, GRU | 64 | 128 |" in text
    assert "| lstm | 2.0e-01 | 2.0e-01 | 2.0e-01 | 2.0e-01 |" in text
    assert len(table1.picture(found).axes) == 3


def test_a_small_table_1_is_measured(monkeypatch):
    monkeypatch.setattr(table1, "paths", lambda: NO_LOAD["paths"])
    before = torch.get_num_threads()
    found = table1.table1((64, 128), (64, 128), repeats=1)
    assert len(found["rows"]) == 4
    assert all(cost > 0 for row in found["rows"] for cost in row["seconds"].values())
    assert found["growth"]["spelled_out"]["memory_n"] == pytest.approx(2.0, abs=0.1)
    assert found["growth"]["self_attention"]["memory_n"] == pytest.approx(1.0, abs=0.1)
    assert torch.get_num_threads() == before


# --- heads ----------------------------------------------------------------------------------------------------


def test_heads_of_a_small_model_on_the_command_line(model_file, tmp_path):
    for name in ("en", "de"):
        (tmp_path / f"test.{name}").write_text("the old house\na new tree\nthe bird\n")
    paths = ["--source", str(tmp_path / "test.en"), "--reference", str(tmp_path / "test.de")]
    found = onehop("paper", "heads", "-m", str(model_file), *paths, "-o", str(tmp_path / "out"), "--device", "cpu")
    assert found.exit_code == 0, found.output
    told = json.loads((tmp_path / "out" / "heads.json").read_text())
    assert told["patterns"]["sentences"] == 3
    assert told["pruning"]["rows"][0]["removed"] == 0
    assert told["pruning"]["rows"][-1]["removed"] == told["pruning"]["heads"] == 10  # 1 + 2 layers twice, two heads
    text = (tmp_path / "out" / "heads.md").read_text()
    assert "| previous token | encoder | 3 | " in text
    assert (tmp_path / "out" / "heads.svg").read_text().startswith("<?xml")


def test_a_pattern_counts_the_heads_that_follow_it_mostly():
    best = {"layer": 1, "head": 0, "share": 0.9, "weight": 0.5}
    pattern = {"name": "itself", "role": "encoder", "sentences": 7, "chance": 0.1, "heads": [best]}
    row = heads.pattern_row({**pattern, "all": [[0.2, 0.51], [0.9, 0.5]]})
    assert row == ["itself", "encoder", "7", "2 of 4", "2.1", "90%", "0.50", "0.10"]


# --- table 3 --------------------------------------------------------------------------------------------------


def test_on_the_papers_base_every_row_is_the_papers():
    base = load_settings("base")
    changed = {row.name: with_changes(base, row.change(base.model, base.train.label_smoothing)) for row in table3.ROWS}
    models = {name: settings.model for name, settings in changed.items()}
    assert [(models[f"heads-{n}"].n_heads, models[f"heads-{n}"].key_width) for n in ("1/8", "1/2", "2", "4")] == [
        *((1, 512), (4, 128), (16, 32), (32, 16))
    ]
    assert [(models[f"key-width-{n}"].key_width, models[f"key-width-{n}"].value_width) for n in ("1/4", "1/2")] == [
        *((16, 64), (32, 64))
    ]
    assert [models[f"layers-{n}"].n_encoder_layers for n in ("1/3", "2/3", "4/3")] == [2, 4, 8]
    assert [(models[f"width-{n}"].d_model, models[f"width-{n}"].key_width) for n in ("1/2", "2")] == [
        *((256, 32), (1024, 128))
    ]
    assert [models[f"inner-{n}"].d_ff for n in ("1/2", "2")] == [1024, 4096]
    assert [models[f"dropout-{n}"].dropout for n in ("0", "2")] == [0.0, 0.2]
    assert [changed[f"smoothing-{n}"].train.label_smoothing for n in ("0", "2")] == [0.0, 0.2]
    assert models["learned-positions"].positions == "learned"
    big = load_settings("big").model
    assert (models["big"].d_model, models["big"].d_ff, models["big"].n_heads) == (big.d_model, big.d_ff, big.n_heads)
    assert models["big"].dropout == pytest.approx(big.dropout)
    assert changed["base"] == base


@pytest.mark.parametrize("recipe", ["table3.toml", "table3-en-de.toml"])
def test_every_row_can_be_made_of_the_recipes(recipe):
    settings = load_settings(str(Path(__file__).parents[2] / "recipes" / recipe))
    for row in table3.ROWS:
        changed = with_changes(settings, row.change(settings.model, settings.train.label_smoothing))
        assert (changed != settings) == (row.name != "base")


def test_rows_are_chosen_by_letter_or_name_and_the_base_is_always_there():
    assert [row.name for row in table3.chosen_rows("B,dropout-0")] == [
        *("base", "key-width-1/4", "key-width-1/2", "dropout-0")
    ]
    assert len(table3.chosen_rows(None)) == len(table3.ROWS) == 20
    with pytest.raises(SettingsError) as error:
        table3.chosen_rows("A,dropot-0")
    assert str(error.value) == "Table 3 has no row 'dropot-0'. Did you mean dropout-0?"


@pytest.fixture
def few_rows(digits, tmp_path, monkeypatch):
    """Settings whose rows take a second, and the folder with their data."""
    from onehop.experiments.demo import digit_strings, in_words, write_pairs

    monkeypatch.setattr(trainer_module, "measured_peak", lambda device: 1e10)
    write_pairs(tmp_path / "digits.tsv", in_words(digit_strings(200)))
    return with_changes(digits[0], ["train.steps=6", "data.valid_size=5"]), tmp_path


def test_rows_are_trained_scored_and_not_trained_again(few_rows, monkeypatch):
    settings, folder = few_rows
    rows, out, said = table3.chosen_rows("E"), folder / "out", []
    store = table3.store_for(settings, out, folder, None, None)
    first = table3.table3(settings, store, out, rows, seeds=2, device="cpu", say=said.append)
    assert [(one["row"], one["seed"]) for one in first["rows"]] == [
        *(("base", 1), ("base", 2), ("learned-positions", 1), ("learned-positions", 2))
    ]
    assert said[0].startswith("base, seed 1: perplexity ")
    assert first["rows"][2]["parameters"] > first["rows"][0]["parameters"]
    assert first["rows"][0]["perplexity"] != first["rows"][1]["perplexity"]
    assert first["rows"][0]["minutes"] > 0
    assert not list((out / "runs").iterdir())
    monkeypatch.setattr(table3, "run", lambda *args, **more: pytest.fail("it was trained again"))
    again = table3.table3(settings, store, out, rows, seeds=2, device="cpu", say=said.append)
    assert again == first
    text = table3.table_text(first)
    assert "| E | learned-positions | positions learned | 2 | " in text
    assert text.splitlines()[3].endswith("| 4.92 | 25.7 |  |")
    assert " ± " in text
    assert len(table3.picture(first).axes) == 2


def test_a_table_of_what_is_finished_trains_nothing(few_rows, monkeypatch):
    settings, folder = few_rows
    rows, out = table3.chosen_rows("E"), folder / "out"
    store = table3.store_for(settings, out, folder, None, None)
    with pytest.raises(SettingsError) as error:
        table3.finished(settings, out, rows, seeds=2)
    assert str(error.value) == f"{out} has no rows of table 3. Train some first, without --finished."
    table3.table3(settings, store, out, rows, seeds=2, device="cpu", say=lambda said: None)
    table3.row_file(out, "learned-positions-seed-2").unlink()
    monkeypatch.setattr(table3, "run", lambda *args, **more: pytest.fail("something was trained"))
    found = table3.finished(settings, out, rows, seeds=2)
    assert [(one["row"], one["seed"]) for one in found["rows"]] == [("base", 1), ("base", 2), ("learned-positions", 1)]
    assert "| E | learned-positions | positions learned | 1 | " in table3.table_text(found)
    (folder / "small.toml").write_text(settings_to_toml(settings))
    shutil.rmtree(out / "store")  # the rows are enough
    words = ["paper", "table3", str(folder / "small.toml"), "-o", str(out)]
    assert onehop(*words, "--seeds", "2", "--finished").exit_code == 0
    made_by = json.loads((out / "table3.json").read_text())["made_by"]
    assert made_by == "onehop paper table3 small.toml --seeds 2 --finished"
    for seed in (1, 2):
        table3.row_file(out, f"base-seed-{seed}").unlink()
    with pytest.raises(SettingsError) as error:
        table3.finished(settings, out, rows, seeds=2)
    assert str(error.value) == f"{out} has no finished base row to compare with. Train it first, without --finished."


def test_rows_side_by_side_are_the_rows_one_after_another(few_rows):
    settings, folder = few_rows
    rows = table3.chosen_rows("E")
    store = table3.store_for(settings, folder / "store", folder, None, None)
    quiet = {"device": "cpu", "say": lambda text: None}
    out = folder / "together"
    one_by_one = table3.table3(settings, store, folder / "one-by-one", rows, **quiet)
    together = table3.table3(settings, store, out, rows, at_once=2, **quiet)
    assert [{**row, "minutes": 0} for row in together["rows"]] == [{**row, "minutes": 0} for row in one_by_one["rows"]]
    assert "step 6" in (out / "logs" / "base-seed-1.txt").read_text()
    assert table3.missing(settings, store, out, rows, 1, "cpu") == []


def test_a_row_that_fails_beside_others_says_why_when_they_are_done(few_rows):
    settings, folder = few_rows
    out, said = folder / "out", []
    store = table3.store_for(settings, folder / "store", folder, None, None)
    (out / "runs").mkdir(parents=True)
    (out / "runs" / "base-seed-1").write_text("a file where a folder should be")
    with pytest.raises(RunError) as error:
        table3.table3(settings, store, out, table3.chosen_rows("E"), at_once=2, device="cpu", say=said.append)
    log = out / "logs" / "base-seed-1.txt"
    assert str(error.value) == f"{log.read_text().splitlines()[-1]} All it said is in {log}."
    assert "base-seed-1" in error.value.what
    assert said[0] == f"2 trainings, 2 at once; what they say: {out / 'logs'}"
    assert said[1].startswith("learned-positions, seed 1: perplexity ")


def test_side_by_side_wants_a_budget_and_rows_of_the_same_settings_before_it_trains(few_rows, monkeypatch):
    settings, folder = few_rows
    monkeypatch.setattr(table3, "side_by_side", lambda *_: pytest.fail("it was trained"))
    rows, store = table3.chosen_rows("E"), table3.store_for(settings, folder / "store", folder, None, None)
    with pytest.raises(SettingsError) as error:
        table3.table3(with_changes(settings, ["train.batch_tokens=0"]), store, folder / "out", rows, at_once=2)
    assert str(error.value) == "Trainings side by side cannot each look for what fits. Set train.batch_tokens."
    stale = folder / "out" / "rows" / "base-seed-1.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    with pytest.raises(SettingsError, match="was made with other settings or data"):
        table3.table3(settings, store, folder / "out", rows, at_once=2)


def test_a_row_that_is_stopped_by_itself_is_left_for_the_next_time(few_rows, monkeypatch):
    settings, folder = few_rows
    said = []
    monkeypatch.setattr(table3, "side_by_side", lambda *_: True)  # whose trainings left no file
    monkeypatch.setattr(table3, "run", lambda *args, **more: pytest.fail("trained by the parent"))
    store = table3.store_for(settings, folder / "store", folder, None, None)
    assert table3.table3(settings, store, folder / "out", table3.chosen_rows("E"), at_once=2, say=said.append) is None
    assert said[-1] == "Stopped; the same command goes on from here."


def a_task_that_waits(folder: Path) -> None:
    (folder / "began").touch()
    signal.signal(signal.SIGTERM, lambda *_: ((folder / "saved").touch(), sys.exit(0)))
    (folder / "facts").write_text(f"{os.getpid()} {os.getpgid(0)} {os.environ['TORCHINDUCTOR_COMPILE_THREADS']}")
    (folder / "ready").touch()
    time.sleep(600)


def a_task_that_is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def a_task_that_says_nothing() -> None:
    sys.exit(1)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (a_task_that_is_killed, "A training was killed. If memory ran out, train fewer at once. Its log: {log}."),
        (a_task_that_says_nothing, "A training ended without a word. All it said is in {log}."),
    ],
)
def test_a_process_that_dies_is_told_of(tmp_path, work, says):
    with pytest.raises(RunError) as error:
        parallel_runs.side_by_side([parallel_runs.Task(work, (), tmp_path / "log")], 2)
    assert str(error.value) == says.format(log=tmp_path / "log")


def test_a_process_that_never_got_to_its_log_is_told_of_too(tmp_path):
    said = f"A training ended without a word. All it said is in {tmp_path / 'log'}."
    assert str(parallel_runs.failure(1, tmp_path / "log")) == said


def wait_for(file: Path, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return file.exists()


def test_no_training_outlives_a_parent_that_was_killed(tmp_path):
    program = "from tests.experiments.test_paper import *; p = Path(sys.argv[1]); "
    program += "parallel_runs.side_by_side([parallel_runs.Task(a_task_that_waits, (p,), p / 'log')], 1)"
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[2])
    assert wait_for(tmp_path / "ready")
    parent.kill()
    parent.wait()
    assert wait_for(tmp_path / "saved")


def test_sigterm_reaches_every_task_once_and_nothing_more_is_begun(tmp_path):
    one, never = tmp_path / "one", tmp_path / "never"
    one.mkdir(), never.mkdir()
    tasks = [parallel_runs.Task(a_task_that_waits, (folder,), tmp_path / "log") for folder in (one, never)]

    def stop() -> None:
        if wait_for(one / "ready"):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    assert not parallel_runs.side_by_side(tasks, 1)
    assert (one / "saved").exists()
    assert not (never / "began").exists()
    child, group, compilers = map(int, (one / "facts").read_text().split())
    assert child == group != os.getpgid(0)  # the terminal's Ctrl-C reaches the parent alone
    assert compilers >= 1


def test_a_signal_while_a_task_is_started_reaches_it_too(tmp_path, monkeypatch):
    start = SpawnProcess.start

    def start_and_be_told(process: SpawnProcess) -> None:
        start(process)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SpawnProcess, "start", start_and_be_told)
    assert not parallel_runs.side_by_side([parallel_runs.Task(a_task_that_waits, (tmp_path,), tmp_path / "log")], 1)
    assert not multiprocessing.active_children()


def test_a_row_is_one_model_s_whatever_its_settings_say_of_patience(few_rows):
    settings = table3.without_averaging(with_changes(few_rows[0], ["train.patience=3", "train.average=5"]))
    assert (settings.train.patience, settings.train.average) == (0, 1)


def test_a_row_of_other_settings_is_not_taken_for_this_one(few_rows):
    settings, folder = few_rows
    rows, out = table3.chosen_rows("base"), folder / "out"
    store = table3.store_for(settings, out, folder, None, None)
    table3.table3(settings, store, out, rows, device="cpu", say=lambda text: None)
    file = out / "rows" / "base-seed-1.json"
    for change in ("train.steps=7", "model.d_ff=48", "train.learning_rate=0.01"):
        with pytest.raises(SettingsError) as error:
            table3.table3(with_changes(settings, [change]), store, out, rows, device="cpu", say=lambda text: None)
        assert str(error.value) == f"{file} was made with other settings or data. Give another -o, or remove it."


def test_a_row_that_is_stopped_goes_on_in_its_middle(few_rows, monkeypatch):
    settings, folder = few_rows
    rows, out = table3.chosen_rows("base"), folder / "out"
    store = table3.store_for(settings, out, folder, None, None)
    monkeypatch.setattr(table3, "run", lambda *args, **more: None)
    assert table3.table3(settings, store, out, rows, device="cpu") is None
    monkeypatch.undo()
    monkeypatch.setattr(trainer_module, "measured_peak", lambda device: 1e10)
    half = with_changes(settings, ["train.average=1", "train.seed=1", "train.steps=3"])
    assert table3.run(half, out / "runs" / "base-seed-1", store=store.path, device="cpu", bleu_on=0) is not None
    begun: list[int] = []
    went_on = trainer_module.Trainer.one_step
    monkeypatch.setattr(trainer_module.Trainer, "one_step", lambda self, *args: begun.append(1) or went_on(self, *args))
    found = table3.table3(settings, store, out, rows, device="cpu", say=lambda text: None)
    assert len(begun) == 3  # of six
    assert found["rows"][0]["row"] == "base"
    assert "minutes" not in found["rows"][0]  # there were some before


def found_of(base: list[float], row: str, bleu: list[float]) -> dict:
    """A table of two rows whose BLEU is given."""
    rows = [("base", score) for score in base] + [(row, score) for score in bleu]
    shared = {"changes": [], "perplexity": 5.0, "parameters": 1}
    return {"rows": [{"row": name, "bleu": score, **shared} for name, score in rows]}


@pytest.mark.parametrize(
    ("row", "bleu", "said"),
    [
        ("heads-1/8", [24.0, 24.5], "holds"),
        ("heads-1/8", [24.0, 25.5], "within the spread"),
        ("heads-1/8", [26.5, 27.0], "does not hold"),
        ("width-2", [26.5, 27.0], "holds"),
        ("learned-positions", [24.0, 25.5], "holds"),
        ("learned-positions", [24.0, 24.5], "does not hold"),
        ("heads-1/8", [24.0], "holds with one seed"),
        ("heads-1/8", [27.0], "not with one seed"),
        ("learned-positions", [25.5], "one seed cannot tell"),
    ],
)
def test_a_finding_holds_where_every_seed_says_so(row, bleu, said):
    base = [25.0, 26.0]
    ((finding, theirs, ours, judgement),) = table3.judged(found_of(base, row, bleu))
    assert (finding.row, judgement) == (row, said)
    paper = {row.name: row.bleu for row in table3.ROWS}
    assert theirs == pytest.approx(paper[row] - paper["base"])
    assert ours == pytest.approx(sum(bleu) / len(bleu) - 25.5)
    assert f"| {finding.text} | {row} | BLEU | {theirs:+.2f} | {ours:+.2f} | {said} |" in table3.table_text(
        found_of(base, row, bleu)
    )


def test_the_papers_own_figures_have_its_findings():
    of_row = {row.name: row for row in table3.ROWS}
    for finding in table3.FINDINGS:
        ours, base = (getattr(of_row[name], finding.key) for name in (finding.row, "base"))
        if finding.says == "the same":
            assert abs(ours - base) < 0.2
        else:
            assert table3.verdict(finding.says, [ours] * 2, [base] * 2) == "holds", finding.text


def test_a_sample_is_so_many_pairs_of_a_store_and_always_the_same(few_rows):
    settings, folder = few_rows
    whole = table3.store_for(settings, folder / "a", folder, None, None)
    sample, again = (table3.store_for(settings, folder / name, folder, whole.path, 20) for name in "bc")
    assert (len(sample.pairs("train")), sample.hash) == (20, again.hash)
    pairs = [
        [
            (store.pairs("train").src(i).tolist(), store.pairs("train").tgt(i).tolist())
            for i in range(len(store.pairs("train")))
        ]
        for store in (sample, whole)
    ]
    places = [pairs[1].index(pair) for pair in pairs[0]]
    assert places == sorted(set(places))
    assert sample.valid_text("src") == whole.valid_text("src")
    assert sample.sources == [(whole.sources[0][0], 20)]
    assert sample.report.train_tokens == tuple(sum(len(pair[side]) for pair in pairs[0]) for side in (0, 1))
    sample.verify()
    assert table3.store_for(settings, folder / "b", folder, whole.path, 20).path == sample.path


def test_a_sample_of_more_than_there_is_or_of_something_else_is_refused(few_rows):
    settings, folder = few_rows
    whole = table3.store_for(settings, folder / "a", folder, None, None)
    with pytest.raises(StoreError) as error:
        sampled(whole, 1000, folder / "b")
    there = len(whole.pairs("train"))
    assert str(error.value) == f"The token store {whole.path} has {there} pairs, not 1,000. Ask for fewer pairs."
    sampled(whole, 20, folder / "b")
    with pytest.raises(StoreError) as error:
        sampled(whole, 21, folder / "b")
    assert (
        str(error.value) == f"{folder / 'b'} is no sample of 21 pairs of {whole.path}. Give another -o, or remove it."
    )


def test_table_3_on_the_command_line(few_rows):
    settings, folder = few_rows
    (folder / "small.toml").write_text(settings_to_toml(settings))
    words = ["paper", "table3", str(folder / "small.toml"), "--rows", "base", "--data", str(folder)]
    found = onehop(*words, "-o", str(folder / "out"), "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert {file.name for file in (folder / "out").glob("table3.*")} == {"table3.json", "table3.md", "table3.svg"}
    assert json.loads((folder / "out" / "table3.json").read_text())["made_by"].startswith(
        "onehop paper table3 small.toml"
    )


# --- what is left behind --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as error:
        provenance.leave(tmp_path / "file", "table1", {}, "", lambda: provenance.new_figure(1)[0])
    assert str(error.value) == f"{tmp_path / 'file'} cannot be written: File exists. Give another -o."


def test_a_table_whose_picture_cannot_be_drawn_is_not_lost(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SettingsError) as error:
        provenance.leave(tmp_path, "table1", {"found": 1}, "a table", lambda: provenance.new_figure(1)[0])
    assert str(error.value) == (
        f"The table is in {tmp_path / 'table1.md'}, without a picture: matplotlib is not installed."
        " Run: pip install 'onehop[plots]'."
    )
    assert (tmp_path / "table1.md").read_text() == "a table"
    assert json.loads((tmp_path / "table1.json").read_text()) == {"found": 1}


def test_a_table_that_was_stopped_ends_like_any_interrupted_program(few_rows, monkeypatch):
    settings, folder = few_rows
    (folder / "small.toml").write_text(settings_to_toml(settings))
    monkeypatch.setattr(table3, "run", lambda *args, **more: None)
    words = ["paper", "table3", str(folder / "small.toml"), "--rows", "base", "--data", str(folder)]
    assert onehop(*words, "-o", str(folder / "out")).exit_code == 130
    assert not (folder / "out" / "table3.md").exists()


def test_the_picture_of_the_family_overwrites_no_text(tmp_path):
    text = tmp_path / "train.en"
    text.write_text("mine")
    found = onehop("paper", "family", "-o", str(text))
    said = f"onehop: {text} does not end in .svg. The picture is an SVG: give such a name with -o.\n"
    assert (found.stderr, found.exit_code, text.read_text()) == (said, 2, "mine")


# --- the family -----------------------------------------------------------------------------------------------


def test_the_family_is_read_from_the_models():
    cells = {part: list(of_part.values()) for part, of_part in family_figure.cells().items()}
    assert [what for what, _ in cells["cross-attention"]] == ["keeps", "drops", "drops", "drops"]
    assert [what for what, _ in cells["encoder stack"]] == ["keeps", "keeps", "drops", "keeps"]
    assert [what for what, _ in cells["mask over the future"]] == ["keeps", "drops", "keeps", "drops"]
    assert [what for what, _ in cells["patch projection"]] == ["", "", "", "adds"]
    assert cells["feed-forward network"] == [
        *(("keeps", "ReLU"), ("changes", "GELU"), ("changes", "GELU (tanh)"), ("changes", "GELU"))
    ]


def test_the_family_as_table_and_picture(tmp_path):
    out = tmp_path / "family.svg"
    found = onehop("paper", "family", "-o", str(out))
    assert "| cross-attention | 3.2.3 | yes | drops | drops | drops |" in found.stdout
    assert out.read_text().count(">dropped<") == sum(
        what == "drops" for of_part in family_figure.cells().values() for what, _ in of_part.values()
    )
    (tmp_path / "folder.svg").mkdir()
    refused = onehop("paper", "family", "-o", str(tmp_path / "folder.svg"))
    assert refused.stderr == f"onehop: {tmp_path / 'folder.svg'} cannot be written: Is a directory. Give another -o.\n"


def test_the_pages_table_is_the_commands():
    page = Path(__file__).parents[2] / "docs" / "family.md"
    assert family_figure.table_text() in page.read_text(encoding="utf-8")


def test_the_pages_measurements_are_the_raw_files():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "paper.md").read_text(encoding="utf-8")
    for name, module in (("table1", table1), ("heads", heads)):
        found = json.loads((root / "results" / "paper" / f"{name}.json").read_text(encoding="utf-8"))
        assert module.table_text(found) in page
