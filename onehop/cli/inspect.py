"""Commands that show the inside of a translation."""

from pathlib import Path
from typing import Annotated

import typer

from onehop.cli.app import (
    NAME_OR_FILE,
    Alpha,
    Device,
    Edits,
    ModelName,
    Threads,
    app,
    check_writable,
    errors_name_cli_options,
    search_option,
    use_threads,
)
from onehop.errors import SettingsError, require

_PANEL = "Look inside"

_Limit = Annotated[int, typer.Option(min=1, help="Maximum megabytes of tensors; a long sentence needs more.")]


@app.command(rich_help_panel=_PANEL)
def trace(
    text: Annotated[str, typer.Argument(help="A sentence.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The JSON file to write.")],
    model: ModelName = None,
    edits: Edits = None,
    beam: Annotated[int, search_option(help="Width of the beam; 1: greedy.")] = 4,
    alpha: Alpha = None,
    limit: _Limit = 32,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate a sentence and write every number of the forward pass."""
    from onehop.decoding.options import SearchOptions
    from onehop.storage.registry import find_model

    with errors_name_cli_options():
        options = SearchOptions(beam=beam, alpha=alpha)
    check_writable(out)
    path = find_model(model)
    use_threads(threads)
    from onehop.interpret.tracer import Tracer  # imports torch, so errors in the arguments come first

    recorded = Tracer.load(path, device).trace(text, edits or [], options, limit * 2**20)
    recorded.write(out)
    left_out = recorded.header["left_out"]
    typer.echo(recorded.text)
    typer.echo(f"{out}: {len(recorded)} tensors" + (f", {len(left_out)} left out for their size" if left_out else ""))


@app.command(rich_help_panel=_PANEL)
def explore(
    text: Annotated[str | None, typer.Argument(help="The first sentence of the page.")] = None,
    model: ModelName = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the page as one HTML file and exit.")
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a static site with the model in it, which runs in the browser."),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(**NAME_OR_FILE, help="A second model of the same languages, shown beside the first.")
    ] = None,
    edits: Edits = None,
    limit: _Limit = 32,
    patches: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Images to show: the patches.json of onehop demo digits.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: a free port.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Look inside a translation, in the browser, in one HTML file or as a static site."""
    from onehop.storage.registry import DEFAULT, SMALL, find_model, installed

    if site is not None:
        _check_site(site, export, edits)
        if model is None and DEFAULT + SMALL in installed():
            model = DEFAULT + SMALL  # visitors download it
    elif export is None:
        require("starlette", "uvicorn", instead="write a file with --export")
    else:
        check_writable(export)
    path = find_model(model)
    if compare is not None and (site or export) is not None:
        raise SettingsError("A file or site holds one model.", "Leave out --compare, or --site and --export.")
    beside = None if compare is None else _comparable(path, find_model(compare))
    use_threads(threads)
    from onehop.explorer import serve
    from onehop.explorer.content import Explorer
    from onehop.explorer.view import View
    from onehop.interpret.tracer import Tracer

    tracer, most = Tracer.load(path, device), limit * 2**20
    other = None if beside is None else Explorer(Tracer.load(beside, device), text, limit=most)
    explorer = Explorer(tracer, text, patches, limit=most, other=other)
    if text is None and not explorer.readable:
        typer.echo(f"It reads {tracer.translator.source}, and the page opens in English: give a TEXT.", err=True)
    if site is not None:
        from onehop.explorer.site import write_site

        size = write_site(explorer, path, site)
        typer.echo(f"{site}: {size / 1e6:.0f} MB. Put it on any web server, or run: python -m http.server -d {site}")
    elif export is None:
        serve.serve(explorer, port=port, browser=browser, say=typer.echo, edits=edits or [])
    else:
        View(explorer.alone(explorer.opening, edits or [])).save(export)
        typer.echo(export)


def _check_site(site: Path, export: Path | None, edits: list[str] | None) -> None:
    """Refuse conflicting options and a folder that is not empty, before any work is done."""
    if export is not None:
        raise SettingsError("--site and --export are both given.", "Write one at a time.")
    if edits:
        raise SettingsError("A site opens with the model as trained.", "Leave out --edit: the page has the switches.")
    if site.exists() and not site.is_dir():
        raise SettingsError(f"{site} is a file.", "Give --site the name of a new folder.")
    if not site.absolute().parent.is_dir():
        raise SettingsError(f"There is no folder {site.absolute().parent} to put the site into.", "Create it first.")
    if site.is_dir() and any(site.iterdir()):
        raise SettingsError(f"The folder {site} is not empty.", "Choose a new one, or empty it first.")


def _comparable(path: Path, other: Path) -> Path:
    """The other model, if it is not the same one and has the same languages."""
    from onehop.storage.model_label import check_kind, describe
    from onehop.storage.registry import short_name

    check_kind(other, None)
    labels, names = [describe(file) for file in (path, other)], [short_name(file) for file in (path, other)]
    if labels[0].hash == labels[1].hash:
        raise SettingsError(f"{names[0]} and {names[1]} are the same model.", "Give --compare another one.")
    first, second = (label.pair for label in labels)
    if first != second:
        raise SettingsError(
            f"{names[1]} translates {second[0]} to {second[1]}, and {names[0]} {first[0]} to {first[1]}.",
            "Give --compare a model of the same languages; `onehop models list` shows them.",
        )
    return other
