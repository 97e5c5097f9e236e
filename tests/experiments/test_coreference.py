"""The pronoun that a model writes for "it", and the heads that follow it."""

from types import SimpleNamespace

from onehop.experiments.coreference import coreference, coreference_sentences


def test_coreference_reports_every_sentence_and_the_best_heads(tracer):
    found = coreference(tracer)
    sentences = coreference_sentences()
    assert len(found["sentences"]) == len(sentences) >= 30
    assert {s.pronoun for s in sentences} == {"er", "sie", "es"}
    assert all(" it " in s.source and s.noun in s.source for s in sentences)
    row = found["sentences"][0]
    assert row["expected"] == "es"
    assert row["right"] == (row["pronoun"] == "es")
    assert found["none"] == (found["best"][0]["share"] <= 0.5)
    shares = [head["share"] for head in found["best"]]
    assert shares == sorted(shares, reverse=True)


def test_a_pronoun_is_read_from_the_translation(tracer, monkeypatch):
    text = "Das Tier überquerte die Straße nicht, weil es zu müde war."
    monkeypatch.setattr(type(tracer.translator), "translate", lambda *_: [SimpleNamespace(text=text)])
    rows = coreference(tracer)["sentences"]
    assert (rows[0]["pronoun"], rows[0]["right"], rows[0]["noun_found"]) == ("es", True, True)
    assert (rows[1]["pronoun"], rows[1]["right"], rows[1]["noun_found"]) == ("es", False, True)
    assert (rows[2]["german"], rows[2]["noun_found"]) == ("Katze", False)
