"""Table 3: the settings of its rows, parallel trainings, and the findings."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import onehop

from onehop.config import load_settings, settings_to_toml, with_changes
from onehop.errors import RunError, SettingsError, StoreError
from onehop.experiments import table3, table3_report
from onehop.training import trainer as trainer_module
from onehop.training.step import PlainStep


def test_rows_with_the_papers_base_have_the_papers_settings():
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
def test_every_row_is_valid_with_the_recipes_settings(recipe):
    settings = load_settings(str(Path(__file__).parents[2] / "recipes" / recipe))
    for row in table3.ROWS:
        changed = with_changes(settings, row.change(settings.model, settings.train.label_smoothing))
        assert (changed != settings) == (row.name != "base")


def test_rows_are_chosen_by_letter_or_name_and_include_the_base():
    assert [row.name for row in table3.chosen_rows("B,dropout-0")] == [
        *("base", "key-width-1/4", "key-width-1/2", "dropout-0")
    ]
    assert len(table3.chosen_rows(None)) == len(table3.ROWS) == 20
    with pytest.raises(SettingsError) as error:
        table3.chosen_rows("A,dropot-0")
    assert str(error.value) == "Table 3 has no row 'dropot-0'. Did you mean dropout-0?"


def test_finished_rows_are_not_trained_again(few_rows, monkeypatch):
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
    monkeypatch.setattr(table3, "train", lambda *args, **more: pytest.fail("it was trained again"))
    again = table3.table3(settings, store, out, rows, seeds=2, device="cpu", say=said.append)
    assert again == first
    text = table3_report.table_text(first)
    assert "| E | learned-positions | positions learned | 2 | " in text
    assert text.splitlines()[3].endswith("| 4.92 | 25.7 |  |")
    assert " ± " in text
    assert len(table3_report.picture(first).axes) == 2


def test_a_table_of_finished_rows_trains_nothing(few_rows, monkeypatch):
    settings, folder = few_rows
    rows, out = table3.chosen_rows("E"), folder / "out"
    store = table3.store_for(settings, out, folder, None, None)
    with pytest.raises(SettingsError) as error:
        table3.finished(settings, out, rows, seeds=2)
    assert str(error.value) == f"{out} has no rows of table 3. Train some first, without --finished."
    table3.table3(settings, store, out, rows, seeds=2, device="cpu", say=lambda said: None)
    table3.row_file(out, "learned-positions-seed-2").unlink()
    monkeypatch.setattr(table3, "train", lambda *args, **more: pytest.fail("something was trained"))
    found = table3.finished(settings, out, rows, seeds=2)
    assert [(one["row"], one["seed"]) for one in found["rows"]] == [("base", 1), ("base", 2), ("learned-positions", 1)]
    assert "| E | learned-positions | positions learned | 1 | " in table3_report.table_text(found)
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


def test_rows_trained_in_parallel_equal_rows_trained_one_by_one(few_rows):
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


def test_a_failed_parallel_row_is_reported_after_the_others(few_rows):
    settings, folder = few_rows
    out, said = folder / "out", []
    store = table3.store_for(settings, folder / "store", folder, None, None)
    (out / "runs").mkdir(parents=True)
    (out / "runs" / "base-seed-1").write_text("a file where a folder should be")
    with pytest.raises(RunError) as error:
        table3.table3(settings, store, out, table3.chosen_rows("E"), at_once=2, device="cpu", say=said.append)
    log = out / "logs" / "base-seed-1.txt"
    assert str(error.value) == f"{log.read_text().splitlines()[-1]} Its log: {log}."
    assert "base-seed-1" in error.value.what
    assert said[0] == f"2 trainings, 2 at once; logs: {out / 'logs'}"
    assert said[1].startswith("learned-positions, seed 1: perplexity ")


def test_parallel_trainings_refuse_a_missing_budget_and_stale_rows_first(few_rows, monkeypatch):
    settings, folder = few_rows
    monkeypatch.setattr(table3, "run_parallel", lambda *_: pytest.fail("it was trained"))
    rows, store = table3.chosen_rows("E"), table3.store_for(settings, folder / "store", folder, None, None)
    with pytest.raises(SettingsError) as error:
        table3.table3(with_changes(settings, ["train.batch_tokens=0"]), store, folder / "out", rows, at_once=2)
    assert str(error.value) == "Parallel trainings cannot search for a batch size. Set train.batch_tokens."
    stale = folder / "out" / "rows" / "base-seed-1.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    with pytest.raises(SettingsError, match="was made with other settings or data"):
        table3.table3(settings, store, folder / "out", rows, at_once=2)


def test_rows_stopped_in_their_own_process_are_left_for_the_next_call(few_rows, monkeypatch):
    settings, folder = few_rows
    said = []
    monkeypatch.setattr(table3, "run_parallel", lambda *_: True)  # whose trainings left no file
    monkeypatch.setattr(table3, "train", lambda *args, **more: pytest.fail("trained by the parent"))
    store = table3.store_for(settings, folder / "store", folder, None, None)
    assert table3.table3(settings, store, folder / "out", table3.chosen_rows("E"), at_once=2, say=said.append) is None
    assert said[-1] == "Stopped; the same command resumes."


def test_rows_are_trained_without_patience_and_averaging(few_rows):
    settings = table3.without_averaging(with_changes(few_rows[0], ["train.patience=3", "train.average=5"]))
    assert (settings.train.patience, settings.train.average) == (0, 1)


def test_a_row_made_with_other_settings_is_refused(few_rows):
    settings, folder = few_rows
    rows, out = table3.chosen_rows("base"), folder / "out"
    store = table3.store_for(settings, out, folder, None, None)
    table3.table3(settings, store, out, rows, device="cpu", say=lambda text: None)
    file = out / "rows" / "base-seed-1.json"
    for change in ("train.steps=7", "model.d_ff=48", "train.learning_rate=0.01"):
        with pytest.raises(SettingsError) as error:
            table3.table3(with_changes(settings, [change]), store, out, rows, device="cpu", say=lambda text: None)
        assert str(error.value) == f"{file} was made with other settings or data. Give another -o, or remove it."


def test_a_stopped_row_resumes(few_rows, monkeypatch):
    settings, folder = few_rows
    rows, out = table3.chosen_rows("base"), folder / "out"
    store = table3.store_for(settings, out, folder, None, None)
    monkeypatch.setattr(table3, "train", lambda *args, **more: None)
    assert table3.table3(settings, store, out, rows, device="cpu") is None
    monkeypatch.undo()
    monkeypatch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
    half = with_changes(settings, ["train.average=1", "train.seed=1", "train.steps=3"])
    assert table3.train(half, out / "runs" / "base-seed-1", store=store.path, device="cpu", bleu_on=0) is not None
    begun: list[int] = []
    went_on = PlainStep.run
    monkeypatch.setattr(PlainStep, "run", lambda self, *args: begun.append(1) or went_on(self, *args))
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
def test_a_finding_holds_only_if_every_seed_agrees(row, bleu, said):
    base = [25.0, 26.0]
    ((finding, theirs, ours, judgement),) = table3_report.judged(found_of(base, row, bleu))
    assert (finding.row, judgement) == (row, said)
    paper = {row.name: row.bleu for row in table3.ROWS}
    assert theirs == pytest.approx(paper[row] - paper["base"])
    assert ours == pytest.approx(sum(bleu) / len(bleu) - 25.5)
    assert f"| {finding.text} | {row} | BLEU | {theirs:+.2f} | {ours:+.2f} | {said} |" in table3_report.table_text(
        found_of(base, row, bleu)
    )


def test_the_findings_hold_for_the_papers_figures():
    of_row = {row.name: row for row in table3.ROWS}
    for finding in table3_report.FINDINGS:
        ours, base = (getattr(of_row[name], finding.key) for name in (finding.row, "base"))
        if finding.says == "the same":
            assert abs(ours - base) < 0.2
        else:
            assert table3_report.verdict(finding.says, [ours] * 2, [base] * 2) == "holds", finding.text


def test_the_command_trains_a_row_and_writes_table_3(few_rows):
    settings, folder = few_rows
    (folder / "small.toml").write_text(settings_to_toml(settings))
    words = ["paper", "table3", str(folder / "small.toml"), "--rows", "base", "--data", str(folder)]
    found = onehop(*words, "-o", str(folder / "out"), "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert {file.name for file in (folder / "out").glob("table3.*")} == {"table3.json", "table3.md", "table3.svg"}
    assert json.loads((folder / "out" / "table3.json").read_text())["made_by"].startswith(
        "onehop paper table3 small.toml"
    )


def test_a_sample_of_a_store_is_deterministic_and_has_the_requested_size(few_rows):
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


def test_a_sample_too_large_or_with_another_size_is_refused(few_rows):
    settings, folder = few_rows
    whole = table3.store_for(settings, folder / "a", folder, None, None)
    with pytest.raises(StoreError) as error:
        table3.sampled(whole, 1000, folder / "b")
    there = len(whole.pairs("train"))
    assert str(error.value) == f"The token store {whole.path} has {there} pairs, not 1,000. Ask for fewer pairs."
    table3.sampled(whole, 20, folder / "b")
    with pytest.raises(StoreError) as error:
        table3.sampled(whole, 21, folder / "b")
    assert (
        str(error.value)
        == f"{folder / 'b'} is not a sample of 21 pairs of {whole.path}. Give another -o, or remove it."
    )
