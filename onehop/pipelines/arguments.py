"""Checks arguments of the Python API. Errors name arguments instead of command-line options."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from onehop.decoding.options import BEAM
from onehop.errors import OnehopError, SettingsError, TextError
from onehop.pipelines.glossary import Term, Terms, read_glossary
from onehop.storage.registry import Quality
from onehop.text.formality import Formality
from onehop.text.tokenizer import normalise

_BYTE_ORDER_MARK = "\ufeff"  # at the beginning of Windows files; it would make the first word unknown
_ARGUMENTS = {"search.": "", "--model": "model=", "--from": "source=", "--to": "to="}
_ARGUMENTS |= {"--quality ": "quality=", "--quality": "quality="}
_ARGUMENTS |= {"--format": "format=", "--field": "fields=", "--join-lines": "join_lines=", "-o": "out"}

Glossary = Mapping[str, str] | str | Path


def texts_of(text: str | Iterable[str]) -> list[str]:
    texts = [text] if isinstance(text, str | bytes) or not isinstance(text, Iterable) else list(text)
    for t in texts:
        if not isinstance(t, str):
            raise TextError(f"A text is of the type {type(t).__name__}.", "Give a string, or a list of strings.")
    return [t.removeprefix(_BYTE_ORDER_MARK) for t in texts]


@contextmanager
def errors_name_arguments() -> Iterator[None]:
    """In errors raised inside, replace the names of command-line options by those of Python arguments."""
    try:
        yield
    except OnehopError as e:
        names = re.compile(rf"(?<![\w-])(?:{'|'.join(_ARGUMENTS)})")  # a path may have -o in it
        raise type(e)(*(names.sub(lambda name: _ARGUMENTS[name[0]], text) for text in (e.what, e.remedy))) from None


def terms_of(glossary: Glossary | None, keep: Iterable[str], formality: Formality | None) -> Terms:
    """The terms of a glossary, a mapping or a TSV file, with kept words and the formality."""
    if formality not in (None, *get_args(Formality)):
        raise SettingsError(f"There is no formality {formality!r}.", "Give formal or informal.")
    kept = strings_of("keep", keep, "words")
    if isinstance(glossary, str | Path):
        return Terms(read_glossary(Path(glossary)), kept, formality)
    pairs = {} if glossary is None else glossary
    if not isinstance(pairs, Mapping) or not all(isinstance(t, str) for pair in pairs.items() for t in pair):
        raise SettingsError("`glossary` maps no strings to strings.", "Give a dict of terms, or a TSV file.")
    terms = [Term(normalise(source), normalise(target)) for source, target in pairs.items()]
    return Terms([term for term in terms if term.source and term.target], kept, formality)


def beam_for(quality: Quality | None, beam: int | None) -> int:
    """The given width of the beam, or the default: 1 for the quality "fast", else 4."""
    return beam if beam is not None else 1 if quality == "fast" else BEAM


def one_text(text: str) -> str:
    if not isinstance(text, str):
        raise TextError(f"The text is of the type {type(text).__name__}.", "Give one sentence, a string.")
    return text


def strings_of(name: str, value: Iterable[str], what: str) -> list[str]:
    """A list of strings. One string is refused: its letters would be the items."""
    if isinstance(value, str):
        raise SettingsError(f"`{name}` is one string.", f"Give a list of {what}.")
    values = list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(item, str) for item in values):
        raise SettingsError(f"`{name}` is no list of strings.", f"Give a list of {what}.")
    return values
