"""Commands that translate, and score translations."""

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onehop.cli.app import (
    NAME_OR_FILE,
    USE,
    Alpha,
    Device,
    ModelName,
    Threads,
    WorkerThreads,
    app,
    errors_name_cli_options,
    machine_option,
    search_option,
    use_threads,
)
from onehop.cli.cluster import RayAddress, local_path
from onehop.errors import SettingsError, TextError

if TYPE_CHECKING:
    from onehop.cli.cluster import ClusterInputs
    from onehop.cli.documents import DocumentInputs
    from onehop.cli.line_filter import LineInputs
    from onehop.pipelines.documents import ReadOptions

_document_option = partial(typer.Option, rich_help_panel="Documents")
_wording_option = partial(typer.Option, rich_help_panel="Sentences and wording")

_ComputeOption = Annotated[
    Literal["int8", "float32", "bfloat16", "float16"] | None,
    machine_option(help="Default: int8 for CTranslate2, float32 for torch."),
]


@app.command(rich_help_panel=USE)
def translate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT | FILE | FOLDER]...",
            help="A text, or documents. Default: --input, or stdin line by line.",
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="A text file, line by line, also .gz .xz .zst; repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The file to write, or the folder for several; each appears when complete."),
    ] = None,
    is_text: Annotated[
        bool, typer.Option("--text", help="The words are a text, even if a file has that name.")
    ] = False,
    format: Annotated[
        str | None,
        _document_option(
            metavar="FORMAT", help="Format of the documents. Default: by ending (docs/guide/translate.md)."
        ),
    ] = None,
    join_lines: Annotated[
        bool,
        _document_option("--join-lines", help="Join the lines of a paragraph in text documents."),
    ] = False,
    fields: Annotated[
        list[str] | None,
        _document_option("--field", metavar="NAME", help="Translate only this key or column; repeatable."),
    ] = None,
    model: ModelName = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", "--source", metavar="LANGUAGE", help="Source language. Default: identified, or the model's."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", "--target", metavar="LANGUAGE", help="Target language. Default: the model's."),
    ] = None,
    quality: Annotated[
        Literal["best", "fast"] | None,
        typer.Option(help="fast: the small model NAME-small and greedy search; best: the full model. Default: best."),
    ] = None,
    beam: Annotated[
        int | None,
        search_option(help="Width of the beam; 1: greedy. Default: 4, with --quality fast 1."),
    ] = None,
    alpha: Alpha = None,
    n_best: Annotated[
        int,
        search_option(help="Number of translations: in --json, or with --whole-lines as NUMBER ||| TEXT ||| SCORE."),
    ] = 1,
    sample: Annotated[bool, search_option("--sample", help="Sample tokens instead of beam search.")] = False,
    temperature: Annotated[float, search_option(help="Of sampling: below 1 sharper, above 1 flatter.")] = 1.0,
    top_k: Annotated[int, search_option(help="Of sampling: only the k most probable tokens; 0: all.")] = 0,
    top_p: Annotated[
        float,
        search_option(help="Of sampling: the most probable tokens that reach this probability together."),
    ] = 1.0,
    seed: Annotated[
        int,
        search_option(help="Seed of sampling; the sample depends on it and the line number."),
    ] = 1,
    glossary: Annotated[Path | None, _wording_option(help="TSV of wanted terms: source TAB target.")] = None,
    keep: Annotated[
        list[str] | None,
        _wording_option(metavar="WORD", help="A word that stays as it is; repeatable."),
    ] = None,
    formality: Annotated[
        Literal["formal", "informal"] | None,
        _wording_option(help="How German and French address the reader: Sie and vous, or du and tu."),
    ] = None,
    whole_lines: Annotated[bool, _wording_option("--whole-lines", help="Translate each line as one sentence.")] = False,
    keep_capitals: Annotated[
        bool,
        _wording_option("--keep-capitals", help="Do not change the case of sentences IN CAPITALS."),
    ] = False,
    batch_size: Annotated[
        int | None,
        machine_option(min=1, help="Maximum sentences per batch. Default: by tokens."),
    ] = None,
    compute: _ComputeOption = None,
    engine: Annotated[
        Literal["auto", "ctranslate2", "torch"],
        machine_option(help="auto: CTranslate2 on a CPU, torch on a GPU or for its options."),
    ] = "auto",
    device: Device = None,
    workers: Annotated[
        int | None,
        machine_option(min=1, help="Worker processes for --input or --ray. Default: 1; with --ray all cores."),
    ] = None,
    ray: RayAddress = None,
    threads: WorkerThreads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object per line, with all details.")] = False,
    alignments: Annotated[bool, search_option("--alignments", help="Add alignments to --json; takes longer.")] = False,
) -> None:
    """Translate a text, documents, folders, or lines of files and stdin.

    \b
    onehop translate "Good morning!"
    onehop translate --to fr report.docx -o rapport.docx
    onehop translate -i news.en -o news.de
    """
    from onehop.cli.documents import DocumentInputs
    from onehop.decoding.options import SearchOptions
    from onehop.pipelines.arguments import beam_for, terms_of
    from onehop.pipelines.bulk import BulkJob, Output, threads_of
    from onehop.pipelines.documents import ReadOptions
    from onehop.pipelines.route import AlreadyTranslatedError, find_route
    from onehop.pipelines.sentence_translator import check_engine_options
    from onehop.storage.model_label import describe

    if out is None and sys.stdout is None:
        raise TextError("Standard output is closed.", "Give -o FILE.")
    reading = ReadOptions(format=format, join_lines=join_lines, fields=tuple(fields or ()))
    inputs = _inputs_of(
        words or [],
        files or [],
        local_path(out),
        reading,
        ray=ray,
        workers=workers,
        is_text=is_text,
        as_json=as_json,
        gpu=(device or "").startswith("cuda"),
    )
    if not as_json:
        _check_plain(n_best, alignments, moses=whole_lines and not isinstance(inputs, DocumentInputs))
    with errors_name_cli_options():
        options = SearchOptions(
            beam=beam_for(quality, beam),
            alpha=alpha,
            n_best=n_best,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
    terms = terms_of(glossary, keep or [], formality)
    output: Output = "json" if as_json else "moses" if n_best > 1 else "text"
    try:
        route = find_route(model, source, target, inputs.sample, quality)
    except AlreadyTranslatedError as e:
        inputs.give_back(e, BulkJob(options=options, output=output))
        return
    if len(route) > 1 and (alignments or n_best > 1):
        between = describe(route[0]).content["target"]
        remedy = "Leave them out, or choose a model with both languages."
        raise SettingsError(f"There are no --alignments and --n-best through {between}.", remedy)
    check_engine_options(device, engine, compute, threads)
    inputs.translate(
        BulkJob(
            route=route,
            device=device,
            engine=engine,
            compute=compute,
            threads=threads if ray is not None else threads_of(workers or 1, threads),
            options=options,
            terms=terms,
            whole_lines=whole_lines,
            keep_capitals=keep_capitals,
            batch_size=batch_size,
            output=output,
            alignments=alignments,
        )
    )


def _inputs_of(
    words: list[str],
    files: list[Path],
    out: Path | None,
    reading: "ReadOptions",
    *,
    ray: str | None,
    workers: int | None,
    is_text: bool,
    as_json: bool,
    gpu: bool,
) -> "ClusterInputs | DocumentInputs | LineInputs":
    """What the arguments name: inputs of a cluster, documents, or lines."""
    from onehop.cli import cluster, documents, line_filter

    if ray is not None:
        unsupported = {"text": is_text, "format": reading.format, "join_lines": reading.join_lines}
        names = [*words, *map(str, files)]
        return cluster.cluster_inputs(ray, names, out, workers=workers, fields=reading.fields, **unsupported)
    if words == ["-"] or files == [Path("-")]:  # standard input
        words, files = [], []
    if words and files:
        raise SettingsError("Both a text and --input are given.", "Give one of them.")
    paths = [] if is_text else documents.existing(words)
    document_inputs = documents.document_inputs(paths, out, reading, as_json=as_json)
    if workers is not None and workers > 1 and not files:
        raise SettingsError(f"--workers {workers} share the lines of files.", "Give them with --input.")
    text = " ".join(words) if words else None
    return document_inputs or line_filter.LineInputs(text, files, out, workers=workers or 1, gpu=gpu)


def _check_plain(n_best: int, alignments: bool, *, moses: bool) -> None:
    """Refuse options whose result plain text cannot show. Moses's format can show n-best lists."""
    if n_best > 1 and not moses:
        remedy = "Give --json, or --whole-lines for Moses's format."
        raise SettingsError(f"--n-best {n_best} does not work with plain text.", remedy)
    if alignments:
        raise SettingsError("--alignments do not work with plain text.", "Give --json too.")


@app.command(rich_help_panel=USE)
def evaluate(
    src: Annotated[Path | None, typer.Option(help="The source, one sentence per line.")] = None,
    ref: Annotated[Path | None, typer.Option(help="The reference translation.")] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            help="Plain text, one per line, for a decoder's perplexity or an encoder's masked-token accuracy."
        ),
    ] = None,
    hyp: Annotated[Path | None, typer.Option(help="The translation to score.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", **NAME_OR_FILE, help="A model that translates the source now.")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Another system's translations, to compare with.")] = None,
    language: Annotated[
        str | None,
        typer.Option("--language", "-l", help="Target language for Moses. Default: the model's, or from REF's name."),
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 1000,
    worst: Annotated[int, typer.Option(min=0, help="Number of worst sentences to show.")] = 5,
    beam: Annotated[int, typer.Option(min=1, help="Width of the beam of --model; 1: greedy.")] = 4,
    compute: _ComputeOption = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    threads: Threads = None,
) -> None:
    """Score translations in every BLEU convention, chrF and TER, with confidence intervals."""
    use_threads(threads)
    from onehop.evaluation import report

    if text is not None:
        figures = report.evaluate_text(text, model)
        typer.echo(json.dumps(figures.figures(), indent=1) if as_json else "\n".join(figures.lines()))
        return
    if src is None or ref is None:
        missing = " and ".join(name for name, file in (("--src", src), ("--ref", ref)) if file is None)
        remedy = "Give --src and --ref, or --text for a decoder or an encoder."
        raise SettingsError(f"Evaluation needs {missing}.", remedy)
    result = report.evaluate(
        src,
        ref,
        hyp=hyp,
        model=model,
        against=against,
        language=language,
        resamples=resamples,
        worst=worst,
        beam=beam,
        compute=compute,
        device=device,
    )
    if as_json:
        typer.echo(json.dumps(asdict(result), ensure_ascii=False, indent=1))
    else:
        report.show(result)
