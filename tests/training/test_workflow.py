"""From raw text to a model file in one call, and what can be done with the run afterwards."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from onehop.config import DataSettings, Settings, load_settings, with_changes
from onehop.decoding.options import SearchOptions
from onehop.errors import MissingPackageError, OnehopError, SettingsError, StoreError
from onehop.evaluation.metrics import bleu
from onehop.pipelines.load import model_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model
from onehop.storage.run_folder import Run, read_metrics
from onehop.text.tokenizer import Tokenizer
from onehop.training import workflow
from onehop.training.estimate import Plan


@pytest.fixture(scope="module")
def raw(digits):
    """The folder that the raw files lie in."""
    return digits[1].path.parent


@pytest.fixture(scope="module")
def trained(digits, raw, tmp_path_factory):
    """A run from raw files, with everything switched on."""
    out = tmp_path_factory.mktemp("trained") / "run"
    model = workflow.train(digits[0], out, data=raw, device="cpu", tensorboard=True, bleu_on=7)
    assert model == out / "model.safetensors"
    return out


# --- the store ------------------------------------------------------------------------------------------------


def test_raw_files_are_prepared_once(digits, raw, tmp_path, monkeypatch, capsys):
    settings, given = digits
    made = workflow.open_store(settings, tmp_path, None, raw)
    assert made.path == tmp_path / "store"
    assert made.hash == given.hash
    assert "reading and filtering" in capsys.readouterr().err
    written = (tmp_path / "store" / "train.src.ids").stat().st_mtime_ns
    again = workflow.open_store(settings, tmp_path, None, raw)
    assert again.hash == made.hash
    assert (tmp_path / "store" / "train.src.ids").stat().st_mtime_ns == written
    assert "was already made from these settings and files." in capsys.readouterr().err


def test_a_given_store_is_opened(digits, tmp_path):
    settings, given = digits
    assert (
        workflow.open_store(replace(settings, data=DataSettings()), tmp_path / "x", given.path, None).hash == given.hash
    )
    assert not (tmp_path / "x").exists()


def test_training_without_data_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"There is nothing to train on\. Give a store, or settings with files"):
        workflow.open_store(Settings(), tmp_path, None, None)


def test_a_distributed_process_prepares_no_store(digits, raw, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(StoreError, match=r"There is no token store .*store\. Make one with `onehop prepare`\."):
        workflow.open_store(digits[0], tmp_path, None, raw)


# --- training -------------------------------------------------------------------------------------------------


def test_a_run_from_raw_text_ends_with_a_model(trained):
    assert SentenceTranslator.load(trained / "model.safetensors", "cpu").source == "digits"
    validations = [line for line in read_metrics(trained / "metrics.jsonl") if "valid_nll" in line]
    assert [line["step"] for line in validations] == [10, 20]
    assert all({"bleu", "chrf"} <= line.keys() for line in validations)


def test_the_validator_scores_the_models_translations(trained, digits):
    _, store = digits
    model = model_of(read_model(trained / "model.safetensors"))
    found = workflow.bleu_validator(store, 7)(model)
    sources, references = store.valid_text("src")[:7], store.valid_text("tgt")[:7]
    said = SentenceTranslator.of_model(model, Tokenizer(store.tokenizer), "", "").translate(
        sources, SearchOptions(beam=1)
    )
    assert found["bleu"] == bleu([t.text for t in said], references).value
    assert found["samples"] == [(s, t.text) for s, t in zip(sources[:3], said, strict=False)]
    assert set(found) == {"bleu", "chrf", "samples"}


def test_without_bleu_nothing_is_translated(digits, tmp_path, monkeypatch):
    settings, store = digits
    monkeypatch.setattr(workflow, "bleu_validator", None)
    short = with_changes(settings, ["train.steps=2"])
    workflow.train(short, tmp_path, store=store.path, device="cpu", bleu_on=0)
    assert "bleu" not in read_metrics(tmp_path / "metrics.jsonl")[-1]


def test_only_the_first_process_prints(monkeypatch, digits, tmp_path):
    heard = []
    monkeypatch.setattr(workflow.trainer, "train", lambda *args, callback=None, **more: heard.append(callback))
    for rank, is_main in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert workflow.is_main_process() is is_main
        workflow.train(digits[0], tmp_path, store=digits[1].path)
    assert [callback is not None for callback in heard] == [True, False]


# --- dry run --------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_size_memory_steps_and_time(digits):
    found = Plan(
        parameters=63_045_632,
        state_bytes=1_000_000_000,
        bytes_per_token=200_000,
        batch_tokens=25_000,
        steps_per_epoch=1_234,
        epochs=81.04,
        least_seconds=7_300.0,
    )
    assert workflow.plan_to_text(found, Settings()) == (
        "63,045,632 parameters\n"
        "about 6.0 GB of memory: 1.00 for weights, gradients and Adam, and 200 KB for each of 25,000 tokens "
        "(in float32)\n"
        "1,234 steps an epoch; 100,000 steps are 81.0 epochs\n"
        "at least 2 hours here, at the rate of a large matrix product; expect two to three times as long, and more for "
        "a small model on a GPU"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 seconds"), (119, "119 seconds"), (120, "2 minutes"), (7_200, "2 hours"), (400_000, "5 days")],
)
def test_durations_use_the_largest_unit_with_at_least_two(seconds, said):
    assert workflow.duration(seconds) == said


def test_a_setting_fixed_by_the_store_is_refused(digits):
    settings, store = digits
    for change, said in (
        ("data.source=fr", f"data.source is fr, and the store {store.path} was made with digits."),
        ("tokenizer.vocab_size=999", f"tokenizer.vocab_size is 999, and the store {store.path} was made with 340."),
    ):
        with pytest.raises(SettingsError) as e:
            workflow.check_agrees(with_changes(settings, [change]), ["train.steps=3", change], store.path)
        assert str(e.value) == f"{said} Leave it out, or prepare again."
    workflow.check_agrees(settings, ["train.steps=3", "data.source=digits", "tokenizer.dropout=0.1"], store.path)


def test_a_warm_up_longer_than_the_run_is_reported(digits, tmp_path, capsys):
    settings, store = digits
    for warmup, told in ((3, True), (2, False)):
        changed = with_changes(settings, [f"train.warmup={warmup}", "train.steps=3"])
        workflow.train(changed, tmp_path / str(warmup), store=store.path, device="cpu", bleu_on=0)
        said = f"The learning rate only rises: train.warmup is {warmup} steps, and the run has 3."
        assert (said in capsys.readouterr().err) == told


def test_a_dry_run_refuses_what_a_training_would(digits, tmp_path, trained):
    settings, store = digits
    (tmp_path / "file").write_text("")
    for changes, out, error, message in (
        (["train.start_from=nope"], "run", OnehopError, r"There is no model 'nope'"),
        ([], "file", OnehopError, r"file is a file\. Choose a new folder\."),
        (["model.d_ff=8"], trained, OnehopError, r"was started with model\.d_ff = \d+, but now it is 8\."),
        (["train.steps=5"], trained, OnehopError, r"has 20 steps, but train\.steps is 5\."),
    ):
        with pytest.raises(error, match=message):
            workflow.dry_run(with_changes(settings, changes), tmp_path / out, store=store.path)
    with pytest.raises(StoreError, match=r"The store has a sentence of \d+ tokens, and model\.max_length is 3\."):
        workflow.dry_run(with_changes(settings, ["model.max_length=3"]), tmp_path / "run", store=store.path)


def test_a_dry_run_counts_this_model_and_this_store(digits, tmp_path):
    settings, store = digits
    found = workflow.dry_run(settings, tmp_path / "run", store=store.path)
    assert found.batch_tokens == settings.train.batch_tokens
    tokens = int(store.pairs("train").src_lengths.sum()) + len(store.pairs("train"))
    assert tokens / 256 <= found.steps_per_epoch <= 2 * tokens / 256
    assert found.epochs == pytest.approx(settings.train.steps / found.steps_per_epoch, rel=0.05)
    assert not (tmp_path / "run").exists()


# --- average --------------------------------------------------------------------------------------------------


def test_the_last_checkpoints_are_averaged(trained, tmp_path):
    assert workflow.average(trained, 2, tmp_path / "mean.safetensors") == [10, 20]
    held = Run(trained)
    stored = read_model(tmp_path / "mean.safetensors")
    for name, array in stored.weights().items():
        expected = (held.weights(10)[name].astype(np.float64) + held.weights(20)[name]) / 2
        np.testing.assert_allclose(array, expected, rtol=1e-6)
    assert stored.provenance["averaged_steps"] == [10, 20]
    assert SentenceTranslator.load(tmp_path / "mean.safetensors", "cpu").translate(["1 2 3"])


def test_an_average_of_one_checkpoint_is_the_last(trained, tmp_path):
    assert workflow.average(trained, 1, tmp_path / "last.safetensors") == [20]
    weights = read_model(tmp_path / "last.safetensors").weights()
    assert all((weights[name] == array).all() for name, array in Run(trained).weights(20).items())


def test_average_writes_the_ema_of_a_stopped_run(digits, tmp_path):
    """The result equals that of a run that ends at its last checkpoint."""
    settings, store = digits
    whole = with_changes(settings, ["train.ema=0.8", "train.steps=20", "train.save_every=10"])
    end = workflow.train(whole, tmp_path / "run", store=store.path, device="cpu", bleu_on=0)
    assert workflow.average(tmp_path / "run", 1, tmp_path / "ema.safetensors", ema=True) == [20]
    expected, found = read_model(end).weights(), read_model(tmp_path / "ema.safetensors").weights()
    assert found.keys() == expected.keys()
    assert all((found[name] == array).all() for name, array in expected.items())
    assert any((found[name] != array).any() for name, array in Run(tmp_path / "run").weights(20).items())


def test_an_average_has_the_languages_of_the_store(digits, tmp_path):
    """The settings' languages may be others: a preset's, with --store."""
    settings, store = digits
    short = replace(with_changes(settings, ["train.steps=1"]), data=DataSettings(source="en", target="de"))
    workflow.train(short, tmp_path / "run", store=store.path, device="cpu", bleu_on=0)
    workflow.average(tmp_path / "run", 1, tmp_path / "mean.safetensors")
    for file in (tmp_path / "run" / "model.safetensors", tmp_path / "mean.safetensors"):
        stored = read_model(file)
        assert (stored.source, stored.target) == ("digits", "reversed")


def test_average_refuses_bad_input(tmp_path, trained):
    with pytest.raises(OnehopError, match=r"is not a run folder\. Give the folder that `onehop train -o` wrote\."):
        workflow.average(tmp_path, 5, tmp_path / "x")
    with pytest.raises(OnehopError, match=r"There is no folder .* to write the model to"):
        workflow.average(trained, 1, tmp_path / "no" / "x.safetensors")
    with pytest.raises(OnehopError, match=r"has no exponential moving average\. Omit --ema, or train with train\.ema"):
        workflow.average(trained, 1, tmp_path / "x.safetensors", ema=True)


# --- TensorBoard ----------------------------------------------------------------------------------------------


def curves_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_the_curves(trained):
    curves = curves_of(trained)
    metrics = read_metrics(trained / "metrics.jsonl")
    for group, name in (("train", "nll"), ("train", "learning_rate"), ("valid", "valid_nll"), ("valid", "bleu")):
        expected = [(line["step"], line[name]) for line in metrics if name in line]
        assert [step for step, _ in curves[f"{group}/{name}"]] == [step for step, _ in expected]
        assert [y for _, y in curves[f"{group}/{name}"]] == pytest.approx([y for _, y in expected], rel=1e-5)


def test_repeated_steps_are_logged_once_in_tensorboard(tmp_path):
    """A killed run repeats the steps after its last checkpoint."""
    for steps in ((1, 2, 3, 4), (3, 4, 5)):
        with closing(workflow.TensorBoard(tmp_path)) as callback:
            callback.began({})
            for step in steps:
                callback.stepped({"step": step, "nll": 1.0 / step})
        (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True, exist_ok=True)
    assert [step for step, _ in curves_of(tmp_path)["train/nll"]] == [1, 2, 3, 4, 5]


def test_missing_tensorboard_is_a_one_line_error(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    message = r'^This needs TensorBoard\. Install it with: pip install "onehop\[tensorboard\]"$'
    with pytest.raises(MissingPackageError, match=message):
        workflow.train(digits[0], tmp_path / "run", store=digits[1].path, device="cpu", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_missing_sacrebleu_is_reported_before_training(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingPackageError) as error:
        workflow.train(digits[0], tmp_path / "run", store=digits[1].path, device="cpu")
    install = 'This needs sacreBLEU. Install it with: pip install "onehop[evaluate]"'
    assert str(error.value) == f"{install}, or switch BLEU off: --bleu-on 0, in Python bleu_on=0"
    assert not (tmp_path / "run").exists()


def test_a_run_records_the_stores_settings_instead_of_the_presets(digits, tmp_path):
    settings, store = digits
    other = with_changes(settings, ["tokenizer.vocab_size=9999", "data.longest=99", "train.steps=2"])
    workflow.train(other, tmp_path / "run", store=store.path, device="cpu", bleu_on=0)
    noted = load_settings(str(tmp_path / "run" / "settings.toml"))
    assert noted.tokenizer.vocab_size == settings.tokenizer.vocab_size
    assert noted.data.longest == settings.data.longest
    assert noted.train.steps == 2
