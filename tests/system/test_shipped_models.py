"""The included English–German model: it is complete, its card is correct, and it translates."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import onehop

from onehop.config import load_settings
from onehop.interpret.tracer import Tracer
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage import registry
from onehop.storage.model_io import read_model
from onehop.storage.model_label import SUFFIX

FOLDER = registry.package_folder() / "en-de"
MODEL = FOLDER / registry.MODEL
ROOT = Path(__file__).parents[2]
BENCHMARKS, RECIPE = ROOT / "benchmarks", ROOT / "recipes" / "en-de.toml"
MOST_BYTES = 60_000_000


@pytest.fixture(autouse=True)
def no_models_of_the_user(tmp_path, monkeypatch):
    """A model of the same name in the user's folder would precede it."""
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))


@pytest.fixture(scope="module")
def translator():
    return SentenceTranslator.load(MODEL, device="cpu", threads=1)


@pytest.fixture(scope="module")
def by_torch():
    return SentenceTranslator.load(MODEL, device="cpu", engine="torch")


@pytest.fixture(scope="module")
def paragraphs(translator):
    """The translator that `onehop translate` uses."""
    return ParagraphTranslator(translator, max_length=max_length_of(MODEL))


# --- what lies in the package ---------------------------------------------------------------------------------


def test_the_model_is_small_enough_to_ship():
    sizes = [file.stat().st_size for file in FOLDER.glob(f"*{SUFFIX}")]
    assert len(sizes) == 1
    assert sum(sizes) <= MOST_BYTES


def test_the_model_is_the_papers_base_model():
    model = read_model(MODEL).settings.model
    assert (model.n_encoder_layers, model.n_decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.n_heads) == (512, 2048, 8)
    assert (model.norm, model.positions, model.tied) == ("post", "sinusoidal", True)


def test_the_recipe_is_the_one_that_made_it():
    assert read_model(MODEL).settings == load_settings(str(RECIPE))


def test_models_show_prints_the_card_with_this_hash():
    """Reading verifies the hash against the content, so the card describes these weights."""
    shown = onehop("models", "show", "en-de")
    assert shown.exit_code == 0
    stored, card = read_model(MODEL), (FOLDER / registry.CARD).read_text(encoding="utf-8")
    assert shown.stdout.endswith(card)
    assert re.findall(r"\b[0-9a-f]{64}\b", card) == [stored.hash]
    assert stored.provenance["data"] in card
    assert f"{stored.provenance['pairs']:,} sentence pairs" in card


# --- what it does ---------------------------------------------------------------------------------------------


def test_no_shipped_model_has_another_length_penalty_than_the_papers():
    """BLEU and TER disagree on whole validation sets (docs/results/translation-quality.md)."""
    files = [MODEL, *ROOT.glob("packages/*/*/model.safetensors")]
    assert len(files) == 1 + len(list(ROOT.glob("packages/onehop-*")))
    assert [registry.default_alpha(file) for file in files] == [None] * len(files)


def test_the_model_is_the_default():
    done = onehop("translate", "Good morning!")
    assert done.stdout == "Guten Morgen!\n"


@pytest.mark.parametrize(
    ("noun", "german", "pronoun"), [("cat", "Katze", "sie"), ("dog", "Hund", "er"), ("animal", "Tier", "es")]
)
def test_the_model_chooses_the_pronoun_by_the_noun(translator, noun, german, pronoun):
    (found,) = translator.translate([f"The {noun} sat because it was tired."])
    assert german in found.text
    assert re.search(rf"weil {pronoun}\b", found.text)


def test_both_engines_translate_alike(translator, by_torch):
    texts = ["The house is old.", "I would like a cup of coffee, please."]
    assert [t.text for t in by_torch.translate(texts)] == [t.text for t in translator.translate(texts)]


CAT = "The cat sat because it was sleepy."


@pytest.fixture(scope="module")
def tracer():
    return Tracer.load(registry.named_model("en-de"), "cpu")


def looking_at_it(trace) -> list[str]:
    """The edits that switch off the cross-attention heads with the most weight on "it" while "sie" is written."""
    it = trace.header["source"]["tokens"].index("▁it")
    sie = trace.header["target"]["output_tokens"].index("▁sie")
    looks = np.stack([trace[f"decoder.layers.{layer}.cross_attention.weights"][:, sie] for layer in range(6)])
    found = np.argwhere(looks.argmax(-1) == it)
    return [f"head=off@cross.{layer}.{head}" for layer, head in sorted(found, key=lambda at: -looks[*at, it])]


def test_ablating_the_heads_that_attend_to_it_keeps_the_pronoun(tracer):
    trace = tracer.trace(CAT)
    seven = looking_at_it(trace)
    assert len(seven) == 7
    assert seven[0] == "head=off@cross.3.5"  # docs/guide/explore.md
    assert "weil sie" in tracer.trace(CAT, seven).text
    it, cat = (trace.header["source"]["tokens"].index(token) for token in ("▁it", "▁cat"))
    asked = np.stack([trace[f"encoder.layers.{layer}.self_attention.weights"][:, it] for layer in range(6)])
    assert cat not in asked.argmax(-1)


# --- text that is not a tidy sentence -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def robustness():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("robustness")


@pytest.fixture(scope="module")
def outcomes(robustness, paragraphs):
    """The result for every line of the benchmark, including two of 500 words."""
    return robustness.outcomes(paragraphs, robustness.cases())


@pytest.mark.slow
def test_the_robustness_check_finds_no_fault_as_the_card_says(outcomes):
    assert {outcome.input: outcome.faults for outcome in outcomes if outcome.faults} == {}
    card = " ".join((FOLDER / registry.CARD).read_text(encoding="utf-8").split())
    assert f"{len(outcomes)} inputs of 17 kinds" in card
    assert "It found no fault." in card


def test_both_engines_translate_capitals(paragraphs, by_torch):
    for by in (paragraphs, ParagraphTranslator(by_torch, max_length=max_length_of(MODEL))):
        (found,) = by.translate(["PLEASE DO NOT OPEN THE DOOR."])
        assert found.text == "BITTE ÖFFNE NICHT DIE TÜR."


def test_a_repetitive_source_is_no_loop(paragraphs, tracer):
    (found,) = paragraphs.translate(["No, no, no, no, no, no, no, no, no!"])
    assert found.warnings == []
    for text in (found.text, tracer.trace(found.source).text):  # int8 and float32
        assert text.casefold().count("nein") in range(7, 12)


def test_empty_input_stays_empty(paragraphs):
    assert [found.text for found in paragraphs.translate(["", "   "])] == ["", "   "]
