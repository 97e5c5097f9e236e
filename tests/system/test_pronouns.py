"""The pronoun test: its sentences are correct, and its two measures give known results."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from onehop.model.transformer import Tokens
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import BOS, EOS

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import pronoun_set
        import pronoun_set_fr
        import pronouns

        yield pronoun_set, pronouns, pronoun_set_fr


@pytest.fixture(scope="module")
def made(modules):
    return modules[0]


@pytest.fixture(scope="module")
def scored(modules):
    return modules[1]


@pytest.fixture(scope="module")
def french(modules):
    return modules[2]


# --- the sentences --------------------------------------------------------------------------------------------


def test_the_file_equals_the_generators_output(made):
    assert made.FILES["de"].read_text(encoding="utf-8") == made.to_text(made.make())
    assert made.read() == made.make()


def test_the_french_file_equals_its_generators_output(made, french):
    assert made.FILES["fr"].read_text(encoding="utf-8") == made.to_text(french.make())
    assert made.read("fr") == french.make()


def test_french_sentences_are_balanced_and_come_in_pairs(made):
    items = made.read("fr")
    counts = Counter((item.kind, item.gender) for item in items)
    for kind in ("subject", "next sentence", "hard"):
        assert counts[kind, "masculine"] == counts[kind, "feminine"] > 0
    assert len({item.english for item in items}) == len(items)
    hard = [item for item in items if item.kind == "hard"]
    for one, two in zip(hard[::2], hard[1::2], strict=True):
        assert one.noun == two.noun
        assert one.gender != two.gender
        assert one.english.split(" because it ")[0] == two.english.split(" because it ")[0]


def test_french_versions_have_one_pronoun_and_the_noun_its_article(made):
    for item in made.read("fr"):
        words = [re.findall(r"\w+", text.lower()) for text in item.versions.values()]
        differing = [column for column in zip(*words, strict=True) if len(set(column)) > 1]
        assert differing[0] == ("il", "elle")
        assert len(differing) <= 3  # the others agree with the pronoun
        assert len(re.findall(r"\b[Ii]t\b", item.english)) == 1
        if item.kind != "hard":
            (article,) = re.findall(rf"\b(\w+) {item.noun}\b", item.versions[item.gender])
            assert article.lower() == {"masculine": "le", "feminine": "la"}[item.gender]


def test_genders_are_balanced_except_in_hard_sentences(made):
    counts = Counter((item.kind, item.gender) for item in made.read())
    for kind in ("subject", "object", "next sentence"):
        assert len({counts[kind, gender] for gender in made.GENDERS}) == 1
    plain = [item for item in made.read() if item.kind != "hard"]
    assert len(plain) >= 400
    assert len({item.english for item in made.read()}) == len(made.read())
    assert len({item.noun for item in plain}) == len(plain) / 2


def test_versions_differ_in_one_word_which_is_the_pronoun(made):
    for item in made.read():
        words = [re.findall(r"[\w-]+", text) for text in item.versions.values()]
        (differing,) = [column for column in zip(*words, strict=True) if len(set(column)) > 1]
        form = made.ACCUSATIVE if item.kind == "object" else made.NOMINATIVE
        assert [word.lower() for word in differing] == list(form.values())
        assert len(re.findall(r"\b[Ii]t\b", item.english)) == 1


def test_the_article_has_the_gender_of_the_answer(made):
    for item in made.read():
        if item.kind != "hard":
            (article,) = re.findall(rf"\b(\w+) {item.noun}\b", item.versions[item.gender])
            assert article.lower() in {made.ARTICLE[item.gender], made.ARTICLE_ACCUSATIVE[item.gender]}


def test_hard_sentences_come_in_pairs_that_mean_nouns_of_two_genders(made):
    hard = [item for item in made.read() if item.kind == "hard"]
    assert len(hard) == 40
    for one, two in zip(hard[::2], hard[1::2], strict=True):
        assert one.noun == two.noun
        assert one.gender != two.gender
        assert one.english.split(" because it ")[0] == two.english.split(" because it ")[0]


# --- the measures ---------------------------------------------------------------------------------------------


def test_probabilities_are_those_of_the_sentences_one_by_one(scored, model_file):
    translator = SentenceTranslator.load(model_file, engine="torch")
    pairs = [("the old house", "a tree"), ("a bird", "the new bird the new bird"), ("the tree", "")]
    expected = []
    for src, tgt in pairs:
        ids, given = ([*translator.tokenizer.encode(text), EOS] for text in (src, tgt))
        source, target = (Tokens.padded(torch.tensor([x])) for x in (ids, [BOS, *given[:-1]]))
        with torch.inference_mode():
            found = translator.model(source, target).log_softmax(-1)[0]
        expected.append(sum(float(row[i]) for row, i in zip(found, given, strict=True)))
    found = scored.log_probabilities(translator, pairs)
    assert found == pytest.approx(expected, abs=1e-4)
    assert max(found) < -5


def test_the_most_probable_version_is_chosen(made, scored, monkeypatch):
    """A model that always prefers the feminine version is right on a third, and on all feminine ones."""
    items = made.read()
    monkeypatch.setattr(scored, "log_probabilities", lambda translator, pairs: [-2.0, -1.0, -3.0] * (len(pairs) // 3))
    found = scored.summary(list(scored.contrastive(None, items)))
    assert found["all"]["accuracy"] == pytest.approx(1 / 3)
    assert (found["feminine"]["accuracy"], found["neuter"]["accuracy"]) == (1.0, 0.0)
    assert found["all"]["chosen"] == {"masculine": 0, "feminine": found["all"]["sentences"], "neuter": 0}


@pytest.mark.parametrize(
    ("kind", "noun", "text", "gender"),
    [
        ("subject", "Katze", "Die Katze schlief, weil sie müde war.", "feminine"),
        ("subject", "Katze", "Die Katze schlief, weil er müde war.", "masculine"),
        ("subject", "Katze", "Der Kater schlief, weil er müde war.", None),
        ("subject", "Katze", "Die Katze war müde und schlief.", None),
        ("subject", "Hund", "Sie sahen den Hund, weil es bellte.", "neuter"),
        ("subject", "Hund", "Der Hund schlief, weil Sie müde waren.", None),
        ("object", "Hund", "Tom sah den Hund, als er ihn fand.", "masculine"),
        ("object", "Hund", "Tom sah den Hund, als er es fand.", "neuter"),
        ("object", "Hund", "Nehmen Sie den Hund, wenn Sie sie mögen.", "feminine"),
        ("next sentence", "Uhr", "Die Uhr ist alt. Sie geht nicht.", "feminine"),
        ("next sentence", "Uhr", "Wo ist die Uhr? Er war hier.", "masculine"),
        ("hard", "Tier, Straße", "Das Tier überquerte die Straße nicht, weil sie zu breit war.", "feminine"),
        ("hard", "Tier, Straße", "Das Tier überquerte den Weg nicht, weil er zu breit war.", None),
    ],
)
def test_the_pronoun_of_a_translation_is_found(made, scored, kind, noun, text, gender):
    item = made.Item(kind, "feminine", noun, "", "", "", "")
    assert scored.pronoun_in(text, item, "de") == gender


@pytest.mark.parametrize("language", ["de", "fr"])
def test_every_version_is_classified_correctly(made, scored, language):
    for item in made.read(language):
        for gender, text in item.versions.items():
            assert scored.pronoun_in(text, item, language) == gender


def test_translations_without_pronoun_are_not_counted(made, scored):
    items = [item for item in made.read() if item.kind == "subject"][:4]
    answers = [scored.Answer(items[0], items[0].gender), *(scored.Answer(item, None) for item in items[1:])]
    found = scored.tally(answers)
    assert (found["sentences"], found["counted"], found["right"], found["accuracy"]) == (4, 1, 1, 1.0)
    assert scored.tally(answers[1:])["accuracy"] is None


def test_the_confidence_interval_is_wilsons(scored):
    # Newcombe 1998, table I: 81 of 263 and 15 of 148.
    assert scored.interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert scored.interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert scored.interval(0, 0) == (0.0, 1.0)


def test_the_command_writes_a_report(made, scored, model_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scored, "read", lambda language: made.read(language)[::40])
    file = tmp_path / "pronouns.json"
    monkeypatch.setattr(sys, "argv", ["pronouns.py", "--model", str(model_file), "--beam", "1", "--json", str(file)])
    scored.main()
    shown, written = capsys.readouterr().out, json.loads(file.read_text())
    assert "contrastive\n  all " in shown
    assert written["contrastive"]["all"]["counted"] == written["contrastive"]["all"]["sentences"] == 11
    assert written["free"]["all"]["counted"] == 0


def test_a_model_without_a_set_is_refused_in_one_line(scored, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pronouns.py", "--model", "wrong-way"])
    wrong = type("T", (), {"source": "de", "target": "en"})()
    monkeypatch.setattr(scored.SentenceTranslator, "load", lambda model: wrong)
    with pytest.raises(SystemExit):
        scored.main()
    assert "with versions in de and fr" in capsys.readouterr().err


def test_french_choices_are_between_two(made, scored, monkeypatch):
    """A model that always prefers the feminine version is right on half."""
    items = made.read("fr")
    monkeypatch.setattr(scored, "log_probabilities", lambda translator, pairs: [-2.0, -1.0] * (len(pairs) // 2))
    found = scored.summary(list(scored.contrastive(None, items)))
    assert found["all"]["accuracy"] == pytest.approx(1 / 2)
    assert found["all"]["chosen"] == {"masculine": 0, "feminine": found["all"]["sentences"]}
