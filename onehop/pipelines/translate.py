"""Translates a text in one call; the models stay in memory for the next call."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Unpack, overload

from onehop.pipelines.arguments import Glossary, beam_for, errors_name_arguments, texts_of
from onehop.pipelines.result import Result
from onehop.pipelines.route import AlreadyTranslatedError, find_route
from onehop.pipelines.translator import CommonOptions, Translator
from onehop.storage.model_label import describe
from onehop.storage.registry import Quality
from onehop.text.formality import Formality

_CACHED_TRANSLATORS = 4
_SAMPLE = 20  # texts of a list whose language is identified


class _CallOptions(CommonOptions, total=False):
    to: str | None
    source: str | None
    model: str | Path | None
    quality: Quality | None


@overload
def translate(text: str, **options: Unpack[_CallOptions]) -> Result: ...  # type: ignore[overload-overlap]


@overload
def translate(text: Iterable[str], **options: Unpack[_CallOptions]) -> list[Result]: ...


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
    """Translate a text, or a list of texts in one language, into the language `to`.

    Without `to` and `model` it is English to German. Without `source`, or with "auto", the language is identified if
    several installed models translate into `to`. A text that is clearly in that language already is returned with a
    warning. `quality` "fast" means the small model and greedy search, unless `beam` is given. Models stay in memory
    for the next call. `Translator` has more options.

    Examples:
        >>> from onehop import translate
        >>> result = translate("Where is the station?", to="de")
        >>> print(result)
        Wo ist der Bahnhof?
        >>> result.models
        ('en-de',)
        >>> [str(result) for result in translate(["Thank you.", "Good evening."])]
        ['Danke.', 'Guten Abend.']
    """
    texts = texts_of(text)
    try:
        with errors_name_arguments():
            route = find_route(model, source, to, lambda: "\n".join(texts[:_SAMPLE]), quality)
    except AlreadyTranslatedError as e:
        results = [
            Result(source=t, text=t, sentences=(), notes=(f"{e.what} It is returned unchanged.",)) for t in texts
        ]
    else:
        translator = _cached_translator(route, tuple(describe(path).hash for path in route))
        beam = beam_for(quality, beam)
        results = translator.translate(texts, beam=beam, glossary=glossary, keep=keep, formality=formality)
    return results[0] if isinstance(text, str) else results


@lru_cache(_CACHED_TRANSLATORS)
def _cached_translator(route: tuple[Path, ...], hashes: tuple[str, ...]) -> Translator:
    """A translator; a file with a new hash is loaded again."""
    return Translator(route)
