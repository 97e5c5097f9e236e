"""The public translator: texts of any length, results, scores, errors, unloading and pickling."""

import copy
import gc
import multiprocessing
import pickle
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from onehop.decoding.options import SearchOptions
from onehop.errors import ModelChangedError, ModelFileError, SettingsError, TextError
from onehop.pipelines import lazy_model
from onehop.pipelines import translate as module
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.pipelines.translate import translate
from onehop.pipelines.translator import Translator
from onehop.storage.model_io import read_model, write_model
from onehop.storage.registry import package_folder

SHIPPED = package_folder() / "en-de"
PARAGRAPH = (
    "The old man opened the door and looked at the rain. Nobody had come to see him for three weeks. "
    "He made a cup of tea, sat down by the window and began to read the newspaper. "
    "There was nothing in it about his village. In the evening the telephone rang. "
    "It was his daughter, who lived in Canada. She asked him whether he was well. He said that he was."
)


@pytest.fixture(scope="module")
def shipped():
    return Translator(SHIPPED, threads=1)


@pytest.fixture
def small(model_file):
    return Translator(model_file, compute="float32", threads=1)


# --- texts ----------------------------------------------------------------------------------------------------


def test_no_sentence_of_a_paragraph_is_lost(shipped):
    text = " ".join([PARAGRAPH] * 3)
    result = shipped.translate(text)
    assert [s.source for s in result.sentences] == [s.source for s in shipped.translate(PARAGRAPH).sentences] * 3
    assert len(result.sentences) == 24
    assert result.text == " ".join(s.text for s in result.sentences)
    assert result.warnings == []
    # Translated as one sentence, longer than any in the training data, parts are lost.
    (whole,) = shipped._models[0].sentences.translate([text])
    assert result.text.count("Kanada") == 3 > whole.text.count("Kanada")


def test_a_list_of_texts_gives_a_list_of_results(small):
    texts = ["the old house", "a bird. the new tree"]
    results = small.translate(texts)
    assert [r.source for r in results] == texts
    assert results == [small.translate(text) for text in texts] == small.translate(iter(texts))
    assert small.translate([]) == []


def test_line_breaks_and_spaces_between_sentences_are_kept(shipped):
    text = "Good morning.\r\n\n  Good evening. \nThank you."
    result = shipped.translate(text)
    assert result.source == text
    assert result.text == "Guten Morgen.\r\n\n  Guten Abend. \nDanke."
    assert [str(s) for s in result.sentences] == ["Guten Morgen.", "Guten Abend.", "Danke."]


def test_a_byte_order_mark_is_ignored(shipped):
    assert shipped.translate("\ufeffGood morning.") == shipped.translate("Good morning.")


def test_half_a_surrogate_pair_in_a_long_text_is_translated(shipped):
    assert shipped.translate("The cat sat on the mat because it was very tired \ud800 today.").text


@pytest.mark.parametrize("text", ["", " ", "\n", "\r\n\t", "?! …", "https://example.com"])
def test_text_without_words_is_returned_unchanged(small, text):
    result = small.translate(text)
    assert (result.text, result.score, result.warnings) == (text, 0.0, [])


def test_translate_equals_the_paragraph_pipeline(model_file, small):
    """The command line builds the same pipeline."""
    by_hand = ParagraphTranslator(
        SentenceTranslator.load(model_file, compute="float32", threads=1),
        max_length=max_length_of(model_file),
        options=SearchOptions(beam=2, alpha=0.2, n_best=2),
    )
    text = "the old house. a bird\nthe new tree"
    found = by_hand.translate(text.split("\n"))
    result = small.translate(text, beam=2, alpha=0.2, n_best=2)
    assert result.text == "\n".join(line.text for line in found)
    assert [s.n_best for s in result.sentences] == [s.n_best for line in found for s in line.sentences]
    assert small.translate(text, options=SearchOptions(beam=2, alpha=0.2, n_best=2)) == result


def test_unfinished_sentences_and_loops_cause_warnings(small):
    """A model with random weights never predicts EOS."""
    results = small.translate(["the old house", "a bird", "the new tree", "a new house"], beam=1)
    assert any(not s.n_best[0].finished for r in results for s in r.sentences)
    for result in results:
        for sentence in result.sentences:
            said = any(w in result.warnings for w in (UNFINISHED, LOOPED))
            assert said is not sentence.n_best[0].finished


UNFINISHED = "a translation reached the maximum length without ending"
LOOPED = "a translation repeated itself over and over, and was stopped"


def test_a_glossary_may_be_a_mapping_or_a_file(shipped, tmp_path):
    (tmp_path / "terms.tsv").write_text("contract\tKontrakt\n")
    for glossary in ({"contract": "Kontrakt"}, tmp_path / "terms.tsv", str(tmp_path / "terms.tsv")):
        result = shipped.translate("The contract is short.", glossary=glossary, beam=8)
        assert "Kontrakt" in result.text or result.warnings == ["not in the translation: contract → Kontrakt"]
    assert shipped.translate("The contract is short.", glossary={"contract": " "}) == shipped.translate(
        "The contract is short."
    )
    (kept,) = shipped.translate(["The Contract is short."], keep=["Contract"])
    assert "Contract" in kept.text or kept.warnings == ["not in the translation: Contract"]


def test_text_in_another_language_causes_a_warning(shipped):
    result = shipped.translate("Dies ist gewiss kein englischer Satz, oder etwa doch?")
    assert result.warnings[0].startswith("the input does not seem to be in the model's source language, en")


# --- scores ---------------------------------------------------------------------------------------------------


def test_sentences_have_token_scores_and_alignments(shipped):
    (sentence,) = shipped.translate("The cat is asleep.").sentences
    assert len(sentence.token_scores) == len(sentence.tokens)
    assert max(sentence.token_scores) <= 0
    end = shipped.score(sentence.source, sentence.text).token_scores[-1]
    # Search and scoring sum int8 products in different orders.
    assert sum(sentence.token_scores) + end == pytest.approx(sentence.n_best[0].log_prob, abs=0.05)
    alignment = sentence.alignment
    assert alignment["target_tokens"] == list(sentence.tokens)
    words = dict(
        zip(alignment["target_tokens"], [alignment["source_tokens"][i] for i, _ in alignment["pairs"]], strict=True)
    )
    assert words["▁Katze"] == "▁cat"


def test_engines_agree_on_the_score_of_a_given_translation():
    sources, targets = ["Good morning!", "The cat is asleep."], ["Guten Abend!", "Die Katze schläft."]
    plain, fast = (Translator(SHIPPED, engine=e, compute="float32", threads=1) for e in ("torch", "ctranslate2"))
    assert (plain.engines, fast.engines) == (("torch",), ("ctranslate2",))
    for one, other in zip(plain.score(sources, targets), fast.score(sources, targets), strict=True):
        assert one.tokens == other.tokens
        assert other.token_scores == pytest.approx(one.token_scores, abs=1e-2)
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-2)


def test_a_score_counts_the_end_mark(small):
    empty = small.score("the old house", "")
    assert empty.tokens == ("</s>",)
    assert empty.log_prob == empty.token_scores[0] < 0
    score = small.score("the old house", "a bird")
    assert score.perplexity == pytest.approx(2.718281828 ** (-score.log_prob / len(score.tokens)))
    assert repr(score).startswith("Score(log_prob=-")


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.translate("x", beam=0), SettingsError, "beam is 0. It must be at least 1"),
        (lambda t: t.translate("x", beam=5000), SettingsError, "beam is 5000. It must be at most 1000"),
        (lambda t: t.translate("x", n_best=9), SettingsError, "n_best is 9, but beam is 4. A beam finds"),
        (
            lambda t: t.translate(iter([1])),
            TextError,
            "A text is of the type int. Give a string, or a list of strings.",
        ),
        (lambda t: t.translate("x", keep="abc"), SettingsError, "`keep` is one string. Give a list of words."),
        (lambda t: t.score("x", ["y"]), SettingsError, "One text and several cannot be compared. Give two strings"),
        (lambda t: t.score(["x"], []), SettingsError, "1 sources have 0 translations. Give one for each."),
        (lambda t: t.score(" ", "y"), TextError, "There is nothing to score: a source is empty."),
        (lambda t: Translator("no-such"), ModelFileError, "There is no model 'no-such'."),
        (lambda t: Translator(engine="ctranslate2", device="cuda"), SettingsError, "CTranslate2 runs on the CPU here"),
        (lambda t: Translator([]), SettingsError, "0 models are given. Give one, or two to go through."),
        (lambda t: Translator([SHIPPED, SHIPPED]), SettingsError, f"{SHIPPED / 'model.safetensors'} translates into"),
    ],
)
def test_invalid_arguments_are_refused(small, monkeypatch, call, error, message):
    monkeypatch.setattr(lazy_model, "name_of", str)
    with pytest.raises(error) as caught:
        call(small)
    assert str(caught.value).startswith(message)


def test_quality_fast_uses_the_small_model_and_greedy_search(install, monkeypatch):
    install("en-de", "en-de-small")
    asked = []
    pipeline = Translator.pipeline
    monkeypatch.setattr(
        Translator, "pipeline", lambda self, options, *a, **k: pipeline(self, asked.append(options) or options, *a, **k)
    )
    assert translate("a bird", to="de", quality="fast").models == ("en-de-small",)
    assert translate("a bird", to="de").models == ("en-de",)
    fast = pickle.loads(pickle.dumps(Translator(quality="fast", threads=1)))
    assert fast.models == ("en-de-small",)
    fast.translate("a bird")
    fast.translate("a bird", beam=3)
    assert [options.beam for options in asked] == [1, 4, 1, 3]


def test_errors_of_a_missing_quality_name_the_python_argument(install):
    folder = install("en-de")
    package = "(pip install packages/onehop-en-de-small in a checkout)"
    remedy = f"Install its package {package}, put en-de-small.safetensors into {folder}, or leave out quality=."
    with pytest.raises(ModelFileError, match=re.escape(f"quality=fast needs en-de-small beside en-de. {remedy}")):
        Translator(quality="fast")
    for model in ("en-de", ["en-de"]):
        with pytest.raises(SettingsError, match="quality=fast asks for en-de-small"):
            Translator(model, quality="fast")


def test_errors_name_the_python_arguments(install):
    install("en-de", "en-fr")
    with pytest.raises(ModelFileError, match=r"Choose one with model=, or give to=\.$"):
        Translator(source="en")
    with pytest.raises(ModelFileError, match=r"Choose one with model=, or give to=\.$"):
        translate("a bird", source="en")


# --- unloading, pickling, threads -----------------------------------------------------------------------------


def test_the_repr_shows_model_languages_and_options(model_file, small, shipped):
    assert repr(shipped) == "Translator('en-de', en → de, threads=1)"
    assert repr(small) == f"Translator({str(model_file)!r}, en → de, compute='float32', threads=1)"
    small.unload()
    assert repr(small).endswith(", unloaded)")


def test_unload_frees_the_weights_until_the_next_use(small):
    before = small.translate("the old house")
    weights = weakref.ref(small._models[0].sentences)
    with small as same:
        assert same is small
    gc.collect()
    assert weights() is None  # the result holds no weights either
    assert before.sentences[0].token_scores
    assert small.translate("the old house") == before


def test_a_pickled_translator_contains_no_weights(small):
    data = pickle.dumps(small)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert repr(again).endswith(", unloaded)")
    assert again.translate("the old house") == copy.copy(small).translate("the old house")
    assert again.engines == small.engines


def test_a_relative_path_works_after_a_change_of_directory(model_file, tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    (tmp_path / "sub").mkdir()
    write_model(tmp_path / "m" / "model.safetensors", read_model(model_file))
    monkeypatch.chdir(tmp_path)
    translator = Translator("m")
    before, data = translator.translate("a bird"), pickle.dumps(translator)
    translator.unload()
    monkeypatch.chdir(tmp_path / "sub")
    assert translator.translate("a bird") == before == pickle.loads(data).translate("a bird")


def test_a_changed_model_file_is_refused(install):
    folder = install("en-de")
    translator = Translator("en-de")
    before, data = translator.translate("a bird"), pickle.dumps(translator)
    translator.unload()
    file = folder / "en-de.safetensors"
    write_model(file, replace(read_model(file), source="de", target="en"))
    for use in (
        lambda: translator.translate("a bird"),
        lambda: before.sentences[0].token_scores,
        lambda: pickle.loads(data),
    ):
        with pytest.raises(ModelChangedError, match=r"^The model file has changed since it was loaded\."):
            use()


def test_a_translator_can_be_sent_to_another_process(small):
    texts = ["the old house", "a bird"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(small.translate, texts)
    assert found == small.translate(texts)
    assert found[0].sentences[0].token_scores == small.translate(texts[0]).sentences[0].token_scores


def test_threads_share_a_translator(shipped):
    texts = ["Good morning.", "Thank you.", "Where is the station?", "The cat is asleep."] * 4
    with ThreadPoolExecutor(4) as pool:
        assert (
            list(pool.map(lambda text: shipped.translate(text).text, texts))
            == [shipped.translate(text).text for text in texts[:4]] * 4
        )


def test_load_equals_the_constructor(model_file):
    assert Translator.load(model_file).translate("a bird") == Translator(str(model_file)).translate("a bird")


# --- the function ---------------------------------------------------------------------------------------------


def test_the_function_keeps_models_in_memory(install, monkeypatch):
    folder = install("en-de", "de-en")
    made = []
    monkeypatch.setattr(module, "Translator", lambda route: made.append(route) or Translator(route))
    module._cached_translator.cache_clear()
    one = translate("a bird", to="de")
    assert translate(["a bird"], to="German", source="en") == [one] == [translate("a bird", model="en-de")]
    assert one == translate("a bird")
    assert one.models == ("en-de",)
    assert translate("a bird", to="en").models == ("de-en",)
    assert [[path.stem for path in route] for route in made] == [["en-de"], ["de-en"]]
    # Another content under the same name is read.
    other = replace(read_model(folder / "en-de.safetensors"), provenance={"made": "anew"})
    write_model(folder / "en-de.safetensors", other)
    translate("a bird")
    assert len(made) == 3


@pytest.mark.parametrize("source", [None, "auto"])
def test_a_text_in_the_target_language_is_returned_with_a_warning(install, source):
    install("en-de", "de-en")
    text = "Dies ist gewiss kein englischer Satz,\noder etwa doch?"
    found = translate(text, to="de", source=source)
    assert (found.text, found.source, found.sentences) == (text, text, ())
    assert found.warnings == ["The text seems to be in German (de) already. It is returned unchanged."]
    assert [each.text for each in translate([text, ""], to="de", source=source)] == [text, ""]
    assert translate(text, to="de", source="en").text != text
