"""Models of packages and of the user, and which model is used if none is named."""

from dataclasses import replace

import jaxtyping
import pytest
from command_line import onehop
from sharded import write_shards

from onehop.errors import ModelFileError, SettingsError
from onehop.storage import registry
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_text import model_to_text


@pytest.fixture
def no_models(tmp_path, monkeypatch):
    """A system without models, on which a test can install some."""
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(registry, "package_folder", lambda: tmp_path / "none")
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: onehop_entries(packages, group))
    return tmp_path


def onehop_entries(packages, group):
    from importlib.metadata import distributions

    return [entry for d in distributions(path=[str(packages)]) for entry in d.entry_points if entry.group == group]


def install_package(folder, name, stored):
    """Write the files of a model package as pip would; return its model file."""
    module = f"onehop_{name.replace('-', '_')}"
    (folder / "site-packages" / module).mkdir()
    (folder / "site-packages" / module / "__init__.py").write_text("raise AssertionError('it was imported')\n")
    info = folder / "site-packages" / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[onehop.models]\n{name} = {module}\n")
    write_model(folder / "site-packages" / module / "model.safetensors", stored)
    return folder / "site-packages" / module / "model.safetensors"


def test_a_model_package_is_found_by_its_name(no_models, model_file):
    file = install_package(no_models, "xx-de", replace(read_model(model_file), source="xx"))
    assert registry.installed() == {"xx-de": file}
    assert registry.find_model("xx-de") == registry.find_model(None, source="xx") == registry.find_model() == file


def test_the_users_model_precedes_that_of_a_package(no_models, model_file):
    stored = read_model(model_file)
    install_package(no_models, "en-de", stored)
    own = no_models / "models" / "en-de.safetensors"
    own.parent.mkdir()
    write_model(own, stored)
    assert registry.installed() == {"en-de": own}


def test_en_de_in_the_users_folder_is_found_without_listing_packages(no_models, model_file, monkeypatch):
    stored, own = read_model(model_file), no_models / "models" / "en-de.safetensors"
    own.parent.mkdir()
    write_model(own, stored)
    install_package(no_models, "de-en", replace(stored, source="de", target="en"))
    monkeypatch.setattr(registry, "model_packages", lambda: pytest.fail("all packages were looked through"))
    assert registry.find_model() == registry.find_model("en-de") == own
    assert registry.name_of(own) == "en-de"


def test_an_entry_point_without_a_module_is_ignored(no_models, model_file):
    install_package(no_models, "xx-en", read_model(model_file)).parent.rename(no_models / "site-packages" / "gone")
    assert registry.installed() == {}


def test_without_arguments_the_model_is_en_de(no_models, model_file):
    stored = read_model(model_file)
    install_package(no_models, "xx-en", replace(stored, source="xx", target="en"))
    file = install_package(no_models, "en-de", stored)
    assert registry.find_model() == file
    install_package(no_models, "other", stored)
    assert registry.find_model() == file


SEVERAL = (
    r"^Several models translate from en to de: one, other\. "
    r"Choose one with --model, or for good: onehop models default NAME\.$"
)


@pytest.mark.parametrize("asked", [(None, None), ("en", "de"), (None, "de"), ("en", None)])
def test_several_models_of_one_pair_need_a_choice_or_a_default(no_models, model_file, asked):
    stored = read_model(model_file)
    for name in ("one", "other"):
        install_package(no_models, name, stored)
    with pytest.raises(ModelFileError, match=SEVERAL):
        registry.find_model(None, *asked)
    registry.make_default("other")
    assert registry.name_of(registry.find_model(None, *asked)) == "other"


def test_a_model_named_after_its_languages_is_not_preferred(no_models, model_file):
    stored = read_model(model_file)
    for name in ("en-de", "mine"):
        install_package(no_models, name, stored)
    with pytest.raises(ModelFileError, match="Several models translate from en to de: en-de, mine"):
        registry.find_model(None, target="de")


def test_a_small_model_is_used_only_by_name(no_models, model_file):
    stored = read_model(model_file)
    for name in ("en-de", "en-de-small"):
        install_package(no_models, name, stored)
    assert registry.name_of(registry.find_model(None, "en", "de")) == "en-de"
    assert registry.name_of(registry.find_model("en-de-small")) == "en-de-small"


@pytest.fixture
def full_and_small(no_models, model_file):
    """A full model, its small form, and another model for the same languages."""
    stored = read_model(model_file)
    return {name: install_package(no_models, name, stored) for name in ("en-de", "en-de-small", "mine")}


def test_a_quality_chooses_the_full_or_small_form_of_the_default(full_and_small):
    assert registry.find_model(quality="fast") == full_and_small["en-de-small"]
    assert registry.find_model(quality="best") == registry.find_model() == full_and_small["en-de"]
    registry.make_default("en-de-small")
    assert registry.find_model() == registry.find_model(quality="fast") == full_and_small["en-de-small"]
    assert registry.find_model(quality="best") == full_and_small["en-de"]


def test_the_small_form_of_another_model_does_not_replace_the_defaults(full_and_small):
    registry.make_default("mine")
    what = "No small model from en to de is installed: --quality fast needs mine-small beside mine."
    with pytest.raises(ModelFileError, match=f"^{what} Install it, or name another with --model, such as en-de-small"):
        registry.find_model(quality="fast")
    registry.unset_default("mine")
    with pytest.raises(ModelFileError, match="Several models translate from en to de: en-de, mine"):
        registry.find_model(None, "en", "de", "fast")


def test_a_missing_small_model_is_named(no_models, model_file):
    stored = read_model(model_file)
    install_package(no_models, "en-de", stored)
    # With other languages it is not the small form of en-de.
    install_package(no_models, "en-de-small", replace(stored, source="de", target="en"))
    what = (
        "No small model from en to de is installed: --quality fast needs en-de-small beside en-de. Install its package"
    )
    with pytest.raises(ModelFileError, match=what):
        registry.find_model(quality="fast")


def test_a_missing_full_model_is_named(no_models, model_file):
    small = install_package(no_models, "en-de-small", read_model(model_file))
    assert registry.find_model() == registry.find_model(quality="fast") == small
    with pytest.raises(ModelFileError, match="No full model from en to de is installed: --quality best needs en-de"):
        registry.find_model(quality="best")


def test_a_named_model_must_have_the_requested_quality(full_and_small):
    assert registry.find_model("en-de-small", quality="fast") == full_and_small["en-de-small"]
    assert registry.find_model("mine", quality="best") == full_and_small["mine"]
    for name, quality, other in (("en-de", "fast", "en-de-small"), ("en-de-small", "best", "en-de")):
        what = f"The model {name} is named, but --quality {quality} asks for {other}. Leave out --model or --quality."
        with pytest.raises(SettingsError, match=what):
            registry.find_model(name, quality=quality)


def test_an_unknown_quality_is_refused(full_and_small, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(SettingsError, match=r"There is no quality 'slow'\. Give best or fast\."):
        registry.find_model(quality="slow")


# --- defaults -------------------------------------------------------------------------------------------------


@pytest.fixture
def three_models(no_models, model_file):
    """Two models from en to de, and one from de to en."""
    stored = read_model(model_file)
    install_package(no_models, "en-de", stored)
    install_package(no_models, "mine", stored)
    install_package(no_models, "de-en", replace(stored, source="de", target="en"))
    return no_models


def model_name(*asked):
    return registry.name_of(registry.find_model(None, *asked))


def test_each_pair_has_a_default_and_the_last_one_applies_without_languages(three_models):
    assert registry.make_default("mine") == "mine is the default from en to de, and where no language is named."
    assert (model_name(), model_name("en", "de"), model_name("de", "en")) == ("mine", "mine", "de-en")
    registry.make_default("de-en")
    assert (model_name(), model_name("en", "de")) == ("de-en", "mine")
    assert list(registry.list_defaults()) == [
        "mine: from en to de",
        "de-en: from de to en, and where no language is named",
    ]
    registry.make_default("en-de")  # replaces the other default of its pair
    assert (model_name(), list(registry.defaults())) == ("en-de", ["de-en", "en-de"])


def test_a_default_can_be_unset(three_models):
    registry.make_default("mine")
    registry.make_default("de-en")
    assert registry.unset_default("de-en") == "No longer a default: de-en."
    assert model_name() == "mine"
    assert registry.unset_default(None) == "No longer a default: mine."
    assert model_name() == "en-de"
    assert not (three_models / "models" / "defaults.json").exists()
    assert registry.unset_default(None) == "No default is set."
    with pytest.raises(ModelFileError, match=r"^mine is not a default\. No default is set\.$"):
        registry.unset_default("mine")


def test_an_uninstalled_default_is_named(three_models):
    registry.make_default("mine")
    (three_models / "site-packages" / "onehop_mine" / "model.safetensors").unlink()
    expected = r"^mine, your default from en to de, is no longer installed\. Choose another: .* --unset mine\.$"
    for asked in ((), ("en", "de")):
        with pytest.raises(ModelFileError, match=expected):
            model_name(*asked)
    assert model_name("de", "en") == "de-en"


def test_only_an_installed_translator_can_be_a_default(three_models, model_file):
    with pytest.raises(ModelFileError, match=r"^There is no model 'mime'\. Did you mean mine\?$"):
        registry.make_default("mime")
    with pytest.raises(ModelFileError, match=r"is not the name of an installed translator\."):
        registry.make_default(str(model_file))


@pytest.mark.parametrize("content", [b"no", b"[]", b'{"mine": 1}', b'{"mine": ["en"]}', b"\xff"])
def test_a_damaged_file_of_defaults_is_refused(three_models, content):
    registry.make_default("mine")
    (three_models / "models" / "defaults.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"defaults\.json cannot be read\. Remove it and choose a default again"):
        model_name()


def test_the_command_sets_shows_and_unsets_a_default(three_models):
    def said(*arguments):
        return onehop("models", "default", *arguments)

    assert said().output == "No default is set. Where no language is named, en-de translates.\n"
    assert said("mine").output == "mine is the default from en to de, and where no language is named.\n"
    assert said().output == "mine: from en to de, and where no language is named\n"
    assert "mine   en → de (default)  " in onehop("models", "list").output
    assert said("--unset", "mine").output == "No longer a default: mine.\n"
    assert (said("nobody").exit_code, said("--unset", "mine").exit_code) == (2, 2)


def test_a_package_that_is_installed_later_is_found(no_models, model_file):
    stored = read_model(model_file)
    install_package(no_models, "xx-de", stored)
    assert list(registry.installed()) == ["xx-de"]
    install_package(no_models, "yy-de", stored)
    assert list(registry.installed()) == ["xx-de", "yy-de"]


def test_name_of_gives_the_name_of_a_model_or_the_path_of_a_file(no_models, model_file):
    file = install_package(no_models, "xx-de", read_model(model_file))
    assert registry.name_of(file) == "xx-de"
    assert registry.name_of(model_file) == str(model_file)


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "There is no model ''. Give a "), (".", "The folder . has no model.safetensors. Give a ")],
)
def test_an_empty_name_and_a_folder_without_a_model_are_refused(no_models, monkeypatch, name, message):
    monkeypatch.chdir(no_models)
    with pytest.raises(ModelFileError) as caught:
        registry.find_model(name)
    assert str(caught.value).startswith(message)


def test_the_length_penalty_of_a_model_is_read_from_the_file_beside_it(no_models, model_file):
    file = install_package(no_models, "xx-de", read_model(model_file))
    assert registry.default_alpha(file) is None
    assert "the default α: no model.search.toml is beside the model" in model_to_text(file)
    file.with_name("model.search.toml").write_text("# measured\nalpha = 1.4\n", encoding="utf-8")
    assert registry.default_alpha(file) == registry.default_alpha(file.with_suffix("")) == 1.4
    assert "α = 1.4 unless --alpha says otherwise" in model_to_text(file)
    again = no_models / "again.safetensors"
    parts = write_shards(again, read_model(file))
    registry.copy_alpha(file, again)
    assert [registry.default_alpha(part) for part in parts] == [1.4] * len(parts)


@pytest.mark.parametrize("said", ["alpha = ", "alpha = true", "alpha = 101", "beam = 4", "alpha = 1\nbeam = 4", ""])
def test_an_invalid_search_file_is_refused(no_models, model_file, said):
    file = install_package(no_models, "xx-de", read_model(model_file))
    file.with_name("model.search.toml").write_text(said, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"model\.search\.toml (cannot be read|must hold alpha and nothing else)"):
        registry.default_alpha(file)
