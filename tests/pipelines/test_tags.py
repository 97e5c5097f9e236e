import inspect
import re
from pathlib import Path

import pytest

from onehop.decoding.options import SearchOptions
from onehop.errors import SettingsError
from onehop.pipelines.forced_terms import fix_article, force_missing_terms
from onehop.pipelines.glossary import Term, Terms, check_formality
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.pipelines.translator import Translator, terms_of
from onehop.text.formality import formality
from onehop.text.tokenizer import Tokenizer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def shipped():
    return Translator("en-de", engine="ctranslate2", threads=1)


@pytest.fixture(scope="module")
def sentences(shipped) -> SentenceTranslator:
    return shipped._models[0].sentences


@pytest.fixture(scope="module")
def tokenizer(sentences) -> Tokenizer:
    return sentences.tokenizer


TERMS = Terms([Term("house", "Gebäude"), Term("old house", "Altbau")], ["Anna"])


@pytest.mark.parametrize(
    ("text", "tagged"),
    [
        ("The House, Anna.", "The <term> House <as> Gebäude </term>, <term> Anna <as> Anna </term>."),
        ("The  old house", "The <term> old house <as> Altbau </term>"),
        ("A (house) and a house", "A (house) and a <term> house <as> Gebäude </term>"),
        ("A garden", None),
        ("<b> the house </b>", None),  # tags in the input stay ordinary text
    ],
)
def test_terms_are_tagged_where_a_tag_can_stand(tokenizer, text, tagged):
    assert TERMS.tagged(text, tokenizer) == tagged


def test_the_formality_tag_comes_first(tokenizer):
    terms = Terms([Term("house", "Gebäude")], formality="formal")
    assert terms.tagged("Your house", tokenizer) == "<formal> Your <term> house <as> Gebäude </term>"


def test_a_sentence_without_address_gets_no_formality_tag(tokenizer):
    terms = Terms(formality="formal")
    assert terms.tagged("We bought 3 acres.", tokenizer) is None
    assert terms.tagged("Wait here.", tokenizer) == "<formal> Wait here."


def test_an_unsupported_formality_is_refused(tokenizer, monkeypatch):
    terms = Terms(formality="formal")
    check_formality("formal", tokenizer, "de")
    with pytest.raises(SettingsError, match=r"English has no formality formal\..*into German or French\."):
        check_formality("formal", tokenizer, "en")
    monkeypatch.setattr(Tokenizer, "knows_tag", lambda self, tag: False)
    with pytest.raises(SettingsError, match="no tag for the formality"):
        check_formality("formal", tokenizer, "de")
    assert terms.tagged("Your house", tokenizer) is None


def test_an_unknown_formality_is_refused():
    with pytest.raises(SettingsError, match="no formality 'polite'"):
        inspect.unwrap(terms_of)(None, [], "polite")  # unwrapped: the tests' type check would refuse it first


def test_a_missing_term_is_forced_in_a_second_search(shipped, sentences):
    """The model ignores the tag of this term."""
    text, term = "The waiter forgot our drinks.", Term("waiter", "Servicekraft")
    first = sentences.translate([text])[0]
    assert not term.met(first.text)
    found = force_missing_terms(sentences, text, sentences.tokenizer.encode(text), first, [term], SearchOptions())
    assert term.count(found.text) == 1
    assert found.finished
    assert not found.looped
    assert "Getränke vergessen" in found.text
    result = shipped.translate(text, glossary={"waiter": "Servicekraft"})
    assert result.text == "Die Servicekraft hat unsere Getränke vergessen."
    assert not result.warnings


def test_both_engines_complete_a_prefix(sentences):
    torch = SentenceTranslator.load("en-de", engine="torch", device="cpu", threads=1)
    source = sentences.tokenizer.encode("The car stopped.")
    prefix = sentences.tokenizer.encode("Das Fahrzeug")
    for translator in (sentences, torch):
        [best, other] = translator.complete(source, [prefix, prefix[:1]], SearchOptions())
        assert best.text.startswith("Das Fahrzeug ")
        assert other.text.startswith("Das ")
        assert best.finished
        assert best.log_prob < 0
        [scores] = translator.score([source], [sentences.tokenizer.ids(best.tokens)])
        assert best.log_prob == pytest.approx(sum(scores), abs=0.1)


def test_an_article_gets_the_gender_of_the_term(sentences):
    text, term = "The soup is too hot to eat.", Term("soup", "Eintopf")
    wrong = sentences.complete(
        sentences.tokenizer.encode(text), [sentences.tokenizer.encode("Die Eintopf ist")], SearchOptions()
    )[0]
    right = fix_article(sentences, text, wrong, term)
    assert wrong.text.startswith("Die Eintopf ")
    assert right.text.startswith("Der Eintopf ")
    assert sentences.tokenizer.decode(sentences.tokenizer.ids(right.tokens)) == right.text
    assert fix_article(sentences, text, right, term) == right


def test_terms_of_the_benchmark_are_in_the_translations(shipped):
    """A tenth of benchmarks/terms.tsv. results/terms.json has all."""
    rows = [line.split("\t") for line in (BENCHMARKS / "terms.tsv").read_text().splitlines()[1:]]
    for kind, source, target, english in rows[::10]:
        wish = {"glossary": {source: target}} if kind == "term" else {"keep": [source]}
        result = shipped.translate(english, **wish)
        assert not result.warnings, english
        assert re.search(target or source, result.text)


def test_several_terms_of_a_sentence_are_in_its_scored_translation(shipped):
    glossary = {"manager": "Führungskraft", "company": "Betrieb", "contract": "Vereinbarung"}
    result = shipped.translate("The manager of the company has signed the contract.", glossary=glossary)
    assert not result.sentences[0].unmet
    sentence = result.sentences[0]
    assert sum(sentence.token_scores) == pytest.approx(sentence.n_best[0].log_prob, abs=1.0)
    assert sentence.alignment["target_tokens"] == list(sentence.tokens)


def test_a_glossary_that_matches_nothing_changes_nothing(shipped):
    text = "The committee will meet again on Tuesday. Nobody knew why."
    assert shipped.translate(text, glossary={"zeppelin": "Luftschiff"}).text == shipped.translate(text).text


@pytest.mark.parametrize("wanted", ["formal", "informal"])
def test_the_formality_is_used_in_the_whole_text(shipped, wanted):
    text = "Can you send me your address? I will call you tomorrow. Do not forget your key. Have you seen my dog?"
    result = shipped.translate(text, formality=wanted)
    assert {formality(sentence.text, "de") for sentence in result.sentences} <= {wanted, None}
    assert formality(result.text, "de") == wanted
    assert not result.warnings
