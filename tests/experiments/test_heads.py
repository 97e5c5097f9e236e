"""Attention patterns of heads, counted over many sentences."""

import json

import pytest
import torch
from command_line import onehop

from onehop.experiments import heads
from onehop.experiments.heads import (
    PATTERNS,
    Tally,
    article_of_noun,
    patterns,
    subject_sentences,
    word_pair,
)


def test_patterns_select_the_positions_of_their_names():
    tokens = ["▁a", "▁b", "▁a", "</s>"]
    wanted = {name: pattern(tokens).int().tolist() for (name, role), pattern in PATTERNS.items() if role == "encoder"}
    assert wanted["previous token"] == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert wanted["next token"] == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert wanted["itself"] == torch.eye(4).int().tolist()
    assert wanted["first token"] == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert wanted["end mark"] == [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert wanted["same word"] == [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert word_pair("b", "a", tokens).nonzero().tolist() == [[1, 0]]
    assert PATTERNS["same word", "decoder"](tokens).nonzero().tolist() == [[2, 0]]


def test_subject_sentences_are_distinct():
    assert len(set(subject_sentences())) == 320


def test_a_tally_finds_a_planted_head():
    torch.manual_seed(1)
    tally, tokens = Tally(), ["▁a", "▁b", "▁c", "▁d", "▁e"]
    for _ in range(10):
        weights = torch.rand(2, 3, 5, 5).softmax(-1)
        weights[1, 2] = torch.eye(5).roll(-1, 1) * 0.9 + 0.02  # row i looks at i - 1
        tally.add(weights, PATTERNS["previous token", "encoder"](tokens), causal=False)
    found = tally.result("previous token", "encoder")
    assert (found["heads"][0]["layer"], found["heads"][0]["head"], found["heads"][0]["share"]) == (1, 2, 1.0)
    assert found["heads"][0]["weight"] == pytest.approx(0.92)
    assert found["all"][1][2] == 1.0
    assert found["heads"][1]["share"] < 1.0
    assert found["chance"] == pytest.approx(1 / 5)
    assert Tally().result("nothing", "encoder") is None


def test_article_of_noun_pairs_the_pronouns_row_with_the_article():
    tokens = ["<s>", "▁Das", "▁T", "ier", "▁sah", "▁die", "▁Straße", ",", "▁weil", "▁es", "▁müde", "▁war"]
    assert article_of_noun(tokens, "Tier").nonzero().tolist() == [[8, 1]]
    assert article_of_noun(tokens, "Straße").nonzero().tolist() == [[8, 5]]
    assert not article_of_noun(tokens[:9], "Tier").any()  # no pronoun
    assert not article_of_noun(tokens, "Hund").any()
    assert not article_of_noun(["<s>", "▁Tier", "▁es"], "Tier").any()  # no article


def test_patterns_are_counted_over_sentences(tracer, monkeypatch):
    monkeypatch.setattr("onehop.experiments.heads.SUBJECTS", ("cat",))
    found = patterns(tracer, ["the old house", "a new bird the bird"])
    names = {(p["name"], p["role"]) for p in found["patterns"]}
    assert {*PATTERNS, ("verb to subject", "encoder"), ("pronoun to noun", "encoder")} >= names
    assert ("previous token", "encoder") in names
    for p in found["patterns"]:
        assert p["sentences"] > 0
        assert all(0 <= share <= 1 for layer in p["all"] for share in layer)
        assert p["heads"][0]["share"] == max(share for layer in p["all"] for share in layer)


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_command_writes_patterns_and_pruning_of_a_model(short_outputs, model_file, tmp_path, monkeypatch):
    for name in ("en", "de"):
        (tmp_path / f"test.{name}").write_text("the old house\na new tree\nthe bird\n")
    paths = ["--source", str(tmp_path / "test.en"), "--reference", str(tmp_path / "test.de")]
    found = onehop("paper", "heads", "-m", str(model_file), *paths, "-o", str(tmp_path / "out"), "--device", "cpu")
    assert found.exit_code == 0, found.output
    told = json.loads((tmp_path / "out" / "heads.json").read_text())
    assert told["patterns"]["sentences"] == 3
    assert told["pruning"]["rows"][0]["removed"] == 0
    assert told["pruning"]["rows"][-1]["removed"] == told["pruning"]["heads"] == 10  # 1 + 2 layers twice, two heads
    text = (tmp_path / "out" / "heads.md").read_text()
    assert "| previous token | encoder | 3 | " in text
    assert (tmp_path / "out" / "heads.svg").read_text().startswith("<?xml")
    monkeypatch.setattr(heads, "heads", lambda *_: {key: told[key] for key in ("patterns", "pruning")})
    alone = onehop("paper", "heads", "-m", str(model_file), *paths, "--device", "cpu")
    assert (alone.stdout, alone.stderr) == (f"{text}\n", "")


def test_a_pattern_row_counts_heads_above_one_half():
    best = {"layer": 1, "head": 0, "share": 0.9, "weight": 0.5}
    pattern = {"name": "itself", "role": "encoder", "sentences": 7, "chance": 0.1, "heads": [best]}
    row = heads.pattern_row({**pattern, "all": [[0.2, 0.51], [0.9, 0.5]]})
    assert row == ["itself", "encoder", "7", "2 of 4", "2.1", "90%", "0.50", "0.10"]
