"""Scores equal sacreBLEU's, and their signatures name how they were computed."""

import re
import shutil
import subprocess
import sys

import pytest
import sacrebleu
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from onehop.errors import OnehopError
from onehop.evaluation.metrics import (
    CONVENTIONS,
    MetricScore,
    Moses,
    bleu,
    bleu_metric,
    chrf,
    chrf_metric,
    compare,
    score_with_interval,
    sentence_chrf,
    split_compounds,
    ter,
    ter_metric,
)

REFERENCES = ["The cat sits on the mat.", "He said: “no, never”.", "It rains, and rains, and rains."]
HYPOTHESES = ["the cat sat on the mat.", 'He said: "No, never".', "It rains and rains and rains."]

GERMAN = ["„Ja“, z.B. die U-Bahn-Station in Baden-Baden.", "Am 3. Mai kam er an...", "Die E-Mail ist da!"]
ALMOST = ["„Ja“, z.B. die U-Bahn-Haltestelle in Baden-Baden.", "Am 3. Mai kam sie an...", "Die Mail ist da!"]

# Enough different sentences for a significance test.
MANY = [
    f"the {n} {what} stand in the {where}"
    for n in ["two", "three"]
    for what in ["cups", "pots", "cans"]
    for where in ["box", "bag", "sink", "sun"]
]
ONE = [line.replace("stand", "stood") if i % 3 else line for i, line in enumerate(MANY)]
OTHER = [line.replace("the", "a") if i % 2 else line.replace("in ", "on ") for i, line in enumerate(MANY)]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "none", "char"])
@pytest.mark.parametrize("lower", [False, True])
def test_bleu_equals_sacrebleus(tokenize, lower):
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize=tokenize, lowercase=lower, force=True).score
    found = bleu(HYPOTHESES, REFERENCES, tokenize=tokenize, lower=lower)
    assert found.value == expected
    assert 5 < found.value < 100
    assert f"tok:{tokenize}" in found.signature
    assert f"case:{'lc' if lower else 'mixed'}" in found.signature
    assert f"version:{sacrebleu.__version__}" in found.signature


def test_bleu_depends_on_tokenizer_and_case():
    ways = [(tokenize, lower) for tokenize in ("13a", "none") for lower in (False, True)]
    assert len({bleu(HYPOTHESES, REFERENCES, tokenize=t, lower=low).value for t, low in ways}) == 4


def test_chrf_equals_sacrebleus_with_word_order_2():
    found = chrf(HYPOTHESES, REFERENCES)
    assert found.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=2).score
    assert found.value != sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert found.name == "chrF2++"
    assert "nw:2" in found.signature
    assert f"version:{sacrebleu.__version__}" in found.signature


def test_ter_equals_sacrebleus():
    found = ter(HYPOTHESES, REFERENCES)
    assert found.value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert found.value > 10
    assert found.name == "TER"
    assert "tok:tercom" in found.signature


def test_sentence_chrf_equals_sacrebleus():
    found = sentence_chrf(HYPOTHESES, REFERENCES)
    pairs = zip(HYPOTHESES, REFERENCES, strict=True)
    assert found == [sacrebleu.sentence_chrf(h, [r], word_order=2).score for h, r in pairs]
    assert len(set(found)) == 3


def test_identical_texts_have_perfect_scores():
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert ter(REFERENCES, REFERENCES).value == 0


def test_a_score_prints_with_its_signature():
    assert str(MetricScore("BLEU", 41.016, "tok:13a")) == "BLEU 41.02 (tok:13a)"


def test_scoring_tokenised_text_logs_no_warning(caplog):
    bleu(["It rains ."] * 200, ["It rains ."] * 200)
    assert caplog.text == ""


# --- Moses and compounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("eine U-Bahn", "eine U ##AT##-##AT## Bahn"),
        ("Aix-en-Provence", "Aix ##AT##-##AT## en ##AT##-##AT## Provence"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("a-ß-c", "a ##AT##-##AT## ß ##AT##-##AT## c"),
        ("Haupt- und Nebensatz", "Haupt- und Nebensatz"),
        ("- ja -", "- ja -"),
        ("ja--nein", "ja ##AT##-##AT## -nein"),
        ("10-12 %", "10 ##AT##-##AT## 12 %"),
        ("ein\u00a0-\u00a0aus", "ein\u00a0 ##AT##-##AT## \u00a0aus"),
        ("Rhein–Main", "Rhein–Main"),
        ("", ""),
    ],
)
def test_compounds_are_split_at_hyphens(text, split):
    assert split_compounds(text) == split


@pytest.mark.skipif(not shutil.which("perl"), reason="perl is the oracle")
def test_compound_splitting_equals_the_perl_script():
    text = "\n".join([*GERMAN, "a-b-c-d", "ja--nein ---", "ein\u00a0-\u00a0aus", "x-\ty", "-", "é-ß-ü"])
    script = "s/(?<a>\\S)-(?<b>\\S)/$+{a} ##AT##-##AT## $+{b}/g"
    split = subprocess.run(["perl", "-pe", script], input=text.encode(), capture_output=True, check=True).stdout
    assert "\n".join(map(split_compounds, text.split("\n"))) == split.decode()
    assert split.count(b"##AT##") == 22


def test_tokenised_bleu_equals_sacrebleu_on_tokenised_text():
    tokenize = MosesTokenizer("de").tokenize
    hypotheses, references = ([tokenize(line, return_str=True) for line in side] for side in (ALMOST, GERMAN))
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    assert bleu(ALMOST, GERMAN, tokenize=Moses("de")).value == expected
    assert 20 < expected < 90


def test_compound_split_bleu_equals_sacrebleu_on_split_text():
    tokenize = MosesTokenizer("de").tokenize
    hypotheses, references = (
        [split_compounds(tokenize(line, return_str=True)) for line in side] for side in (ALMOST, GERMAN)
    )
    assert references[0] == (
        "„ Ja “ , z.B. die U ##AT##-##AT## Bahn ##AT##-##AT## Station in Baden ##AT##-##AT## Baden ."
    )
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    assert bleu(ALMOST, GERMAN, tokenize=Moses("de", compounds=True)).value == expected
    assert expected != bleu(ALMOST, GERMAN, tokenize=Moses("de")).value


def test_moses_can_normalise_punctuation_first():
    normalise, tokenize = MosesPunctNormalizer("de").normalize, MosesTokenizer("de").tokenize
    found = Moses("de", normalise=True)
    assert found(GERMAN[0]) == tokenize(normalise(GERMAN[0]), return_str=True, escape=False)
    assert found(GERMAN[0]).startswith('" Ja " ,')


def test_moses_uses_the_abbreviations_of_the_language():
    assert Moses("de")("Am 3. Mai") == "Am 3. Mai"
    assert Moses("en")("Am 3. Mai") == "Am 3 . Mai"


def test_moses_treats_an_unknown_language_as_english():
    assert Moses("tlh").signature() == Moses("en").signature()
    assert Moses("tlh")("Am 3. Mai") == "Am 3 . Mai"


def test_the_signature_names_language_normalisation_and_splitting():
    found = {
        bleu(ALMOST, GERMAN, tokenize=Moses("de", **how)).signature: how
        for how in ({}, {"compounds": True}, {"normalise": True}, {"normalise": True, "compounds": True})
    }
    version = Moses("de").version
    tokenizers = [re.search(r"tok:([^|]*)", signature)[1] for signature in found]
    assert tokenizers == [
        f"moses-de-sacremoses-{version}",
        f"moses-de-atat-sacremoses-{version}",
        f"moses-de-norm-sacremoses-{version}",
        f"moses-de-norm-atat-sacremoses-{version}",
    ]
    assert version[0].isdigit()


def test_missing_sacremoses_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(OnehopError, match=r"^This needs sacremoses\. .*\"onehop\[evaluate\]\"$"):
        Moses("de")


def test_every_convention_gives_a_different_score():
    found = {name: score_of(how.metric("de")) for name, how in CONVENTIONS.items()}
    assert list(found) == ["bleu_13a", "bleu_intl", "bleu_tokenised", "bleu_compounds", "chrf", "ter"]
    assert len(set(found.values())) == 6


def score_of(metric):
    return metric.corpus_score(ALMOST, [GERMAN]).score


# --- intervals and significance -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bleu_metric, chrf_metric, ter_metric])
def test_the_interval_equals_sacrebleus(make):
    metric = make()
    expected = metric.corpus_score(ONE, [MANY], n_bootstrap=300)
    found = score_with_interval(make(), ONE, MANY, resamples=300)
    assert found.value == expected.score
    assert found.interval.mean == pytest.approx(expected._mean, rel=1e-6)
    assert found.interval.plus_minus == pytest.approx(expected._ci, rel=1e-6)
    assert found.interval.plus_minus > 1
    assert (found.interval.resamples, found.interval.seed) == (300, "12345")
    assert found.signature == str(metric.get_signature())
    assert "bs:300|seed:12345" in found.signature


def test_the_seed_is_read_from_sacrebleu_seed(monkeypatch):
    usual = score_with_interval(bleu_metric(), ONE, MANY, resamples=300).interval
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = score_with_interval(bleu_metric(), ONE, MANY, resamples=300).interval
    assert other.seed == "7"
    assert other.mean != usual.mean


@pytest.mark.parametrize("make", [bleu_metric, chrf_metric, ter_metric])
def test_the_paired_test_equals_sacrebleus(make):
    from sacrebleu.significance import PairedTest

    systems = [("one", ONE), ("other", OTHER)]
    signatures, expected = PairedTest(systems, {"": make()}, [MANY], n_samples=500, n_ar_confidence=200)()
    ((name, signature),) = signatures.items()
    found = compare(make(), ONE, OTHER, MANY, resamples=200, trials=500)
    assert (found.score.value, found.against.value) == tuple(result.score for result in expected[name])
    assert found.p_value == expected[name][1].p_value
    assert found.difference == found.score.value - found.against.value
    assert found.score.signature == found.against.signature == str(signature)
    assert "ar:500" in found.score.signature
    assert found.trials == 500


def test_the_interval_does_not_depend_on_a_second_system():
    alone = score_with_interval(bleu_metric(), ONE, MANY, resamples=200)
    beside = compare(bleu_metric(), ONE, OTHER, MANY, resamples=200, trials=100)
    assert beside.score.interval == alone.interval


def test_the_p_value_does_not_depend_on_the_order_of_systems():
    one, other = (
        compare(bleu_metric(), *pair, MANY, resamples=100, trials=500) for pair in ((ONE, OTHER), (OTHER, ONE))
    )
    assert one.p_value == other.p_value < 0.1
    assert one.difference == -other.difference > 0


@pytest.mark.parametrize(("differing", "least"), [(0, 1.0), (1, 1.0), (2, 0.5), (4, 0.125)])
def test_a_few_different_sentences_are_not_significant(differing, least):
    changed = [*OTHER[:differing], *ONE[differing:]]
    found = compare(bleu_metric(), ONE, changed, MANY, resamples=100, trials=500)
    assert (found.difference != 0) == bool(differing)
    assert found.p_value >= least


def test_many_different_sentences_are_significant():
    assert compare(bleu_metric(), MANY, OTHER, MANY, resamples=100, trials=2000).p_value < 0.001
