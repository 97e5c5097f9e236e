"""Commands that make a model: settings, data, training, checkpoints."""

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from onehop.cli.app import (
    Changes,
    Device,
    SettingsArgument,
    Threads,
    app,
    machine_option,
    presets,
    say_waiting,
    settings_of,
    use_threads,
)
from onehop.cli.cluster import RayAddress
from onehop.config import Settings, settings_to_toml
from onehop.errors import SettingsError, TextError, check_folder, require

_PANEL = "Make a model"

_RunFolder = Annotated[Path, typer.Option("-o", "--out", help="The run folder, to start or to resume.")]
_TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")]


@app.command(rich_help_panel=_PANEL)
def config(settings: SettingsArgument, changes: Changes = None) -> None:
    """Print settings as TOML, each with a line of explanation."""
    typer.echo(settings_to_toml(settings_of(settings, changes)), nl=False)


@app.command(rich_help_panel=_PANEL)
def prepare(
    out: Annotated[Path, typer.Option("-o", "--out", help="The store to make.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Aligned files such as train.en train.de or train.{lang}; files with both sides: TSV, CSV, JSONL,"
            " Parquet, TMX, a dataset's folder; - for a TSV on standard input; for data.plain, text files."
        ),
    ] = None,
    settings: Annotated[
        str, typer.Option("-s", "--settings", autocompletion=presets, help="A preset or a TOML file.")
    ] = "base",
    languages: Annotated[
        str | None, typer.Option("--languages", "-l", help="Source and target, such as en-de.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the files that the settings name.")] = None,
    changes: Changes = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Use this SentencePiece model, or that of this onehop model.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a store made from other files or settings.")] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes. Default: one per core.")] = None,
    ray: RayAddress = None,
) -> None:
    """Turn raw text into a token store: filter, learn the vocabulary, encode."""
    from onehop.console import PrepareDisplay
    from onehop.data.filters import report_to_text
    from onehop.data.prepare import prepare as prepare_here

    make: Any = partial(prepare_here, processes=processes)
    if ray is not None:
        require("ray")
        from onehop.cluster.prepare import prepare_on_cluster

        make = partial(prepare_on_cluster, address=ray)
    model = tokenizer_of(tokenizer) if tokenizer else None
    if files == ["-"]:
        say_waiting()
    with PrepareDisplay() as display:
        store = make(
            _with_files(settings_of(settings, changes), files or [], languages),
            out,
            root=data,
            tokenizer=model,
            force=force,
            stdin=sys.stdin.buffer,
            progress=display,
        )
    typer.echo(report_to_text(store.report))
    what = "pairs" if store.holds == "parallel text" else "texts"
    typer.echo(f"{out}: {len(store.pairs('train')):,} {what} to train on, {len(store.pairs('valid')):,} to validate on")


def _with_files(settings: Settings, files: list[str], languages: str | None) -> Settings:
    """The settings with the command line's files and languages, if there are any."""
    from onehop.data.corpus import entries_from_names

    if settings.data.plain:
        language = languages or settings.data.target
        data = replace(settings.data, train=tuple(files) or settings.data.train, source=language, target=language)
        return replace(settings, data=data)
    entries, named = entries_from_names(files)
    pair = tuple(languages.split("-")) if languages else named or (settings.data.source, settings.data.target)
    if len(pair) != 2:
        raise TextError(f"-l {languages} does not name two languages.", "Write the source and the target: -l en-de.")
    data = replace(settings.data, train=entries or settings.data.train, source=pair[0], target=pair[1])
    return replace(settings, data=data)


@app.command(rich_help_panel=_PANEL)
def train(
    settings: SettingsArgument,
    out: _RunFolder,
    store: Annotated[Path | None, typer.Option(help="A store that `onehop prepare` made.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the files that the settings name; they are prepared first, in OUT/store."),
    ] = None,
    changes: Changes = None,
    device: Device = None,
    threads: Threads = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print memory, epochs and time, and exit (raw files are prepared).")
    ] = False,
    tensorboard: _TensorBoard = False,
    bleu_on: Annotated[int, typer.Option(min=0, help="Validation sentences translated for BLEU; 0: none.")] = 500,
    ray: RayAddress = None,
    workers: Annotated[
        int | None,
        machine_option(min=1, help="Training workers of --ray, each with a GPU or --threads."),
    ] = None,
) -> None:
    """Train a model. The same command resumes a stopped run exactly."""
    chosen = settings_of(settings, changes)
    use_threads(threads)
    from onehop.training import workflow  # imports torch, so errors in the settings come first

    if store is not None:
        workflow.check_agrees(chosen, changes or [], store)
    if dry_run:
        typer.echo(workflow.plan_to_text(workflow.dry_run(chosen, out, store=store, data=data, device=device), chosen))
        return
    if ray is not None or workers is not None:
        options = {"device": device, "threads": threads, "tensorboard": tensorboard, "bleu_on": bleu_on}
        _train_on_cluster(chosen, out, ray, workers, store=store, data=data, **options)
        return
    start = partial(workflow.train, chosen, out, store=store, data=data)
    _train_here(start, device=device, tensorboard=tensorboard, bleu_on=bleu_on)


def _train_here(start: Callable[..., Path | None], *, device: str | None, **options: Any) -> None:
    """Train and print the model file. After a signal, exit with its status, as other commands do."""
    from onehop.training.distributed import exit_together
    from onehop.training.signals import stopping_signal
    from onehop.training.workflow import is_main_process

    with exit_together(device):  # several processes exit with 0 at its end
        model = start(device=device, **options)
        if model is not None and is_main_process():
            typer.echo(model)
    if model is None:
        raise typer.Exit(128 + (stopping_signal() or signal.SIGTERM))


def _train_on_cluster(settings: Settings, out: Path, ray: str | None, workers: int | None, **how: Any) -> None:
    if ray is None:
        raise SettingsError("--workers needs a cluster.", "Give --ray local, or start several processes with torchrun.")
    require("ray")
    from onehop.cluster.train import train_on_cluster

    model = train_on_cluster(settings, out, address=ray, workers=workers or 1, **how)
    if model is not None:
        typer.echo(model)


@app.command(rich_help_panel=_PANEL)
def finetune(
    model: Annotated[str, typer.Argument(help="An installed model, a model file or a run folder.")],
    files: Annotated[
        list[str],
        typer.Argument(help="Aligned files such as mine.en mine.de, or files with both sides: TSV, CSV, JSONL, TMX …"),
    ],
    out: _RunFolder,
    valid: Annotated[
        list[str] | None, typer.Option(help="Validation pairs. Default: some are split off. Repeatable.")
    ] = None,
    mix: Annotated[
        list[str] | None, typer.Option(help="General pairs, as many per epoch, against forgetting. Repeatable.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("-s", "--settings", help="A TOML file with the settings to change.")
    ] = None,
    changes: Changes = None,
    device: Device = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and the time that it takes, and exit.")
    ] = False,
    tensorboard: _TensorBoard = False,
    bleu_on: Annotated[int, typer.Option(min=0, help="Validation sentences translated for BLEU; 0: none.")] = 200,
    threads: Threads = None,
) -> None:
    """Adapt a model to your own text. The same command resumes."""
    _check_tuning_files(model, files, valid or [], mix or [])
    use_threads(threads)
    from onehop.training import finetune as tuning

    inputs: dict[str, Any] = {"valid": valid or (), "mix": mix or (), "settings": settings, "changes": changes or ()}
    if dry_run:
        ready = tuning.prepare(model, files, out, **inputs)
        typer.echo(tuning.dry_run(ready, out, device=device, bleu_on=bleu_on))
        return
    start = partial(tuning.finetune, model, files, out, **inputs)
    _train_here(start, device=device, tensorboard=tensorboard, bleu_on=bleu_on)


def _check_tuning_files(model: str, *groups: list[str]) -> None:
    """Refuse a wrong model and missing files before torch is imported."""
    from onehop.data.corpus import entries_from_names, find_files
    from onehop.storage.model_label import check_kind, describe
    from onehop.storage.registry import named_model

    path = named_model(model)
    check_kind(path, None)
    pair = describe(path).pair
    for names in groups:
        entries, languages = entries_from_names(names)
        find_files(entries, Path(), *(languages or pair))


@app.command(rich_help_panel=_PANEL)
def average(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    last: Annotated[int, typer.Option(min=1, help="Number of last checkpoints.")] = 5,
    ema: Annotated[bool, typer.Option("--ema", help="The EMA of the last checkpoint instead.")] = False,
) -> None:
    """Average a run's last checkpoints into a model file. The run may be unfinished."""
    from onehop.storage.run_folder import Run

    Run(run).check_exists()
    from onehop.training.workflow import average as average_run  # imports torch, so errors come first

    steps = average_run(run, last, out, ema=ema)
    what = "the exponential average" if ema else "the mean of the weights"
    typer.echo(f"{out}: {what} after {'step' if ema else 'steps'} {', '.join(map(str, steps))}")


@app.command(rich_help_panel=_PANEL)
def curves(
    run: Annotated[Path, typer.Argument(help="A run folder, or a metrics.jsonl.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The picture: .png or .svg.")] = Path("curves.svg"),
) -> None:
    """Draw a run's loss, validation scores and learning rate."""
    from onehop.evaluation.curves import draw

    draw(run, out)
    typer.echo(out)


@app.command(name="verify-resume", rich_help_panel=_PANEL)
def verify_resume(
    folder: Annotated[Path | None, typer.Option("-o", "--out", help="Keep the runs here.")] = None,
    kills: Annotated[int, typer.Option(min=1, help="Number of kills.")] = 3,
    steps: Annotated[int, typer.Option(min=10, help="Steps of the run.")] = 120,
    seed: Annotated[int, typer.Option(help="Seed of the steps at which it is killed.")] = 1,
    device: Annotated[str, machine_option(help="cpu, cuda or cuda:N.")] = "cpu",
    threads: Threads = None,
    ray: RayAddress = None,
    workers: Annotated[int, machine_option(min=1, help="Training workers of --ray.")] = 2,
) -> None:
    """Train, kill at random steps, resume, and compare with an uninterrupted run."""
    check_folder(folder)
    use_threads(threads)
    options: dict[str, Any] = {"kills": kills, "steps": steps, "seed": seed, "say": typer.echo}
    if ray is not None:
        require("ray")
    from onehop.experiments import verify_resume as proof

    if ray is not None:
        is_same = proof.verify_cluster_resume(folder, address=ray, workers=workers, **options)
    else:
        is_same = proof.verify_resume(folder, device=device, **options)
    if not is_same:
        raise typer.Exit(1)


def tokenizer_of(name: str) -> bytes:
    """The bytes of a SentencePiece model, from a file, a model or a run folder."""
    from onehop.data.corpus import read_errors
    from onehop.storage.model_io import read_model
    from onehop.storage.model_label import SUFFIX
    from onehop.storage.registry import installed, named_model

    if name in installed() or name.endswith(SUFFIX) or Path(name).is_dir():
        return read_model(named_model(name)).tokenizer
    with read_errors(name):
        return Path(name).read_bytes()
