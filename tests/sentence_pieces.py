"""Small SentencePiece models."""

import io

import sentencepiece as spm


def learn_pieces(lines: list[str], size: int, kind: str = "unigram") -> bytes:
    out = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines * 5),
        model_writer=out,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return out.getvalue()
