"""Texts encoded word by word have the ids that the tokenizer gives them as a whole."""

import io
from pathlib import Path

import numpy as np
import pytest
import sentencepiece as spm

from onehop import encoding
from onehop.config import TokenizerSettings
from onehop.encoding import WordIds, encodes_by_words
from onehop.tokenizer import Tokenizer, normalise

LINES = (Path(__file__).parent / "data" / "tatoeba-1000.en").read_text(encoding="utf-8").splitlines()
ODD = ["", "x", "Ωμέγα 雨だ。 😀😀 naïve", "<s> </s> <unk> <0x41>", "12,345.67 %", "a" * 300, "\u0301 \u200b b"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.learn(LINES, TokenizerSettings(vocab_size=700))


def given(**options: object) -> Tokenizer:
    """A vocabulary that another program might have learned."""
    out = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES),
        model_writer=out,
        model_type="bpe",
        vocab_size=700,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
        **options,
    )
    return Tokenizer(out.getvalue())


def ids_of(words: WordIds, texts: list[str]) -> list[list[int]]:
    return [np.frombuffer(ids, words.type).tolist() for ids in words.encode(texts)]


def test_words_have_the_ids_of_the_whole_text(tokenizer):
    assert encodes_by_words(tokenizer)
    texts = [normalise(text) for text in LINES + ODD]
    assert ids_of(WordIds(tokenizer), texts) == tokenizer.encode_batch(texts)


def test_known_words_are_bounded_and_forgetting_them_changes_nothing(tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "KNOWN_WORDS", 50)
    words = WordIds(tokenizer)
    assert ids_of(words, LINES) == tokenizer.encode_batch(LINES)
    assert 0 < len(words) <= 50


@pytest.mark.parametrize(
    "options", [{"split_by_whitespace": False}, {"add_dummy_prefix": False}, {"treat_whitespace_as_suffix": True}]
)
def test_a_given_vocabulary_that_looks_beyond_words_encodes_whole_texts(options):
    tokenizer = given(**options)
    words = WordIds(tokenizer)
    assert not encodes_by_words(tokenizer)
    assert ids_of(words, LINES) == tokenizer.encode_batch(LINES)


def test_a_side_is_the_texts_end_to_end(tokenizer):
    words = WordIds(tokenizer)
    texts = ["Let's go", "", "home"]
    encoded = words.encode(texts)
    side = words.side(encoded)
    assert side.lists() == tokenizer.encode_batch(texts)
    assert [words.count(ids) for ids in encoded] == side.lengths.tolist()
    assert words.side([]).lists() == []
