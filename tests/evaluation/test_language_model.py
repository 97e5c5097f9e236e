"""Perplexity against a forward pass for each text."""

import math

import pytest
import torch

from onehop.config import ModelSettings, load_settings
from onehop.evaluation.language_model import Likelihood, likelihood_of
from onehop.model.transformer import Tokens
from onehop.model.variants import DecoderOnly
from onehop.text.tokenizer import BOS, EOS, Tokenizer

TEXTS = ["one two three", "", "  four   five ", "six seven eight nine ten eleven twelve"]


@pytest.fixture(scope="module")
def model() -> tuple[DecoderOnly, Tokenizer]:
    tokenizer = Tokenizer.learn([text for text in TEXTS if text] * 9, load_settings("tiny").tokenizer)
    torch.manual_seed(0)
    sizes = ModelSettings(
        kind="decoder", n_decoder_layers=1, d_model=16, d_ff=32, n_heads=2, dropout=0.0, max_length=64
    )
    return DecoderOnly(sizes, tokenizer.vocab_size).eval(), tokenizer


@torch.no_grad()
def one_by_one(model: DecoderOnly, ids: list[int]) -> float:
    read = Tokens.padded(torch.tensor([[BOS, *ids]]))
    log_probs = model(read, read)[0].log_softmax(-1)
    return -sum(float(log_probs[i, token]) for i, token in enumerate([*ids, EOS]))


def test_the_nll_is_the_sum_over_all_tokens_and_eos(model):
    decoder, tokenizer = model
    found = likelihood_of(decoder, tokenizer, TEXTS)
    encoded = [tokenizer.encode(text) for text in TEXTS if text]
    assert found.nll == pytest.approx(sum(one_by_one(decoder, ids) for ids in encoded), rel=1e-5)
    assert (found.texts, found.tokens, found.words) == (3, sum(len(ids) + 1 for ids in encoded), 12)
    assert found.bytes == len("one two three" + "four five" + TEXTS[-1])


def test_a_text_longer_than_the_model_is_split(model):
    decoder, tokenizer = model
    text = " ".join(["one two three"] * 30)
    ids = tokenizer.encode(text)
    assert len(ids) > 63
    parts = [ids[i : i + 63] for i in range(0, len(ids), 63)]
    found = likelihood_of(decoder, tokenizer, [text])
    assert found.nll == pytest.approx(sum(one_by_one(decoder, part) for part in parts), rel=1e-5)
    assert (found.texts, found.tokens) == (1, len(ids) + len(parts))


def test_perplexity_is_per_token_and_word_and_bits_per_byte():
    found = Likelihood(texts=1, tokens=4, words=2, bytes=8, nll=4 * math.log(2))
    assert (found.perplexity, found.word_perplexity, found.bits_per_byte) == pytest.approx((2.0, 4.0, 0.5))
    assert found.lines() == [
        "1 texts, 4 tokens, 2 words, 8 bytes",
        "perplexity 2.00 a token, 4.00 a word; 0.500 bits a byte",
    ]
