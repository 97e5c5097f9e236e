"""Checks before a training starts: the store and the initial model must fit the settings."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from onehop.config import Settings
from onehop.data.store import REMAKE, SIDES, SPLITS, Store
from onehop.errors import ModelFileError, RunError, StoreError
from onehop.storage.checkpoint_arrays import broken_checkpoint_error
from onehop.storage.model_file import StoredModel
from onehop.storage.model_io import read_model
from onehop.storage.registry import copy_alpha, named_model
from onehop.storage.run_folder import Checkpoint
from onehop.text.tokenizer import vocabulary_of


def check_fits(settings: Settings, store: Store) -> None:
    """Refuse a store that is damaged, has no sentences, or longer ones than the model's."""
    _check_kind(settings.model.kind, store)
    store.verify()
    _check_ids(settings, store)
    longest = 0
    for split in SPLITS:
        pairs = store.pairs(split)
        if not len(pairs):
            raise StoreError(f"The store {store.path} has no {split} pairs.", "Prepare more text.")
        longest = max(longest, int(max(pairs.src_lengths.max(), pairs.tgt_lengths.max())) + 1)
    if longest > settings.model.max_length:
        raise StoreError(
            f"The store has a sentence of {longest} tokens, and model.max_length is {settings.model.max_length}.",
            f"Set model.max_length={longest}, or prepare with data.longest={settings.model.max_length - 1}.",
        )
    # An epoch of weighted pairs may lack the longest one, so all are checked: the run must not fail later.
    if 0 < settings.train.batch_tokens < longest:
        raise StoreError(
            f"The store has a sentence of {longest} tokens, and train.batch_tokens is {settings.train.batch_tokens}.",
            f"Set train.batch_tokens to at least {longest}, or prepare with a smaller data.longest.",
        )


def _check_ids(settings: Settings, store: Store) -> None:
    """Refuse ids that the model has no embedding for, and sentences that are not contiguous."""
    vocab_size = vocabulary_of(store.tokenizer).vocab_size
    limits = (settings.model.levels or vocab_size, vocab_size)  # a vision model's source is shades of grey
    for split in SPLITS:
        pairs = store.pairs(split)
        for name, side, limit in zip(SIDES, (pairs.source, pairs.target), limits, strict=True):
            ends = [0, *side.ends[-1:]]
            if len(side) != len(pairs) or ends[-1] != len(side.ids) or (len(side) and side.lengths.min() < 0):
                raise StoreError(f"The token store {store.path} is damaged: {split}.{name}.ends do not fit.", REMAKE)
            if len(side.ids) and (greatest := int(side.ids.max())) >= limit:
                raise StoreError(
                    f"The token store {store.path} has the id {greatest} in {split}.{name}.ids, of {limit} ids.", REMAKE
                )


# The training data of each kind of model.
TRAINING_DATA = {None: "parallel text", "decoder": "plain text", "encoder": "plain text", "vision": "images"}


def _check_kind(kind: str | None, store: Store) -> None:
    """Refuse a store for another kind of model."""
    if store.holds != TRAINING_DATA[kind]:
        kinds = [k for k, data in TRAINING_DATA.items() if data == store.holds]
        fitting = " or ".join(f"model.kind={k}" if k else "no model.kind" for k in kinds)
        raise StoreError(
            f"The store {store.path} holds {store.holds}, and this model is trained on {TRAINING_DATA[kind]}.",
            f"Give another store, or settings with {fitting}.",
        )


def initial_model(settings: Settings, store: Store, model: nn.Module) -> StoredModel:
    """The model that training starts from, if it fits."""
    file = named_model(settings.train.start_from)
    start = read_model(file)
    if start.tokenizer != store.tokenizer:
        raise RunError(
            f"{file} has another tokenizer than the store.", "Prepare the text with `--tokenizer` of that model."
        )
    if {n: p.shape for n, p in model.named_parameters()} != {n: t.shape for n, t in start.tensors.items()}:
        raise RunError(f"{file} has another shape than this model.", "Give this one the same [model] settings.")
    return start


def check_resumable(checkpoint: Checkpoint, model: nn.Module, folder: Path) -> None:
    """Refuse a checkpoint with other tensors than the model's: copying would broadcast a wrong shape."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    if {name: array.shape for name, array in checkpoint.weights.items()} != shapes:
        raise broken_checkpoint_error(
            folder / "weights.safetensors", ValueError("its tensors are not those of the model")
        )
    kinds: dict[str, dict[str, Any]] = {}
    for name, array in checkpoint.optimizer.items():
        kind, _, parameter = name.partition(".")
        kinds.setdefault(kind, {})[parameter] = array.shape
    expected: dict[str, dict[str, Any]] = {"exp_avg": shapes, "exp_avg_sq": shapes, "step": dict.fromkeys(shapes, ())}
    if "ema" in kinds:
        expected["ema"] = shapes
    if kinds and kinds != expected:
        raise broken_checkpoint_error(
            folder / "optimizer.safetensors", ValueError("its tensors are not those of the model")
        )


def inherit_alpha(settings: Settings, file: Path) -> None:
    """Copy the length penalty of the initial model to the new one, if that file still exists."""
    if settings.train.start_from:
        with suppress(ModelFileError):
            copy_alpha(named_model(settings.train.start_from), file)
