"""The front door: a model by its name or file, texts of any length in, results out.

Command line and Python share this path. Weights are read by `SentenceTranslator`; torch is imported only when it is
what translates.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, overload

from onehop.decoding.engine import ComputeType, EngineName
from onehop.decoding.options import SearchOptions
from onehop.errors import SettingsError, TextError
from onehop.pipelines.arguments import Glossary, beam_for, in_the_words_of_arguments, terms_of, texts_of
from onehop.pipelines.glossary import Terms
from onehop.pipelines.lazy_model import LazyModel, Score, check_chain
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.result import Result
from onehop.pipelines.route import asked_language, asked_source, find_route
from onehop.pipelines.sentence_translator import check_request
from onehop.storage.registry import Quality, find_model
from onehop.text.formality import Formality
from onehop.text.language_id import name_of as name_of_language
from onehop.text.tokenizer import normalise

_LINE_END = re.compile(r"(\r?\n)")


class Translator:
    """A translator of texts of any length: sentences, paragraphs, documents.

    `model` is the name of an installed model or a path, or two of them to go through one after the other. Without it,
    `source` and `to` choose by languages; where no model has them both, two translate through English. Without any of
    the three it is `en-de`. `quality` "fast" takes the small model, such as `en-de-small`, and greedy search; "best" is
    the full model.

    `engine` "auto" means CTranslate2 on a CPU and torch on a GPU (`device="cuda"`). `compute` is int8 in CTranslate2
    and float32 in torch if nothing is said; torch has bfloat16 and float16 too. `threads` is one a core.

    A translator pickles as its name and options, without weights. After `unload`, the end of a `with` block, or
    unpickling, the weights are read again when they are next needed.

    Attributes:
        source: The language of the texts.
        target: The language of the translations.
        models: The names of the models, one or two.
        quality: What was asked for, "best" or "fast", or None.
        via: The language between two models, or None.

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
        check_request(device, engine, compute, threads)
        if model is None or isinstance(model, str | Path):
            with in_the_words_of_arguments():
                route = find_route(model, source, to, quality=quality)
        else:
            with in_the_words_of_arguments():
                route = tuple(find_model(str(each), quality=quality) for each in model)
        options = {"device": device, "engine": engine, "compute": compute, "threads": threads}
        self.quality = quality
        self._models = tuple(LazyModel(path, **options) for path in route)
        check_chain(self._models, asked_source(source), asked_language(to))
        for each in self._models:
            each.sentences  # noqa: B018  # what is wrong with a file or an option is said now
        self.models = tuple(each.name for each in self._models)
        self.source, self.target = self._models[0].source, self._models[-1].target
        self.via = self._models[1].source if len(self._models) > 1 else None

    @classmethod
    def load(cls, path: str | Path) -> "Translator":
        """The same as `Translator(path)`, as it was written before version 0.2."""
        return cls(path)

    def unload(self) -> None:
        """Free the memory that the weights take; the next use reads them again."""
        for each in self._models:
            each.loaded = None

    def __enter__(self) -> "Translator":
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.models))
        given = self._models[0].options.items()
        options = "".join(f", {name}={value!r}" for name, value in given if value not in (None, "auto"))
        unloaded = "" if all(each.loaded for each in self._models) else ", unloaded"
        return f"Translator({names}, {self.source} → {self.target}{options}{unloaded})"

    @property
    def engines(self) -> tuple[str, ...]:
        """What each model runs on, ctranslate2 or torch."""
        return tuple("torch" if each.sentences.fast is None else "ctranslate2" for each in self._models)

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is an iterable of strings too
        self,
        text: str,
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
    ) -> Result: ...

    @overload
    def translate(
        self,
        text: Iterable[str],
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
    ) -> list[Result]: ...

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
        """The translation of a text, or a list of them for a list of texts, as `onehop translate` makes them.

        A text may have many lines, which stay lines, and many sentences, which are translated one by one. What a
        reader should know stands in `warnings`: a sentence that was split or stopped or that repeats itself, a term
        that is not met, a number that is missing.

        Args:
            text: A text, or several, which are translated together.
            beam: Width of the beam; 1 is greedy. Without it 4, and 1 with the quality "fast".
            alpha: α of the length penalty |Y|^α; 0 is none. Without it, what suits the model.
            n_best: So many translations of each sentence, in `Sentence.found`.
            glossary: Terms with the translations that they should have, or a TSV file of them.
            keep: Words that are not to be translated.
            formality: How a German or French translation addresses the reader: "formal" or "informal".
            whole_lines: Each line is one sentence and is not split.
            keep_capitals: Sentences in capitals are given to the model as they are.
            options: Everything that a search can be asked for, instead of beam, alpha and n_best.

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
        with in_the_words_of_arguments():
            options = options or SearchOptions(beam=beam_for(self.quality, beam), alpha=alpha, n_best=n_best)
        pipeline = self.pipeline(
            options, terms_of(glossary, keep, formality), whole_lines=whole_lines, keep_capitals=keep_capitals
        )
        parted = [_LINE_END.split(each) for each in texts]
        lines = iter(pipeline.translate([line for parts in parted for line in parts[::2]]))
        results = [Result.of_lines(parts, [next(lines) for _ in parts[::2]], self.source) for parts in parted]
        return results[0] if isinstance(text, str) else results

    def pipeline(
        self,
        options: SearchOptions | None = None,
        terms: Terms | None = None,
        *,
        whole_lines: bool = False,
        keep_capitals: bool = False,
        batch_size: int | None = None,
    ) -> ParagraphTranslator | PivotTranslator:
        """What translates lines, for callers that bring them one window after the other."""
        options, terms = options or SearchOptions(), terms or Terms()
        how: dict[str, Any] = {"options": options, "whole_lines": whole_lines, "batch_size": batch_size}
        if len(self._models) == 1:
            return self._models[0].pipeline(terms=terms, keep_capitals=keep_capitals, **how)
        if options.n_best > 1:
            raise SettingsError(
                f"Through {name_of_language(str(self.via))} each sentence has one translation, not {options.n_best}.",
                "Leave out n_best, or use a model that has both languages.",
            )
        first, second = (
            each.pipeline(terms=asked, keep_capitals=keep_capitals, **how)
            for each, asked in zip(self._models, terms.of_legs(), strict=True)
        )
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
        """Translate a file into the file `out`, or a folder into the folder `out`, and say what a reader should know.

        Markup, code, times, placeholders and everything else that is no text come out as they were. A job that was
        stopped goes on where it was when it is called again.

        Args:
            path: A file or a folder. Formats: docs/guide/translate.md#documents.
            out: The file, or the folder, to write.
            format: The format, where the ending does not say it.
            join_lines: Lines of a plain text that belong to one paragraph are translated together.
            fields: Only these keys or columns are translated, in formats that have them.
            beam: Width of the beam; 1 is greedy. Without it 4, and 1 with the quality "fast".
            alpha: α of the length penalty |Y|^α; 0 is none. Without it, what suits the model.
            glossary: Terms with the translations that they should have, or a TSV file of them.
            keep: Words that are not to be translated.
            formality: How a German or French translation addresses the reader: "formal" or "informal".
            keep_capitals: Sentences in capitals are given to the model as they are.
            options: Everything that a search can be asked for, instead of beam and alpha.

        Examples:
            >>> import pathlib, tempfile
            >>> folder = pathlib.Path(tempfile.mkdtemp())
            >>> _ = (folder / "note.md").write_text("# Thank you.\\n")
            >>> Translator("en-de").translate_file(folder / "note.md", folder / "note.de.md")
            []
            >>> (folder / "note.de.md").read_text()
            '# Danke.\\n'
        """
        from onehop.pipelines.documents import ReadOptions, job  # most translations are made without

        with in_the_words_of_arguments():
            options = options or SearchOptions(beam=beam_for(self.quality, beam), alpha=alpha)
            reading = ReadOptions(format=format, join_lines=join_lines, fields=tuple(fields))
            work = job.job_of([Path(path)], Path(out), reading)
        terms, listener = terms_of(glossary, keep, formality), job.CollectedMessages()
        pipeline = self.pipeline(options, terms, keep_capitals=keep_capitals)
        work.run(pipeline, self.identity(options, terms, keep_capitals), listener)
        return listener.messages

    def identity(self, options: SearchOptions, terms: Terms, *how: Any) -> dict[str, Any]:
        """Everything that a translation depends on, as JSON holds it."""
        given = self._models[0].options
        return {
            "models": [each.hash for each in self._models],
            "engine": [*self.engines, str(given["compute"])],
            "options": asdict(options),
            "alphas": [each.sentences.alpha for each in self._models],
            "terms": terms.identity(),
            "how": list(how),
        }

    @overload
    def score(self, source: str, target: str) -> Score: ...  # type: ignore[overload-overlap]

    @overload
    def score(self, source: Iterable[str], target: Iterable[str]) -> list[Score]: ...

    def score(self, source: str | Iterable[str], target: str | Iterable[str]) -> Score | list[Score]:
        """How probable a given translation is, token by token; of lists, a list.

        Each source and each target is taken whole, as one sentence.

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
        found = self._models[0].score(sources, targets)
        return found[0] if isinstance(source, str) else found
