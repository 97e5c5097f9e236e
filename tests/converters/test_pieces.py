"""Two SentencePiece models joined into one tokenizer: each side is tokenized as before."""

import pytest
import sentencepiece as spm
from sentence_pieces import learn_pieces

from onehop.converters.pieces import joint_pieces
from onehop.data.encode import WordIds, encode_sides
from onehop.text.tokenizer import UNK, Tokenizer

ENGLISH = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
GERMAN = ["das alte Haus", "ein neuer Baum", "der Vogel auf dem Baum", "die Häuser und Bäume sind größer"]
TEXTS = [*GERMAN, "Häuser", "das neue Haus!", "größere Vögel", "ñandú", "the house"]


def pieces_of(model):
    pieces = spm.SentencePieceProcessor(model_proto=model)
    return [pieces.IdToPiece(i) for i in range(3, len(pieces))]


def vocabulary(source, target, left_out):
    names = sorted({*pieces_of(source)[left_out:], *pieces_of(target)[left_out:]}, key=lambda piece: piece[::-1])
    return {piece: i for i, piece in enumerate(["</s>", "<unk>", *names, "<pad>"])}


@pytest.mark.parametrize("left_out", [0, 3])
def test_target_text_is_tokenized_like_the_original(left_out):
    """Marian looks each piece of target.spm up in the vocabulary. A missing one is unknown."""
    source, target = learn_pieces(ENGLISH, 50), learn_pieces(GERMAN, 40)
    vocab = vocabulary(source, target, left_out)
    pad = len(vocab) - 1
    made = joint_pieces(source, target, vocab, (pad, 1, pad, 0))
    tokenizer, theirs = Tokenizer(made.model), spm.SentencePieceProcessor(model_proto=target)
    for text in TEXTS:
        ids = tokenizer.target.encode(text)
        expected = [vocab.get(piece, 1) for piece in theirs.encode(text, out_type=str)]
        assert [made.rows[i] for i in ids] == expected, text
        assert not set(ids) & set(made.silent), "a label that is never said has a loss of billions"
    assert UNK in tokenizer.target.encode("ñandú")
    cut = spm.SentencePieceProcessor(model_proto=source)
    assert tokenizer.tokens(tokenizer.encode("the old house")) == cut.encode("the old house", out_type=str)


def test_each_side_of_a_pair_is_encoded_with_its_own_model():
    source, target = learn_pieces(ENGLISH, 50), learn_pieces(GERMAN, 40)
    vocab = vocabulary(source, target, 0)
    pad = len(vocab) - 1
    tokenizer = Tokenizer(joint_pieces(source, target, vocab, (pad, 1, pad, 0)).model)
    words = WordIds(tokenizer)
    lines = [["the old house", "das alte Haus", "1"], ["a new tree", "ein neuer Baum", "2"]]
    src, tgt = encode_sides(words, lines)
    for line, ids in zip(lines, tgt, strict=True):
        assert ids == words._packed(tokenizer.target.encode(line[1]))
    assert src[0] == words._packed(tokenizer.encode("the old house"))
    assert tokenizer.encode("das alte Haus") != tokenizer.target.encode("das alte Haus")


def test_one_shared_model_gives_one_tokenizer_for_both_sides():
    shared = learn_pieces(ENGLISH + GERMAN, 60)
    vocab = {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces_of(shared), "<pad>"])}
    tokenizer = Tokenizer(joint_pieces(shared, shared, vocab, (len(vocab) - 1, 1, len(vocab) - 1, 0)).model)
    assert tokenizer.target is tokenizer
