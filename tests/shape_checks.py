"""Checks the types and shapes in signatures with beartype and jaxtyping, fast enough for all tests.

jaxtyping's own decorator checks every argument twice and binds every call to its signature, even without shapes. A
search on a CPU took six times as long. Here beartype checks each call once. A function with shapes is called in a
jaxtyping context, in which an axis has one size.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any, ForwardRef, Literal, get_args, get_origin

import jaxtyping

thorough = jaxtyping.jaxtyped


def has_shapes(annotation: Any) -> bool:
    of_array = inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
    return of_array or any(has_shapes(part) for part in get_args(annotation))


def is_quoted(annotation: Any) -> bool:
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return isinstance(annotation, str | ForwardRef) or any(map(is_quoted, parts))


def quick(thing: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """The decorator of every function and class in the checked modules."""
    if thing is None:
        return functools.partial(quick, typechecker=typechecker)
    if inspect.isclass(thing):
        if is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = quick(thing.__init__, typechecker=typechecker)
        return thing
    if "<locals>" in thing.__qualname__:
        return thing  # decorating it in every call would take longer than calling it
    checked, shaped = None, False

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked, shaped
        if jaxtyping.config.jaxtyping_disable:
            return thing(*args, **kwargs)
        if checked is None:  # decorated at the first call, because a run calls few functions of a module
            annotations = thing.__annotations__.values()
            # jaxtyping's own decorator resolves names that are imported only for type checkers. beartype would check
            # the items of a generator after the context of its call has ended.
            if inspect.isgeneratorfunction(thing) or any(map(is_quoted, annotations)):
                checked = thorough(thing, typechecker=typechecker)
            else:
                shaped, checked = any(map(has_shapes, annotations)), typechecker(thing)
        if not shaped:
            return checked(*args, **kwargs)
        with thorough("context"):
            return checked(*args, **kwargs)

    return call


def install(modules: Sequence[str]) -> None:
    jaxtyping.jaxtyped = quick
    tower = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True, violation_type=TypeError))"
    jaxtyping.install_import_hook(modules, tower)
