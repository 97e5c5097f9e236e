"""The class `Translator`, which the Python API and the command line share.

Torch is imported only if it translates.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from onehop.decoding.engine import ComputeType, EngineName
from onehop.decoding.options import SearchOptions
from onehop.errors import SettingsError, TextError
from onehop.pipelines.arguments import Glossary, beam_for, errors_name_arguments, terms_of, texts_of
from onehop.pipelines.glossary import Terms
from onehop.pipelines.lazy_model import LazyModel, Score, check_chain
from onehop.pipelines.pivot import LinePipeline, PivotTranslator
from onehop.pipelines.result import Result
from onehop.pipelines.route import find_route, parse_language, parse_source
from onehop.pipelines.sentence_translator import check_engine_options
from onehop.storage.registry import Quality, find_model
from onehop.text.formality import Formality
from onehop.text.language_id import name_of as name_of_language
from onehop.text.tokenizer import normalise

_LINE_END = re.compile(r"(\r?\n)")


class CommonOptions(TypedDict, total=False):
    """The options that `onehop.translate` and `Translator.translate` share."""

    beam: int | None
    glossary: Glossary | None
    keep: Iterable[str]
    formality: Formality | None


class _TranslateOptions(CommonOptions, total=False):
    alpha: float | None
    n_best: int
    whole_lines: bool
    keep_capitals: bool
    options: SearchOptions | None


class Translator:
    """A translator of texts of any length: sentences, paragraphs, documents.

    `model` is the name of an installed model or a path, or two of them to translate through a pivot language. Without
    it, `source` and `to` choose the model; if no model has both, two models translate through English. Without any of
    the three it is `en-de`. `quality` "fast" means the small model, such as `en-de-small`, and greedy search; "best" is
    the full model.

    `engine` "auto" means CTranslate2 on a CPU and torch on a GPU (`device="cuda"`). `compute` defaults to int8 in
    CTranslate2 and to float32 in torch, which has bfloat16 and float16 too. `threads` defaults to one per core.

    A translator pickles as its name and options, without weights. After `unload`, the end of a `with` block, or
    unpickling, the next use loads the weights again.

    Attributes:
        source: The language of the texts.
        target: The language of the translations.
        models: The names of the models, one or two.
        quality: The requested quality, "best" or "fast", or None.
        via: The pivot language of two models, or None.

    Examples:
        >>> from onehop import Translator
        >>> translator = Translator("en-de")
        >>> translator
        Translator('en-de', en → de)
        >>> result = translator.translate("Good morning! The cat is asleep.")
        >>> print(result)
        Guten Morgen! Die Katze schläft.
        >>> [sentence.source for sentence in result.sentences]
        ['Good morning!', 'The cat is asleep.']
        >>> with Translator("en-de", threads=1) as translator:
        ...     print(translator.translate("Thank you."))
        Danke.
    """

    def __init__(
        self,
        model: str | Path | Sequence[str | Path] | None = None,
        *,
        source: str | None = None,
        to: str | None = None,
        quality: Quality | None = None,
        device: str | None = None,
        engine: Literal["auto"] | EngineName = "auto",
        compute: ComputeType | None = None,
        threads: int | None = None,
    ) -> None:
        check_engine_options(device, engine, compute, threads)
        with errors_name_arguments():
            if model is None or isinstance(model, str | Path):
                route = find_route(model, source, to, quality=quality)
            else:
                route = tuple(find_model(str(name), quality=quality) for name in model)
        options = {"device": device, "engine": engine, "compute": compute, "threads": threads}
        self.quality = quality
        self._models = tuple(LazyModel(path, **options) for path in route)
        check_chain(self._models, parse_source(source), parse_language(to))
        for lazy in self._models:
            lazy.sentences  # noqa: B018  # loaded now, so that errors in a file or an option are raised here
        self.models = tuple(lazy.name for lazy in self._models)
        self.source, self.target = self._models[0].source, self._models[-1].target
        self.via = self._models[1].source if len(self._models) > 1 else None

    @classmethod
    def load(cls, path: str | Path) -> "Translator":
        """The same as `Translator(path)`; for code written before version 0.2."""
        return cls(path)

    def unload(self) -> None:
        """Free the memory of the weights; the next use loads them again."""
        for model in self._models:
            model.loaded = None

    def __enter__(self) -> "Translator":
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.models))
        items = self._models[0].options.items()
        options = "".join(f", {name}={value!r}" for name, value in items if value not in (None, "auto"))
        unloaded = "" if all(model.loaded for model in self._models) else ", unloaded"
        return f"Translator({names}, {self.source} → {self.target}{options}{unloaded})"

    @property
    def engines(self) -> tuple[str, ...]:
        """The engine of each model, "ctranslate2" or "torch"."""
        return tuple("torch" if model.sentences.fast is None else "ctranslate2" for model in self._models)

    # A string is an iterable of strings too.
    @overload
    def translate(self, text: str, **kwargs: Unpack[_TranslateOptions]) -> Result: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, text: Iterable[str], **kwargs: Unpack[_TranslateOptions]) -> list[Result]: ...

    def translate(
        self,
        text: str | Iterable[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        n_best: int = 1,
        glossary: Glossary | None = None,
        keep: Iterable[str] = (),
        formality: Formality | None = None,
        whole_lines: bool = False,
        keep_capitals: bool = False,
        options: SearchOptions | None = None,
    ) -> Result | list[Result]:
        """Translate a text, or a list of texts together, as `onehop translate` does.

        A text may have many lines, which stay lines, and many sentences, which are translated one by one. The result
        has `warnings`, such as a sentence that was split or repeats itself, a missing term or a missing number.

        Args:
            text: A text, or several texts.
            beam: Width of the beam; 1 is greedy. The default is 4, or 1 with the quality "fast".
            alpha: α of the length penalty |Y|^α; 0 is none. The default depends on the model.
            n_best: The number of translations of each sentence, in `Sentence.n_best`.
            glossary: Terms and their required translations, or a TSV file of them.
            keep: Words that are not translated.
            formality: How a German or French translation addresses the reader: "formal" or "informal".
            whole_lines: Each line is one sentence and is not split.
            keep_capitals: The model gets sentences in capitals unchanged.
            options: All options of the search, instead of beam, alpha and n_best.

        Examples:
            >>> translator = Translator("en-de")
            >>> print(translator.translate("Good morning.\\nThe contract is short.", glossary={"contract": "Vertrag"}))
            Guten Morgen.
            Der Vertrag ist kurz.
            >>> results = translator.translate(["Thank you.", "Good evening."], beam=2)
            >>> [result.text for result in results]
            ['Danke.', 'Guten Abend.']
        """
        texts = texts_of(text)
        if not isinstance(options, SearchOptions | None):
            raise SettingsError("`options` is no SearchOptions.", "Give onehop.decoding.options.SearchOptions(…).")
        with errors_name_arguments():
            options = options or SearchOptions(beam=beam_for(self.quality, beam), alpha=alpha, n_best=n_best)
        pipeline = self.pipeline(
            options, terms_of(glossary, keep, formality), whole_lines=whole_lines, keep_capitals=keep_capitals
        )
        split = [_LINE_END.split(t) for t in texts]  # lines and line ends in turn
        lines = iter(pipeline.translate([line for parts in split for line in parts[::2]]))
        results = [Result.of_lines(parts, [next(lines) for _ in parts[::2]], self.source) for parts in split]
        return results[0] if isinstance(text, str) else results

    def pipeline(self, options: SearchOptions | None = None, terms: Terms | None = None, **how: Any) -> LinePipeline:
        """A pipeline for callers that translate one window of lines after the other.

        `how` may have whole_lines, keep_capitals and batch_size, as for `ParagraphTranslator`.
        """
        options, terms = options or SearchOptions(), terms or Terms()
        if len(self._models) == 1:
            return self._models[0].pipeline(options=options, terms=terms, **how)
        if options.n_best > 1:
            raise SettingsError(
                f"Through {name_of_language(str(self.via))} each sentence has one translation, not {options.n_best}.",
                "Leave out n_best, or use a model that has both languages.",
            )
        legs = zip(self._models, terms.for_pivot(), strict=True)
        first, second = (model.pipeline(options=options, terms=leg_terms, **how) for model, leg_terms in legs)
        return PivotTranslator(first, second, terms)

    def translate_file(
        self,
        path: str | Path,
        out: str | Path,
        *,
        format: str | None = None,
        join_lines: bool = False,
        fields: Iterable[str] = (),
        beam: int | None = None,
        alpha: float | None = None,
        glossary: Glossary | None = None,
        keep: Iterable[str] = (),
        formality: Formality | None = None,
        keep_capitals: bool = False,
        options: SearchOptions | None = None,
    ) -> list[str]:
        """Translate a file to the file `out`, or a folder to the folder `out`, and return the warnings.

        Markup, code, times, placeholders and everything else that is not text stay unchanged. A job that was
        interrupted continues when it is called again. The other arguments are those of `translate`.

        Args:
            path: A file or a folder. Formats: docs/guide/translate.md#documents.
            out: The file, or the folder, to write.
            format: The format, if the file name does not tell it.
            join_lines: Lines of a plain text that belong to one paragraph are translated together.
            fields: Only these keys or columns are translated, in formats that have them.

        Examples:
            >>> import pathlib, tempfile
            >>> folder = pathlib.Path(tempfile.mkdtemp())
            >>> _ = (folder / "note.md").write_text("# Thank you.\\n")
            >>> Translator("en-de").translate_file(folder / "note.md", folder / "note.de.md")
            []
            >>> (folder / "note.de.md").read_text()
            '# Danke.\\n'
        """
        from onehop.pipelines.documents import ReadOptions, job  # imported here: most translations need no documents

        with errors_name_arguments():
            options = options or SearchOptions(beam=beam_for(self.quality, beam), alpha=alpha)
            reading = ReadOptions(format=format, join_lines=join_lines, fields=tuple(fields))
            work = job.job_of([Path(path)], Path(out), reading)
        terms, listener = terms_of(glossary, keep, formality), job.CollectedMessages()
        pipeline = self.pipeline(options, terms, keep_capitals=keep_capitals)
        work.run(pipeline, self.identity(options, terms, keep_capitals), listener)
        return listener.messages

    def identity(self, options: SearchOptions, terms: Terms, *how: Any) -> dict[str, Any]:
        """Everything that a translation depends on, as JSON."""
        return {
            "models": [model.hash for model in self._models],
            "engine": [*self.engines, str(self._models[0].options["compute"])],
            "options": asdict(options),
            "alphas": [model.sentences.alpha for model in self._models],
            "terms": terms.identity(),
            "how": list(how),
        }

    @overload
    def score(self, source: str, target: str) -> Score: ...  # type: ignore[overload-overlap]

    @overload
    def score(self, source: Iterable[str], target: Iterable[str]) -> list[Score]: ...

    def score(self, source: str | Iterable[str], target: str | Iterable[str]) -> Score | list[Score]:
        """The log-probabilities of a given translation, token by token, or of a list of them.

        Each source and each target is one sentence, and is not split.

        Examples:
            >>> translator = Translator("en-de")
            >>> good = translator.score("Good morning!", "Guten Morgen!")
            >>> bad = translator.score("Good morning!", "Guten Abend!")
            >>> good.log_prob > bad.log_prob
            True
            >>> good.tokens[-2:]
            ('!', '</s>')
        """
        if isinstance(source, str) is not isinstance(target, str):
            raise SettingsError("One text and several cannot be compared.", "Give two strings, or two lists.")
        sources, targets = texts_of(source), texts_of(target)
        if len(sources) != len(targets):
            raise SettingsError(f"{len(sources)} sources have {len(targets)} translations.", "Give one for each.")
        if not all(map(normalise, sources)):
            raise TextError("There is nothing to score: a source is empty.", "Give the sentence that was translated.")
        if self.via is not None:
            remedy = f"Score with one of {' and '.join(self.models)}."
            raise SettingsError(f"A translation through {name_of_language(self.via)} has no one score.", remedy)
        scores = self._models[0].score(sources, targets)
        return scores[0] if isinstance(source, str) else scores
