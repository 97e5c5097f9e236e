"""The steps of `onehop serve` before uvicorn: settings, models, keys. It imports no web framework."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from onehop.errors import SettingsError, is_installed, require
from onehop.pipelines.route import Pair
from onehop.server.settings import ServerSettings
from onehop.setting_fields import nearest
from onehop.storage.model_label import describe
from onehop.storage.registry import SMALL, default_model, find_model, installed, model_for, short_name, translators

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The address to listen on, the number of processes, proxies, and whether the explorer is served."""

    host: str = "127.0.0.1"
    port: int = 5000
    workers: int = 1
    proxies: str | None = None  # addresses whose X-Forwarded-For is trusted
    explore: bool | None = None  # by default only on a loopback address, and if torch is installed

    @property
    def explores(self) -> bool:
        """Whether the explorer is served. It uses all cores for a while, so strangers get it only on request."""
        return self.host in _LOOPBACK and is_installed("torch") if self.explore is None else self.explore

    @property
    def hosts(self) -> tuple[str, ...]:
        """The allowed Host headers on a loopback address; none allows any, as behind a proxy."""
        return ("127.0.0.1", "[::1]", "localhost") if self.host in _LOOPBACK and self.proxies is None else ()


def models_of(names: Sequence[str] | None) -> list[Path]:
    """The model files to serve; without names, every installed pair, with its small model."""
    if names:
        return _full_ones_first([find_model(name) for name in names])
    known, paths = translators(), installed()
    if not known:
        return [find_model()]
    default = default_model(known)
    first = [known[default]] if default else []
    pairs = dict.fromkeys([*first, *known.values()])
    models = {pair: model_for(pair, known) for pair in pairs}
    small = [f"{name}{SMALL}" for pair, name in models.items() if known.get(f"{name}{SMALL}") == pair]
    return [paths[name] for name in (*models.values(), *small)]


def _full_ones_first(paths: Sequence[Path]) -> list[Path]:
    """Models with the small ones last. Two of one form are refused, since requests do not name models."""
    known: dict[tuple[Pair, bool], Path] = {}
    for path in paths:
        pair, is_small = describe(path).pair, short_name(path).endswith(SMALL)
        if (other := known.get((pair, is_small))) is not None:
            what = f"{other} and {path} both translate from {pair[0]} to {pair[1]}."
            raise SettingsError(
                what, f"Give one model for each pair of languages, and NAME{SMALL} for the quality fast."
            )
        known[pair, is_small] = path
    behind = [path for (pair, is_small), path in known.items() if is_small and (pair, False) in known]
    return [path for path in known.values() if path not in behind] + behind


def limits_of(changes: Sequence[str], **more: Any) -> ServerSettings:
    known = {f.name: f for f in fields(ServerSettings) if f.type in (int, float)}
    values: dict[str, Any] = dict(more)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise SettingsError(f"{change!r} changes nothing.", "Write KEY=VALUE.")
        if key not in known:
            raise SettingsError(f"There is no limit {key}.", nearest(key, known))
        try:
            values[key] = known[key].type(value)  # type: ignore[operator]
        except ValueError:
            raise SettingsError(f"{key} is {value!r}.", "It must be a number.") from None
    return ServerSettings(**values)


def serve(models: Sequence[Path], settings: ServerSettings, options: ServeOptions, **engine: Any) -> None:
    require("prometheus_client", "pydantic", "starlette", "uvicorn", *["torch"] * options.explores)
    from onehop.server import run

    run.run(models, settings, options, **engine)
