"""The recipe of the English–German model from beginning to end, with tiny corpora and a tiny model."""

import random
from pathlib import Path

import numpy as np
import pytest

from onehop.config import load_settings, with_changes
from onehop.data.batches import Epoch
from onehop.data.prepare import prepare
from onehop.decoding.options import SearchOptions
from onehop.evaluation.metrics import CONVENTIONS
from onehop.evaluation.report import evaluate
from onehop.experiments.verify_resume import result_hash
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_label import describe
from onehop.storage.run_folder import Run
from onehop.training import trainer as trainer_module
from onehop.training import workflow
from onehop.training.callbacks import Callback
from onehop.training.trainer import train

pytestmark = pytest.mark.usefixtures("quick_peak")
RECIPE = Path(__file__).parents[2] / "recipes" / "en-de.toml"
WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}

SMALL = [
    *("model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=32", "model.d_ff=64", "model.n_heads=2"),
    *("tokenizer.vocab_size=320", "tokenizer.sample=2000", "tokenizer.dropout=0.1", "data.valid_most=4"),
    *("train.steps=24", "train.batch_tokens=512", "train.accumulate=1", "train.warmup=8", "train.save_every=8"),
    *("train.validate_every=12", "train.report_every=4", "train.average=2", "train.learning_rate=5e-3"),
    *("train.r_drop=0", 'train.weights={"europarl-*" = 0.5, tatoeba = 2.5, interface-strings = 0}'),
]


class GoneError(Exception):
    """Stands in for a machine that is switched off."""


class StoppedAt(Callback):
    """A callback that ends a run at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, report) -> None:
        if report["step"] == self.step:
            raise GoneError


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Numbers in words and their translations."""
    draw = random.Random(seed)
    drawn = [draw.choices(list(WORDS), k=draw.randrange(6, 12)) for _ in range(count)]
    return [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in drawn]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Every file that the recipe names, with a few sentences."""
    root = tmp_path_factory.mktemp("corpora") / "en-de"
    data = load_settings(str(RECIPE)).data
    for seed, name in enumerate([*data.train, *data.valid, *data.test]):
        for number, star in enumerate(("wikipedia", "simple") if "back" in name else "01" if "*" in name else "0"):
            write(root / name.replace("*", star), sentences(40, 10 * seed + number))
    return root


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if "{lang}" not in path.name:
        path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
        return
    for column, language in enumerate(("en", "de")):
        text = "".join(pair[column] + "\n" for pair in pairs)
        path.with_name(path.name.replace("{lang}", language)).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def settings():
    return with_changes(load_settings(str(RECIPE)), SMALL)


@pytest.fixture(scope="module")
def store(corpora, settings, tmp_path_factory):
    return prepare(settings, tmp_path_factory.mktemp("prepared") / "store", root=corpora, processes=1)


def test_the_recipes_weights_name_existing_sources(store):
    """A wrong name would show only on the GPU, after the corpora have been prepared."""
    of_recipe = load_settings(str(RECIPE)).train.weights
    assert len(Epoch(store.pairs("train", of_recipe), 512, 1, 0)) > 0


def test_the_store_has_every_source_and_a_mixed_validation_set(store, settings):
    names = [name for name, _ in store.sources]
    assert names[:3] == ["europarl-0", "europarl-1", "tatoeba"]
    assert len(names) == len(settings.data.train) + 2
    assert store.report.valid == 3 * 4
    assert store.report.dropped["test"].count == 0


@pytest.fixture(scope="module")
def runs(store, settings, tmp_path_factory):
    """An uninterrupted run, and one that was stopped and resumed twice."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "measured_peak", lambda *_: 1e10)
        train(settings, store, folder / "whole", device="cpu")
        for step in (12, 20):
            with pytest.raises(GoneError):
                train(settings, store, folder / "parts", device="cpu", callback=StoppedAt(step))
        train(settings, store, folder / "parts", device="cpu")
    return folder


@pytest.fixture(scope="module")
def model(runs):
    return runs / "parts" / "model.safetensors"


def test_a_run_in_parts_ends_with_the_same_bits(runs):
    assert result_hash(runs / "parts") == result_hash(runs / "whole")
    assert Run(runs / "parts").steps()[-1] == 24


def test_the_model_ships_as_int8(model, tmp_path):
    small = write_model(tmp_path / "en-de.safetensors", read_model(model), store="int8")
    assert small.stat().st_size < 0.5 * model.stat().st_size
    assert describe(small).content["source"] == "en"

    before, after = read_model(model).weights(), read_model(small).weights()
    assert before.keys() == after.keys()
    for name, weights in before.items():
        np.testing.assert_allclose(after[name], weights, atol=np.abs(weights).max() / 127)


def test_the_trained_model_translates_and_can_be_evaluated(model, corpora, tmp_path):
    small = write_model(tmp_path / "en-de.safetensors", read_model(model), store="int8")
    valid = corpora / "valid"
    texts = (valid / "newstest2013.en").read_text(encoding="utf-8").splitlines()
    options = SearchOptions(beam=1, min_length=3)  # the barely trained model would give empty outputs
    whole, rounded = (SentenceTranslator.load(file, device="cpu", engine="torch") for file in (model, small))
    found, expected = (t.translate(texts, options) for t in (rounded, whole))
    assert all(t.tokens for t in found)
    assert sum(a.text == b.text for a, b in zip(found, expected, strict=True)) > len(texts) / 2
    scored = evaluate(valid / "newstest2013.en", valid / "newstest2013.de", model=str(small), resamples=10)
    assert scored.sentences == len(texts) == 40
    assert scored.scores.keys() == CONVENTIONS.keys()


def test_one_command_trains_from_raw_corpora(corpora, settings, tmp_path):
    """A single command prepares, trains and validates by translating."""
    file = workflow.train(
        with_changes(settings, ["train.steps=4", "train.average=1"]), tmp_path / "run", data=corpora, device="cpu"
    )
    assert file == tmp_path / "run" / "model.safetensors"
    assert read_model(file).source == "en"
