"""`onehop export` and `onehop import`: convert a model for or from another program, and compare the two."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop import atomic
from onehop.converters.parity import SENTENCES, Parity, compare, read_sentences
from onehop.errors import ExportError, is_installed, require
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
    module = _target_module(target)
    require(*module.NEEDS)
    model = named_model(str(model))
    check_kind(model, None)
    stored = read_model(model)
    if stored.settings.model.source_end is False and target != "ctranslate2":
        what = f"The model reads sources without EOS, which --to {target} cannot express."
        raise ExportError(what, "Use --to ctranslate2, which supports it.")
    alpha = default_alpha(model)
    search = {"alpha": alpha} if target == "huggingface" and alpha is not None else {}  # other formats do not store it
    with _export_folder(folder) as beside:
        module.write(stored, beside, **search)
    parity = compare(stored, target, getattr(module, TARGETS[target])(folder), sentences)
    parity.write(folder / _PARITY)
    return parity


def import_folder(folder: Path, out: Path, sentences: Sequence[str] = SENTENCES) -> "Parity | bert.VectorParity | None":
    """Make a model file from an Argos package or a Hugging Face folder, Marian or BERT.

    It is compared with the original; for Hugging Face only if transformers is installed.
    """
    from onehop.converters import argos, bert, huggingface
    from onehop.converters.importing import import_marian

    if argos.is_argos(folder):
        return _import_argos(folder, out, sentences)
    if bert.is_bert(folder):
        return _import_encoder(folder, out, sentences)
    require("google.protobuf")
    imported = import_marian(folder)
    file = write_model(out, imported.stored)
    if not is_installed(huggingface.NEEDS[0]):
        return None
    parity = compare(imported.stored, "huggingface", huggingface.HuggingFace(folder, imported.rows), sentences)
    parity.write(file.with_suffix(f".{_PARITY}"))
    return parity


def _import_argos(package: Path, out: Path, sentences: Sequence[str]) -> Parity:
    """Import an Argos package, and compare it with CTranslate2, which Argos uses."""
    from onehop.converters import argos
    from onehop.converters.argos_original import ArgosOriginal

    require("google.protobuf")
    imported = argos.import_package(package)
    file = write_model(out, imported.stored)
    parity = compare(imported.stored, "ctranslate2", ArgosOriginal(package, imported), sentences)
    parity.write(file.with_suffix(f".{_PARITY}"))
    return parity


def _import_encoder(folder: Path, out: Path, sentences: Sequence[str]) -> "bert.VectorParity | None":
    """Import an encoder, and compare sentence vectors."""
    from onehop.converters import bert, huggingface

    stored = bert.import_bert(folder)
    file = write_model(out, stored)
    if not is_installed(huggingface.NEEDS[0]):
        return None
    parity = bert.compare_vectors(stored, folder, sentences)
    parity.write(file.with_suffix(f".{_PARITY}"))
    return parity


def sentences_of(file: Path | None) -> Sequence[str]:
    """The sentences to compare: a file's lines, or the built-in ones."""
    return SENTENCES if file is None else read_sentences(file)


def _target_module(target: str) -> Any:
    if target not in TARGETS:
        raise ExportError(f"There is no export to {target!r}.", nearest(target, TARGETS))
    return importlib.import_module(f"onehop.converters.{target}")


@contextmanager
def _export_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `out` on success."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} already exists.", "Remove it, or choose another place with -o.")
    try:
        with atomic.new_folder(folder) as beside:
            yield beside
    except OSError as e:
        raise ExportError(f"{folder} cannot be written ({e.strerror}).", "Choose another path.") from None
