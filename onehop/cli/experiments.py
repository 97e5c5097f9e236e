"""`onehop demo` and `onehop paper`: short demonstrations, the paper's tables and the explorer's measurements."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from onehop.cli.app import (
    Changes,
    Device,
    ModelName,
    OneLineErrors,
    SettingsArgument,
    Threads,
    app,
    settings_of,
    use_threads,
)
from onehop.errors import SettingsError, check_folder, write_errors

_PANEL = "The paper"

_demo_app = typer.Typer(cls=OneLineErrors, invoke_without_command=True)
_paper_app = typer.Typer(cls=OneLineErrors, no_args_is_help=True, help="The paper's tables, measured here.")
app.add_typer(_demo_app, name="demo", rich_help_panel="Look inside")
app.add_typer(_paper_app, name="paper", rich_help_panel=_PANEL)

_KeptFolder = Annotated[Path | None, typer.Option("-o", "--out", help="Keep data, run, model and picture here.")]
_PaperOut = Annotated[
    Path | None, typer.Option("-o", "--out", help="The folder for table, picture and raw numbers. Default: none.")
]


@_demo_app.callback()
def demo(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("-o", "--out", help="The explorer's page, an HTML file.")] = Path(
        "onehop-demo.html"
    ),
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate three sentences, show where the model looked, and write the explorer's page."""
    if (command := ctx.invoked_subcommand) is not None:
        for name in ("out", "device", "threads"):
            if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE":
                raise SettingsError(
                    f"--{name} stands before {command}.", f"Give options after `onehop demo {command}`."
                )
        return
    use_threads(threads)
    from onehop.experiments.demo import demo as show_demo

    show_demo(out, device)


@_demo_app.command(name="reverse")
def demo_reverse(folder: _KeptFolder = None) -> None:
    """Train a small Transformer in under a minute to reverse digits, and translate with it."""
    from onehop.experiments import reverse

    reverse.show(reverse.run(folder))


@_demo_app.command(name="captions")
def demo_captions(
    folder: Annotated[Path, typer.Option("-o", "--out", help="The folder for the files.")] = Path("captions"),
) -> None:
    """Download 29,000 English and German captions (Multi30k) for a first training; research only."""
    from onehop.experiments.captions import fetch

    fetch(folder, typer.echo)


@_demo_app.command(name="digits")
def demo_digits(
    folder: _KeptFolder = None,
    changes: Changes = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train a Transformer to read handwritten digits, and test it on held-out ones."""
    check_folder(folder)
    use_threads(threads)
    from onehop.experiments.digits import run

    outcome = run(folder, changes, device=device)
    if outcome is not None:
        typer.echo(f"{outcome.right} of {outcome.of} held-out digits read right: {outcome.share:.1%}")
        if folder is not None:
            typer.echo(f"{outcome.model}\n{outcome.picture}\n{outcome.patches}")


@_paper_app.command(name="table1")
def paper_table1(
    out: _PaperOut = None,
    longest: Annotated[int, typer.Option(min=256, help="Greatest length.")] = 2048,
    widest: Annotated[int, typer.Option(min=128, help="Greatest width.")] = 512,
    repeats: Annotated[int, typer.Option(min=1, help="Number of runs; the fastest counts.")] = 5,
) -> None:
    """Measure time and memory of layers at growing n and d, and how far gradients reach."""
    check_folder(out)
    from onehop.experiments import provenance, table1

    lengths = [n for n in table1.LENGTHS if n <= longest]
    result = table1.table1(lengths, [d for d in table1.WIDTHS if d <= widest], repeats)
    record = {**provenance.origin("onehop paper table1"), **result}
    _show_table(out, "table1", record, table1.table_text(result), lambda: table1.picture(result))


@_paper_app.command(name="family")
def paper_family(
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The picture, an .svg. Default: none.")] = None,
) -> None:
    """Show which parts of the paper's model BERT, GPT and ViT keep, drop and add."""
    from onehop.experiments import family_figure

    if out is not None and out.suffix != ".svg":
        raise SettingsError(f"{out} does not end in .svg.", "Give a name that ends in .svg with -o.")
    typer.echo(family_figure.table_text())
    if out is not None:
        with write_errors(out):
            out.write_text(family_figure.picture(), encoding="utf-8")
        typer.echo(out)


@_paper_app.command(name="heads")
def paper_heads(
    source: Annotated[Path, typer.Option(help="Sentences, one per line.")],
    reference: Annotated[Path, typer.Option(help="Their reference translations.")],
    out: _PaperOut = None,
    model: ModelName = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many.")] = 300,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Measure what the heads of a model look at, and its quality without some of them."""
    check_folder(out)
    from onehop.evaluation.report import aligned
    from onehop.storage.registry import find_model

    sources, references = (lines[:sentences] for lines in aligned([source, reference]))
    path = find_model(model)
    use_threads(threads)
    from onehop.experiments import heads, provenance
    from onehop.interpret.tracer import Tracer

    tracer = Tracer.load(path, device)
    result = heads.heads(tracer, sources, references)
    files = f"--source {source.name} --reference {reference.name} --sentences {sentences}"
    command = f"onehop paper heads -m {model or tracer.about()['name']} {files}"
    record = {**provenance.origin(command), "model": tracer.about()["hash"], **result}
    _show_table(out, "heads", record, heads.table_text(result), lambda: heads.picture(result))


@_paper_app.command(name="table3")
def paper_table3(
    settings: SettingsArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder for the trainings, table and picture.")],
    rows: Annotated[str | None, typer.Option(help="Letters or names, such as A,E,dropout-0. Default: all.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the files that the settings name.")] = None,
    store: Annotated[Path | None, typer.Option(help="A store that `onehop prepare` made, instead of files.")] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="Number of its pairs to train on. Default: all.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each row.")] = 1,
    at_once: Annotated[
        int, typer.Option(min=1, help="Trainings at the same time on one device, one process each.")
    ] = 1,
    finished: Annotated[
        bool, typer.Option("--finished", help="Make the table of finished rows; train nothing.")
    ] = False,
    changes: Changes = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train every variation of the model and show its scores beside the paper's. The same command resumes."""
    chosen = settings_of(settings, changes)
    use_threads(threads)
    from onehop.experiments import provenance, table3, table3_report

    variations = table3.chosen_rows(rows)
    if finished:
        result: dict[str, Any] | None = table3.finished(chosen, out, variations, seeds=seeds)
    else:
        result = table3.table3(
            chosen,
            table3.store_for(chosen, out, data, store, pairs),
            out,
            variations,
            seeds=seeds,
            device=device,
            at_once=at_once,
            say=typer.echo,
        )
    if result is None:
        raise typer.Exit(130)  # interrupted: the table is incomplete
    options = [f"--rows {rows}"] * (rows is not None) + [f"--set {change}" for change in changes or []]
    options += [f"--pairs {pairs}"] * (pairs is not None)
    command = " ".join(
        ["onehop paper table3", Path(settings).name, *options, f"--seeds {seeds}", *["--finished"] * finished]
    )
    record = {**provenance.origin(command), **result}
    _show_table(out, "table3", record, table3_report.table_text(result), lambda: table3_report.picture(result))


@_paper_app.command(name="measure")
def paper_measure(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="dimension, paths, complexity, coreference, …")],
    model: ModelName = None,
    source: Annotated[Path | None, typer.Option(help="Sentences, one per line.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Their reference translations.")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many.")] = 300,
    store: Annotated[Path | None, typer.Option(help="For warmup: a store that `onehop prepare` made.")] = None,
    steps: Annotated[int, typer.Option(min=3, help="For warmup: steps of each training.")] = 500,
    table3: Annotated[Path | None, typer.Option(help="For twins: the JSON file of `onehop paper table3`.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The folder. Default: the explorer's own.")] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Measure what the explorer shows besides one translation; docs/guide/explore.md describes each name."""
    check_folder(out)
    use_threads(threads)
    from onehop.experiments.measure import MeasureInputs, measure

    inputs = MeasureInputs(
        model=model,
        source=source,
        reference=reference,
        sentences=sentences,
        store=store,
        steps=steps,
        table3=table3,
        device=device,
    )
    for name in names:
        inputs.check(name)
    from onehop.explorer.content import DATA  # imports torch, so errors in the arguments come first

    for name in names:
        typer.echo(measure(name, inputs, out or DATA))


def _show_table(out: Path | None, name: str, record: Mapping[str, Any], text: str, picture: Callable[[], Any]) -> None:
    """Print the table. With a folder, write it there too and print the paths."""
    from onehop.experiments.provenance import write_table

    typer.echo(text)
    for file in write_table(out, name, record, text, picture) if out is not None else []:
        typer.echo(file)
