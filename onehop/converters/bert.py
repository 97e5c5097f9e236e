"""`onehop import` of a sentence encoder in BERT's shape, such as all-MiniLM-L6-v2, out of a Hugging Face folder.

BERT does not multiply its embeddings by √d_model, so they are divided by it here.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onehop.atomic import json_object, write_json
from onehop.config import ModelSettings, Settings, TokenizerSettings
from onehop.converters.huggingface import Array
from onehop.converters.importing import read_bytes, read_json, read_weights, refuse_first, require_numbers
from onehop.errors import ExportError, SettingsError
from onehop.model.variants import EncoderOnly
from onehop.pipelines.embed import Embedder
from onehop.pipelines.load import variant_of
from onehop.storage.model_file import StoredModel
from onehop.text.tokenizer import WordPieces

# The largest difference of two vector elements that rounding explains.
_NEAR = 1e-5
_REQUIRED = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size"),
)
_LAYER = {
    "self_attention.w_q": "attention.self.query",
    "self_attention.w_k": "attention.self.key",
    "self_attention.w_v": "attention.self.value",
    "self_attention.w_o": "attention.output.dense",
    "self_add_norm.norm": "attention.output.LayerNorm",
    "feed_forward.w_1": "intermediate.dense",
    "feed_forward.w_2": "output.dense",
    "feed_add_norm.norm": "output.LayerNorm",
}


def import_bert(folder: Path) -> StoredModel:
    config = read_json(folder / "config.json")
    _refuse(folder, config)
    weights, digest = read_weights(folder)
    tokenizer = read_bytes(folder / "tokenizer.json")
    settings = _model_settings(config)
    try:
        tensors = _to_ours(weights, settings)
    except KeyError as e:
        raise ExportError(f"{folder} has no tensor {e}.", "Download it again.") from None
    return StoredModel(
        settings=Settings(model=settings, tokenizer=TokenizerSettings(vocab_size=max(300, config["vocab_size"]))),
        tokenizer=tokenizer,
        source="",
        target="",
        provenance={"imported_from": {"format": "Hugging Face BERT", "name": folder.name, "sha256": digest}},
        tensors=tensors,
    )


def _refuse(folder: Path, config: Mapping[str, Any]) -> None:
    require_numbers(config, _REQUIRED)
    pooling = read_json(folder / "1_Pooling" / "config.json", required=False)
    reasons = {
        f"the activation {config.get('hidden_act')}": config.get("hidden_act") != "gelu",
        "relative positions": config.get("position_embedding_type", "absolute") != "absolute",
        "another pooling than the mean": not pooling.get("pooling_mode_mean_tokens", True),
        "word pieces whose padding is not 0": config.get("pad_token_id", 0) != 0,
    }
    refuse_first(reasons)


def _model_settings(config: Mapping[str, Any]) -> ModelSettings:
    try:
        return ModelSettings(
            kind="encoder",
            n_encoder_layers=config["num_hidden_layers"],
            d_model=config["hidden_size"],
            d_ff=config["intermediate_size"],
            n_heads=config["num_attention_heads"],
            dropout=float(config.get("hidden_dropout_prob", 0.1)),
            positions="learned",
            activation="gelu",
            attention_bias=True,
            max_length=config["max_position_embeddings"],
            segments=config["type_vocab_size"],
            input_norm=True,
            norm_epsilon=float(config.get("layer_norm_eps", 1e-12)),
        )
    except SettingsError as e:
        raise ExportError(f"config.json is wrong: {e.what}", "Download the folder again.") from None


def _to_ours(weights: Mapping[str, Array], settings: ModelSettings) -> dict[str, Array]:
    plain = {name.removeprefix("bert."): tensor for name, tensor in weights.items()}
    embeddings = "embeddings.word_embeddings.weight"
    tensors = {
        "embedding.weight": (plain[embeddings] / math.sqrt(settings.d_model)).astype(np.float32),
        "source_input.positions": plain["embeddings.position_embeddings.weight"],
        "source_input.segment_embeddings": plain["embeddings.token_type_embeddings.weight"],
        **_weight_and_bias("source_input.norm", "embeddings.LayerNorm", plain),
    }
    for i in range(settings.n_encoder_layers):
        for ours, theirs in _LAYER.items():
            tensors |= _weight_and_bias(f"encoder.layers.{i}.{ours}", f"encoder.layer.{i}.{theirs}", plain)
    return tensors


def _weight_and_bias(ours: str, theirs: str, weights: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{ours}.{part}": weights[f"{theirs}.{part}"] for part in ("weight", "bias")}


# --- parity ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorParity:
    """The difference between our sentence vectors and those of transformers."""

    sentences: int
    largest_difference: float
    near: float = _NEAR

    def lines(self) -> list[str]:
        verdict = "the same" if self.largest_difference <= self.near else "NOT THE SAME"
        return [
            f"{self.sentences} sentences: vectors {verdict} as transformers', "
            f"largest difference {self.largest_difference:.1e}"
        ]

    def write(self, file: Path) -> None:
        write_json(file, asdict(self))


def compare_vectors(stored: StoredModel, folder: Path, sentences: Sequence[str]) -> VectorParity:
    model = variant_of(folder, stored)
    assert isinstance(model, EncoderOnly)
    ours = Embedder(model, WordPieces(stored.tokenizer)).vectors(sentences)
    return VectorParity(len(sentences), float(np.abs(ours - original_vectors(folder, sentences)).max()))


def original_vectors(folder: Path, sentences: Sequence[str]) -> Array:
    """The mean of transformers' last states over each sentence's tokens, normalised."""
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    longest = model.config.max_position_embeddings
    rows = []
    with torch.inference_mode():
        for sentence in sentences:
            batch = tokenizer(sentence, return_tensors="pt", truncation=True, max_length=longest)
            mean = model(**batch).last_hidden_state[0].mean(0)
            rows.append((mean / mean.norm()).numpy())
    return np.stack(rows)


def is_bert(folder: Path) -> bool:
    with suppress(OSError):
        return (json_object((folder / "config.json").read_bytes()) or {}).get("model_type") == "bert"
    return False
