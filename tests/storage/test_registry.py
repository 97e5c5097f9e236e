"""Models that packages bring, and which model is meant where none is named."""

from dataclasses import replace

import jaxtyping
import pytest
from sharded import write_shards
from typer.testing import CliRunner

from onehop.cli import app
from onehop.errors import ModelFileError, SettingsError
from onehop.storage import registry
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_text import model_to_text


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No model but those that a test installs."""
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


def test_en_de_in_a_folder_of_ours_is_found_without_looking_through_packages(alone, model_file, monkeypatch):
    stored, own = read_model(model_file), alone / "models" / "en-de.safetensors"
    own.parent.mkdir()
    write_model(own, stored)
    install(alone, "de-en", replace(stored, source="de", target="en"))
    monkeypatch.setattr(registry, "model_packages", lambda: pytest.fail("all packages were looked through"))
    assert registry.find_model() == registry.find_model("en-de") == own
    assert registry.name_of(own) == "en-de"


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


SEVERAL = (
    r"^Several models translate from en to de: one, other\. "
    r"Choose one with --model, or for good: onehop models default NAME\.$"
)


@pytest.mark.parametrize("asked", [(None, None), ("en", "de"), (None, "de"), ("en", None)])
def test_of_several_models_for_the_same_languages_none_is_guessed(alone, model_file, asked):
    stored = read_model(model_file)
    for name in ("one", "other"):
        install(alone, name, stored)
    with pytest.raises(ModelFileError, match=SEVERAL):
        registry.find_model(None, *asked)
    registry.make_default("other")
    assert registry.name_of(registry.find_model(None, *asked)) == "other"


def test_a_model_that_is_called_after_its_languages_does_not_win_either(alone, model_file):
    stored = read_model(model_file)
    for name in ("en-de", "mine"):
        install(alone, name, stored)
    with pytest.raises(ModelFileError, match="Several models translate from en to de: en-de, mine"):
        registry.find_model(None, target="de")


def test_a_small_form_is_used_by_its_name_alone(alone, model_file):
    stored = read_model(model_file)
    for name in ("en-de", "en-de-small"):
        install(alone, name, stored)
    assert registry.name_of(registry.find_model(None, "en", "de")) == "en-de"
    assert registry.name_of(registry.find_model("en-de-small")) == "en-de-small"


@pytest.fixture
def forms(alone, model_file):
    """The full and the small form of a model, and a rival."""
    stored = read_model(model_file)
    return {name: install(alone, name, stored) for name in ("en-de", "en-de-small", "mine")}


def test_a_quality_chooses_between_the_forms_of_the_usual_model(forms):
    assert registry.find_model(quality="fast") == forms["en-de-small"]
    assert registry.find_model(quality="best") == registry.find_model() == forms["en-de"]
    registry.make_default("en-de-small")
    assert registry.find_model() == registry.find_model(quality="fast") == forms["en-de-small"]
    assert registry.find_model(quality="best") == forms["en-de"]


def test_no_other_small_model_stands_in_for_that_of_the_default(forms):
    registry.make_default("mine")
    what = "No small model from en to de is installed: --quality fast needs mine-small beside mine."
    with pytest.raises(ModelFileError, match=f"^{what} Install it, or name another with --model, such as en-de-small"):
        registry.find_model(quality="fast")
    registry.unset_default("mine")
    with pytest.raises(ModelFileError, match="Several models translate from en to de: en-de, mine"):
        registry.find_model(None, "en", "de", "fast")


def test_a_small_model_that_is_missing_is_said(alone, model_file):
    stored = read_model(model_file)
    install(alone, "en-de", stored)
    install(alone, "en-de-small", replace(stored, source="de", target="en"))  # of other languages: not its small form
    what = (
        "No small model from en to de is installed: --quality fast needs en-de-small beside en-de. Install its package"
    )
    with pytest.raises(ModelFileError, match=what):
        registry.find_model(quality="fast")


def test_where_only_the_small_model_is_installed_the_best_is_missed(alone, model_file):
    small = install(alone, "en-de-small", read_model(model_file))
    assert registry.find_model() == registry.find_model(quality="fast") == small
    with pytest.raises(ModelFileError, match="No full model from en to de is installed: --quality best needs en-de"):
        registry.find_model(quality="best")


def test_a_model_that_is_named_has_the_quality_that_is_asked_for(forms):
    assert registry.find_model("en-de-small", quality="fast") == forms["en-de-small"]
    assert registry.find_model("mine", quality="best") == forms["mine"]
    for name, quality, other in (("en-de", "fast", "en-de-small"), ("en-de-small", "best", "en-de")):
        what = f"The model {name} is named, but --quality {quality} asks for {other}. Leave out --model or --quality."
        with pytest.raises(SettingsError, match=what):
            registry.find_model(name, quality=quality)


def test_an_unknown_quality_is_refused(forms, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(SettingsError, match=r"There is no quality 'slow'\. Give best or fast\."):
        registry.find_model(quality="slow")


# --- defaults -------------------------------------------------------------------------------------------------


@pytest.fixture
def three(alone, model_file):
    """Two models from en to de, and one from de to en."""
    stored = read_model(model_file)
    install(alone, "en-de", stored)
    install(alone, "mine", stored)
    install(alone, "de-en", replace(stored, source="de", target="en"))
    return alone


def found(*asked):
    return registry.name_of(registry.find_model(None, *asked))


def test_each_pair_has_its_default_and_the_last_one_counts_without_languages(three):
    assert registry.make_default("mine") == "mine is the default from en to de, and where no language is named."
    assert (found(), found("en", "de"), found("de", "en")) == ("mine", "mine", "de-en")
    registry.make_default("de-en")
    assert (found(), found("en", "de")) == ("de-en", "mine")
    assert list(registry.list_defaults()) == [
        "mine: from en to de",
        "de-en: from de to en, and where no language is named",
    ]
    registry.make_default("en-de")  # of one pair there is one
    assert (found(), list(registry.defaults())) == ("en-de", ["de-en", "en-de"])


def test_a_default_is_unset(three):
    registry.make_default("mine")
    registry.make_default("de-en")
    assert registry.unset_default("de-en") == "No longer a default: de-en."
    assert found() == "mine"
    assert registry.unset_default(None) == "No longer a default: mine."
    assert found() == "en-de"
    assert not (three / "models" / "defaults.json").exists()
    assert registry.unset_default(None) == "No default is set."
    with pytest.raises(ModelFileError, match=r"^mine is not a default\. No default is set\.$"):
        registry.unset_default("mine")


def test_a_default_that_is_gone_is_said(three):
    registry.make_default("mine")
    (three / "site-packages" / "onehop_mine" / "model.safetensors").unlink()
    expected = r"^mine, your default from en to de, is no longer installed\. Choose another: .* --unset mine\.$"
    for asked in ((), ("en", "de")):
        with pytest.raises(ModelFileError, match=expected):
            found(*asked)
    assert found("de", "en") == "de-en"


def test_only_an_installed_translator_can_be_a_default(three, model_file):
    with pytest.raises(ModelFileError, match=r"^There is no model 'mime'\. Did you mean mine\?$"):
        registry.make_default("mime")
    with pytest.raises(ModelFileError, match=r"is not the name of an installed translator\."):
        registry.make_default(str(model_file))


@pytest.mark.parametrize("content", [b"no", b"[]", b'{"mine": 1}', b'{"mine": ["en"]}', b"\xff"])
def test_a_damaged_file_of_defaults_is_said(three, content):
    registry.make_default("mine")
    (three / "models" / "defaults.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"defaults\.json cannot be read\. Remove it and choose a default again"):
        found()


def test_the_command_chooses_shows_and_forgets(three):
    def said(*arguments):
        return CliRunner().invoke(app, ["models", "default", *arguments])

    assert said().output == "No default is set. Where no language is named, en-de translates.\n"
    assert said("mine").output == "mine is the default from en to de, and where no language is named.\n"
    assert said().output == "mine: from en to de, and where no language is named\n"
    assert "mine   en → de (default)  " in CliRunner().invoke(app, ["models", "list"]).output
    assert said("--unset", "mine").output == "No longer a default: mine.\n"
    assert (said("nobody").exit_code, said("--unset", "mine").exit_code) == (2, 2)


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
    assert "the default α: no model.search.toml is beside the model" in model_to_text(file)
    file.with_name("model.search.toml").write_text("# measured\nalpha = 1.4\n", encoding="utf-8")
    assert registry.default_alpha(file) == registry.default_alpha(file.with_suffix("")) == 1.4
    assert "α = 1.4 unless --alpha says otherwise" in model_to_text(file)
    again = alone / "again.safetensors"
    parts = write_shards(again, read_model(file))
    registry.copy_alpha(file, again)
    assert [registry.default_alpha(part) for part in parts] == [1.4] * len(parts)


@pytest.mark.parametrize("said", ["alpha = ", "alpha = true", "alpha = 101", "beam = 4", "alpha = 1\nbeam = 4", ""])
def test_a_wrong_length_penalty_beside_a_model_is_refused(alone, model_file, said):
    file = install(alone, "xx-de", read_model(model_file))
    file.with_name("model.search.toml").write_text(said, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"model\.search\.toml (cannot be read|must hold alpha and nothing else)"):
        registry.default_alpha(file)
