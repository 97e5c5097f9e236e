"""One SentencePiece model of ours from the two of a Marian folder and its vocabulary.

To translate, only the source is segmented, so the joint model is the source's. What only the target language has is
added as pieces that no segmentation uses but that decode as they are; single characters are cut where the source's
model knows no better. The target's model lies behind it, for training.
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
_UNKNOWN_PENALTY = 10.0  # so much below the least likely piece SentencePiece puts an unknown character


@dataclass(frozen=True)
class ImportedPieces:
    """A tokenizer of ours; for each of its ids theirs; and our ids that their model never says."""

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
    if source == target and (kept := _as_it_is(source, vocab, marks)):
        return kept
    return joined(source, target, vocab, marks)


def _as_it_is(model: bytes, vocab: Mapping[str, int], marks: Sequence[int]) -> ImportedPieces | None:
    """What onehop has exported needs nothing done."""
    try:
        pieces = [piece for piece, _ in Tokenizer(model).vocabulary()]
    except ModelFileError:
        return None
    same = tuple(marks) == (PAD, UNK, BOS, EOS) and vocab == {piece: i for i, piece in enumerate(pieces)}
    return ImportedPieces(model, range(len(pieces)), ()) if same else None


def joined(source: bytes, target: bytes, vocab: Mapping[str, int], marks: Sequence[int]) -> ImportedPieces:
    """The source's model with our marks in front, the vocabulary in its order, then what only the source has.

    Behind it lies the target's model in the same order, for training.
    """
    proto = _read_proto(source)
    known = {p.piece: p for p in proto.pieces}
    spoken = {p for p, kind in ((p.piece, p.type) for p in proto.pieces) if kind not in (_UNKNOWN, _CONTROL)}
    others = sorted((i, piece) for piece, i in vocab.items() if i not in marks)
    strange = [piece for _, piece in others if piece not in known]
    if strange and proto.trainer_spec.model_type != _UNIGRAM:
        raise ExportError(
            f"source.spm is not a unigram model and lacks pieces of the vocabulary, such as {strange[0]!r}.",
            "With BPE they would change the segmentation: only a shared source.spm can be imported.",
        )
    unknown_score = min((p.score for p in proto.pieces if p.type == _NORMAL), default=0.0) - _UNKNOWN_PENALTY
    beyond = sorted(spoken - set(vocab))
    names = ["<pad>", "<unk>", "<s>" if "<s>" not in dict(others).values() else "<start>", "</s>"]
    del proto.pieces[:]
    for name in names:
        proto.pieces.add(piece=name, score=0.0, type=_UNKNOWN if name == "<unk>" else _CONTROL)
    for piece in [*(piece for _, piece in others), *beyond]:
        proto.pieces.add().CopyFrom(known[piece] if piece in known else added(proto, piece, unknown_score))
    _describe_marks(proto.trainer_spec, names)
    rows = [*marks, *(i for i, _ in others), *[marks[UNK]] * len(beyond)]
    silent = [BOS] if marks[BOS] in (marks[PAD], marks[UNK], marks[EOS]) else []
    known_ids = len(rows) - len(beyond)
    order = [*(piece for _, piece in others), *beyond]
    model: bytes = proto.SerializeToString()
    if target != source or beyond:
        model = with_target(model, _in_order(target, names, order), known_ids)
    return ImportedPieces(model, rows, [*silent, *range(known_ids, len(rows))])


def _in_order(target: bytes, names: Sequence[str], order: Sequence[str]) -> bytes:
    """The target's model with pieces in the order of our ids, and behind them those that the vocabulary lacks."""
    proto = _read_proto(target)
    known = {p.piece: p for p in proto.pieces if p.type not in (_UNKNOWN, _CONTROL)}
    unknown_score = min((p.score for p in proto.pieces if p.type == _NORMAL), default=0.0) - _UNKNOWN_PENALTY
    is_unigram = proto.trainer_spec.model_type == _UNIGRAM
    more = sorted(set(known) - set(order))
    kept = [proto.SentencePiece.FromString(known[p].SerializeToString()) if p in known else None for p in order]
    rest = [proto.SentencePiece.FromString(known[p].SerializeToString()) for p in more]
    del proto.pieces[:]
    for name in names:
        proto.pieces.add(piece=name, score=0.0, type=_UNKNOWN if name == "<unk>" else _CONTROL)
    for piece, found in zip(order, kept, strict=True):
        missing = added(proto, piece, unknown_score) if is_unigram else None
        unused = proto.SentencePiece(piece=piece, score=0.0, type=_UNUSED)
        proto.pieces.add().CopyFrom(found or missing or unused)
    for each in rest:
        proto.pieces.add().CopyFrom(each)
    _describe_marks(proto.trainer_spec, names)
    found_model: bytes = proto.SerializeToString()
    return found_model


def added(proto: Any, piece: str, unknown_score: float) -> Any:
    """A piece that only the target has.

    Marian looks up what SentencePiece does not know, as it stands: a single character may be found, and so it is
    given the score of an unknown one. Everything longer takes no part.
    """
    if len(piece) == 1:
        return proto.SentencePiece(piece=piece, score=unknown_score, type=_NORMAL)
    return proto.SentencePiece(piece=piece, score=0.0, type=_UNUSED)


def _read_proto(model: bytes) -> Any:
    """A SentencePiece model taken apart."""
    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    try:
        spm.SentencePieceProcessor(model_proto=model)  # refuses what the parser would take for an empty model
        proto.ParseFromString(model)
    except RuntimeError:
        raise ExportError("source.spm is not a SentencePiece model.", "Download the folder again.") from None
    return proto


def _describe_marks(trainer_spec: Any, names: Sequence[str]) -> None:
    """Tell SentencePiece which pieces are the marks. Marian leaves an unknown out of the text."""
    s = trainer_spec
    s.pad_piece, s.unk_piece, s.bos_piece, s.eos_piece = names
    s.pad_id, s.unk_id, s.bos_id, s.eos_id = PAD, UNK, BOS, EOS
    s.unk_surface = ""
