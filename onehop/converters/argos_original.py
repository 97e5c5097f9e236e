"""An Argos package run as Argos does, for comparison with its import."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onehop.converters.argos import MARKS, PIECES, VOCABULARIES, needed, opened
from onehop.converters.importing import Imported
from onehop.converters.parity import Logits
from onehop.decoding.engine import MORE_THAN_SOURCE
from onehop.text.tokenizer import EOS, UNK, Tokenizer, normalise


class ArgosOriginal:
    """SentencePiece tokens through CTranslate2, with greedy search."""

    libraries: tuple[str, ...] = ("ctranslate2",)

    def __init__(self, path: Path, imported: Imported) -> None:
        ctranslate2: Any = importlib.import_module("ctranslate2")
        read = opened(path)
        names = ["model.bin", "config.json", *(name.removeprefix("model/") for name in VOCABULARIES)]
        files = {name: data for name in names if (data := read(f"model/{name}")) is not None}
        self.model = ctranslate2.Translator(path.stem, device="cpu", intra_threads=1, files=files)
        self.computes: str = self.model.compute_type.split("_")[0]
        self.positions = imported.stored.settings.model.max_length
        self.rows, self.tokenizer = imported.rows, Tokenizer(imported.stored.tokenizer)
        self.id_of = {piece: i for i, (piece, _) in enumerate(self.tokenizer.vocabulary())}
        spm: Any = importlib.import_module("sentencepiece")
        self.pieces = spm.SentencePieceProcessor(model_proto=needed(read, PIECES))

    def translate(self, text: str) -> str:
        """Translate with its own tokenizer."""
        found = self.search(self.pieces.encode(normalise(text), out_type=str))
        return str(self.pieces.decode([piece for piece in found.hypotheses[0] if piece != MARKS["unk"]]))

    def search(self, pieces: Sequence[str], **options: Any) -> Any:
        """Greedy."""
        lengths = {"min_decoding_length": 0, "max_decoding_length": len(pieces) + MORE_THAN_SOURCE}
        return self.model.translate_batch([list(pieces)], beam_size=1, **lengths, **options)[0]

    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        """Logits along its own greedy path, reordered to our ids, as far as the path follows `tgt`."""
        ends = list(src[-1:]) == [EOS]
        found = self.search(
            self.tokenizer.tokens(src[:-1] if ends else src), return_logits_vocab=True, return_end_token=True
        )
        path = [self.id_of.get(piece, UNK) for piece in found.hypotheses[0]]
        each = [np.array(step).reshape(-1)[: 1 + max(self.rows)] for step in found.logits[0]]
        same = 0
        while same < min(len(path), len(tgt) - 1) and path[same] == tgt[same + 1]:
            same += 1
        return np.stack(each[: same + 1]).astype(np.float32)[:, list(self.rows)]
