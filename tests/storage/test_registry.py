"""Models that packages bring, and which model is meant where none is named."""

from dataclasses import replace

import pytest

from onehop.errors import ModelFileError
from onehop.storage import registry
from onehop.storage.model_io import read_model, write_model


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No model but those that a test installs."""
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(registry, "package_folder", lambda: tmp_path / "none")
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr(registry, "entry_points", lambda group: onehop_entries(packages, group))
    return tmp_path


def onehop_entries(packages, group):
    from importlib.metadata import distributions

    return [entry for d in distributions(path=[str(packages)]) for entry in d.entry_points if entry.group == group]


def install(folder, name, stored):
    """What pip leaves of a model package."""
    module = f"onehop_{name.replace('-', '_')}"
    (folder / "site-packages" / module).mkdir()
    (folder / "site-packages" / module / "__init__.py").write_text("raise AssertionError('it was imported')\n")
    info = folder / "site-packages" / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[onehop.models]\n{name} = {module}\n")
    write_model(folder / "site-packages" / module / "model.safetensors", stored)
    return folder / "site-packages" / module / "model.safetensors"


def test_a_package_brings_a_model_under_its_name(alone, model_file):
    file = install(alone, "xx-de", replace(read_model(model_file), source="xx"))
    assert registry.installed() == {"xx-de": file}
    assert registry.find_model("xx-de") == registry.find_model(None, source="xx") == registry.find_model() == file


def test_a_model_of_the_user_goes_before_that_of_a_package(alone, model_file):
    stored = read_model(model_file)
    install(alone, "en-de", stored)
    own = alone / "models" / "en-de.safetensors"
    own.parent.mkdir()
    write_model(own, stored)
    assert registry.installed() == {"en-de": own}


def test_an_entry_that_leads_nowhere_is_no_model(alone, model_file):
    install(alone, "xx-en", read_model(model_file)).parent.rename(alone / "site-packages" / "gone")
    assert registry.installed() == {}


def test_where_nothing_is_asked_for_the_model_is_en_de(alone, model_file):
    stored = read_model(model_file)
    install(alone, "xx-en", replace(stored, source="xx", target="en"))
    file = install(alone, "en-de", stored)
    assert registry.find_model() == file
    install(alone, "other", stored)
    assert registry.find_model() == file
    assert registry.find_model(None, target="de") == registry.find_model(None, "en", "de") == file


def test_of_several_models_for_the_same_languages_none_is_guessed(alone, model_file):
    stored = read_model(model_file)
    for name in ("one", "other"):
        install(alone, name, stored)
    with pytest.raises(ModelFileError, match=r"^Several models are installed: one, other\. Choose one with --model\.$"):
        registry.find_model(None, target="de")


def test_a_package_that_is_installed_later_is_found(alone, model_file):
    stored = read_model(model_file)
    install(alone, "xx-de", stored)
    assert list(registry.installed()) == ["xx-de"]
    install(alone, "yy-de", stored)
    assert list(registry.installed()) == ["xx-de", "yy-de"]


def test_a_model_has_its_name_and_a_file_its_path(alone, model_file):
    file = install(alone, "xx-de", read_model(model_file))
    assert registry.name_of(file) == "xx-de"
    assert registry.name_of(model_file) == str(model_file)


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "There is no model ''. Give a "), (".", "The folder . has no model.safetensors. Give a ")],
)
def test_an_empty_name_and_a_folder_without_a_model_are_refused(alone, monkeypatch, name, message):
    monkeypatch.chdir(alone)
    with pytest.raises(ModelFileError) as caught:
        registry.find_model(name)
    assert str(caught.value).startswith(message)


def test_the_length_penalty_that_suits_a_model_lies_beside_it(alone, model_file):
    file = install(alone, "xx-de", read_model(model_file))
    assert registry.default_alpha(file) is None
    assert "the usual α, for no model.search.toml lies beside it" in registry.model_to_text(file)
    file.with_name("model.search.toml").write_text("# measured\nalpha = 1.4\n", encoding="utf-8")
    assert registry.default_alpha(file) == registry.default_alpha(file.with_suffix("")) == 1.4
    assert "α = 1.4 unless --alpha says otherwise" in registry.model_to_text(file)
    again = alone / "again.safetensors"
    parts = write_model(again, read_model(file), shard_bytes=10_000)
    registry.copy_alpha(file, again)
    assert [registry.default_alpha(part) for part in parts] == [1.4] * len(parts)


@pytest.mark.parametrize("said", ["alpha = ", "alpha = true", "alpha = 101", "beam = 4", "alpha = 1\nbeam = 4", ""])
def test_a_wrong_length_penalty_beside_a_model_is_refused(alone, model_file, said):
    file = install(alone, "xx-de", read_model(model_file))
    file.with_name("model.search.toml").write_text(said, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"model\.search\.toml (cannot be read|says more or less than an alpha)"):
        registry.default_alpha(file)
