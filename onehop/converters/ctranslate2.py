"""A CTranslate2 folder with the tokenizer beside the model: CTranslate2 takes tokens, not text."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onehop.converters.parity import Logits
from onehop.decoding.engine import MORE_THAN_SOURCE
from onehop.errors import ExportError
from onehop.storage.ctranslate2_conversion import cached_files
from onehop.storage.ctranslate2_format import METADATA_FILE, TOKENIZER_FILE, Compute, inexpressible
from onehop.storage.model_file import StoredModel
from onehop.storage.number_formats import Int8Rows
from onehop.text.tokenizer import Tokenizer

NEEDS = ("ctranslate2",)


def write(stored: StoredModel, folder: Path) -> None:
    """Write CTranslate2's files and the SentencePiece model. int8 rows are copied unchanged."""
    if reason := inexpressible(stored.settings.model):
        raise ExportError(f"CTranslate2 cannot express the model: {reason}.", "Use --to onnx, which supports it.")
    compute: Compute = "int8" if any(isinstance(t, Int8Rows) for t in stored.tensors.values()) else "float32"
    for name, pieces in cached_files(stored, compute).items():
        with open(folder / name, "wb") as file:
            file.writelines(pieces)


class CTranslate2:
    """Runs such a folder in CTranslate2, called as in its documentation."""

    libraries: tuple[str, ...] = NEEDS

    def __init__(self, folder: Path) -> None:
        ctranslate2: Any = importlib.import_module("ctranslate2")
        self.tokenizer = Tokenizer((folder / TOKENIZER_FILE).read_bytes())
        self.positions: int = json.loads((folder / METADATA_FILE).read_text(encoding="utf-8"))["positions"]
        self.id_of = {piece: i for i, (piece, _) in enumerate(self.tokenizer.vocabulary())}
        self.model = ctranslate2.Translator(str(folder), device="cpu", intra_threads=torch.get_num_threads())
        self.computes: str = self.model.compute_type.split("_")[0]  # of int8_float32, the dtype of the products

    def translate(self, text: str) -> str:
        ids = self.tokenizer.encode(text)
        return self.tokenizer.decode(self._ids(greedy_search(self.model, self.tokenizer.tokens(ids))))

    def _ids(self, result: Any) -> list[int]:
        """The best hypothesis in our ids, without special tokens."""
        return [self.id_of[piece] for piece in result.hypotheses[0]]

    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        """Logits along its own greedy path, as far as the path follows `tgt`."""
        result = greedy_search(self.model, self.tokenizer.tokens(src[:-1]), with_logits=True)
        return logits_along(tgt, self._ids(result), result)


def greedy_search(model: Any, pieces: Sequence[str], *, with_logits: bool = False) -> Any:
    """CTranslate2's result of greedy search; it appends EOS to the source itself."""
    most = len(pieces) + MORE_THAN_SOURCE
    lengths = {"min_decoding_length": 0, "max_decoding_length": most}  # its default minimum is one
    extra = {"return_logits_vocab": with_logits, "return_end_token": with_logits}
    return model.translate_batch([list(pieces)], beam_size=1, **lengths, **extra)[0]


def logits_along(tgt: Sequence[int], path: Sequence[int], result: Any) -> Logits:
    """The logits of a result, as far as its path follows `tgt` after BOS."""
    same = 0
    while same < min(len(path), len(tgt) - 1) and path[same] == tgt[same + 1]:
        same += 1
    return np.stack([np.array(step).reshape(-1) for step in result.logits[0][: same + 1]]).astype(np.float32)
