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
    unknown_score = min((p.score for p in proto.pieces if p.type == _NORMAL), default=0.0) - _UNKNOWN_PENALTY
    beyond = sorted(normal - set(vocab))
    order = [*(piece for _, piece in others), *beyond]
    names = ["<pad>", "<unk>", "<s>" if "<s>" not in dict(others).values() else "<start>", "</s>"]
    _begin_with(proto, names)
    for piece in order:
        proto.pieces.add().CopyFrom(known[piece] if piece in known else _added(proto, piece, unknown_score))
    rows = [*marks, *(i for i, _ in others), *[marks[UNK]] * len(beyond)]
    silent = [BOS] if marks[BOS] in (marks[PAD], marks[UNK], marks[EOS]) else []
    known_ids = len(rows) - len(beyond)
    model: bytes = proto.SerializeToString()
    if target != source or beyond:
        model = with_target(model, _in_order(target, names, order), known_ids)
    return ImportedPieces(model, rows, [*silent, *range(known_ids, len(rows))])


def _in_order(target: bytes, names: Sequence[str], order: Sequence[str]) -> bytes:
    """The target's model with tokens in the order of our ids, then those that the vocabulary lacks."""
    proto = _read_proto(target)
    known = {p.piece: p for p in proto.pieces if p.type not in (_UNKNOWN, _CONTROL)}
    unknown_score = min((p.score for p in proto.pieces if p.type == _NORMAL), default=0.0) - _UNKNOWN_PENALTY
    is_unigram = proto.trainer_spec.model_type == _UNIGRAM
    more = sorted(set(known) - set(order))
    kept = [proto.SentencePiece.FromString(known[p].SerializeToString()) if p in known else None for p in order]
    rest = [proto.SentencePiece.FromString(known[p].SerializeToString()) for p in more]
    _begin_with(proto, names)
    for piece, existing in zip(order, kept, strict=True):
        missing = _added(proto, piece, unknown_score) if is_unigram else None
        unused = proto.SentencePiece(piece=piece, score=0.0, type=_UNUSED)
        proto.pieces.add().CopyFrom(existing or missing or unused)
    for piece_proto in rest:
        proto.pieces.add().CopyFrom(piece_proto)
    model: bytes = proto.SerializeToString()
    return model


def _added(proto: Any, piece: str, unknown_score: float) -> Any:
    """A token of the target alone.

    Marian looks up text that SentencePiece does not know, unchanged. It may find a single character, which therefore
    gets the score of an unknown one. Longer tokens are never used in a segmentation.
    """
    if len(piece) == 1:
        return proto.SentencePiece(piece=piece, score=unknown_score, type=_NORMAL)
    return proto.SentencePiece(piece=piece, score=0.0, type=_UNUSED)


def _read_proto(model: bytes) -> Any:
    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    try:
        spm.SentencePieceProcessor(model_proto=model)  # refuses bytes that the parser would take for an empty model
        proto.ParseFromString(model)
    except RuntimeError:
        raise ExportError("source.spm is not a SentencePiece model.", "Download the folder again.") from None
    return proto


def _begin_with(proto: Any, names: Sequence[str]) -> None:
    """Replace all pieces by the special tokens. Marian omits unknown tokens from the text."""
    del proto.pieces[:]
    for name in names:
        proto.pieces.add(piece=name, score=0.0, type=_UNKNOWN if name == "<unk>" else _CONTROL)
    s = proto.trainer_spec
    s.pad_piece, s.unk_piece, s.bos_piece, s.eos_piece = names
    s.pad_id, s.unk_id, s.bos_id, s.eos_id = PAD, UNK, BOS, EOS
    s.unk_surface = ""
