"""Models by name: those in the user's folder, the one that comes with onehop, and those of installed model packages.

In a folder a model is NAME.safetensors or NAME/model.safetensors, with its card.md beside it. A model package holds
model.safetensors and names itself in the entry point group `onehop.models`.
"""

import importlib.util
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from onehop.errors import ModelFileError, OnehopError, SettingsError, write_errors
from onehop.setting_fields import nearest
from onehop.storage.model_label import PART, SUFFIX, Label, describe, find_head, with_suffix

MODEL = f"model{SUFFIX}"
CARD = "card.md"
SEARCH = ".search.toml"
GROUP = "onehop.models"
DEFAULT = "en-de"
_DEFAULTS = "defaults.json"  # in the user's folder
_Pair = tuple[str, str]
Defaults = dict[str, _Pair]  # name and languages of each, in the order of the choices
PACKAGED = ("en-de-small", "de-en", "en-fr", "fr-en")  # the models in the repository's packages/
PIVOT = "en"  # the language between two models
SMALL = "-small"  # NAME-small is the fast form of NAME: it is never ambiguous with it
Quality = Literal["best", "fast"]  # the model NAME, or NAME-small


def user_folder() -> Path:
    """ONEHOP_MODELS, else the system's data folder for onehop: on Linux XDG_DATA_HOME or ~/.local/share."""
    if chosen := os.environ.get("ONEHOP_MODELS"):
        return Path(chosen)
    try:
        from platformdirs import user_data_path
    except ImportError:  # torch translates and trains without it
        return Path.home() / ".local" / "share" / "onehop" / "models"
    return user_data_path("onehop", appauthor=False) / "models"


def package_folder() -> Path:
    """Where a model that comes with the package lies."""
    return Path(__file__).parent.with_name("models")


def model_packages() -> dict[str, Path]:
    """The models that installed packages bring, by name; none of them is imported."""
    # Listing all packages takes longer than translating a sentence, so it is repeated only when a folder changes.
    return _packages_in(tuple((folder, os.stat(folder).st_mtime_ns) for folder in sys.path if os.path.isdir(folder)))


@lru_cache(1)
def _packages_in(folders: tuple[tuple[str, int], ...]) -> dict[str, Path]:
    """The models of packages, cached until one of these folders changes."""
    from importlib.metadata import entry_points

    models = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        spec = importlib.util.find_spec(entry.value)
        if spec is not None and spec.origin is not None:
            models[entry.name] = Path(spec.origin).with_name(MODEL)
    return models


def installed() -> dict[str, Path]:
    """Every model by its name; a user's model shadows others of the same name."""
    return model_packages() | _in_folders()


def _in_folders() -> dict[str, Path]:
    """Models in the user's folder and in this package, found without listing all packages."""
    models: dict[str, Path] = {}
    for folder in (user_folder(), package_folder()):
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            if not re.fullmatch(f".+{PART}{SUFFIX}", file.name):
                models.setdefault(file.name.removesuffix(SUFFIX), file)
        for file in sorted(folder.glob(f"*/{MODEL}")):
            models.setdefault(file.parent.name, file)
    return models


def labels() -> dict[str, Label]:
    """The label of each installed model; files that are not models are left out."""
    readable = {}
    for name, path in installed().items():
        with suppress(OnehopError):
            readable[name] = describe(path)
    return readable


def name_of(path: Path) -> str:
    """The name of an installed model; the path of another one."""
    same = (
        name
        for models in (_in_folders, installed)
        for name, file in models().items()
        if file.absolute() == path.absolute()
    )
    return next(same, str(path))


def short_name(path: Path) -> str:
    """The name of an installed model, or the name that a file would have if installed. Clients never see a path."""
    name = name_of(path)
    if name != str(path):
        return name
    head = find_head(path)
    return head.resolve().parent.name if head.name == MODEL else head.stem


def translators() -> dict[str, _Pair]:
    """The languages of every installed model that translates, by its name."""
    return {name: label.pair for name, label in labels().items() if label.kind is None}


def find_model(
    name: str | None = None, source: str | None = None, target: str | None = None, quality: Quality | None = None
) -> Path:
    """The model file of a name or path, or the installed model for the languages.

    If nothing is asked for, it is the default that was chosen last, else en-de. `quality` "fast" takes the small form
    of that model, "best" the full form of a small one. A model that is named must have the quality that is asked for.
    """
    path = _chosen_model(source, target) if name is None else named_model(name)
    _check_languages(path, source, target)
    return path if quality is None else _of_quality(path, quality, named=name is not None)


def _of_quality(path: Path, quality: Quality, *, named: bool) -> Path:
    """The small form of a model, or the full one; it is never replaced by another model."""
    if quality not in get_args(Quality):
        raise SettingsError(f"There is no quality {quality!r}.", "Give best or fast.")
    name = short_name(path)
    wanted = name.removesuffix(SMALL) + SMALL * (quality == "fast")
    if name == wanted:
        return path
    if named:
        what = f"The model {name} is named, but --quality {quality} asks for {wanted}."
        raise SettingsError(what, "Leave out --model or --quality.")
    pair = describe(path).pair
    if translators().get(wanted) == pair:
        return installed()[wanted]
    form = "small" if quality == "fast" else "full"
    what = (
        f"No {form} model from {pair[0]} to {pair[1]} is installed: --quality {quality} needs {wanted} beside {name}."
    )
    others = [other for other, languages in translators().items() if languages == pair and other.endswith(SMALL)]
    if quality == "fast" and others:
        raise ModelFileError(what, f"Install it, or name another with --model, such as {others[0]}.")
    package = f" (pip install packages/onehop-{wanted} in a checkout)" if wanted in PACKAGED else ""
    remedy = f"Install its package{package}, put {wanted}{SUFFIX} into {user_folder()}, or leave out --quality."
    raise ModelFileError(what, remedy)


def named_model(name: str) -> Path:
    """A file, a folder with a model in it, or an installed model."""
    path = Path(name)
    if os.path.isfile(path) or (path.name and os.path.isfile(with_suffix(path))):
        return path
    if name and os.path.isfile(path / MODEL):
        return path / MODEL
    if own := _in_folders().get(name):
        return own
    models = installed()
    if name in models:
        return models[name]
    if name and os.path.isdir(path):
        raise ModelFileError(f"The folder {name} has no {MODEL}.", _how_to_get_one(list(labels())))
    # A path is not the name of an installed model: the error of reading it says more.
    if os.sep in name or path.suffix == SUFFIX:
        return path
    if remedy := _install_remedy([name]):
        raise ModelFileError(f"The model {name} is not installed.", remedy)
    raise ModelFileError(f"There is no model {name!r}.", nearest(name, models, _how_to_get_one(list(labels()))))


def _chosen_model(source: str | None, target: str | None) -> Path:
    """The only installed model for the given languages. An ambiguous choice is an error."""
    if source is None and target is None and not defaults() and (own := _own_default()):
        return own
    known = translators()
    if source is None and target is None and (default := default_model(known)):
        return installed()[default]
    pairs = {pair for pair in known.values() if source in (None, pair[0]) and target in (None, pair[1])}
    if not pairs:
        raise _no_model(source, target)
    if len(pairs) == 1:
        return installed()[model_for(pairs.pop(), known)]
    names = [name for name, pair in known.items() if pair in pairs]
    sides = [side for i, side in enumerate(("--from", "--to")) if len({pair[i] for pair in pairs}) > 1]
    remedy = f"Choose one with --model, or give {' and '.join(sides)}."
    raise ModelFileError(f"Several models are installed: {', '.join(names)}.", remedy)


def _own_default() -> Path | None:
    """en-de, if it is a translator in the user's folder or this package: then no other model is searched."""
    path = _in_folders().get(DEFAULT)
    with suppress(OnehopError):
        if path and describe(path).kind is None:
            return path
    return None


def default_model(known: Mapping[str, _Pair]) -> str | None:
    """The model where no language is named: the default that was chosen last, else en-de."""
    chosen = list(defaults().items())
    if chosen:
        return model_for(chosen[-1][1], known)
    return DEFAULT if DEFAULT in known else None


def model_for(pair: _Pair, known: Mapping[str, _Pair]) -> str:
    """The name of the model for two languages: the only one, or the user's default."""
    names = [name for name, other in known.items() if other == pair]
    rivals = [name for name in names if name.removesuffix(SMALL) not in set(names) - {name}]
    chosen = next((name for name, other in defaults().items() if other == pair), None)
    if chosen in names:
        return chosen
    if chosen is not None:
        what = f"{chosen}, your default from {pair[0]} to {pair[1]}, is no longer installed."
        raise ModelFileError(what, f"Choose another: onehop models default NAME, or --unset {chosen}.")
    if len(rivals) == 1:
        return rivals[0]
    what = f"Several models translate from {pair[0]} to {pair[1]}: {', '.join(sorted(rivals))}."
    raise ModelFileError(what, "Choose one with --model, or for good: onehop models default NAME.")


def _no_model(source: str | None, target: str | None) -> ModelFileError:
    """The error if no model has the languages; it lists the available pairs."""
    known, readable = translators(), labels()
    pair = f" from {source or 'any language'} to {target or 'any language'}" if source or target else ""
    unread = [str(path) for name, path in installed().items() if name not in readable]
    besides = f", and {' and '.join(unread)} cannot be read" if unread else ""
    direct = list(dict.fromkeys(known.values()))
    halves = [(a, b) for a, x in direct for y, b in direct if x == y == PIVOT]
    through = [(a, PIVOT, b) for a, b in halves if a != b and (a, b) not in direct]
    pairs = ", ".join(" → ".join(way) for way in (*direct, *through))
    remedy = f"Choose one of {pairs}, or install a model for yours." if pairs else _how_to_get_one([])
    ways = [tuple(name.split("-")) for name in PACKAGED if not name.endswith(SMALL)]
    ways = [(a, b) for a, b in ways if pair and source in (None, a) and target in (None, b)]
    if not ways and source and target:  # both halves of the way through English, unless they are installed
        ways = [way for way in ((source, PIVOT), (PIVOT, target)) if way not in direct]
    return ModelFileError(
        f"No model{pair} is installed{besides}.", _install_remedy(list(map("-".join, ways))) or remedy
    )


def _install_remedy(names: Sequence[str]) -> str:
    """How to install models that the repository has as packages; empty if it lacks one of them."""
    if not names or not set(names) <= set(PACKAGED):
        return ""
    return f"Install it from a checkout: pip install {' '.join(f'packages/onehop-{name}' for name in names)}"


def _how_to_get_one(names: list[str]) -> str:
    """The remedy where no model is found."""
    if names:
        return f"Give a {SUFFIX} file, or one that is installed: {', '.join(names)}."
    made = f"Give a {SUFFIX} file (onehop train makes one, onehop demo reverse a small one)"
    return f"{made}, or put it into {user_folder()}."


def _check_languages(path: Path, source: str | None, target: str | None) -> None:
    """Refuse a model for other languages than those that are asked for."""
    own_source, own_target = describe(path).pair
    if source not in (None, own_source) or target not in (None, own_target):
        wanted = f"{source or own_source} to {target or own_target}"
        what = f"{path} translates from {own_source} to {own_target}, not from {wanted}."
        raise SettingsError(what, "Choose another model, or leave out --from and --to.")


def default_alpha(path: Path) -> float | None:
    """The model's α for the length penalty, from the file beside it; None if there is none."""
    file = find_head(path).with_suffix(SEARCH)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise ModelFileError(f"{file} cannot be read: {e}.", "Correct it or remove it.") from None
    alpha = content.pop("alpha", None)
    if content or isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 100:
        raise ModelFileError(
            f"{file} must hold alpha and nothing else.", "Write one line into it, such as alpha = 0.6."
        )
    return float(alpha)


def copy_alpha(model: Path, to: Path) -> None:
    if (alpha := default_alpha(model)) is not None:
        find_head(to).with_suffix(SEARCH).write_text(f"alpha = {alpha:g}\n", encoding="utf-8")


def card(path: Path) -> str | None:
    file = path.with_name(CARD)
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


def defaults() -> Defaults:
    """The models that the user has chosen, with their languages; empty if there is no file.

    The last choice is also used if neither a model nor a language is named.
    """
    file = user_folder() / _DEFAULTS
    try:
        content = json.loads(file.read_bytes())
        return {str(name): (str(source), str(target)) for name, (source, target) in content.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        raise ModelFileError(
            f"{file} cannot be read.", "Remove it and choose a default again: onehop models default NAME."
        ) from None


def _write_defaults(chosen: Defaults) -> None:
    from onehop.atomic import write_json  # only here: every start reads the choices

    file = user_folder() / _DEFAULTS
    remedy = "Check the folder's permissions, or set ONEHOP_MODELS to another folder."
    with write_errors(file, remedy, ModelFileError):
        if not chosen:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, chosen)


def make_default(name: str) -> str:
    """Make an installed translator the default for its languages, and where none is named; what to say about it."""
    pair = translators().get(name)
    if pair is None:
        named_model(name)  # names that are nearly right get an error of their own
        what = f"{name} is not the name of an installed translator."
        raise ModelFileError(what, "See `onehop models list`; a file gets a name in the folder that it lists.")
    others = {other: languages for other, languages in defaults().items() if languages != pair}
    _write_defaults({**others, name: pair})
    return f"{name} is the default from {pair[0]} to {pair[1]}, and where no language is named."


def unset_default(name: str | None) -> str:
    """Forget a default, or all of them; what to say about it."""
    known = defaults()
    if name is not None and name not in known:
        remedy = f"Defaults: {', '.join(known)}." if known else "No default is set."
        raise ModelFileError(f"{name} is not a default.", remedy)
    _write_defaults({other: pair for other, pair in known.items() if name not in (None, other)})
    return f"No longer a default: {', '.join(known) if name is None else name}." if known else "No default is set."


def list_defaults() -> Iterator[str]:
    """A line for each default, the one that counts without languages last."""
    known = defaults()
    if not known:
        yield f"No default is set. Where no language is named, {DEFAULT} translates."
    for name, (source, target) in known.items():
        also = ", and where no language is named" if name == list(known)[-1] else ""
        yield f"{name}: from {source} to {target}{also}"


def list_installed() -> Iterator[str]:
    """A line for each model, also for one that cannot be read, or what to do where there is none."""
    models = installed()
    if not models:
        yield f"No model is installed. {_how_to_get_one([])}"
    width, chosen = max(map(len, models), default=0), defaults()
    for name, path in models.items():
        try:
            label = describe(path)
            mark = " (default)" if name in chosen else ""
            yield f"{name:<{width}}  {label.content['source']} → {label.content['target']}{mark}  {path}"
        except OnehopError as e:
            yield f"{name:<{width}}  {e}"
