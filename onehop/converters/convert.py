"""`onehop export` and `onehop import`: convert a model for or from another program, and compare the two."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop import atomic
from onehop.converters.parity import SENTENCES, Parity, compare
from onehop.errors import ExportError, is_installed, require, write_errors
from onehop.setting_fields import nearest
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_label import check_kind
from onehop.storage.registry import default_alpha, named_model

if TYPE_CHECKING:
    from onehop.converters import bert

# Each is a module here with NEEDS, write(stored, folder) and a class that runs the result.
TARGETS = {"huggingface": "HuggingFace", "onnx": "Onnx", "ctranslate2": "CTranslate2"}
_PARITY = "parity.json"


def export(model: str | Path, target: str, folder: Path, sentences: Sequence[str] = SENTENCES) -> Parity:
    """Write a model file for another program into a new folder, and compare the two there."""
    if target not in TARGETS:
        raise ExportError(f"There is no export to {target!r}.", nearest(target, TARGETS))
    module: Any = importlib.import_module(f"onehop.converters.{target}")
    require(*module.NEEDS)
    model = named_model(str(model))
    check_kind(model, None)
    stored = read_model(model)
    if stored.settings.model.source_end is False and target != "ctranslate2":
        what = f"The model reads sources without EOS, which --to {target} cannot express."
        raise ExportError(what, "Use --to ctranslate2, which supports it.")
    alpha = default_alpha(model)
    search = {"alpha": alpha} if target == "huggingface" and alpha is not None else {}  # other formats do not store it
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} already exists.", "Remove it, or choose another place with -o.")
    with write_errors(folder, "Choose another path.", ExportError), atomic.new_folder(folder) as partial:
        module.write(stored, partial, **search)
    parity = compare(stored, target, getattr(module, TARGETS[target])(folder), sentences)
    parity.write(folder / _PARITY)
    return parity


def import_folder(folder: Path, out: Path, sentences: Sequence[str] = SENTENCES) -> "Parity | bert.VectorParity | None":
    """Make a model file from an Argos package or a Hugging Face folder, Marian or BERT.

    It is compared with the original; for Hugging Face only if transformers is installed.
    """
    from onehop.converters import argos, bert, huggingface
    from onehop.converters.importing import import_marian

    has_original = is_installed(huggingface.NEEDS[0])
    parity: Parity | bert.VectorParity | None = None
    if argos.is_argos(folder):
        require("google.protobuf")
        package = argos.import_package(folder)
        file = write_model(out, package.stored)
        parity = compare(package.stored, "ctranslate2", argos.ArgosOriginal(folder, package), sentences)
    elif bert.is_bert(folder):
        encoder = bert.import_bert(folder)
        file = write_model(out, encoder)
        if has_original:
            parity = bert.compare_vectors(encoder, folder, sentences)
    else:
        require("google.protobuf")
        marian = import_marian(folder)
        file = write_model(out, marian.stored)
        if has_original:
            parity = compare(marian.stored, "huggingface", huggingface.HuggingFace(folder, marian.rows), sentences)
    if parity is not None:
        parity.write(file.with_suffix(f".{_PARITY}"))
    return parity
