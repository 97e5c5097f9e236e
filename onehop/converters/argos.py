"""`onehop import` of an Argos package: a ZIP with a CTranslate2 model, a SentencePiece model and the languages.

Nothing is unpacked to disk. Weights are copied as they are, int8 rows too. An unknown variable is refused by its name,
so that no model is read incompletely.
"""

import hashlib
import importlib
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onehop.atomic import json_object
from onehop.config import MOST_POSITIONS, ModelSettings, Settings, TokenizerSettings
from onehop.converters.ctranslate2 import NEEDS, greedy_search, logits_along
from onehop.converters.importing import Imported
from onehop.converters.parity import Logits
from onehop.converters.pieces import ImportedPieces, joint_pieces
from onehop.errors import ExportError, SettingsError
from onehop.model.loss import NEVER
from onehop.storage.ctranslate2_conversion import ACTIVATIONS, SUBLAYERS, sinusoids
from onehop.storage.ctranslate2_reading import read_variables
from onehop.storage.model_file import StoredModel
from onehop.storage.number_formats import Array, Int8Rows, Tensor
from onehop.storage.parameter_shapes import parameter_shapes
from onehop.text.tokenizer import BOS, EOS, UNK, Tokenizer, normalise

_METADATA, _WEIGHTS, _PIECES = "metadata.json", "model/model.bin", "sentencepiece.model"
_VOCABULARIES = ("model/shared_vocabulary.json", "model/shared_vocabulary.txt")
_LARGEST_FILE = 1 << 32  # maximum bytes of a file in a package: CTranslate2's sizes have 32 bits
_LARGEST_RATIO = 200  # maximum compression ratio: weights compress far less
_LONGEST = 512
_REFUSED = "It cannot be imported."
_AGAIN = "Download the package again."
_MARKS = {"pad": "<blank>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}

_Read = Callable[[str], bytes | None]


def is_argos(path: Path) -> bool:
    """Whether a path is a package, or the folder that Argos unpacks one into."""
    return path.suffix == ".argosmodel" or (path / _METADATA).is_file() or (path.is_file() and zipfile.is_zipfile(path))


def import_package(path: Path) -> Imported:
    read = _open_package(path)
    metadata = _json_object(read, _METADATA)
    languages = [metadata.get(name) for name in ("from_code", "to_code")]
    if metadata.get("type", "translate") != "translate" or not all(
        isinstance(code, str) and code for code in languages
    ):
        raise ExportError(f"{path} is not a translator of one language pair.", "Give another package.")
    weights = _required(read, _WEIGHTS)
    specification, variables = read_variables(weights, f"{_WEIGHTS} of {path.name}")
    if specification != "TransformerSpec":
        raise ExportError(
            f"{path} holds a {specification or 'model without a name'}.", "Only translators can be imported."
        )
    config = _json_object(read, "model/config.json", missing={})
    pieces = _read_pieces(read, config)
    model, tensors = _Converter(variables, config, pieces).convert()
    for name, shape in parameter_shapes(model, len(pieces.rows)).items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            raise ExportError(f"The weights of {path} have inconsistent shapes: see {name}.", _AGAIN)
    source, target = map(str, languages)
    stored = StoredModel(
        settings=Settings(model=model, tokenizer=TokenizerSettings(vocab_size=max(300, len(pieces.rows)))),
        tokenizer=pieces.model,
        source=source,
        target=target,
        provenance={
            "imported_from": {
                "format": "Argos package",
                "name": path.name,
                "version": str(metadata.get("package_version", "")),
                "sha256": hashlib.sha256(weights).hexdigest(),
            }
        },
        tensors=tensors,
    )
    return Imported(stored, pieces.rows)


# --- the package ----------------------------------------------------------------------------------------------


def _open_package(path: Path) -> _Read:
    """A function that reads a file of a package or its folder; it returns None if there is no such file."""
    if path.is_dir():
        return lambda name: (path / name).read_bytes() if (path / name).is_file() else None
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile):
        raise ExportError(f"{path} is not a readable package.", "Give an .argosmodel file.") from None
    root = next(
        (n.removesuffix(_METADATA) for n in archive.namelist() if re.fullmatch(rf"([^/]*/)?{_METADATA}", n)), ""
    )

    def read(name: str) -> bytes | None:
        try:
            member = archive.getinfo(root + name)
        except KeyError:
            return None
        if member.file_size > min(_LARGEST_FILE, _LARGEST_RATIO * (member.compress_size + 1000)):
            raise ExportError(f"{name} of {path} is too large for a package.", _AGAIN)
        try:
            return archive.read(member)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError):
            raise ExportError(f"{name} of {path} is damaged.", _AGAIN) from None
        except Exception as e:  # errors of zlib and lzma
            raise ExportError(f"{name} of {path} is damaged ({e}).", _AGAIN) from None

    return read


def _required(read: _Read, name: str) -> bytes:
    data = read(name)
    if data is None:
        raise ExportError(f"The package has no {name}.", "Give a package of Argos Translate.")
    return data


def _json_object(read: _Read, name: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JSON object; `missing` if there is no file."""
    data = read(name) if missing is not None else _required(read, name)
    value = missing if data is None else json_object(data)
    if value is None:
        raise ExportError(f"{name} is not a JSON object.", _AGAIN)
    return value


def _read_pieces(read: _Read, config: Mapping[str, Any]) -> ImportedPieces:
    """The tokenizer with our ids, and for each id the row of theirs."""
    name = next((name for name in _VOCABULARIES if read(name) is not None), None)
    if name is None:
        raise ExportError("The model has separate vocabularies of the two languages.", _REFUSED)
    try:
        text = _required(read, name).decode("utf-8")
        words = json.loads(text) if name.endswith("json") else text.removesuffix("\n").split("\n")
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(set(words)) < len(words):
        raise ExportError(f"{name} is not a list of pieces.", _AGAIN)
    ids = {word: i for i, word in enumerate(words)}
    unk = ids.get(str(config.get("unk_token") or _MARKS["unk"]))
    eos = ids.get(str(config.get("eos_token") or _MARKS["eos"]))
    bos = ids.get(str(config.get("decoder_start_token") or config.get("bos_token") or _MARKS["bos"]))
    if unk is None or eos is None or bos is None:
        raise ExportError(f"{name} lacks one of the special tokens {', '.join(_MARKS.values())}.", _AGAIN)
    pad = next((ids[mark] for mark in (_MARKS["pad"], "<pad>") if mark in ids), unk)
    model = _required(read, _PIECES)
    return joint_pieces(model, model, ids, (pad, unk, bos, eos))


# --- the model ------------------------------------------------------------------------------------------------


@dataclass
class _Converter:
    variables: dict[str, Array]
    config: Mapping[str, Any]
    pieces: ImportedPieces

    def convert(self) -> tuple[ModelSettings, dict[str, Tensor]]:
        if self.config.get("add_source_bos") or self.config.get("layer_norm_epsilon") not in (None, 1e-5):
            raise ExportError("The model has BOS in the source, or another ε in its layer norms.", _REFUSED)
        layers = [self.count(stack) for stack in ("encoder", "decoder")]
        tables = [self.matrix(name) for name in ("encoder/embeddings_0", "decoder/embeddings", "decoder/projection")]
        positions = [self.take(f"{stack}/position_encodings/encodings") for stack in ("encoder", "decoder")]
        tensors = self.embeddings(tables)
        bias = self.take("decoder/projection/bias", missing=np.zeros(tables[2].shape[0], "f4"))
        tensors |= self.output_bias(bias)
        biased = any(name.endswith("/bias") and "attention/linear" in name for name in self.variables)
        model = self.settings(layers, tables, positions, biased=biased)
        for stack, n_layers in zip(("encoder", "decoder"), layers, strict=True):
            if model.norm == "pre":
                tensors |= self.norm(f"{stack}/layer_norm", f"{stack}.last_norm")
            for i in range(n_layers):
                tensors |= self.layer(f"{stack}/layer_{i}", f"{stack}.layers.{i}", cross=stack == "decoder")
        if model.positions == "learned":
            for side, table in zip(("source_input", "target_input"), positions, strict=True):
                tensors[f"{side}.positions"] = np.ascontiguousarray(table[: model.max_length])
        self.refuse_unused_variables()
        shapes = parameter_shapes(model, len(self.pieces.rows))
        return model, {name: tensor for name, tensor in tensors.items() if name in shapes}

    def take(self, name: str, missing: Array | None = None) -> Array:
        """Take a variable; each is used once."""
        variable = self.variables.pop(name, missing)
        if variable is None:
            raise ExportError(f"The model has no {name}.", _REFUSED)
        return variable

    def flag(self, name: str, missing: float = 0) -> float:
        """A scalar that describes the model's shape."""
        scalar = self.take(name, missing=np.array(missing))
        if scalar.ndim:
            raise ExportError(f"{name} is not a number.", _AGAIN)
        return float(scalar)

    def count(self, stack: str) -> int:
        numbers = {int(n[1]) for name in self.variables if (n := re.match(rf"{stack}/layer_(\d{{1,4}})/", name))}
        if numbers != set(range(len(numbers))) or not numbers:
            raise ExportError(f"The {stack} lacks some or all of its layers.", _AGAIN)
        return len(numbers)

    def settings(
        self, layers: Sequence[int], tables: Sequence[Tensor], positions: Sequence[Array], *, biased: bool
    ) -> ModelSettings:
        d_model = tables[0].shape[-1]
        shared_heads = self.flag("num_heads", missing=8)  # older files have one for both stacks
        stacks = [self.stack(stack, shared_heads) for stack in ("encoder", "decoder")]
        if stacks[0] != stacks[1]:
            raise ExportError("Encoder and decoder differ in heads, norms or activation.", _REFUSED)
        heads, norm, activation = stacks[0]
        is_sinusoidal = all(
            table.ndim == 2 and table.shape[1] == d_model and np.allclose(table, sinusoids(*table.shape), atol=1e-4)
            for table in positions
        )
        longest = min(MOST_POSITIONS, *(len(table) for table in positions))
        first_linear = self.variables.get("encoder/layer_0/ffn/linear_0/weight")
        try:
            return ModelSettings(
                n_encoder_layers=layers[0],
                n_decoder_layers=layers[1],
                d_model=d_model,
                d_ff=1 if first_linear is None or not first_linear.ndim else len(first_linear),
                n_heads=heads,
                norm=norm,
                positions="sinusoidal" if is_sinusoidal else "learned",
                tied=all(_equal(tables[0], table) for table in tables[1:]),
                activation=activation,
                attention_bias=biased,
                output_bias=True,
                max_length=min(_LONGEST, longest) if is_sinusoidal else longest,
                source_end=None if self.config.get("add_source_eos") else False,
            )
        except SettingsError as e:
            raise ExportError(f"The model's shape is wrong: {e.what}", _AGAIN) from None

    def stack(self, stack: str, common: float) -> tuple[int, Literal["pre", "post"], Literal["relu", "swish", "gelu"]]:
        heads, scale = self.flag(f"{stack}/num_heads", missing=common), self.flag(f"{stack}/scale_embeddings", 1)
        norm: Literal["pre", "post"] = "pre" if self.flag(f"{stack}/pre_norm", 1) else "post"
        number = self.flag(f"{stack}/activation")
        activation: Any = {value: name for name, value in ACTIVATIONS.items()}.get(int(number))
        if scale != 1 or activation is None:
            raise ExportError(
                "The model has unscaled embeddings, or an activation that onehop does not have.", _REFUSED
            )
        return int(heads), norm, activation

    def embeddings(self, tables: Sequence[Tensor]) -> dict[str, Tensor]:
        """The three tables with rows in the order of our ids."""
        rows = np.array(self.pieces.rows)
        if any(len(_to_rows(table)) != 1 + rows.max() for table in tables):
            raise ExportError("The embeddings and the vocabulary differ in size.", _AGAIN)
        source, target, output = (_take_rows(table, rows) for table in tables)
        if self.starts_from_zero:
            for table in (source, target):
                _to_rows(table)[BOS] = 0
        return {"embedding.weight": source, "target_embedding.weight": target, "output.weight": output}

    @property
    def starts_from_zero(self) -> bool:
        """Whether the decoder starts with a zero vector; then BOS, which is never generated, is zero."""
        return bool(self.variables.get("decoder/start_from_zero_embedding", np.array(0)).any())

    def output_bias(self, bias: Array) -> dict[str, Tensor]:
        """The output bias of each token. Tokens that only we have are never generated."""
        rows = np.array(self.pieces.rows)
        if bias.shape != (1 + rows.max(),):
            raise ExportError("The output bias and the vocabulary differ in size.", _AGAIN)
        ours = bias[rows].astype(np.float32)
        ours[[*self.pieces.silent, *([BOS] if self.starts_from_zero else [])]] = NEVER
        self.variables.pop("decoder/start_from_zero_embedding", None)
        return {"output_bias": ours}

    def layer(self, theirs: str, ours: str, *, cross: bool) -> dict[str, Tensor]:
        """One layer; stacked matrices are split."""
        tensors: dict[str, Tensor] = {}
        for name, own_name, norm, matrices in SUBLAYERS:
            if cross or name != "attention":
                for i, stacked in enumerate(matrices):
                    own = [f"{ours}.{own_name}.{projection}" for projection in stacked]
                    tensors |= self.parts(f"{theirs}/{name}/linear_{i}", own)
                tensors |= self.norm(f"{theirs}/{name}/layer_norm", f"{ours}.{norm}.norm")
        return tensors

    def parts(self, theirs: str, ours: Sequence[str]) -> dict[str, Tensor]:
        """A matrix and its bias split into parts; a missing bias is zero."""
        whole = self.matrix(theirs)
        height = len(_to_rows(whole))
        bias = self.take(f"{theirs}/bias", missing=np.zeros(height, "f4"))
        if height % len(ours) or bias.shape != (height,):
            raise ExportError(f"{theirs} has a wrong shape.", _AGAIN)
        tensors: dict[str, Tensor] = {}
        for i, name in enumerate(ours):
            rows = np.arange(i * height // len(ours), (i + 1) * height // len(ours))
            tensors[f"{name}.weight"] = _take_rows(whole, rows)
            tensors[f"{name}.bias"] = np.ascontiguousarray(bias[rows], dtype=np.float32)
        return tensors

    def norm(self, theirs: str, ours: str) -> dict[str, Tensor]:
        return {
            f"{ours}.{name}": np.ascontiguousarray(self.take(f"{theirs}/{other}"), dtype=np.float32)
            for name, other in (("weight", "gamma"), ("bias", "beta"))
        }

    def matrix(self, name: str) -> Tensor:
        """A matrix; int8 rows have the inverse of our scale, int16 has one scale for all."""
        values, scale = self.take(f"{name}/weight"), self.variables.pop(f"{name}/weight_scale", None)
        if values.ndim != 2:
            raise ExportError(f"{name} is not a matrix.", _AGAIN)
        if values.dtype == np.float32:
            return values
        if scale is None or scale.size not in (1, len(values)) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise ExportError(f"{name} has no matching scales.", _AGAIN)
        inverse = np.broadcast_to(np.float32(1) / scale.astype(np.float32).reshape(-1), len(values))
        if values.dtype == np.int8:
            return Int8Rows(values, np.ascontiguousarray(inverse))
        return np.ascontiguousarray(values * inverse[:, None], dtype=np.float32)

    def refuse_unused_variables(self) -> None:
        """Refuse variables that were not used, except switches that are off."""
        for name in ("encoder/embeddings_merge", "decoder/alignment_layer", "decoder/alignment_heads"):
            self.variables.pop(name, None)
        for name, values in self.variables.items():
            if values.ndim or values.any():
                raise ExportError(f"The model has {name}, which onehop's model cannot express.", _REFUSED)


def _to_rows(table: Tensor) -> Array:
    """The stored rows of a matrix."""
    return table.values if isinstance(table, Int8Rows) else table


def _take_rows(table: Tensor, rows: Array) -> Tensor:
    if isinstance(table, Int8Rows):
        return Int8Rows(table.values[rows], table.scale[rows])
    return np.ascontiguousarray(table[rows])


def _equal(a: Tensor, b: Tensor) -> bool:
    if isinstance(a, Int8Rows) and isinstance(b, Int8Rows):
        return np.array_equal(a.values, b.values) and np.array_equal(a.scale, b.scale)
    return type(a) is type(b) and np.array_equal(_to_rows(a), _to_rows(b))


class ArgosOriginal:
    """A package run as Argos does, for comparison: SentencePiece tokens through CTranslate2, with greedy search."""

    libraries: tuple[str, ...] = NEEDS

    def __init__(self, path: Path, imported: Imported) -> None:
        ctranslate2: Any = importlib.import_module("ctranslate2")
        read = _open_package(path)
        names = ["model.bin", "config.json", *(name.removeprefix("model/") for name in _VOCABULARIES)]
        files = {name: data for name in names if (data := read(f"model/{name}")) is not None}
        self.model = ctranslate2.Translator(path.stem, device="cpu", intra_threads=1, files=files)
        self.computes: str = self.model.compute_type.split("_")[0]
        self.positions = imported.stored.settings.model.max_length
        self.rows, self.tokenizer = imported.rows, Tokenizer(imported.stored.tokenizer)
        self.id_of = {piece: i for i, (piece, _) in enumerate(self.tokenizer.vocabulary())}
        spm: Any = importlib.import_module("sentencepiece")
        self.pieces = spm.SentencePieceProcessor(model_proto=_required(read, _PIECES))

    def translate(self, text: str) -> str:
        """Translate with the package's own tokenizer."""
        result = greedy_search(self.model, self.pieces.encode(normalise(text), out_type=str))
        return str(self.pieces.decode([piece for piece in result.hypotheses[0] if piece != _MARKS["unk"]]))

    def logits(self, src: Sequence[int], tgt: Sequence[int]) -> Logits:
        """Logits along its own greedy path, reordered to our ids, as far as the path follows `tgt`."""
        source = src[:-1] if list(src[-1:]) == [EOS] else src
        result = greedy_search(self.model, self.tokenizer.tokens(source), with_logits=True)
        path = [self.id_of.get(piece, UNK) for piece in result.hypotheses[0]]
        return logits_along(tgt, path, result)[:, list(self.rows)]
