"""Which models `onehop serve` loads."""

import pytest

from onehop.errors import ModelFileError, SettingsError
from onehop.server.run import models_line
from onehop.server.start import models_of
from onehop.storage import registry


def names(paths):
    return [path.stem for path in paths]


def test_all_installed_models_are_served_default_first(install):
    install("de-en", "en-de", "en-fr")
    paths = models_of(None)
    assert names(paths) == ["en-de", "de-en", "en-fr"]
    expected = "onehop translates en → de (en-de), de → en (de-en), en → fr (en-fr), de → en → fr"
    assert models_line(paths) == expected


def test_only_named_models_are_served(install):
    install("de-en", "en-de", "en-fr")
    assert names(models_of(["en-fr", "de-en"])) == ["en-fr", "de-en"]


def test_several_models_of_one_pair_are_refused(install):
    install("en-de", "en-de-big", "en-de-small", "de-en")
    expected = "Several models translate from en to de: en-de, en-de-big. Choose one with --model, or for good: onehop "
    with pytest.raises(ModelFileError, match=expected):
        models_of(None)
    registry.make_default("en-de")
    assert names(models_of(None)) == ["en-de", "de-en", "en-de-small"]
    registry.make_default("en-de-big")
    assert names(models_of(None)) == ["en-de-big", "de-en"]
    registry.make_default("de-en")
    assert names(models_of(None)) == ["de-en", "en-de-big"]


def test_two_named_models_of_one_pair_are_refused(install):
    folder = install("en-de", "en-de-big")
    what = f"{folder / 'en-de.safetensors'} and {folder / 'en-de-big.safetensors'} both translate from en to de."
    with pytest.raises(SettingsError, match=what.replace("/", r"\/")):
        models_of(["en-de", "en-de-big"])


def test_a_model_and_its_small_form_are_served_together(install):
    install("en-de", "en-de-small", "de-en")
    paths = models_of(["en-de-small", "de-en", "en-de"])
    assert names(paths) == ["de-en", "en-de", "en-de-small"]
    assert models_line(paths) == "onehop translates de → en (de-en), en → de (en-de or en-de-small)"
    assert names(models_of(["en-de-small", "de-en"])) == ["en-de-small", "de-en"]


def test_nothing_to_serve_is_an_error_with_a_remedy(install):
    with pytest.raises(ModelFileError, match=r"No model is installed\. Give a \.safetensors file"):
        models_of(None)
    install("en-fr-a", "en-fr-b")
    with pytest.raises(ModelFileError, match=r"Several models translate from en to fr: en-fr-a, en-fr-b\. Choose one"):
        models_of(None)


def test_models_are_announced_without_their_folders(install, tmp_path):
    folder = install("en-de")
    (tmp_path / "mine").mkdir()
    (folder / "en-de.safetensors").rename(tmp_path / "mine" / "model.safetensors")
    assert models_line(models_of([str(tmp_path / "mine")])) == "onehop translates en → de (mine)"
