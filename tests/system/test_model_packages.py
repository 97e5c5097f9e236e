"""The models under `packages/`: each can be installed, is complete, has a correct card, and translates."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from onehop.config import load_settings
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_io import read_model
from onehop.storage.registry import CARD, GROUP, MODEL, PACKAGED, SMALL

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "packages").iterdir())
MOST_BYTES = 60_000_000
MOST_SMALL_BYTES = 25_000_000
GREETINGS = {
    "de-en": ("Guten Morgen!", "Good morning!"),
    "en-de-small": ("Good morning!", "Guten Morgen!"),
    "en-fr": ("Thank you very much.", "Merci beaucoup."),
    "fr-en": ("Merci beaucoup.", "Thank you very much."),
}


def name_of(package: Path) -> str:
    return package.name.removeprefix("onehop-")


def folder_of(package: Path) -> Path:
    return package / package.name.replace("-", "_")


each = pytest.mark.parametrize("package", PACKAGES, ids=name_of)


def test_error_messages_know_every_package():
    assert sorted(PACKAGED) == [name_of(package) for package in PACKAGES]


def test_every_package_is_tested():
    assert list(map(name_of, PACKAGES)) == sorted(GREETINGS)


@each
def test_a_package_names_its_model(package):
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == package.name
    assert project["entry-points"][GROUP] == {name_of(package): folder_of(package).name}


@each
def test_the_model_is_one_file_of_the_papers_base_shape_or_a_small_one(package):
    files = sorted(file.name for file in folder_of(package).glob("*.safetensors"))
    assert files == [MODEL]
    small = name_of(package).endswith(SMALL)
    assert (folder_of(package) / MODEL).stat().st_size <= (MOST_SMALL_BYTES if small else MOST_BYTES)
    stored = read_model(folder_of(package) / MODEL)
    assert f"{stored.source}-{stored.target}" == name_of(package).removesuffix(SMALL)
    if not small:
        model = stored.settings.model
        assert model == replace(load_settings("base").model, dropout=model.dropout, max_length=model.max_length)


@each
def test_the_recipe_has_the_models_data_and_shape(package):
    """Except the number of steps: the card says in which parts the model was trained."""
    settings, recipe = read_model(folder_of(package) / MODEL).settings, load_settings(str(recipe_of(package)))
    assert (settings.model, settings.tokenizer, settings.data) == (recipe.model, recipe.tokenizer, recipe.data)
    assert settings.train.weights == recipe.train.weights


def recipe_of(package: Path) -> Path:
    return ROOT / "recipes" / f"{name_of(package)}.toml"


@each
def test_the_card_has_the_hash_of_the_weights(package):
    stored, card = read_model(folder_of(package) / MODEL), (folder_of(package) / CARD).read_text(encoding="utf-8")
    assert re.findall(r"\b[0-9a-f]{64}\b", card) == [stored.hash]
    assert stored.provenance["data"] in card
    assert f"{stored.provenance['pairs']:,} sentence pairs" in card


@each
def test_the_cards_scores_are_those_of_the_reports(package):
    card = (folder_of(package) / CARD).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (newstest201[34]|Tatoeba test|Europarl test)\b.*?\| (\d+\.\d) ± (\d\.\d) \|", card, re.M)
    assert len(rows) == 4
    for shown, value, plus_minus in rows:
        report = ROOT / "results" / name_of(package) / f"{shown.lower().replace(' ', '-')}.json"
        score = json.loads(report.read_text(encoding="utf-8"))["scores"]["bleu_13a"]["score"]
        assert (value, plus_minus) == (f"{score['value']:.1f}", f"{score['interval']['plus_minus']:.1f}")


@each
def test_a_package_translates_with_both_engines(package):
    source, target = GREETINGS[name_of(package)]
    for engine in ("ctranslate2", "torch"):
        translator = SentenceTranslator.load(folder_of(package) / MODEL, device="cpu", engine=engine, threads=1)
        assert translator.translate([source])[0].text == target


def test_the_packages_differ_only_in_names_and_languages():
    """Therefore it is enough to test the installation of one."""
    texts = [(package / "pyproject.toml").read_text(encoding="utf-8") for package in PACKAGES]
    names = "|".join(sorted((name_of(package).replace("-", ".") for package in PACKAGES), key=len, reverse=True))
    kinds = "the Transformer base model|a small, fast student of en-de"
    assert len({re.sub(rf"{kinds}|{names}|German|French|English", "", text) for text in texts}) == 1


@pytest.mark.slow
def test_an_installed_package_is_found_by_name(tmp_path):
    package = PACKAGES[0]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    copy = shutil.copytree(package, tmp_path / "source")  # a build leaves its files beside the source
    subprocess.run([*pip, str(tmp_path / "site"), str(copy)], check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "onehop", "models", "show", name_of(package)]
    shown = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert shown.startswith(str(tmp_path / "site"))
    assert shown.endswith((folder_of(package) / CARD).read_text(encoding="utf-8"))
