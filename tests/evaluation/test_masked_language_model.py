"""Recall of masked pieces, against a forward pass for each piece."""

import json

import numpy as np
import pytest
import torch
from command_line import onehop
from stored_models import stored_model

from onehop.config import ModelSettings, load_settings
from onehop.data.objectives import MASK, N_SPECIAL
from onehop.errors import TextError
from onehop.evaluation.masked_language_model import EVERY, MaskedTokens, Recall, recall_of, whole_words
from onehop.model.transformer import Tokens
from onehop.model.variants import EncoderOnly
from onehop.storage.model_io import write_model
from onehop.text.tokenizer import EOS, Tokenizer

TEXTS = ["one two three", "", "  four   five ", "six seven eight nine ten eleven twelve, then one again"]
SIZES = ModelSettings(kind="encoder", n_encoder_layers=1, d_model=16, d_ff=32, n_heads=2, dropout=0.0, max_length=64)


@pytest.fixture(scope="module")
def model() -> tuple[EncoderOnly, Tokenizer]:
    tokenizer = Tokenizer.learn([text for text in TEXTS if text] * 9, load_settings("tiny").tokenizer)
    torch.manual_seed(0)
    return EncoderOnly(SIZES, tokenizer.vocab_size).eval(), tokenizer


@torch.no_grad()
def one_by_one(model: EncoderOnly, ids: list[int]) -> list[tuple[float, int]]:
    """The negative log-likelihood and the rank of each piece, masked with the others of its turn."""
    found = []
    for place, own in enumerate(ids):
        shown = [MASK if i % EVERY == place % EVERY else token for i, token in enumerate(ids)]
        logits = model.logits(model.encode(Tokens.padded(torch.tensor([[*shown, EOS]]))))[0, place]
        logits[:N_SPECIAL] = -torch.inf
        found.append((-float(logits.log_softmax(-1)[own]), int((logits > logits[own]).sum())))
    return found


def test_every_piece_is_masked_once(model):
    encoder, tokenizer = model
    found = recall_of(encoder, tokenizer, TEXTS)
    encoded = [tokenizer.encode(text) for text in TEXTS if text]
    expected = [one for ids in encoded for one in one_by_one(encoder, ids)]
    assert (found.texts, found.pieces.hidden) == (3, len(expected))
    assert found.nll == pytest.approx(sum(nll for nll, _ in expected), rel=1e-5)
    assert found.pieces.first == sum(rank == 0 for _, rank in expected)
    assert found.pieces.among_five == sum(rank < 5 for _, rank in expected)
    assert found.pieces.commonest == max(sum(ids.count(i) for ids in encoded) for ids in encoded for i in ids)


def test_empty_texts_are_refused(model):
    with pytest.raises(TextError, match=r"^There is no text to hide words of\. Give lines that are not empty\.$"):
        recall_of(*model, ["", " "])


def test_a_text_longer_than_the_model_is_split(model):
    encoder, tokenizer = model
    text = " ".join(["one two three"] * 30)
    ids = tokenizer.encode(text)
    assert len(ids) > 63
    expected = [one for i in range(0, len(ids), 63) for one in one_by_one(encoder, ids[i : i + 63])]
    assert recall_of(encoder, tokenizer, [text]).nll == pytest.approx(sum(nll for nll, _ in expected), rel=1e-5)


def test_whole_words_are_pieces_between_word_boundaries():
    tokenizer = Tokenizer.learn(["alone ab, 12 cd"] * 20, load_settings("tiny").tokenizer)
    ids = [*tokenizer.encode("alone ab, 12 cd"), EOS]
    whole = whole_words(tokenizer, np.array(ids[:-1]), np.array(ids[1:])).tolist()
    words = [piece for piece, is_whole in zip(tokenizer.tokens(ids), whole, strict=False) if is_whole]
    assert words == ["▁alone", "▁ab", "▁cd"]
    continued = np.array(tokenizer.ids(["b"]))
    assert not whole_words(tokenizer, np.array(ids[:1]), continued)[0]


def test_the_report_shows_shares_of_masked_pieces_and_words():
    pieces = MaskedTokens(hidden=8, first=2, among_five=4, commonest=1)
    found = Recall(texts=3, pieces=pieces, words=MaskedTokens(hidden=4, first=1, among_five=1, commonest=1), nll=0.0)
    assert found.lines() == [
        "3 texts, every piece hidden once, one in 7 at a time",
        "8 pieces: 25.0% found, 50.0% among five guesses; always the commonest: 12.5%",
        "4 of them a whole word: 25.0% found, 25.0% among five guesses; always the commonest: 25.0%",
        "perplexity 1.00 a hidden piece",
    ]


def test_evaluate_reports_the_recall_of_an_encoder(model, tmp_path):
    encoder, tokenizer = model
    file = write_model(tmp_path / "encoder", stored_model(encoder, tokenizer, target="en"))
    (tmp_path / "held.txt").write_text("\n".join(TEXTS))
    (tmp_path / "empty.txt").write_text("\n \n")
    words = ["evaluate", "-m", str(file), "--text", str(tmp_path / "held.txt")]
    found = recall_of(encoder, tokenizer, TEXTS)
    figures = json.loads(onehop(*words, "--json").stdout)
    assert figures["pieces"] == vars(found.pieces)
    assert figures["perplexity"] == pytest.approx(found.perplexity)
    assert onehop(*words).stdout.splitlines() == found.lines()
    refused = onehop(*words[:-1], tmp_path / "empty.txt")
    assert refused.stderr == f"onehop: {tmp_path / 'empty.txt'} has no text in it. Give another --text.\n"
