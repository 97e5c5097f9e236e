"""Fields of settings: their meaning, their range, and the error for a value that does not fit."""

import difflib
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields
from typing import Any, Literal, Union, get_args, get_origin

from onehop.errors import SettingsError


def setting(
    default: Any,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with its explanation and its valid range."""
    return field(default=default, metadata={"doc": doc, "least": least, "most": most, "below": below})


def check_fields(table: str, values: Any) -> None:
    """Refuse a value of the wrong type or outside its field's range."""
    for f in fields(values):
        value = getattr(values, f.name)
        if not _has_type(value, f.type):
            raise SettingsError(
                f"{table}.{f.name} is {value!r}.", f"It must be {_type_in_words(f.type)}: {f.metadata['doc']}."
            )
        _check_range(f"{table}.{f.name}", value, f)


def _check_range(name: str, value: Any, f: Field[Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    least, most, below = (f.metadata[k] for k in ("least", "most", "below"))
    if least is not None and not value >= least:
        raise SettingsError(f"{name} is {value}.", f"It must be at least {least}: {f.metadata['doc']}.")
    if most is not None and not value <= most:
        raise SettingsError(f"{name} is {value}.", f"It must be at most {most}: {f.metadata['doc']}.")
    if below is not None and not value < below:
        raise SettingsError(f"{name} is {value}.", f"It must be below {below}: {f.metadata['doc']}.")


def _has_type(value: Any, kind: Any) -> bool:
    """Whether a value has a declared type. A bool is not a number; an int is also a float."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return any(_has_type(value, k) for k in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(v, str) for v in value)
    if get_origin(kind) is Mapping:
        return isinstance(value, Mapping) and all(_has_type(v, float) and 0 <= v < math.inf for v in value.values())
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _type_in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(repr(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return "a list of strings"
    if get_origin(kind) is Mapping:
        return "a table of numbers that are at least 0"
    if get_origin(kind) in (Union, types.UnionType):
        return _type_in_words(next(k for k in get_args(kind) if k is not types.NoneType))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[kind]


def nearest(name: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """The known name that was probably meant, as a question; otherwise another remedy, or the list of names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"Did you mean {close[0]}?" if close else otherwise or f"There are: {', '.join(names)}."
