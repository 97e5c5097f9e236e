"""An Argos package run as Argos does, for comparison with its import."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onehop.converters.argos import MARKS, PIECES, VOCABULARIES, open_package, required
from onehop.converters.ctranslate2 import greedy_search, logits_along
from onehop.converters.importing import Imported
from onehop.converters.parity import Logits
from onehop.text.tokenizer import EOS, UNK, Tokenizer, normalise


class ArgosOriginal:
    """SentencePiece tokens through CTranslate2, with greedy search."""

    libraries: tuple[str, ...] = ("ctranslate2",)

    def __init__(self, path: Path, imported: Imported) -> None:
        ctranslate2: Any = importlib.import_module("ctranslate2")
        read = open_package(path)
        names = ["model.bin", "config.json", *(name.removeprefix("model/") for name in VOCABULARIES)]
        files = {name: data for name in names if (data := read(f"model/{name}")) is not None}
        self.model = ctranslate2.Translator(path.stem, device="cpu", intra_threads=1, files=files)
        self.computes: str = self.model.compute_type.split("_")[0]
        self.positions = imported.stored.settings.model.max_length
        self.rows, self.tokenizer = imported.rows, Tokenizer(imported.stored.tokenizer)
        self.id_of = {piece: i for i, (piece, _) in enumerate(self.tokenizer.vocabulary())}
        spm: Any = importlib.import_module("sentencepiece")
        self.pieces = spm.SentencePieceProcessor(model_proto=required(read, PIECES))

    def translate(self, text: str) -> str:
        """Translate with the package's own tokenizer."""
        result = greedy_search(self.model, self.pieces.encode(normalise(text), out_type=str))
        return str(self.pieces.decode([piece for piece in result.hypotheses[0] if piece != MARKS["unk"]]))

    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        """Logits along its own greedy path, reordered to our ids, as far as the path follows `tgt`."""
        source = src[:-1] if list(src[-1:]) == [EOS] else src
        result = greedy_search(self.model, self.tokenizer.tokens(source), with_logits=True)
        path = [self.id_of.get(piece, UNK) for piece in result.hypotheses[0]]
        return logits_along(tgt, path, result)[:, list(self.rows)]
