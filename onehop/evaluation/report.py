"""`onehop evaluate`: scores in every convention, their confidence, and the worst sentences."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from onehop.console import console
from onehop.data.corpus import Lines, ParallelFile, unequal_lines
from onehop.data.filters import counted
from onehop.decoding.engine import ComputeType
from onehop.decoding.options import SearchOptions
from onehop.errors import OnehopError, SettingsError, TextError, require
from onehop.evaluation.metrics import (
    CONVENTIONS,
    FALLBACK_LANGUAGE,
    RESAMPLES,
    TRIALS,
    Comparison,
    Convention,
    MetricScore,
    bleu,
    chrf,
    compare,
    moses_languages,
    score_with_interval,
    sentence_chrf,
)
from onehop.text.tokenizer import normalise

if TYPE_CHECKING:
    from onehop.evaluation.language_model import Likelihood
    from onehop.evaluation.masked_language_model import Recall

# Longest source, in words, of each bucket but the last, which has no end.
_LENGTHS = (10, 20, 30, 40, 50)
_PACKED = (".gz", ".xz", ".zst")
# So large a share of lines ending in a full stop that stands alone is no accident.
_LOOKS_TOKENISED = 0.25


@dataclass(frozen=True, kw_only=True)
class ConventionScore:
    """One convention's score, or how to get it."""

    title: str
    score: MetricScore | None = None
    against: MetricScore | None = None
    difference: float | None = None
    p_value: float | None = None
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Scores of the sentences whose source has so many words; the last bucket has no longest."""

    shortest: int
    longest: int | None
    sentences: int
    bleu: float
    chrf: float

    def __str__(self) -> str:
        return f"{self.shortest}–{self.longest}" if self.longest else f"{self.shortest} and more"


@dataclass(frozen=True, kw_only=True)
class ScoredSentence:
    """A sentence with its own chrF2++; lines count from 1."""

    line: int
    chrf: float
    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True, kw_only=True)
class EvaluationReport:
    source: str
    reference: str
    hypothesis: str
    against: str | None
    language: str
    sentences: int
    resamples: int
    trials: int | None
    scores: dict[str, ConventionScore]
    lengths: list[Bucket]
    worst: list[ScoredSentence]
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Lines that correspond: source, reference, a system's output and perhaps another's."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    against: list[str] | None = None


def evaluate(
    src: Path,
    ref: Path,
    *,
    hyp: Path | None = None,
    model: str | None = None,
    against: Path | None = None,
    language: str | None = None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    worst: int = 5,
    **how: Any,
) -> EvaluationReport:
    """Score a file of translations, or a model's translations of the source; `how` as for `translate`."""
    require("sacrebleu")
    if (hyp is None) == (model is None):
        what = "There is nothing to evaluate." if hyp is None else "Both --hyp and --model are given."
        raise SettingsError(what, "Give --hyp FILE with translations, or --model MODEL that makes them.")
    files = [file for file in (src, ref, hyp, against) if file is not None]
    read = dict(zip(files, aligned(files), strict=True))
    translated, spoken = (read[hyp], None) if hyp else translate(str(model), read[src], **how)
    texts = Texts(
        sources=read[src],
        references=read[ref],
        hypotheses=translated,
        against=read[against] if against else None,
    )
    chosen = language or spoken or language_of(ref)
    return EvaluationReport(
        source=str(src),
        reference=str(ref),
        hypothesis=str(hyp or model),
        against=str(against) if against else None,
        language=chosen,
        sentences=len(texts.sources),
        resamples=resamples,
        trials=trials if against else None,
        scores={name: row(how, texts, chosen, resamples, trials) for name, how in CONVENTIONS.items()},
        lengths=_by_length(texts),
        worst=_worst_sentences(texts, worst),
        notes=notes(texts, chosen),
    )


# --- what goes in ---------------------------------------------------------------------------------------------


def aligned(files: Sequence[Path]) -> list[list[str]]:
    """The lines of files that must have as many as the first."""
    read = [lines_of(file) for file in files]
    for file, lines in zip(files, read, strict=True):
        if len(lines) != len(read[0]):
            raise unequal_lines(ParallelFile(name=file.name, paths=(files[0], file)))
    return read


def lines_of(file: Path) -> list[str]:
    lines = []
    for number, line in enumerate(Lines(file), start=1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise TextError(f"Line {number} of {file} is not UTF-8.", "Convert it, e.g. with iconv.") from None
    if not lines:
        raise TextError(f"{file} is empty.", "Give a file with one sentence a line.")
    return lines


def of_text(text: Path, model: str | None) -> "Likelihood | Recall":
    """On a file, a text a line: a decoder's perplexity, or how much an encoder finds again of what is hidden."""
    from onehop.evaluation.language_model import likelihood
    from onehop.evaluation.masked_language_model import recall
    from onehop.storage.model_label import describe
    from onehop.storage.registry import named_model

    if model is None:
        raise SettingsError("There is no model whose perplexity is wanted.", "Give --model with --text.")
    file, texts = named_model(model), lines_of(text)
    if not any(map(normalise, texts)):
        raise TextError(f"{text} has no text in it.", "Give another --text.")
    is_encoder = describe(file).content["settings"].get("model", {}).get("kind") == "encoder"
    return (recall if is_encoder else likelihood)(file, texts)


def translate(
    model: str,
    sources: list[str],
    *,
    beam: int = 4,
    device: str | None = None,
    compute: ComputeType | None = None,
) -> tuple[list[str], str]:
    """A model's translations as `onehop translate --whole-lines` gives them, and the language that they are in."""
    from onehop.pipelines.translator import Translator

    translator = Translator(model, device=device, compute=compute)
    console().print(f"{model}: translating {counted(len(sources), 'sentence')}")
    found = translator.pipeline(SearchOptions(beam=beam), whole_lines=True).translate(sources)
    return [line.text for line in found], translator.target


def language_of(file: Path) -> str:
    """The language that a file's name ends in, such as test.de or test.de.gz, if Moses' tokenizer knows it."""
    name = file.with_suffix("") if file.suffix in _PACKED else file
    try:
        known = moses_languages()
    except OnehopError:
        return FALLBACK_LANGUAGE
    ending = name.suffix.removeprefix(".")
    return ending if ending in known else FALLBACK_LANGUAGE


# --- what comes out -------------------------------------------------------------------------------------------


def row(how: Convention, texts: Texts, language: str, resamples: int, trials: int) -> ConventionScore:
    """One convention's scores, of one system or of two."""
    try:
        metric = how.metric(language)
    except OnehopError as e:
        return ConventionScore(title=how.title, missing=str(e))
    if texts.against is None:
        found = score_with_interval(metric, texts.hypotheses, texts.references, resamples=resamples)
        return ConventionScore(title=how.title, score=found)
    both: Comparison = compare(
        metric, texts.hypotheses, texts.against, texts.references, resamples=resamples, trials=trials
    )
    return ConventionScore(
        title=how.title, score=both.score, against=both.against, difference=both.difference, p_value=both.p_value
    )


def _by_length(texts: Texts) -> list[Bucket]:
    """Scores of short, middling and long sources, as far as there are any."""
    members: dict[int, list[int]] = {}
    for place, source in enumerate(texts.sources):
        members.setdefault(bisect_left(_LENGTHS, len(source.split())), []).append(place)
    return [_bucket(texts, number, members[number]) for number in sorted(members)]


def _bucket(texts: Texts, number: int, places: list[int]) -> Bucket:
    hypotheses, references = ([side[i] for i in places] for side in (texts.hypotheses, texts.references))
    return Bucket(
        # The first begins at nothing: an empty line is a sentence of no words.
        shortest=_LENGTHS[number - 1] + 1 if number else 0,
        longest=_LENGTHS[number] if number < len(_LENGTHS) else None,
        sentences=len(places),
        bleu=bleu(hypotheses, references).value,
        chrf=chrf(hypotheses, references).value,
    )


def _worst_sentences(texts: Texts, count: int) -> list[ScoredSentence]:
    """The sentences with the lowest chrF2++, worst first. Nothing for nothing is right, though it scores 0."""
    scores = sentence_chrf(texts.hypotheses, texts.references)
    wrong = [i for i, score in enumerate(scores) if texts.hypotheses[i].strip() != texts.references[i].strip()]
    return [
        ScoredSentence(
            line=i + 1,
            chrf=scores[i],
            source=texts.sources[i],
            reference=texts.references[i],
            hypothesis=texts.hypotheses[i],
        )
        for i in sorted(wrong, key=lambda i: scores[i])[:count]
    ]


def notes(texts: Texts, language: str) -> list[str]:
    """Warnings about the texts and the language."""
    found = []
    sides = {"reference": texts.references, "hypothesis": texts.hypotheses, "other system": texts.against or []}
    for name, lines in sides.items():
        apart = sum(line.endswith(" .") for line in lines)
        if apart > _LOOKS_TOKENISED * len(texts.sources):
            found.append(
                f"The {name} looks tokenised: {apart} of {len(lines)} lines end in a full stop that stands alone. "
                "All scores expect plain text: detokenise it."
            )
    if _foreign_to_moses(language):
        found.append(
            f"Moses has no abbreviations of “{language}”: it tokenises as if it were English. "
            f"It knows {', '.join(sorted(moses_languages()))}."
        )
    return found


def _foreign_to_moses(language: str) -> bool:
    """Whether Moses' tokenizer, if there is one, does not know a language."""
    try:
        return language not in moses_languages()
    except OnehopError:
        return False


# --- how it is shown ------------------------------------------------------------------------------------------


def show(report: EvaluationReport) -> None:
    """Print a report on standard output: tables with lines on a terminal, plain columns in a pipe or a file."""
    out = console(stderr=False)
    if not out.is_terminal:
        out.width = 10_000  # nothing is cut or folded that a program may read
    versus = f" against {report.against}" if report.against else ""
    out.print(f"{report.hypothesis}{versus}: {counted(report.sentences, 'sentence')}, reference {report.reference}\n")
    out.print(_score_table(report, lined=out.is_terminal))
    out.print(f"\n{_how_sure(report)}\n")
    for found in report.scores.values():
        if found.score:
            out.print(f"{found.title}: {found.score.signature}")
    out.print()
    out.print(_length_table(report, lined=out.is_terminal))
    _show_sentences(out, report)
    for note in report.notes:
        out.print(f"\nNote: {note}")


def table(*columns: str, lined: bool) -> Table:
    """An empty table; the columns after the first hold numbers."""
    made = Table(box=box.SIMPLE if lined else None, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column != columns[0] else "left")
    return made


def _score_table(report: EvaluationReport, *, lined: bool) -> Table:
    more = ("against", "95%", "difference", "p") if report.against else ()
    made = table("convention", "score", "95%", *more, lined=lined)
    for found in report.scores.values():
        made.add_row(*cells(found))
    return made


def cells(found: ConventionScore) -> list[str]:
    """A row of the table of scores."""
    if found.score is None:
        return [found.title, "–", "–"]
    made = [found.title, *_value_cells(found.score)]
    if found.against and found.difference is not None:
        made += [*_value_cells(found.against), f"{found.difference:+.2f}", f"{found.p_value:.4f}"]
    return made


def _value_cells(found: MetricScore) -> list[str]:
    """A score and how sure it is."""
    return [f"{found.value:.2f}", f"± {found.interval.plus_minus:.2f}" if found.interval else ""]


def _how_sure(report: EvaluationReport) -> str:
    """What ± and p mean here."""
    seed = next(row.score.interval.seed for row in report.scores.values() if row.score and row.score.interval)
    said = "".join(f"–: {reason}\n" for reason in {row.missing: 0 for row in report.scores.values() if row.missing})
    said += f"±: half of the 95% confidence interval, {report.resamples:,} bootstrap resamples, seed {seed}."
    if report.trials:
        said += (
            f"\np: how often chance alone would part the two so far; approximate randomisation, "
            f"{report.trials:,} trials, seed {seed}."
        )
    return said


def _length_table(report: EvaluationReport, *, lined: bool) -> Table:
    """A row for each length of the source."""
    made = table("source words", "sentences", "BLEU 13a", "chrF2++", lined=lined)
    for found in report.lengths:
        made.add_row(str(found), f"{found.sentences:,}", f"{found.bleu:.2f}", f"{found.chrf:.2f}")
    return made


def _show_sentences(out: Console, report: EvaluationReport) -> None:
    """The worst sentences, each with what it should have been."""
    if report.worst:
        out.print("\nWorst sentences by chrF2++")
    for found in report.worst:
        out.print(f"\nline {found.line}, chrF2++ {found.chrf:.2f}")
        for name in ("source", "reference", "hypothesis"):
            out.print(f"  {name:<11} {getattr(found, name)}")
