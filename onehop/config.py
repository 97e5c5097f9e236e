"""Settings: frozen dataclasses that read from and print as TOML, one explained line for each field.

A preset is a TOML file in `presets/`; a settings file of one's own has the same four tables and may leave out
what it does not change.
"""

import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from onehop.errors import SettingsError
from onehop.setting_fields import check_fields, nearest, setting

PRESETS = Path(__file__).with_name("presets")


# The upper bounds lie far above any model that trains. They keep a foreign file from asking for terabytes.
MOST_POSITIONS = 1 << 15


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The architecture, in the paper's names. The defaults are the paper's base model.

    What the paper's model lacks is unset there and left out of files, so that its files stay what they were.
    """

    kind: Literal["encoder", "decoder", "vision"] | None = setting(
        None, "one stack alone: encoder, decoder or vision; unset: the paper's two, a translator"
    )
    n_encoder_layers: int = setting(6, "N, layers of the encoder", least=1, most=1000)
    n_decoder_layers: int = setting(6, "N, layers of the decoder", least=1, most=1000)
    d_model: int = setting(512, "width of every layer's input and output", least=2, most=1 << 16)
    d_ff: int = setting(2048, "inner width of the feed-forward network", least=1, most=1 << 20)
    n_heads: int = setting(8, "h, attention heads a layer", least=1, most=1 << 16)
    d_k: int | None = setting(
        None, "width of one head's queries and keys; unset: d_model / n_heads", least=1, most=1 << 16
    )
    d_v: int | None = setting(None, "width of one head's values; unset: d_model / n_heads", least=1, most=1 << 16)
    dropout: float = setting(0.1, "on each sub-layer's output and on embedding + position", least=0.0, below=1.0)
    norm: Literal["post", "pre"] = setting("post", "layer norm after the residual sum (the paper) or before")
    positions: Literal["sinusoidal", "learned"] = setting("sinusoidal", "where word order comes from")
    tied: bool = setting(True, "one matrix for source embedding, target embedding and output projection")
    activation: Literal["relu", "swish", "gelu", "gelu_tanh"] = setting(
        "relu", "of the feed-forward network; the paper: relu"
    )
    attention_bias: bool = setting(False, "biases in the projections of attention; the paper: none")
    output_bias: bool = setting(False, "a bias for each piece's logit; the paper: none")
    max_length: int = setting(
        256, "longest sentence in tokens that is trained on or translated whole", least=2, most=MOST_POSITIONS
    )
    segments: int | None = setting(
        None, "kinds of text told apart by an embedding of their own, as in BERT", least=1, most=1024
    )
    input_norm: bool | None = setting(None, "layer norm on embedding + position, as in BERT")
    norm_epsilon: float | None = setting(None, "ε of every layer norm; unset: 1e-5", least=0.0, most=1.0)
    source_end: bool | None = setting(None, "the end mark stands behind the source; unset: it does; OpenNMT: false")
    image: int | None = setting(None, "vision: pixels of an image's side", least=1, most=1 << 16)
    patch: int | None = setting(None, "vision: pixels of a patch's side", least=1, most=1024)
    levels: int | None = setting(None, "vision: steps of grey from black to white", least=2, most=1 << 16)

    def __post_init__(self) -> None:
        check_fields("model", self)
        check_family(self)
        if self.d_model % 2:
            raise SettingsError(
                f"model.d_model is {self.d_model}, which is odd.",
                "Sines and cosines come in pairs: choose an even d_model.",
            )
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            raise SettingsError(
                f"model.d_model {self.d_model} is not divisible by model.n_heads {self.n_heads}.",
                "Change one of them, or set model.d_k and model.d_v.",
            )

    @property
    def epsilon(self) -> float:
        """ε of the layer norms, given or usual."""
        return 1e-5 if self.norm_epsilon is None else self.norm_epsilon

    @property
    def most_positions(self) -> float:
        """How long a sentence may be: a learned table of positions ends, sinusoids go on for ever."""
        return self.max_length if self.positions == "learned" else math.inf

    @property
    def key_width(self) -> int:
        """d_k, given or derived."""
        return self.d_k or self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        """d_v, given or derived."""
        return self.d_v or self.d_model // self.n_heads


# What only some members of the family have.
OF_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("segments", "input_norm", "norm_epsilon"), ("encoder", "decoder", "vision")),
    **dict.fromkeys(("image", "patch", "levels"), ("vision",)),
}


def check_family(model: ModelSettings) -> None:
    """Refuse settings that belong to another member of the family, and a vision model without its sizes."""
    for name, kinds in OF_KINDS.items():
        if getattr(model, name) is not None and model.kind not in kinds:
            which = " or ".join(f"model.kind={kind}" for kind in kinds)
            raise SettingsError(f"model.{name} is set in a model that has none.", f"Leave it out, or set {which}.")
    if model.activation == "gelu_tanh" and model.kind is None:
        raise SettingsError("model.activation gelu_tanh belongs to GPT-2's kind.", "Set model.kind=decoder, or gelu.")
    whole = model.image and model.patch and model.levels and model.image % model.patch == 0
    if model.kind == "vision" and not whole:
        raise SettingsError(
            f"model.image is {model.image}, model.patch {model.patch} and model.levels {model.levels}.",
            "A vision model needs all three, and whole patches in a side.",
        )
    if model.image and model.patch and (model.image // model.patch) ** 2 >= MOST_POSITIONS:
        raise SettingsError(
            f"An image of {model.image} pixels a side has more than {MOST_POSITIONS} patches of {model.patch} pixels.",
            "Set a larger model.patch.",
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How text becomes pieces."""

    vocab_size: int = setting(37000, "pieces in the joint vocabulary of both languages", least=300)
    sample: int = setting(500_000, "at most so many sentences are looked at to learn it", least=100)
    weights: Mapping[str, float] | None = setting(None, "sources more or less in that sample, as in train.weights")
    dropout: float = setting(0.0, "BPE-dropout: share of merges skipped at random in training", least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_fields("tokenizer", self)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which text is trained on and what is filtered out of it."""

    plain: Literal["lines", "paragraphs"] | None = setting(
        None, "text of one language, a text a line or up to an empty line; unset: parallel text"
    )
    source: str = setting("en", "language translated from")
    target: str = setting("de", "language translated into")
    train: tuple[str, ...] = setting((), "files with both sides (also *.tsv), or a pair written as name.{lang}")
    columns: tuple[str, ...] | None = setting(None, "names of both columns; unset: the languages, or source and target")
    valid: tuple[str, ...] = setting((), "files to validate on; empty: cut off the training pairs")
    mix: tuple[str, ...] | None = setting(None, "more training files, of which nothing is cut off to validate on")
    test: tuple[str, ...] = setting((), "files whose lines must not stand in the training pairs")
    valid_size: int = setting(2000, "pairs cut off for validation where no file is given", least=1)
    valid_most: int | None = setting(None, "at most so many pairs of each validation file; unset: all", least=1)
    longest: int = setting(250, "pairs with more pieces than this on a side are left out", least=2)
    ratio: float = setting(
        3.0, "pairs whose longer side has more than so many times the shorter's pieces are left out", least=1.0
    )
    alphabetic: float = setting(0.3, "least share of letters among the characters of a side", least=0.0, most=1.0)
    identical: bool = setting(True, "leave out pairs with two equal sides")
    duplicates: bool = setting(True, "leave out pairs that were there before")
    language: bool = setting(True, "leave out pairs plainly in another language, where the identifier is installed")

    def __post_init__(self) -> None:
        check_fields("data", self)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How the weights are found. The defaults are the paper's recipe for the base model."""

    steps: int = setting(100_000, "updates of the weights", least=1)
    batch_tokens: int = setting(25_000, "source tokens and as many target tokens in a batch; 0: what fits", least=0)
    weights: Mapping[str, float] | None = setting(None, "source = how often an epoch holds its pairs; unset: once")
    start_from: str = setting("", "a model, by file or name, whose weights are the first ones; empty: random")
    accumulate: int = setting(1, "batches whose gradients are added up for one update", least=1)
    warmup: int = setting(4000, "steps in which the learning rate grows", least=1)
    learning_rate: float = setting(0.0, "peak of the learning rate; 0: the paper's (d_model · warmup)^-0.5", least=0.0)
    decay: Literal["sqrt", "cosine"] = setting("sqrt", "after the warm-up: inverse square root or cosine to zero")
    beta1: float = setting(0.9, "Adam's first moment", least=0.0, below=1.0)
    beta2: float = setting(0.98, "Adam's second moment", least=0.0, below=1.0)
    epsilon: float = setting(1e-9, "Adam's ε", least=0.0)
    weight_decay: float = setting(0.0, "decoupled, on matrices only", least=0.0)
    clip: float = setting(0.0, "longest gradient; 0: any", least=0.0)
    label_smoothing: float = setting(0.1, "ε_ls", least=0.0, below=1.0)
    r_drop: float = setting(0.0, "weight of the divergence between two dropout passes; 0: one pass", least=0.0)
    ema: float = setting(0.0, "decay of the exponential average of the weights; 0: none", least=0.0, below=1.0)
    average: int = setting(5, "last checkpoints averaged at the end; 1: none", least=1)
    keep: int = setting(5, "checkpoints kept in the run folder", least=1)
    save_every: int = setting(1000, "steps between checkpoints", least=1)
    validate_every: int = setting(1000, "steps between validations", least=1)
    patience: int = setting(0, "validations without a better score before stopping; 0: never", least=0)
    report_every: int = setting(50, "steps between lines of the metrics file", least=1)
    watch: Literal["loss", "bleu"] = setting("loss", "the validation score that patience looks at")
    seed: int = setting(1, "of the weights, the order and the dropout", least=0)
    deterministic: bool = setting(False, "the same bits again on a GPU too, at some cost; a CPU gives them anyway")
    compile: bool = setting(True, "compile the step on a GPU")
    shard: bool = setting(False, "FSDP2: spread weights and optimiser over the processes")

    def __post_init__(self) -> None:
        check_fields("train", self)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a run depends on besides the data itself."""

    model: ModelSettings = field(default_factory=ModelSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    data: DataSettings = field(default_factory=DataSettings)
    train: TrainSettings = field(default_factory=TrainSettings)


TABLES: dict[str, type[Any]] = {
    "model": ModelSettings,
    "tokenizer": TokenizerSettings,
    "data": DataSettings,
    "train": TrainSettings,
}


# --- reading --------------------------------------------------------------------------------------------------


def settings_from_dict(tables: Mapping[str, Any]) -> Settings:
    """Build settings from nested tables, such as TOML or a model file holds."""
    parts: dict[str, Any] = {}
    for name, table in tables.items():
        if name not in TABLES:
            raise SettingsError(f"There is no table [{name}] in the settings.", nearest(name, TABLES))
        if not isinstance(table, Mapping):
            raise SettingsError(f"{name} is {table!r}.", f"It must be a table: [{name}].")
        parts[name] = table_from_dict(name, table)
    return Settings(**parts)


def table_from_dict(name: str, table: Mapping[str, Any]) -> Any:
    """Build one table, answering an unknown key with the nearest right one."""
    kind = TABLES[name]
    known = {f.name for f in fields(kind)}
    for key in table:
        if key not in known:
            raise SettingsError(f"There is no setting {name}.{key}.", nearest(key, known))
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in table.items()})


def settings_to_dict(settings: Settings) -> dict[str, dict[str, Any]]:
    """Nested plain tables, unset fields left out; the inverse of `settings_from_dict`."""
    return {
        table: {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None}
        for table, values in asdict(settings).items()
    }


def preset_names() -> list[str]:
    """Names of the presets, smallest model first."""
    files = {p.name.removesuffix(".toml") for p in PRESETS.iterdir()}
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
        return settings_from_dict(parse_toml(read_file(path), name))
    if name not in preset_names():
        raise SettingsError(f"There is no preset {name!r}.", nearest(name, preset_names()))
    text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
    return settings_from_dict(parse_toml(text, name))


def load_tables(file: str | Path) -> dict[str, Any]:
    """The tables of a settings file, with what it says and nothing else."""
    return parse_toml(read_file(Path(file)), str(file))


def with_tables(settings: Settings, tables: Mapping[str, Any]) -> Settings:
    """The settings with what some tables say instead."""
    merged: dict[str, Any] = settings_to_dict(settings)
    for name, table in tables.items():
        merged[name] = {**merged.get(name, {}), **table} if isinstance(table, Mapping) else table
    return settings_from_dict(merged)


def read_file(path: Path) -> str:
    """The text of a settings file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        remedy = f"Give a TOML file or a preset ({', '.join(preset_names())})."
        raise SettingsError(f"There is no settings file {path}.", remedy) from None
    except (OSError, UnicodeDecodeError) as e:
        raise SettingsError(f"The settings file {path} cannot be read: {e}.", "Give a TOML text file.") from None


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML, with the place of a mistake in the message."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as e:  # the second where brackets are nested too deep
        raise SettingsError(f"{name} is not valid TOML: {e}.", "Correct that line.") from None


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
        tables[table][key] = parse_value(text.strip())
    return settings_from_dict(tables)


def parse_value(text: str) -> Any:
    """A TOML value; what is none is taken as a string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text  # more than a value: lines that follow it


# --- printing -------------------------------------------------------------------------------------------------


def settings_to_toml(settings: Settings, *, explained: bool = True) -> str:
    """The settings as TOML; `explained` puts each field's meaning behind it."""
    blocks = []
    for table in TABLES:
        values = getattr(settings, table)
        lines = [toml_line(values, f, explained) for f in fields(values)]
        blocks.append("\n".join([f"[{table}]", *(line for line in lines if line)]))
    return "\n\n".join(blocks) + "\n"


def toml_line(values: Any, f: Field[Any], explained: bool) -> str:
    """One field as `key = value  # meaning`; an unset one is shown as a comment, or not at all."""
    value = getattr(values, f.name)
    if value is None:
        return f"# {f.name:<26}  # {f.metadata['doc']}" if explained else ""
    line = f"{f.name} = {toml_value(value)}"
    return f"{line:<28}  # {f.metadata['doc']}" if explained else line


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML takes JSON's strings, but wants DEL escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_value(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)
