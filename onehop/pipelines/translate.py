"""A text into a language in one call; the models stay in memory for the next one."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import overload

from onehop.pipelines.arguments import Glossary, beam_for, in_the_words_of_arguments, texts_of
from onehop.pipelines.result import Result
from onehop.pipelines.route import AlreadyTranslatedError, find_route
from onehop.pipelines.translator import Translator
from onehop.storage.model_label import describe
from onehop.storage.registry import Quality
from onehop.text.formality import Formality

# So many models are kept; the one that was not used for the longest time goes first.
_KEPT_MODELS = 4
_SAMPLE = 20  # texts of a list whose language is identified


@overload
def translate(  # type: ignore[overload-overlap]
    text: str,
    *,
    to: str | None = None,
    source: str | None = None,
    model: str | Path | None = None,
    quality: Quality | None = None,
    beam: int | None = None,
    glossary: Glossary | None = None,
    keep: Iterable[str] = (),
    formality: Formality | None = None,
) -> Result: ...


@overload
def translate(
    text: Iterable[str],
    *,
    to: str | None = None,
    source: str | None = None,
    model: str | Path | None = None,
    quality: Quality | None = None,
    beam: int | None = None,
    glossary: Glossary | None = None,
    keep: Iterable[str] = (),
    formality: Formality | None = None,
) -> list[Result]: ...


def translate(
    text: str | Iterable[str],
    *,
    to: str | None = None,
    source: str | None = None,
    model: str | Path | None = None,
    quality: Quality | None = None,
    beam: int | None = None,
    glossary: Glossary | None = None,
    keep: Iterable[str] = (),
    formality: Formality | None = None,
) -> Result | list[Result]:
    """The translation of a text into a language, or a list of them for a list of texts in one language.

    Without `to` and `model` it is English to German. Without `source`, or with "auto", the language is identified where
    several installed models translate into `to`. A text that is plainly in that language already is given back, with
    a warning. `quality` "fast" takes the small model and greedy search, unless `beam` is given. Models stay in memory
    for the next call; for more options, see `Translator`.

    Examples:
        >>> from onehop import translate
        >>> result = translate("Where is the station?", to="de")
        >>> print(result)
        Wo ist der Bahnhof?
        >>> result.models
        ('en-de',)
        >>> [str(each) for each in translate(["Thank you.", "Good evening."])]
        ['Danke.', 'Guten Abend.']
    """
    texts = texts_of(text)
    try:
        with in_the_words_of_arguments():
            route = find_route(model, source, to, lambda: "\n".join(texts[:_SAMPLE]), quality)
    except AlreadyTranslatedError as e:
        same = [Result(source=each, text=each, sentences=(), notes=(f"{e.what} It is given back.",)) for each in texts]
        return same[0] if isinstance(text, str) else same
    translator = kept_translator(route, tuple(describe(path).hash for path in route))
    beam = beam_for(quality, beam)
    results = translator.translate(texts, beam=beam, glossary=glossary, keep=keep, formality=formality)
    return results[0] if isinstance(text, str) else results


@lru_cache(_KEPT_MODELS)
def kept_translator(route: tuple[Path, ...], hashes: tuple[str, ...]) -> Translator:
    """A translator that stays in memory, until its files have another content."""
    return Translator(route)
