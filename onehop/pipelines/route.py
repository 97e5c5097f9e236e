"""Finds the installed models for a language pair: one model, or two through English."""

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

from onehop.errors import ModelFileError, SettingsError
from onehop.storage.model_label import describe
from onehop.storage.registry import PIVOT, Quality, find_model, translators
from onehop.text.language_id import LANGUAGE_CERTAINTY, Identifier, code_of, name_of

# A shorter text, such as a name, may look like another language. Of the 882 English sentences of at least this length
# in tests/data, the identifier takes none for another language.
_MIN_BYTES = 20

Pair = tuple[str, str]

identifier = cache(Identifier)


class AlreadyTranslatedError(SettingsError):
    def warning(self) -> str:
        """The warning for a text that is returned unchanged."""
        return f"{self.what} It is returned unchanged. {self.remedy}"


def find_route(
    model: str | Path | None = None,
    source: str | None = None,
    target: str | None = None,
    text: Callable[[], str] = str,
    quality: Quality | None = None,
) -> tuple[Path, ...]:
    """The files of the models to use; `text` returns a sample if the language of the text decides."""
    source_code, target = parse_source(source), parse_language(target)
    if model is not None or target is None:
        path = find_model(None if model is None else str(model), source_code, target, quality)
        if source is not None and source_code is None:
            _refuse_translated(text(), describe(path).content["target"])
        return (path,)
    pairs = set(translators().values())
    if source_code is None and (sources := sources_into(pairs, target)):
        source_code = identify_source(sources, target, text())
    if source_code == target:
        raise SettingsError(f"The text would be translated from {target} to {target}.", "Choose two languages.")
    legs = () if source_code is None else _legs_between(pairs, source_code, target)
    return tuple(find_model(None, *leg, quality) for leg in legs or [(source_code, target)])


def parse_source(language: str | None) -> str | None:
    """The code of a source language; None if it is to be identified, for which LibreTranslate's word is "auto"."""
    code = parse_language(language)
    return None if code == "auto" else code


def parse_language(language: str | None) -> str | None:
    """The code of a language given as code or name."""
    if language is not None and not (isinstance(language, str) and language.strip()):
        raise SettingsError(f"{language!r} is no language.", "Give a code or a name, such as de or German.")
    return language and code_of(language.strip())


def _legs_between(pairs: Collection[Pair], source: str, target: str) -> tuple[Pair, ...]:
    """The language pairs of the models to use in turn; empty if no models connect the languages."""
    if (source, target) in pairs:
        return ((source, target),)
    through = (source, PIVOT), (PIVOT, target)
    return through if source != target and all(leg in pairs for leg in through) else ()


def all_routes(pairs: Collection[Pair]) -> dict[Pair, tuple[Pair, ...]]:
    """The legs of every language pair that can be translated, pairs of a single model first."""
    combinations = [(a, b) for a, _ in pairs for _, b in pairs]
    routes = {pair: _legs_between(pairs, *pair) for pair in (*pairs, *combinations)}
    return {pair: legs for pair, legs in routes.items() if legs}


def sources_into(pairs: Collection[Pair], target: str) -> set[str]:
    """The languages that can be translated into `target`, by one model or through English."""
    return {source for source, _ in pairs if _legs_between(pairs, source, target)}


def identify_source(sources: Collection[str], target: str, sample: str) -> str | None:
    """The language of a sample, or None if it is unknown or there is no choice.

    A sample that is clearly in none of the `sources` raises an error.
    """
    _refuse_translated(sample, target)
    if len(sources) == 1:
        return None
    if (source := identifier().choose(sample, sources)) is not None:
        return source
    if (guess := identifier().guess(sample)) is not None:
        language = str(guess["language"])
        what = f"The text seems to be in {name_of(language)} ({language})"
        remedy = f"Give --from if it is in one of {', '.join(sorted(sources))}."
        raise ModelFileError(f"{what}, and no model from {language} to {target} is installed.", remedy)
    return None


def _refuse_translated(sample: str, target: str) -> None:
    """Raise AlreadyTranslatedError for a text that is clearly in the target language."""
    if len(sample.encode("utf-8", "replace")) < _MIN_BYTES:
        return
    guess = identifier().guess(sample)
    if guess is not None and guess["language"] == target and guess["confidence"] >= 100 * LANGUAGE_CERTAINTY:
        what = f"The text seems to be in {name_of(target)} ({target}) already."
        raise AlreadyTranslatedError(what, "Give --from if it is not.")
