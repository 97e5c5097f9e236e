"""Which installed models translate between two languages: one, or two with English between them."""

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

from onehop.errors import ModelFileError, SettingsError
from onehop.storage.model_label import describe
from onehop.storage.registry import PIVOT, Quality, find_model, translators
from onehop.text.language_id import LANGUAGE_CERTAINTY, Identifier, code_of, name_of

# A shorter text, such as a name, may look like another language. Of 882 English sentences of this length that
# tests/data has, the identifier is sure of another language in none.
_SURE_BYTES = 20

Pair = tuple[str, str]

AUTO = "auto"  # a source that is to be identified, as clients of LibreTranslate write it

identifier = cache(Identifier)


class AlreadyTranslatedError(SettingsError):
    """A text is in the target language, so that there is nothing to translate."""

    def given_back(self) -> str:
        """What is said when the text is given back."""
        return f"{self.what} It is given back. {self.remedy}"


def find_route(
    model: str | Path | None = None,
    source: str | None = None,
    target: str | None = None,
    text: Callable[[], str] = str,
    quality: Quality | None = None,
) -> tuple[Path, ...]:
    """The files of the models to go through; `text` is asked for a sample where its language decides."""
    wanted, target = asked_source(source), asked_language(target)
    if model is not None or target is None:
        path = find_model(None if model is None else str(model), wanted, target, quality)
        if source is not None and wanted is None:
            _refuse_translated(text(), describe(path).content["target"])
        return (path,)
    source = wanted
    pairs = set(translators().values())
    if source is None and (sources := sources_into(pairs, target)):
        source = identified(sources, target, text())
    if source == target:
        raise SettingsError(f"The text would be translated from {source} to {source}.", "Choose two languages.")
    legs = () if source is None else _legs_between(pairs, source, target)
    return tuple(find_model(None, *leg, quality) for leg in legs or [(source, target)])


def asked_source(language: str | None) -> str | None:
    """The code of a language that a caller has given for a text; None: it is to be identified."""
    code = asked_language(language)
    return None if code == AUTO else code


def asked_language(language: str | None) -> str | None:
    """The code of a language that a caller has given."""
    if language is not None and not (isinstance(language, str) and language.strip()):
        raise SettingsError(f"{language!r} is no language.", "Give a code or a name, such as de or German.")
    return language and code_of(language.strip())


def _legs_between(pairs: Collection[Pair], source: str, target: str) -> tuple[Pair, ...]:
    """The pairs of languages to go through one after the other, of those that models have; none: there is no way."""
    if (source, target) in pairs:
        return ((source, target),)
    through = (source, PIVOT), (PIVOT, target)
    return through if source != target and all(leg in pairs for leg in through) else ()


def all_routes(pairs: Collection[Pair]) -> dict[Pair, tuple[Pair, ...]]:
    """Every pair of languages that can be translated, with its legs; those of a single model come first."""
    languages = [(a, b) for a, _ in pairs for _, b in pairs]
    legs = {pair: _legs_between(pairs, *pair) for pair in (*pairs, *languages)}
    return {pair: found for pair, found in legs.items() if found}


def sources_into(pairs: Collection[Pair], target: str) -> set[str]:
    """The languages that can be translated into another one, by one model or through English."""
    return {source for source, _ in pairs if _legs_between(pairs, source, target)}


def identified(sources: Collection[str], target: str, sample: str) -> str | None:
    """Which of some languages a sample is in; None: no telling. A sample that is plainly in another one is refused."""
    _refuse_translated(sample, target)
    if len(sources) == 1:
        return None
    if (found := identifier().choose(sample, sources)) is not None:
        return found
    if (guess := identifier().guess(sample)) is not None:
        language = str(guess["language"])
        what = f"The text seems to be in {name_of(language)} ({language})"
        remedy = f"Give --from if it is in one of {', '.join(sorted(sources))}."
        raise ModelFileError(f"{what}, and no model from {language} to {target} is installed.", remedy)
    return None


def _refuse_translated(sample: str, target: str) -> None:
    """Refuse a text that is plainly in the target language."""
    if len(sample.encode("utf-8", "replace")) < _SURE_BYTES:
        return
    guess = identifier().guess(sample)
    if guess is not None and guess["language"] == target and guess["confidence"] >= 100 * LANGUAGE_CERTAINTY:
        what = f"The text seems to be in {name_of(target)} ({target}) already."
        raise AlreadyTranslatedError(what, "Give --from if it is not.")
