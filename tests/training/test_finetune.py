"""Fine-tuning: derived settings, a result that is never worse, and wrong files."""

import random
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import onehop
from onehop.cli import app
from onehop.config import load_settings, with_changes
from onehop.data import prepare as prepare_module
from onehop.errors import ModelFileError, RunError, SettingsError, TextError
from onehop.experiments.reverse import digit_strings, in_words, write_pairs
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model, write_model
from onehop.storage.registry import default_alpha
from onehop.storage.run_folder import Run, read_metrics
from onehop.training import finetune
from onehop.training.callbacks import Callback
from onehop.training.workflow import average, train


@pytest.fixture(autouse=True)
def one_process(quick_peak, monkeypatch):
    """Starting processes takes longer than preparing here."""
    monkeypatch.setattr(prepare_module, "available_cores", lambda: 1)


@pytest.fixture(scope="module")
def model(digits, tmp_path_factory):
    """A translator as it is shipped: its matrices are int8."""
    folder = tmp_path_factory.mktemp("model")
    trained = train(digits[0], folder / "run", store=digits[1].path, device="cpu", bleu_on=0)
    write_model(folder / "small.safetensors", read_model(trained).stored_as("int8"))
    (folder / "small.search.toml").write_text("alpha = 1.4\n")
    return folder / "small.safetensors"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pairs of another domain: the digits are not reversed."""
    folder = tmp_path_factory.mktemp("files")
    texts = in_words(digit_strings(600)[400:])
    for language in ("digits", "reversed"):
        (folder / f"mine.{language}").write_text("".join(f"{text}\n" for text in texts))
    return [folder / "mine.digits", folder / "mine.reversed"]


ALIKE = ["data.identical=false", "data.language=false"]  # both sides are the same here


@pytest.fixture(scope="module")
def tuned(model, files, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_module, "available_cores", lambda: 1)
        assert onehop.finetune(model, files, out, changes=ALIKE, device="cpu", bleu_on=5) == out / "model.safetensors"
    return out


def begin(model, files, out, *changes, **others):
    return finetune.prepare(model, files, out, changes=[*ALIKE, *changes], **others)


# --- the result -----------------------------------------------------------------------------------------------


def test_an_int8_model_is_fine_tuned_and_the_best_validation_is_kept(model, tuned):
    validations = [line for line in read_metrics(tuned / "metrics.jsonl") if "valid_nll" in line]
    assert validations[0]["step"] == 0
    stored = read_model(tuned / "model.safetensors")
    best = min(validations, key=lambda line: line["valid_nll"])
    assert best["valid_nll"] < validations[0]["valid_nll"]
    assert stored.provenance["averaged_steps"] == [best["step"]]
    assert stored.provenance["started_from"] == read_model(model).hash
    assert stored.tokenizer == read_model(model).tokenizer
    assert SentenceTranslator.load(tuned / "model.safetensors", "cpu").translate(["one two"])


def test_the_length_penalty_of_the_model_is_kept(tuned, tmp_path):
    average(tuned, 1, tmp_path / "mean.safetensors")
    for file in (tuned / "model.safetensors", tmp_path / "mean.safetensors"):
        assert default_alpha(file) == 1.4


def test_finetune_prints_the_gain(tuned, model, monkeypatch):
    assert finetune.result_to_text(tuned, "small").startswith("On the validation pairs: loss ")
    kept = read_model(tuned / "model.safetensors")
    same = replace(kept, provenance={**kept.provenance, "averaged_steps": [0]})
    monkeypatch.setattr(finetune, "read_model", lambda file: same)
    assert finetune.result_to_text(tuned, "small").startswith("No validation was better than small itself")


def test_a_stopped_fine_tuning_resumes(model, files, tuned, tmp_path):
    class Stop(Callback):
        def stepped(self, report):
            if report["step"] == 17:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        onehop.finetune(model, files, tmp_path / "run", changes=ALIKE, device="cpu", bleu_on=5, callbacks=[Stop()])
    assert not (tmp_path / "run" / "model.safetensors").exists()
    onehop.finetune(model, files, tmp_path / "run", changes=ALIKE, device="cpu", bleu_on=5)
    for name, array in read_model(tuned / "model.safetensors").weights().items():
        assert (read_model(tmp_path / "run" / "model.safetensors").weights()[name] == array).all()


# --- derived settings -----------------------------------------------------------------------------------------


def test_shape_and_schedule_follow_from_the_model_and_the_text(model, files, tuned):
    noted, shipped = load_settings(tuned / "settings.toml"), read_model(model).settings
    assert noted.model == shipped.model
    assert noted.train.start_from == str(model)
    assert noted.train.batch_tokens == finetune.LEAST_TOKENS
    assert noted.train.steps == finetune.LEAST_STEPS  # four epochs would be fewer
    assert (noted.train.warmup, noted.train.validate_every, noted.train.patience) == (3, 5, 3)
    assert noted.train.learning_rate == pytest.approx(1e-4 * (512 / 16) ** 0.5, rel=1e-3)


def test_more_text_gets_larger_batches_and_more_steps(model, files, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "LEAST_TOKENS", 64)
    monkeypatch.setattr(finetune, "BATCHES", 10)
    found = begin(model, files, tmp_path / "run")
    tokens = int(found.store.pairs("train").tgt_lengths.sum())
    assert found.settings.train.batch_tokens == tokens // 10 // 64 * 64 == 128
    assert found.settings.train.steps == pytest.approx(4 * tokens / 128, rel=0.3)


def test_user_settings_are_kept_and_the_others_are_derived(model, files, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[train]\nsteps = 600\nema = 0.5\n[data]\nvalid_size = 7\n")
    found = begin(model, files, tmp_path / "run", "train.ema=0.25", "train.batch_tokens=200", settings=file)
    chosen = found.settings.train
    assert (chosen.steps, chosen.warmup, chosen.ema, chosen.batch_tokens) == (600, 60, 0.25, 200)
    assert len(found.store.pairs("valid")) == 7
    file.write_text("[train]\nstepps = 600\n")
    with pytest.raises(SettingsError, match=r"There is no setting train\.stepps\. Did you mean steps\?"):
        begin(model, files, tmp_path / "run", settings=file)
    with pytest.raises(RunError, match=r"has another shape than this model\."):
        onehop.finetune(model, files, tmp_path / "run", changes=[*ALIKE, "model.d_ff=64", "data.valid_size=7"])


def test_general_pairs_are_mixed_in_and_not_validated_on(model, files, tmp_path):
    general = digit_strings(1200)[600:]
    write_pairs(tmp_path / "general.tsv", in_words(general))
    alone = begin(model, files, tmp_path / "alone")
    found = begin(model, files, tmp_path / "run", mix=[tmp_path / "general.tsv"])
    assert found.store.valid_text("src") == alone.store.valid_text("src")
    (_, own), (_, others) = found.store.sources
    assert found.settings.train.weights == {"general": pytest.approx(own / others, abs=1e-4)}
    assert len(found.store.pairs("train", found.settings.train.weights).parts) == 2
    write_pairs(tmp_path / "mine.tsv", in_words(general))
    with pytest.raises(SettingsError, match=r"Two files are called mine, one of them general\. Rename one"):
        begin(model, files, tmp_path / "other", mix=[tmp_path / "mine.tsv"])


def test_validation_files_are_taken_whole(model, files, tmp_path):
    (tmp_path / "dev.tsv").write_text("one two\ttwo one\n")
    assert begin(model, files, tmp_path / "run", valid=[tmp_path / "dev.tsv"]).store.valid_text("src") == ["one two"]


def test_an_imported_model_takes_its_languages_from_the_names(model, files, tmp_path):
    write_model(tmp_path / "imported", replace(read_model(model), source="", target=""))
    found = begin(tmp_path / "imported.safetensors", files, tmp_path / "run")
    assert (found.store.source, found.store.target) == ("digits", "reversed")
    (tmp_path / "both.tsv").write_text("one\ttwo\n")
    with pytest.raises(TextError, match=r"does not say its languages\. Name the files after them"):
        begin(tmp_path / "imported.safetensors", [tmp_path / "both.tsv"], tmp_path / "other")


# --- a dry run ------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_pairs_steps_and_time_and_trains_nothing(model, files, tmp_path):
    args = ["finetune", model, *files, "-o", tmp_path / "run", "--dry-run", "--bleu-on", "3"]
    sets = [part for change in ALIKE for part in ("--set", change)]
    result = CliRunner().invoke(app, [str(arg) for arg in [*args, *sets]])
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert "180 pairs to train on, 20 to validate on" in said
    assert "30 steps of 1,024 tokens are " in said
    assert "learning rate up to 6e-04; 7 validations" in said
    assert " here: a step took " in said
    assert not Run(tmp_path / "run").metadata()


def test_the_estimated_time_includes_validations(tuned, model, files, tmp_path):
    found = begin(model, files, tmp_path / "run")
    plan = finetune.Plan(52_000_000, 0, 0, 1024, 10, 4.0, 0.0)
    said = finetune.plan_to_text(found.settings, found.store, plan, step=10.0, validation=60.0)
    assert "about 12 minutes here: a step took 10.0 s, a validation takes 60 s" in said  # 30 · 10 s + 7 · 60 s
    steps = [line["step"] for line in read_metrics(tuned / "metrics.jsonl") if "valid_nll" in line]
    assert len(steps) <= 7


# --- wrong files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["mine.digits"], r"mine\.digits has no partner\. Name aligned files like train\.en train\.de"),
        (["mine.digits", "other.reversed"], r"are not named as a pair\."),
        (
            ["mine.fr", "mine.de"],
            r"The files are called fr and de, and .* translates from digits to reversed\. Name them",
        ),
        (["no.digits", "no.reversed"], r"no\.digits does not exist\."),
    ],
)
def test_wrong_files_are_one_line_errors(names, message, model, tmp_path):
    with pytest.raises(TextError, match=message):
        begin(model, [str(tmp_path / name) for name in names], tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


LONG = ["data.longest=1000", "data.valid_size=5"]  # of pieces: the small vocabulary knows digits alone


def test_swapped_sides_are_reported(model, tmp_path):
    english = "The committee did not agree with the proposal of the commission number {}."
    german = "Der Ausschuss war mit dem Vorschlag der Kommission Nummer {} nicht einverstanden."
    numbers = random.Random(1).sample(range(1000), 50)
    (tmp_path / "a.tsv").write_text("".join(f"{german.format(n)}\t{english.format(n)}\n" for n in numbers))
    write_model(tmp_path / "en-de", replace(read_model(model), source="en", target="de"))
    with pytest.raises(TextError, match=r"Of 50 training pairs none are left .*reason: wrong language\."):
        finetune.prepare(tmp_path / "en-de.safetensors", [tmp_path / "a.tsv"], tmp_path / "run", changes=LONG)
    right = "".join(f"{english.format(n)}\t{german.format(n)}\n" for n in range(1000, 1050))
    (tmp_path / "a.tsv").write_text((tmp_path / "a.tsv").read_text() + right)
    with pytest.raises(TextError, match=r"50 of 100 pairs are not in en and de, in this order\. Look whether the side"):
        finetune.prepare(tmp_path / "en-de.safetensors", [tmp_path / "a.tsv"], tmp_path / "run", changes=LONG)
    (tmp_path / "a.tsv").write_text(right)  # the corrected file is prepared again
    found = finetune.prepare(tmp_path / "en-de.safetensors", [tmp_path / "a.tsv"], tmp_path / "run", changes=LONG)
    assert found.store.report.read == 50


def test_another_kind_of_model_is_refused(model, files, tmp_path):
    stored = read_model(model)
    settings = with_changes(stored.settings, ["model.kind=decoder"])
    layers = {n: t for n, t in stored.weights().items() if not n.startswith("encoder") and ".cross" not in n}
    file = tmp_path / "gpt.safetensors"
    write_model(file, replace(stored, settings=settings, tensors=layers))
    with pytest.raises(ModelFileError, match=r"gpt\.safetensors is a decoder, .*not a translator"):
        finetune.prepare(file, files, tmp_path / "run")
    with pytest.raises(ModelFileError, match="There is no model 'nope'"):
        finetune.prepare("nope", files, tmp_path / "run")
