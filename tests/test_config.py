"""Settings: presets, TOML round trips, changes, and a one-line error for each mistake."""

import tomllib
import types
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from typing import Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onehop.config import (
    OF_KINDS,
    TABLES,
    DataSettings,
    ModelSettings,
    Settings,
    TrainSettings,
    load_settings,
    preset_names,
    settings_from_dict,
    settings_to_dict,
    settings_to_toml,
    with_changes,
)
from onehop.errors import OnehopError, SettingsError


def answer_to(action, *args) -> str:
    """The message of the error that the action raises."""
    with pytest.raises(SettingsError) as caught:
        action(*args)
    assert isinstance(caught.value, OnehopError)
    assert str(caught.value) == f"{caught.value.what} {caught.value.remedy}"
    return str(caught.value)


# --- random settings ------------------------------------------------------------------------------------------


def values_of(field):
    """Values that a field admits, by its declared type and range."""
    kind = field.type
    if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
        return st.none() | values_of_type(get_args(kind)[0], field)
    return values_of_type(kind, field)


def values_of_type(kind, field):
    least, most, below = (field.metadata[k] for k in ("least", "most", "below"))
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        return st.lists(texts, max_size=3).map(tuple)
    if get_origin(kind) is Mapping:
        return st.dictionaries(texts, st.floats(0, 100), max_size=3)
    if kind is float:
        top = most if below is None else below
        return st.floats(least, top, exclude_max=below is not None, allow_nan=False)
    return {bool: st.booleans(), str: texts, int: st.integers(least, 10**9 if most is None else most)}[kind]


# TOML is UTF-8, which has no lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def any_settings(draw) -> Settings:
    tables = {name: {f.name: draw(values_of(f)) for f in fields(kind)} for name, kind in TABLES.items()}
    model = tables["model"]
    model["n_heads"] = min(model["n_heads"], 64)
    model["d_model"] = 2 * model["n_heads"] * draw(st.integers(1, 500))
    model.update({name: None for name, kinds in OF_KINDS.items() if model["kind"] not in kinds})
    if model["kind"] == "vision":
        model.update(image=8, patch=2, levels=17)
    if model["kind"] is None and model["activation"] == "gelu_tanh":
        model["activation"] = "gelu"
    return Settings(**{name: kind(**tables[name]) for name, kind in TABLES.items()})


@given(chosen=any_settings(), explained=st.booleans())
@hypothesis_settings(max_examples=100, deadline=None)
def test_printed_settings_parse_back_to_the_same(chosen, explained):
    printed = settings_to_toml(chosen, explained=explained)
    assert settings_from_dict(tomllib.loads(printed)) == chosen


@given(chosen=any_settings())
@hypothesis_settings(max_examples=50, deadline=None)
def test_tables_build_the_same_settings_again(chosen):
    assert settings_from_dict(settings_to_dict(chosen)) == chosen


def test_a_printed_preset_explains_every_field():
    printed = settings_to_toml(load_settings("base")).splitlines()
    for table in TABLES.values():
        for field in fields(table):
            (line,) = [x for x in printed if x.lstrip("# ").split(" ")[0] == field.name and field.metadata["doc"] in x]
            assert line.endswith(f"# {field.metadata['doc']}")


def test_an_unset_field_is_printed_as_a_comment_or_omitted():
    assert "\n# d_k " in settings_to_toml(Settings())
    assert "d_k" not in settings_to_toml(Settings(), explained=False)
    assert "\nd_k = 16" in settings_to_toml(Settings(model=ModelSettings(d_k=16)))


def test_every_field_stays_on_one_line():
    sly = Settings(data=DataSettings(source='a"\n[model]\nd_model = 1', train=("tab\t", "del\x7f", "back\\slash")))
    assert settings_from_dict(tomllib.loads(settings_to_toml(sly))) == sly
    assert len(settings_to_toml(sly).splitlines()) == len(settings_to_toml(Settings()).splitlines())


# --- presets and files ----------------------------------------------------------------------------------------


def test_presets_load_smallest_first():
    assert preset_names() == ["tiny", "small", "base", "big", "decoder", "encoder", "digits"]
    widths = [load_settings(name).model.d_model for name in preset_names()[:4]]
    assert widths == sorted(widths)


def test_base_is_the_papers_table_3():
    base, big = load_settings("base"), load_settings("big")
    assert base == Settings()
    for settings, numbers in ((base, (6, 6, 512, 2048, 8, 64, 64, 0.1)), (big, (6, 6, 1024, 4096, 16, 64, 64, 0.3))):
        m = settings.model
        sizes = (m.n_encoder_layers, m.n_decoder_layers, m.d_model, m.d_ff, m.n_heads, m.key_width, m.value_width)
        assert (*sizes, m.dropout) == numbers
        assert (m.norm, m.positions, m.tied) == ("post", "sinusoidal", True)
    t = base.train
    assert (t.warmup, t.label_smoothing, t.beta1, t.beta2, t.epsilon) == (4000, 0.1, 0.9, 0.98, 1e-9)
    assert (t.steps, t.average, big.train.steps, big.train.average) == (100_000, 5, 300_000, 20)


def test_a_settings_file_needs_only_the_changed_keys(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[model]\nd_ff = 1024\n[data]\ntrain = ['a.tsv', 'b.{lang}']\n")
    mine = load_settings(str(file))
    assert mine == Settings(model=ModelSettings(d_ff=1024), data=DataSettings(train=("a.tsv", "b.{lang}")))


def test_a_folder_named_like_a_preset_does_not_hide_it(tmp_path, monkeypatch):
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_settings("tiny").model.d_model == 64


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        Settings().model.d_model = 4


def test_head_widths_default_to_d_model_divided_by_heads():
    m = ModelSettings(d_model=12, n_heads=3)
    assert (m.key_width, m.value_width) == (4, 4)
    m = ModelSettings(d_model=12, n_heads=5, d_k=7, d_v=2)
    assert (m.key_width, m.value_width) == (7, 2)


# --- changes --------------------------------------------------------------------------------------------------


def test_changes_apply_in_order():
    changes = ["model.d_ff=1024", "model.d_ff = 512", "train.learning_rate=3e-4", "data.source=fr", 'data.target="de"']
    changed = with_changes(Settings(), [*changes, "model.tied=false", 'data.train=["x.tsv"]', "model.d_k=16"])
    assert (changed.model.d_ff, changed.train.learning_rate) == (512, 3e-4)
    assert (changed.data.source, changed.data.target, changed.data.train) == ("fr", "de", ("x.tsv",))
    assert (changed.model.tied, changed.model.d_k) == (False, 16)
    assert with_changes(changed, []) == changed
    assert Settings().model.d_ff == 2048


def test_a_table_can_be_changed_too():
    changed = with_changes(Settings(), ['train.weights={chat = 2, "news-*" = 0.5}'])
    assert changed.train.weights == {"chat": 2, "news-*": 0.5}
    assert 'weights = { "chat" = 2, "news-*" = 0.5 }' in settings_to_toml(changed)


def test_changes_are_checked_after_all_are_applied():
    assert with_changes(Settings(), ["model.d_model=510", "model.n_heads=5"]).model.key_width == 102


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.d_ff", "--set model.d_ff is not of the form table.key=value. Write --set model.d_ff=1024."),
        ("d_ff=4", "--set d_ff=4 is not of the form table.key=value. Write --set model.d_ff=1024."),
        ("model.=4", "--set model.=4 is not of the form table.key=value. Write --set model.d_ff=1024."),
        ("modle.d_ff=4", "There is no table 'modle' in the settings. Did you mean model?"),
        ("zzz.d_ff=4", "There is no table 'zzz' in the settings. There are: data, model, tokenizer, train."),
        ("model.dff=4", "There is no setting model.dff. Did you mean d_ff?"),
        ("train.step=4", "There is no setting train.step. Did you mean steps?"),
        (
            "model.d_ff=wide",
            "model.d_ff is 'wide'. It must be a whole number: inner width of the feed-forward network.",
        ),
    ],
)
def test_an_invalid_change_is_refused_with_a_remedy(change, message):
    assert answer_to(with_changes, Settings(), [change]) == message


# --- mistakes in tables ---------------------------------------------------------------------------------------

HEADS = "width of one head's queries and keys; unset: d_model / n_heads"
WEIGHTS = "It must be a table of numbers that are at least 0: source = how often an epoch reads its pairs; unset: once."
DROPOUT = "dropout rate of each sub-layer and of embedding + position"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[modell]", "There is no table [modell] in the settings. Did you mean model?"),
        ("[xyz]", "There is no table [xyz] in the settings. There are: data, model, tokenizer, train."),
        ("model = 3", "model is 3. It must be a table: [model]."),
        ("model.d_modle = 64", "There is no setting model.d_modle. Did you mean d_model?"),
        (
            "tokenizer.qqq = 1",
            "There is no setting tokenizer.qqq. There are: dropout, sample, vocab_size, weights.",
        ),
        (
            "model.d_model = '64'",
            "model.d_model is '64'. It must be a whole number: width of every layer's input and output.",
        ),
        (
            "model.n_heads = 8.0",
            "model.n_heads is 8.0. It must be a whole number: h, number of attention heads per layer.",
        ),
        (
            "model.n_heads = true",
            "model.n_heads is True. It must be a whole number: h, number of attention heads per layer.",
        ),
        ("model.d_k = 'x'", f"model.d_k is 'x'. It must be a whole number: {HEADS}."),
        ("model.dropout = true", f"model.dropout is True. It must be a number: {DROPOUT}."),
        ("model.dropout = '0.1'", f"model.dropout is '0.1'. It must be a number: {DROPOUT}."),
        (
            "model.tied = 1",
            "model.tied is 1. It must be true or false: "
            "one matrix for source embedding, target embedding and output projection.",
        ),
        (
            "model.norm = 'middle'",
            "model.norm is 'middle'. It must be 'post' or 'pre': "
            "layer norm after the residual sum (the paper) or before.",
        ),
        ("data.source = 3", "data.source is 3. It must be a string: source language."),
        (
            "data.valid = 'a.tsv'",
            "data.valid is 'a.tsv'. It must be a list of strings: "
            "validation files; empty: split off from the training pairs.",
        ),
        (
            "data.valid = [1]",
            "data.valid is (1,). It must be a list of strings: "
            "validation files; empty: split off from the training pairs.",
        ),
        ("model.dropout = -0.1", f"model.dropout is -0.1. It must be at least 0.0: {DROPOUT}."),
        ("model.dropout = 1", f"model.dropout is 1. It must be below 1.0: {DROPOUT}."),
        ("model.dropout = nan", f"model.dropout is nan. It must be at least 0.0: {DROPOUT}."),
        (
            "data.alphabetic = 1.5",
            "data.alphabetic is 1.5. It must be at most 1.0: drop pairs with a smaller share of letters on a side.",
        ),
        ("model.d_k = 0", f"model.d_k is 0. It must be at least 1: {HEADS}."),
        ("train.weights = 2", f"train.weights is 2. {WEIGHTS}"),
        ("train.weights = {news = 'much'}", f"train.weights is {{'news': 'much'}}. {WEIGHTS}"),
        ("train.weights = {news = -1}", f"train.weights is {{'news': -1}}. {WEIGHTS}"),
        ("train.weights = {news = inf}", f"train.weights is {{'news': inf}}. {WEIGHTS}"),
        ("train.weights = {news = nan}", f"train.weights is {{'news': nan}}. {WEIGHTS}"),
        (
            "train.steps = 0",
            "train.steps is 0. It must be at least 1: number of weight updates.",
        ),
        (
            "model.d_model = 100",
            "model.d_model 100 is not divisible by model.n_heads 8. "
            "Change one of them, or set model.d_k and model.d_v.",
        ),
        (
            "model.d_model = 63",
            "model.d_model is 63, which is odd. Sinusoids come in pairs of sine and cosine: choose an even d_model.",
        ),
    ],
)
def test_invalid_settings_are_refused_in_one_line_with_a_remedy(toml, message):
    assert answer_to(settings_from_dict, tomllib.loads(toml)) == message
    assert "\n" not in message


def test_d_model_need_not_be_divisible_if_head_widths_are_set():
    assert ModelSettings(d_model=100, n_heads=8, d_k=16, d_v=16).key_width == 16
    assert "not divisible" in answer_to(lambda: ModelSettings(d_model=100, n_heads=8, d_k=16))


def test_values_at_their_limits_are_allowed():
    ModelSettings(dropout=0, n_encoder_layers=1, d_model=2, n_heads=1)
    DataSettings(alphabetic=1.0, ratio=1)
    TrainSettings(batch_tokens=0, steps=1)


# --- mistakes in files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "place"),
    [
        ("[model]\nd_ff 1024\n", "Expected '=' after a key in a key/value pair (at line 2, column 6)"),
        ("[model]\nd_ff = \n", "Invalid value (at line 2, column 8)"),
    ],
)
def test_invalid_toml_is_refused_with_its_position(tmp_path, toml, place):
    file = tmp_path / "bad.toml"
    file.write_text(toml)
    assert answer_to(load_settings, str(file)) == f"{file} is not valid TOML: {place}. Correct that line."


def test_a_missing_file_is_named(tmp_path):
    missing = tmp_path / "none.toml"
    presets = "tiny, small, base, big, decoder, encoder, digits"
    expected = f"There is no settings file {missing}. Give a TOML file or a preset ({presets})."
    assert answer_to(load_settings, str(missing)) == expected


def test_an_unreadable_settings_file_is_named(tmp_path):
    for name, reason in {"folder.toml": "Is a directory", "picture.toml": "can't decode byte"}.items():
        path = tmp_path / name
        path.mkdir() if reason == "Is a directory" else path.write_bytes(b"\xff\xfe")
        message = answer_to(load_settings, str(path))
        assert message.startswith(f"The settings file {path} cannot be read: ")
        assert reason in message
        assert message.endswith("Give a TOML text file.")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bas", "There is no preset 'bas'. Did you mean base?"),
        ("enormous", "There is no preset 'enormous'. There are: base, big, decoder, digits, encoder, small, tiny."),
        ("", "There is no preset ''. There are: base, big, decoder, digits, encoder, small, tiny."),
    ],
)
def test_an_unknown_preset_is_refused_with_the_nearest_name(name, message):
    assert answer_to(load_settings, name) == message


@pytest.mark.parametrize("preset", [name for name in preset_names() if name != "digits"])
def test_every_preset_can_train_on_the_data_it_prepares(preset):
    settings = load_settings(preset)
    assert settings.data.longest < settings.model.max_length  # the end mark is a token too


def test_a_settings_file_is_given_as_a_path_or_a_string(tmp_path):
    (tmp_path / "mine.toml").write_text("[train]\nsteps = 7\n")
    assert load_settings(tmp_path / "mine.toml") == load_settings(str(tmp_path / "mine.toml"))
    assert load_settings(tmp_path / "mine.toml").train.steps == 7
