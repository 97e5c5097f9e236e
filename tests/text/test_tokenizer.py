"""Encoding and decoding: any string round-trips to its normalised form; learning; BPE-dropout; damaged models."""

import contextlib
import io
import json
import random
import re
import sys

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onehop.config import TokenizerSettings, load_settings
from onehop.data.bpe_dropout import Segmenter
from onehop.errors import MissingPackageError, ModelFileError, OnehopError, TextError
from onehop.storage.model_io import read_model
from onehop.storage.registry import find_model
from onehop.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    WORD_MARK,
    Classes,
    Tokenizer,
    WordPieces,
    normalise,
    vocabulary_of,
)

SPECIAL = {PAD, UNK, BOS, EOS}
SIZE = TokenizerSettings(vocab_size=400)


def generated_text() -> list[str]:
    """Sentences of a made-up language with some pieces worth merging."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgäöüß", k=rng.randint(2, 7))) for _ in range(150)]
    return [" ".join(rng.choices(words, k=8)) + rng.choice([".", "!", " 1999"]) for _ in range(300)]


SENTENCES = generated_text()
TOKENIZER = Tokenizer.learn(SENTENCES, SIZE)

# Python strings may contain lone surrogates, which hypothesis omits by default.
any_text = (
    st.text()
    | st.text(st.characters())
    | st.text(st.sampled_from("ab <>/s0x41\u2581\0\ud83d\ude00\u0301\t\r\n\x85\u3000"))
)


def nasty(test):
    for text in (
        "",
        " ",
        "\0",
        "a\0b",
        "\x01\x1b[0m\x7f",
        "\ud83d",
        "\ude00\ud83d",
        "\ud83d\ude00",
        "👩‍👩‍👧‍👦🏳️‍🌈",
        "\u2581",
        f"a{WORD_MARK}b{WORD_MARK}",
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        "<0x41>",
        "⁇",
        "\ufeffa",
        "\ufffd",
        "\U0010ffff",
        "a\u0301",
        "\u0301",
        "\u1100\u1161\u11a8",
        "汉字 עברית",
        "\t a\u00a0b\u3000\r\n",
    ):
        test = example(text=text)(test)
    return test


# --- round trips ----------------------------------------------------------------------------------------------


def sample(text: str, dropout: float, key: str = "1") -> list[int]:
    """One random segmentation, as training uses it."""
    return Segmenter(TOKENIZER, dropout, key).segment([TOKENIZER.encode(text)], "here")[0]


@nasty
@given(text=any_text)
@settings(max_examples=500, deadline=None)
def test_any_text_round_trips_to_its_normalised_form(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == normalise(text)
    assert not SPECIAL & set(ids)
    assert all(id < TOKENIZER.vocab_size for id in ids)


@nasty
@given(text=any_text)
@settings(max_examples=300, deadline=None)
def test_any_random_segmentation_decodes_to_the_same_text(text):
    ids = sample(text, 0.5)
    assert TOKENIZER.decode(ids) == normalise(text)
    assert not SPECIAL & set(ids)


@nasty
@given(text=any_text)
@settings(max_examples=300, deadline=None)
def test_normalising_is_idempotent(text):
    once = normalise(text)
    assert normalise(once) == once
    assert once == once.strip()
    assert "  " not in once
    assert once.encode().decode() == once


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  a \t\n b  ", "a b"),
        ("a\u00a0b\u3000c", "a b c"),
        ("a\u2581b", "a b"),
        ("e\u0301", "é"),
        ("ﬁ ½ Ａ", "ﬁ ½ Ａ"),
        ("a\ud83db", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("\ufeffx", "\ufeffx"),
        ("Ä a", "Ä a"),
    ],
)
def test_normalising_changes_only_nfc_white_space_and_surrogates(text, normal):
    assert normalise(text) == normal


@given(texts=st.lists(any_text, max_size=4))
@settings(max_examples=50, deadline=None)
def test_encoding_a_batch_equals_encoding_each_text(texts):
    assert TOKENIZER.encode_batch(texts) == [TOKENIZER.encode(t) for t in texts]


# --- the vocabulary -------------------------------------------------------------------------------------------


def test_special_ids_are_fixed():
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert TOKENIZER.tokens([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_decoding_omits_special_tokens():
    ids = TOKENIZER.encode(SENTENCES[0])
    assert TOKENIZER.decode([BOS, *ids, EOS, PAD, PAD]) == SENTENCES[0]
    assert TOKENIZER.decode([]) == ""


def test_pieces_join_to_the_text_with_word_marks():
    pieces = TOKENIZER.tokens(TOKENIZER.encode("abc gab"))
    assert "".join(pieces).replace(WORD_MARK, " ") == " abc gab"


def test_the_vocabulary_has_the_requested_size():
    assert TOKENIZER.vocab_size == 400
    assert len(set(TOKENIZER.tokens(range(400)))) == 400


def test_a_small_text_gives_a_smaller_vocabulary():
    few = Tokenizer.learn(["aa bb"] * 10, TokenizerSettings(vocab_size=1000))
    assert 260 < few.vocab_size < 300
    assert few.decode(few.encode("anything 😀")) == "anything 😀"


def test_an_encoding_has_fewer_tokens_than_characters():
    text = " ".join(SENTENCES[:20])
    assert len(TOKENIZER.encode(text)) < 0.6 * len(text)


def test_every_digit_is_a_token():
    assert TOKENIZER.tokens(TOKENIZER.encode("1999")) == [WORD_MARK, "1", "9", "9", "9"]


def test_a_saved_tokenizer_encodes_equally():
    again = Tokenizer(TOKENIZER.model)
    assert [again.encode(s) for s in SENTENCES] == [TOKENIZER.encode(s) for s in SENTENCES]


# --- learning -------------------------------------------------------------------------------------------------


def test_learning_twice_gives_the_same_bytes():
    assert Tokenizer.learn(iter(SENTENCES), SIZE).model == TOKENIZER.model


def test_learning_samples_nonempty_sentences():
    first = [s for sentence in SENTENCES[:100] for s in ("", sentence, "  ")]
    limited = Tokenizer.learn([*first, *SENTENCES[100:]], TokenizerSettings(vocab_size=350, sample=100))
    assert limited.model == Tokenizer.learn(SENTENCES[:100], TokenizerSettings(vocab_size=350, sample=100)).model


def test_names_of_special_tokens_in_training_text_are_ordinary_text():
    hostile = ["<s> </s> <unk> <pad> <0x41> a\tb \0 \u2581 \u2585 \ud83d"] * 200
    tokenizer = Tokenizer.learn([*hostile, *SENTENCES], SIZE)
    for text in (hostile[0], "<s>", "<0x41>", "A"):
        assert tokenizer.decode(tokenizer.encode(text)) == normalise(text)
        assert not SPECIAL & set(tokenizer.encode(text))


def test_an_error_of_the_sentence_iterator_is_raised_unchanged():
    def sentences():
        yield from SENTENCES
        raise TextError("Line 301 is not UTF-8.", "Convert the file.")

    with pytest.raises(TextError, match=r"^Line 301 is not UTF-8\. Convert the file\.$"):
        Tokenizer.learn(sentences(), SIZE)


@pytest.mark.parametrize("nothing", [[], ["", "  \n"]])
def test_no_text_is_refused(nothing):
    with pytest.raises(TextError) as caught:
        Tokenizer.learn(nothing, SIZE)
    assert str(caught.value) == "There is no text to learn a vocabulary from. Give sentences, one per line."


def test_a_vocabulary_smaller_than_the_alphabet_is_refused():
    many_characters = ["".join(chr(0x4E00 + 10 * i + j) for j in range(10)) for i in range(40)]
    with pytest.raises(TextError) as caught:
        Tokenizer.learn(many_characters, TokenizerSettings(vocab_size=300))
    expected = (
        r"A vocabulary of 300 pieces is too small for the characters of this text\. It needs at least (\d+)\."
        r" Give for example --set tokenizer\.vocab_size=\d+\."
    )
    required = int(re.fullmatch(expected, str(caught.value))[1])
    assert Tokenizer.learn(many_characters, TokenizerSettings(vocab_size=required))


# --- BPE-dropout ----------------------------------------------------------------------------------------------


def test_without_dropout_a_sample_equals_the_plain_segmentation():
    assert all(sample(s, 0.0) == TOKENIZER.encode(s) for s in SENTENCES[:50])


def test_dropout_gives_varying_segmentations_with_more_pieces():
    text = " ".join(SENTENCES[:5])
    plain = len(TOKENIZER.encode(text))
    lengths = [len(sample(text, dropout)) for dropout in (0.1, 0.5, 0.9)]
    assert plain < lengths[0] < lengths[1] < lengths[2]
    assert len({tuple(sample(text, 0.1, key=str(epoch))) for epoch in range(10)}) > 1


# --- damaged models -------------------------------------------------------------------------------------------

DAMAGED = "The tokenizer is not a SentencePiece model. The file is damaged: make it again."


@pytest.mark.parametrize("model", [b"", b"garbage", TOKENIZER.model[:-1], TOKENIZER.model[: len(TOKENIZER.model) // 2]])
def test_bytes_that_are_not_a_model_are_refused(model):
    with pytest.raises(ModelFileError) as caught:
        Tokenizer(model)
    assert str(caught.value) == DAMAGED


@given(
    places=st.lists(st.tuples(st.integers(0, len(TOKENIZER.model) - 1), st.integers(1, 255)), min_size=1, max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_loaded_or_refused(places):
    model = bytearray(TOKENIZER.model)
    for place, flip in places:
        model[place] ^= flip
    with contextlib.suppress(OnehopError):
        Tokenizer(bytes(model))


def test_a_model_with_other_special_ids_is_refused():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(SENTENCES), model_writer=out, vocab_size=100, model_type="bpe", minloglevel=2
    )
    with pytest.raises(ModelFileError) as caught:
        Tokenizer(out.getvalue())
    assert str(caught.value) == (
        "The tokenizer gives pad, unk, bos and eos other ids than 0, 1, 2 and 3. "
        "It was made by another program: let `onehop prepare` learn one."
    )


PIECES = json.dumps(
    {
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"[PAD]": 0, "[UNK]": 1, "play": 2, "##ing": 3, "dogs": 4},
        },
    }
).encode()


def test_each_kind_of_vocabulary_is_recognised():
    pieces = Tokenizer.learn(["some words"] * 9, load_settings("tiny").tokenizer)
    assert isinstance(vocabulary_of(pieces.model), Tokenizer)
    assert isinstance(vocabulary_of(PIECES), WordPieces)
    assert isinstance(vocabulary_of(b'["zero", "one"]'), Classes)


def test_word_pieces_are_tokenized():
    found = vocabulary_of(PIECES)
    assert found.vocab_size == 5
    assert found.encode_batch(["Dogs playing", "cats"]) == [[4, 2, 3], [1]]


def test_class_ids_start_at_one():
    classes = Classes(["zero", "one"])
    assert (classes.vocab_size, classes.name(2), classes.name(0)) == (3, "one", "")
    assert vocabulary_of(classes.model).names == classes.names


@pytest.mark.parametrize("damaged", [b"{", b'{"model": 3}', b"[1", b'{"model": {}}', b"[" * 100_000])
def test_damaged_vocabularies_are_refused(damaged):
    with pytest.raises(ModelFileError) as error:
        vocabulary_of(damaged)
    assert str(error.value) == (
        "The vocabulary is not one that onehop has written. The file is damaged: make it again."
    )


def test_a_piece_that_is_not_utf8_is_refused():
    model = bytearray(TOKENIZER.model)
    model[model.index("ü".encode())] = 0xA6
    with pytest.raises(ModelFileError, match="The vocabulary is not one that onehop has written"):
        vocabulary_of(bytes(model))


def test_invalid_word_pieces_are_refused():
    described = json.loads(PIECES)
    described["model"]["type"] = "nothing"
    with pytest.raises(ModelFileError, match=r"The word pieces cannot be read \(.*\)\. The file is damaged"):
        vocabulary_of(json.dumps(described).encode()).encode_batch(["dogs"])


def test_word_pieces_without_tokenizers_have_a_size_but_cannot_encode(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    found = vocabulary_of(PIECES)
    assert found.vocab_size == 5
    with pytest.raises(MissingPackageError) as error:
        found.encode_batch(["dogs"])
    assert str(error.value) == 'This needs tokenizers. Install it with: pip install "onehop[export]"'


def test_a_tag_is_ordinary_text_unless_tags_is_true():
    settings = TokenizerSettings(vocab_size=300, sample=100)
    tokenizer = Tokenizer.learn(["ab cd ab", "ab ef bt"] * 20, settings, ["<bt>", "</term>"])
    tags = tokenizer.ids([WORD_MARK + "<bt>", WORD_MARK + "</term>"])
    assert tokenizer.encode("<bt> ab", tags=True)[0] == tags[0]
    assert tokenizer.encode_batch(["ab </term>"], tags=True)[0][-1] == tags[1]
    texts = ["<bt> ab", "ab <bt> <bt> cd </term>", "ab"]
    for ids, text in zip(tokenizer.encode_batch(texts), texts, strict=True):
        assert not {*ids} & {*tags}
        assert ids == tokenizer.encode(text)
        assert tokenizer.decode(ids) == text


def test_shipped_models_read_a_typed_tag_as_text():
    tokenizer = Tokenizer(read_model(find_model("en-de")).tokenizer)
    formal = tokenizer.ids([WORD_MARK + "<formal>"])[0]
    assert formal not in tokenizer.encode("<formal> Where are you?")
    assert tokenizer.decode(tokenizer.encode("<formal> Where?")) == "<formal> Where?"
