"""A Hugging Face MarianMT folder: written without transformers, run with it."""

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int
from safetensors.numpy import save

from onehop.config import ModelSettings
from onehop.converters.parity import Logits, positions, write_json
from onehop.decoding.engine import MORE_THAN_SOURCE
from onehop.decoding.options import ALPHA
from onehop.errors import ExportError
from onehop.storage.model_file import StoredModel
from onehop.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

NEEDS = ("transformers",)
Array = Float32[np.ndarray, "..."]

_PROJECTIONS = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}
BIAS = "final_logits_bias"
EMBEDDING = "model.shared.weight"
_SPECIAL_IDS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,  # Marian would start with padding, but this is configurable
    "forced_eos_token_id": None,
}
POSITIONS = tuple(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))


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
        **_SPECIAL_IDS,
    }


def generation_config(model: ModelSettings, alpha: float) -> dict[str, Any]:
    """The closest that `generate` has to the paper's search: it divides by |Y|^α."""
    return {
        "num_beams": 4,
        "length_penalty": alpha,
        "early_stopping": True,
        "max_length": positions(model),
        **_SPECIAL_IDS,
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

    libraries: tuple[str, ...] = NEEDS
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


# --- names and layout of our tensors in Marian ---------------------------------------------------------------------
# Marian's positions are all sines and then all cosines; the paper's alternate. Nothing else in a post-norm Transformer
# depends on the order of d_model, so a permutation of it in every weight converts one model to the other.


@dataclass(frozen=True)
class _TensorNames:
    """The names of a tensor in both models, its d_model axis, and whether it is optional in ours."""

    ours: str
    theirs: str
    d_model_axis: int | None = None
    optional: bool = False


def _tensor_names(settings: ModelSettings) -> Iterator[_TensorNames]:
    """Every tensor of a model that Marian can express."""
    yield _TensorNames("embedding.weight", EMBEDDING, 1)
    yield _TensorNames("output_bias", BIAS, optional=True)
    for stack, n_layers in (("encoder", settings.n_encoder_layers), ("decoder", settings.n_decoder_layers)):
        for i in range(n_layers):
            yield from _layer_names(f"{stack}.layers.{i}", cross=stack == "decoder")


def _layer_names(layer: str, *, cross: bool) -> Iterator[_TensorNames]:
    theirs = f"model.{layer}"
    kinds = {"self": "self_attn", "cross": "encoder_attn"} if cross else {"self": "self_attn"}
    for kind, name in kinds.items():
        for ours, projection in _PROJECTIONS.items():
            axes = (0, 0) if ours == "w_o" else (1, None)
            names = f"{layer}.{kind}_attention.{ours}", f"{theirs}.{name}.{projection}"
            yield from _weight_and_bias(*names, *axes, optional_bias=True)
        yield from _weight_and_bias(f"{layer}.{kind}_add_norm.norm", f"{theirs}.{name}_layer_norm", 0, 0)
    yield from _weight_and_bias(f"{layer}.feed_forward.w_1", f"{theirs}.fc1", 1, None)
    yield from _weight_and_bias(f"{layer}.feed_forward.w_2", f"{theirs}.fc2", 0, 0)
    yield from _weight_and_bias(f"{layer}.feed_add_norm.norm", f"{theirs}.final_layer_norm", 0, 0)


def _weight_and_bias(
    ours: str, theirs: str, weight_axis: int, bias_axis: int | None, *, optional_bias: bool = False
) -> Iterator[_TensorNames]:
    yield _TensorNames(f"{ours}.weight", f"{theirs}.weight", weight_axis)
    yield _TensorNames(f"{ours}.bias", f"{theirs}.bias", bias_axis, optional_bias)


def order(d_model: int) -> Int[np.ndarray, " d_model"]:
    """For each of Marian's dimensions ours: sines first, then cosines."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def to_marian(weights: Mapping[str, Array], settings: ModelSettings) -> dict[str, Array]:
    """Our weights with Marian's names and order, and zeros for missing biases."""
    permutation, theirs = order(settings.d_model), {}
    for names in _tensor_names(settings):
        if names.ours in weights:
            tensor = weights[names.ours]
            axis = names.d_model_axis
            theirs[names.theirs] = np.ascontiguousarray(tensor if axis is None else tensor.take(permutation, axis))
        else:
            width = len(weights["embedding.weight"]) if names.theirs == BIAS else settings.d_model
            theirs[names.theirs] = np.zeros(width, dtype=np.float32)
    theirs[BIAS] = theirs[BIAS][None]
    return theirs


def from_marian(weights: Mapping[str, Array], settings: ModelSettings) -> dict[str, Array]:
    """Marian's weights with our names and order. A KeyError names a missing tensor."""
    permutation, ours = np.argsort(order(settings.d_model)), {}
    for names in _tensor_names(settings):
        has_bias = settings.output_bias if names.theirs == BIAS else settings.attention_bias
        if names.optional and not has_bias:
            continue
        tensor, axis = weights[names.theirs], names.d_model_axis
        ours[names.ours] = np.ascontiguousarray(tensor if axis is None else tensor.take(permutation, axis))
    return ours
