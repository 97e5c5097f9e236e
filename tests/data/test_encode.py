"""Texts encoded word by word have the ids that the tokenizer gives them as a whole."""

import io
from pathlib import Path

import numpy as np
import pytest
import sentencepiece as spm

from onehop.config import TokenizerSettings
from onehop.data import encode
from onehop.data.encode import WordIds, encodes_by_words
from onehop.text.tokenizer import Tokenizer, normalise

LINES = (Path(__file__).parents[1] / "data" / "tatoeba-1000.en").read_text(encoding="utf-8").splitlines()
ODD = ["", "x", "Ωμέγα 雨だ。 😀😀 naïve", "<s> </s> <unk> <0x41>", "12,345.67 %", "a" * 300, "\u0301 \u200b b"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.learn(LINES, TokenizerSettings(vocab_size=700))


def given(**options: object) -> Tokenizer:
    """A vocabulary with options that onehop does not use."""
    out = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES),
        model_writer=out,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
        **{"model_type": "bpe", "vocab_size": 700, **options},
    )
    return Tokenizer(out.getvalue())


def ids_of(words: WordIds, texts: list[str]) -> list[list[int]]:
    return [np.frombuffer(ids, words.type).tolist() for ids in words.encode(texts)]


def test_encoding_by_words_gives_the_ids_of_the_whole_text(tokenizer):
    assert encodes_by_words(tokenizer)
    texts = [normalise(text) for text in LINES + ODD]
    assert ids_of(WordIds(tokenizer), texts) == tokenizer.encode_batch(texts)


def test_the_word_cache_is_bounded_and_does_not_change_ids(tokenizer, monkeypatch):
    monkeypatch.setattr(encode, "MOST_CACHED", 50)
    words = WordIds(tokenizer)
    assert ids_of(words, LINES) == tokenizer.encode_batch(LINES)
    assert 0 < len(words) <= 50


def test_long_words_are_not_cached(tokenizer):
    """In text without spaces a word is a whole sentence, and caching sentences would fill the memory."""
    words, short, long = WordIds(tokenizer), "雨" * encode.LONGEST_CACHED, "雨" * (encode.LONGEST_CACHED + 1)
    assert ids_of(words, [f"{short} {long}"]) == [tokenizer.encode(f"{short} {long}")]
    assert set(words) == {short}


@pytest.mark.parametrize(
    "options",
    [
        {"split_by_whitespace": False},
        {"add_dummy_prefix": False},
        {"treat_whitespace_as_suffix": True},
        {"model_type": "word"},  # several unknown words are one piece
    ],
)
def test_a_vocabulary_with_pieces_across_words_encodes_whole_texts(options):
    tokenizer = given(**options)
    words = WordIds(tokenizer)
    assert not encodes_by_words(tokenizer)
    texts = [*LINES, "Ωμέγα Ωμέγα"]
    assert ids_of(words, texts) == tokenizer.encode_batch(texts)
    assert not words


@pytest.mark.parametrize("options", [{}, {"model_type": "unigram", "vocab_size": 500}, {"byte_fallback": True}])
def test_a_given_vocabulary_with_its_own_normalisation_encodes_by_words(options):
    tokenizer = given(**options)
    assert encodes_by_words(tokenizer)
    texts = [normalise(text) for text in [*LINES, *ODD, "\ufeff a\u200bb \xad ﬁ ½ \xb4 \x01 c", " a \xa0 b\tc "]]
    assert ids_of(WordIds(tokenizer), texts) == tokenizer.encode_batch(texts)


def test_a_side_is_the_concatenation_of_its_texts(tokenizer):
    words = WordIds(tokenizer)
    texts = ["Let's go", "", "home"]
    encoded = words.encode(texts)
    side = words.side(encoded)
    assert side.lists() == tokenizer.encode_batch(texts)
    assert [words.count(ids) for ids in encoded] == side.lengths.tolist()
    assert words.side([]).lists() == []
