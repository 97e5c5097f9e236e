"""One SentencePiece model of ours from the two of a Marian folder and its vocabulary.

To translate, only the source is segmented, so the joint model is the source's. Tokens of the target alone are added so
that no segmentation uses them, but they decode unchanged. Single characters are used where the source's model has
nothing better. The target's model is appended, for training.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sentencepiece as spm

from onehop.errors import ExportError, ModelFileError
from onehop.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, with_target

_NORMAL, _UNKNOWN, _CONTROL, _UNUSED = 1, 2, 3, 5  # SentencePiece's types of pieces
_UNIGRAM = 1
_UNKNOWN_PENALTY = 10.0  # SentencePiece scores an unknown character this much below the least likely token


@dataclass(frozen=True)
class ImportedPieces:
    """A tokenizer of ours, the original id of each of its ids, and our ids that the model never generates."""

    model: bytes
    rows: Sequence[int]
    silent: Sequence[int]


def joint_pieces(source: bytes, target: bytes, vocab: Mapping[str, int], marks: Sequence[int]) -> ImportedPieces:
    """`marks` are their ids of padding, unknown, beginning and end."""
    if any(piece.startswith(">>") and piece.endswith("<<") for piece in vocab):
        raise ExportError(
            "The model translates into several languages, chosen by a token such as >>fr<<.",
            "Only a model of one language pair can be imported.",
        )
    if source == target and (unchanged := _unchanged(source, vocab, marks)):
        return unchanged
    return _joined(source, target, vocab, marks)


def _unchanged(model: bytes, vocab: Mapping[str, int], marks: Sequence[int]) -> ImportedPieces | None:
    """An export of onehop needs no change."""
    try:
        pieces = [piece for piece, _ in Tokenizer(model).vocabulary()]
    except ModelFileError:
        return None
    same = tuple(marks) == (PAD, UNK, BOS, EOS) and vocab == {piece: i for i, piece in enumerate(pieces)}
    return ImportedPieces(model, range(len(pieces)), ()) if same else None


def _joined(source: bytes, target: bytes, vocab: Mapping[str, int], marks: Sequence[int]) -> ImportedPieces:
    """The source's model with our special tokens first, the vocabulary in its order, then tokens of the source alone.

    The target's model is appended in the same order, for training.
    """
    proto = _read_proto(source)
    known = {p.piece: p for p in proto.pieces}
    normal = {p.piece for p in proto.pieces if p.type not in (_UNKNOWN, _CONTROL)}
    others = sorted((i, piece) for piece, i in vocab.items() if i not in marks)
    unknown = [piece for _, piece in others if piece not in known]
    if unknown and proto.trainer_spec.model_type != _UNIGRAM:
        raise ExportError(
            f"source.spm is not a unigram model and lacks pieces of the vocabulary, such as {unknown[0]!r}.",
            "With BPE they would change the segmentation: only a shared source.spm can be imported.",
        )
    beyond = sorted(normal - set(vocab))
    order = [*(piece for _, piece in others), *beyond]
    names = ["<pad>", "<unk>", "<s>" if "<s>" not in dict(others).values() else "<start>", "</s>"]
    model = _with_pieces(proto, names, order, known)
    rows = [*marks, *(i for i, _ in others), *[marks[UNK]] * len(beyond)]
    silent = [BOS] if marks[BOS] in (marks[PAD], marks[UNK], marks[EOS]) else []
    known_ids = len(rows) - len(beyond)
    if target != source or beyond:
        proto = _read_proto(target)
        known = {p.piece: p for p in proto.pieces if p.type not in (_UNKNOWN, _CONTROL)}
        own = _with_pieces(proto, names, [*order, *sorted(set(known) - set(order))], known)
        model = with_target(model, own, known_ids)
    return ImportedPieces(model, rows, [*silent, *range(known_ids, len(rows))])


def _with_pieces(proto: Any, names: Sequence[str], order: Sequence[str], known: Mapping[str, Any]) -> bytes:
    """The model with special tokens of these names, then pieces in this order; those that are not `known` are added.

    Marian looks up text that SentencePiece does not know, unchanged. It may find a single character, which therefore
    gets the score of an unknown one. Longer tokens, and all of a BPE model, are never used in a segmentation.
    """
    unknown_score = min((p.score for p in proto.pieces if p.type == _NORMAL), default=0.0) - _UNKNOWN_PENALTY
    spec = proto.trainer_spec
    del proto.pieces[:]
    for name in names:
        proto.pieces.add(piece=name, score=0.0, type=_UNKNOWN if name == "<unk>" else _CONTROL)
    for piece in order:
        if piece in known:
            proto.pieces.add().CopyFrom(known[piece])
        elif len(piece) == 1 and spec.model_type == _UNIGRAM:
            proto.pieces.add(piece=piece, score=unknown_score, type=_NORMAL)
        else:
            proto.pieces.add(piece=piece, score=0.0, type=_UNUSED)
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = names
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, BOS, EOS
    spec.unk_surface = ""  # Marian omits unknown tokens from the text
    model: bytes = proto.SerializeToString()
    return model


def _read_proto(model: bytes) -> Any:
    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    try:
        spm.SentencePieceProcessor(model_proto=model)  # refuses bytes that the parser would take for an empty model
        proto.ParseFromString(model)
    except RuntimeError:
        raise ExportError("source.spm is not a SentencePiece model.", "Download the folder again.") from None
    return proto
