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
from onehop.data.corpus import PACKED, Lines, ParallelFile, decode_line, unequal_lines_error
from onehop.data.filters import counted
from onehop.decoding.engine import ComputeType
from onehop.decoding.options import SearchOptions
from onehop.errors import OnehopError, SettingsError, TextError, require
from onehop.evaluation import metrics
from onehop.text.tokenizer import normalise

if TYPE_CHECKING:
    from onehop.evaluation.language_model import Likelihood
    from onehop.evaluation.masked_language_model import Recall

# The greatest source length, in words, of each bucket; the last bucket has no limit.
_LENGTHS = (10, 20, 30, 40, 50)
# A text looks tokenised if more than this share of its lines end in a detached full stop.
_LOOKS_TOKENISED = 0.25


@dataclass(frozen=True, kw_only=True)
class ConventionScore:
    """The score by one convention, or in `missing` how to get it."""

    title: str
    score: metrics.MetricScore | None = None
    against: metrics.MetricScore | None = None
    difference: float | None = None
    p_value: float | None = None
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Scores of the sentences with this many source words; in the last bucket `longest` is None."""

    shortest: int
    longest: int | None
    sentences: int
    bleu: float
    chrf: float

    def __str__(self) -> str:
        return f"{self.shortest}–{self.longest}" if self.longest else f"{self.shortest} and more"


@dataclass(frozen=True, kw_only=True)
class ScoredSentence:
    """A sentence with its chrF2++; lines count from 1."""

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
class _Texts:
    """Aligned lines: source, reference, a system's output and perhaps another's."""

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
    resamples: int = metrics.RESAMPLES,
    trials: int = metrics.TRIALS,
    worst: int = 5,
    **options: Any,
) -> EvaluationReport:
    """Score a file of translations, or a model's translations of the source; `options` as for `translate`."""
    require("sacrebleu")
    if (hyp is None) == (model is None):
        what = "There is nothing to evaluate." if hyp is None else "Both --hyp and --model are given."
        raise SettingsError(what, "Give --hyp FILE with translations, or --model MODEL that makes them.")
    files = [file for file in (src, ref, hyp, against) if file is not None]
    lines = dict(zip(files, aligned(files), strict=True))
    hypotheses, model_language = (lines[hyp], None) if hyp else _translate(str(model), lines[src], **options)
    texts = _Texts(
        sources=lines[src],
        references=lines[ref],
        hypotheses=hypotheses,
        against=lines[against] if against else None,
    )
    target_language = language or model_language or language_of(ref)
    return EvaluationReport(
        source=str(src),
        reference=str(ref),
        hypothesis=str(hyp or model),
        against=str(against) if against else None,
        language=target_language,
        sentences=len(texts.sources),
        resamples=resamples,
        trials=trials if against else None,
        scores={
            name: _convention_score(convention, texts, target_language, resamples, trials)
            for name, convention in metrics.CONVENTIONS.items()
        },
        lengths=_by_length(texts),
        worst=_worst_sentences(texts, worst),
        notes=_warnings(texts, target_language),
    )


# --- inputs ---------------------------------------------------------------------------------------------------


def aligned(files: Sequence[Path]) -> list[list[str]]:
    """The lines of files, which must have equally many."""
    texts = [read_lines(file) for file in files]
    for file, lines in zip(files, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise unequal_lines_error(ParallelFile(name=file.name, paths=(files[0], file)))
    return texts


def read_lines(file: Path) -> list[str]:
    lines = [decode_line(line, number, file) for number, line in enumerate(Lines(file), start=1)]
    if not lines:
        raise TextError(f"{file} is empty.", "Give a file with one sentence a line.")
    return lines


def evaluate_text(text: Path, model: str | None) -> "Likelihood | Recall":
    """For a file with one text per line: a decoder's perplexity, or an encoder's accuracy on masked tokens."""
    from onehop.storage.model_label import describe
    from onehop.storage.registry import named_model

    if model is None:
        raise SettingsError("Perplexity needs a model.", "Give --model with --text.")
    file, texts = named_model(model), read_lines(text)
    if not any(map(normalise, texts)):
        raise TextError(f"{text} has no text in it.", "Give another --text.")
    if describe(file).kind == "encoder":
        from onehop.evaluation.masked_language_model import recall_of
        from onehop.pipelines.fill_mask import Filler

        filler = Filler.load(file)
        return recall_of(filler.model, filler.tokenizer, texts)
    from onehop.evaluation.language_model import likelihood_of
    from onehop.pipelines.generate import Writer

    writer = Writer.load(file)
    return likelihood_of(writer.model, writer.tokenizer, texts)


def _translate(
    model: str,
    sources: list[str],
    *,
    beam: int = 4,
    device: str | None = None,
    compute: ComputeType | None = None,
) -> tuple[list[str], str]:
    """A model's translations as by `onehop translate --whole-lines`, and their language."""
    from onehop.pipelines.translator import Translator

    translator = Translator(model, device=device, compute=compute)
    console().print(f"{model}: translating {counted(len(sources), 'sentence')}")
    translations = translator.pipeline(SearchOptions(beam=beam), whole_lines=True).translate(sources)
    return [line.text for line in translations], translator.target


def language_of(file: Path) -> str:
    """The language in a file name such as test.de or test.de.gz, if Moses' tokenizer knows it."""
    name = file.with_suffix("") if file.suffix in PACKED else file
    ending = name.suffix.removeprefix(".")
    return ending if ending in _known_to_moses() else metrics.FALLBACK_LANGUAGE


# --- scores ---------------------------------------------------------------------------------------------------


def _convention_score(
    convention: metrics.Convention, texts: _Texts, language: str, resamples: int, trials: int
) -> ConventionScore:
    try:
        metric = convention.metric(language)
    except OnehopError as e:
        return ConventionScore(title=convention.title, missing=str(e))
    if texts.against is None:
        score = metrics.score_with_interval(metric, texts.hypotheses, texts.references, resamples=resamples)
        return ConventionScore(title=convention.title, score=score)
    both = metrics.compare(
        metric, texts.hypotheses, texts.against, texts.references, resamples=resamples, trials=trials
    )
    return ConventionScore(
        title=convention.title, score=both.score, against=both.against, difference=both.difference, p_value=both.p_value
    )


def _by_length(texts: _Texts) -> list[Bucket]:
    buckets: dict[int, list[int]] = {}
    for i, source in enumerate(texts.sources):
        buckets.setdefault(bisect_left(_LENGTHS, len(source.split())), []).append(i)
    return [_bucket(texts, bucket, buckets[bucket]) for bucket in sorted(buckets)]


def _bucket(texts: _Texts, bucket: int, indices: list[int]) -> Bucket:
    hypotheses, references = ([side[i] for i in indices] for side in (texts.hypotheses, texts.references))
    return Bucket(
        # From 0: an empty line is a sentence of no words.
        shortest=_LENGTHS[bucket - 1] + 1 if bucket else 0,
        longest=_LENGTHS[bucket] if bucket < len(_LENGTHS) else None,
        sentences=len(indices),
        bleu=metrics.bleu(hypotheses, references).value,
        chrf=metrics.chrf(hypotheses, references).value,
    )


def _worst_sentences(texts: _Texts, count: int) -> list[ScoredSentence]:
    """The sentences with the lowest chrF2++, worst first. An empty output for an empty reference is right."""
    scores = metrics.sentence_chrf(texts.hypotheses, texts.references)
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


def _warnings(texts: _Texts, language: str) -> list[str]:
    warnings = []
    sides = {"reference": texts.references, "hypothesis": texts.hypotheses, "other system": texts.against or []}
    for name, lines in sides.items():
        detached = sum(line.endswith(" .") for line in lines)
        if detached > _LOOKS_TOKENISED * len(texts.sources):
            warnings.append(
                f"The {name} looks tokenised: {detached} of {len(lines)} lines end in a full stop that stands alone. "
                "All scores expect plain text: detokenise it."
            )
    known = _known_to_moses()
    if known and language not in known:
        warnings.append(
            f"Moses has no abbreviations of “{language}”: it tokenises as if it were English. "
            f"It knows {', '.join(sorted(known))}."
        )
    return warnings


def _known_to_moses() -> set[str]:
    """The languages of Moses' tokenizer; none if it is not installed."""
    try:
        return metrics.moses_languages()
    except OnehopError:
        return set()


# --- output ---------------------------------------------------------------------------------------------------


def show(report: EvaluationReport) -> None:
    """Print a report on standard output: tables with lines on a terminal, otherwise plain columns."""
    out = console(stderr=False)
    if not out.is_terminal:
        out.width = 10_000  # a program may read it: no line is cut or wrapped
    versus = f" against {report.against}" if report.against else ""
    out.print(f"{report.hypothesis}{versus}: {counted(report.sentences, 'sentence')}, reference {report.reference}\n")
    out.print(_score_table(report, lined=out.is_terminal))
    out.print(f"\n{_legend(report)}\n")
    for row in report.scores.values():
        if row.score:
            out.print(f"{row.title}: {row.score.signature}")
    out.print()
    out.print(_length_table(report, lined=out.is_terminal))
    _show_sentences(out, report)
    for note in report.notes:
        out.print(f"\nNote: {note}")


def _empty_table(*columns: str, lined: bool) -> Table:
    """An empty table; the columns after the first hold numbers."""
    table = Table(box=box.SIMPLE if lined else None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column != columns[0] else "left")
    return table


def _score_table(report: EvaluationReport, *, lined: bool) -> Table:
    more = ("against", "95%", "difference", "p") if report.against else ()
    table = _empty_table("convention", "score", "95%", *more, lined=lined)
    for row in report.scores.values():
        table.add_row(*_cells(row))
    return table


def _cells(row: ConventionScore) -> list[str]:
    if row.score is None:
        return [row.title, "–", "–"]
    texts = [row.title, *_value_cells(row.score)]
    if row.against and row.difference is not None:
        texts += [*_value_cells(row.against), f"{row.difference:+.2f}", f"{row.p_value:.4f}"]
    return texts


def _value_cells(score: metrics.MetricScore) -> list[str]:
    return [f"{score.value:.2f}", f"± {score.interval.plus_minus:.2f}" if score.interval else ""]


def _legend(report: EvaluationReport) -> str:
    seed = next(row.score.interval.seed for row in report.scores.values() if row.score and row.score.interval)
    text = "".join(f"–: {reason}\n" for reason in {row.missing: 0 for row in report.scores.values() if row.missing})
    text += f"±: half of the 95% confidence interval, {report.resamples:,} bootstrap resamples, seed {seed}."
    if report.trials:
        text += (
            f"\np: how often chance alone would part the two so far; approximate randomisation, "
            f"{report.trials:,} trials, seed {seed}."
        )
    return text


def _length_table(report: EvaluationReport, *, lined: bool) -> Table:
    table = _empty_table("source words", "sentences", "BLEU 13a", "chrF2++", lined=lined)
    for bucket in report.lengths:
        table.add_row(str(bucket), f"{bucket.sentences:,}", f"{bucket.bleu:.2f}", f"{bucket.chrf:.2f}")
    return table


def _show_sentences(out: Console, report: EvaluationReport) -> None:
    if report.worst:
        out.print("\nWorst sentences by chrF2++")
    for sentence in report.worst:
        out.print(f"\nline {sentence.line}, chrF2++ {sentence.chrf:.2f}")
        for name in ("source", "reference", "hypothesis"):
            out.print(f"  {name:<11} {getattr(sentence, name)}")
