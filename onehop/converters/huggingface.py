"""A Hugging Face MarianMT folder: written without transformers, run with it."""

import importlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from onehop.config import ModelSettings
from onehop.converters.marian import to_marian
from onehop.converters.parity import Logits, positions
from onehop.decoding.engine import MORE_THAN_SOURCE
from onehop.decoding.options import ALPHA
from onehop.errors import ExportError
from onehop.storage.model_file import StoredModel
from onehop.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

NEEDS = ("transformers",)


def _refuse(settings: ModelSettings) -> None:
    width = settings.d_model // settings.n_heads
    reasons = {
        "pre-norm (model.norm is pre)": settings.norm == "pre",
        "learned positions": settings.positions == "learned",
        "heads of another width than d_model / n_heads": (settings.key_width, settings.value_width) != (width, width)
        or settings.d_model % settings.n_heads != 0,
        "untied embeddings (model.tied is false)": not settings.tied,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ExportError(f"Hugging Face's Marian cannot express {reason}.", "Use --to onnx, which supports it.")


def write(stored: StoredModel, folder: Path, alpha: float = ALPHA) -> None:
    """Write everything that `from_pretrained` reads; `alpha` is the length penalty's."""
    _refuse(stored.settings.model)
    weights = to_marian(stored.weights(), stored.settings.model)
    (folder / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(stored.tokenizer)
    pieces = Tokenizer(stored.tokenizer).vocabulary()
    write_json(folder / "vocab.json", {piece: i for i, (piece, _) in enumerate(pieces)})
    write_json(folder / "config.json", config(stored.settings.model, len(pieces)))
    write_json(folder / "generation_config.json", generation_config(stored.settings.model, alpha))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(stored, [piece for piece, _ in pieces]))


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def config(model: ModelSettings, vocab_size: int) -> dict[str, Any]:
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "dtype": "float32",
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "d_model": model.d_model,
        "encoder_layers": model.n_encoder_layers,
        "decoder_layers": model.n_decoder_layers,
        "encoder_attention_heads": model.n_heads,
        "decoder_attention_heads": model.n_heads,
        "encoder_ffn_dim": model.d_ff,
        "decoder_ffn_dim": model.d_ff,
        "activation_function": model.activation,
        "dropout": model.dropout,
        "max_position_embeddings": positions(model),
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        **_special_ids(),
    }


def _special_ids() -> dict[str, int | None]:
    """The ids of the special tokens. Marian would start with padding, but this is configurable."""
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def generation_config(model: ModelSettings, alpha: float) -> dict[str, Any]:
    """The closest that `generate` has to the paper's search: it divides by |Y|^α."""
    return {
        "num_beams": 4,
        "length_penalty": alpha,
        "early_stopping": True,
        "max_length": positions(model),
        **_special_ids(),
    }


def _tokenizer_config(stored: StoredModel, pieces: Sequence[str]) -> dict[str, Any]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": stored.source,
        "target_lang": stored.target,
        "model_max_length": stored.settings.model.max_length,
        "clean_up_tokenization_spaces": False,
        "separate_vocabs": False,
        "pad_token": pieces[PAD],
        "unk_token": pieces[UNK],
        "bos_token": pieces[BOS],
        "eos_token": pieces[EOS],
    }


class HuggingFace:
    """Runs such a folder in transformers. `rows` are its ids in the order of ours, if they differ."""

    libraries: tuple[str, ...] = ("transformers",)
    computes = "float32"

    def __init__(self, folder: Path, rows: Sequence[int] | None = None) -> None:
        hf: Any = importlib.import_module("transformers")
        hf.utils.logging.set_verbosity_error()
        hf.utils.logging.disable_progress_bar()
        with warnings.catch_warnings():  # it recommends a normaliser that it never calls
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            self.tokenizer = hf.MarianTokenizer.from_pretrained(folder, local_files_only=True)
        self.model = hf.MarianMTModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
        self.positions: int = self.model.config.max_position_embeddings
        self.rows = np.arange(self.model.config.vocab_size) if rows is None else np.array(rows)

    @torch.inference_mode()
    def translate(self, text: str) -> str:
        batch = self.tokenizer([text], return_tensors="pt")
        most = batch["input_ids"].shape[1] - 1 + MORE_THAN_SOURCE
        ids = self.model.generate(**batch, num_beams=1, do_sample=False, max_new_tokens=most, max_length=None)
        return str(self.tokenizer.decode(ids[0], skip_special_tokens=True))

    @torch.inference_mode()
    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        source, target = (torch.from_numpy(self.rows[list(ids)])[None] for ids in (src, tgt))
        output = self.model(
            input_ids=source,
            attention_mask=torch.ones_like(source),
            decoder_input_ids=target,
            decoder_attention_mask=torch.ones_like(target),
        )
        return np.asarray(output.logits[0].numpy()[:, self.rows])
