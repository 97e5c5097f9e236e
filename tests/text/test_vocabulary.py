"""What ids stand for, told apart by the bytes that hold it."""

import builtins
import json

import pytest

from onehop.config import load_settings
from onehop.errors import ModelFileError, SettingsError
from onehop.text.tokenizer import Tokenizer
from onehop.text.vocabulary import Classes, WordPieces, vocabulary_of

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


def test_each_kind_is_recognised():
    pieces = Tokenizer.learn(["some words"] * 9, load_settings("tiny").tokenizer)
    assert isinstance(vocabulary_of(pieces.model), Tokenizer)
    assert isinstance(vocabulary_of(PIECES), WordPieces)
    assert isinstance(vocabulary_of(b'["zero", "one"]'), Classes)


def test_word_pieces_are_cut_as_the_library_cuts():
    found = vocabulary_of(PIECES)
    assert found.vocab_size == 5
    assert found.encode_batch(["Dogs playing", "cats"]) == [[4, 2, 3], [1]]


def test_classes_leave_the_first_id_free():
    classes = Classes(["zero", "one"])
    assert (classes.vocab_size, classes.name(2), classes.name(0)) == (3, "one", "")
    assert vocabulary_of(classes.model).names == classes.names


@pytest.mark.parametrize("damaged", [b"{", b'{"model": 3}', b"[1", b'{"model": {}}'])
def test_a_damaged_one_is_refused(damaged):
    with pytest.raises(ModelFileError) as error:
        vocabulary_of(damaged)
    assert str(error.value) == (
        "The vocabulary is not one that onehop has written. The file is damaged: make it again."
    )


def test_without_the_library_its_size_is_known_and_the_remedy_said(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    found = vocabulary_of(PIECES)
    assert found.vocab_size == 5
    with pytest.raises(SettingsError) as error:
        found.encode_batch(["dogs"])
    assert str(error.value) == (
        "This model's word pieces need the package tokenizers, which is not installed. "
        "Run: pip install 'onehop[export]'."
    )
