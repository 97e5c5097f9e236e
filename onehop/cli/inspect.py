"""Verbs that look inside a translation."""

from pathlib import Path
from typing import Annotated

import typer

from onehop.cli.app import (
    Alpha,
    Device,
    Edits,
    ModelName,
    Threads,
    app,
    check_writable,
    in_the_words_of_options,
    use_threads,
)
from onehop.errors import require

_PANEL = "Look inside"

Limit = Annotated[int, typer.Option(min=1, help="Megabytes of tensors at most; a long sentence needs more.")]


@app.command(rich_help_panel=_PANEL)
def trace(
    text: Annotated[str, typer.Argument(help="A sentence.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The JSON file to write.")],
    model: ModelName = None,
    edits: Edits = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1: greedy.")] = 4,
    alpha: Alpha = None,
    limit: Limit = 32,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Translate a sentence and write down every number on the way."""
    from onehop.decoding.options import SearchOptions
    from onehop.storage.registry import find_model

    with in_the_words_of_options():
        options = SearchOptions(beam=beam, alpha=alpha)
    check_writable(out)
    path = find_model(model)
    use_threads(threads)
    from onehop.interpret.tracer import Tracer  # torch comes last: what is wrong is said at once

    found = Tracer.load(path, device).trace(text, edits or [], options, limit * 2**20)
    found.write(out)
    left_out = found.header["left_out"]
    typer.echo(found.text)
    typer.echo(f"{out}: {len(found)} tensors" + (f", {len(left_out)} left out for their size" if left_out else ""))


@app.command(rich_help_panel=_PANEL)
def explore(
    text: Annotated[str | None, typer.Argument(help="The sentence that the page opens with.")] = None,
    model: ModelName = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the page as one HTML file and leave.")
    ] = None,
    edits: Edits = None,
    limit: Limit = 32,
    patches: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Images to show: the patches.json of onehop demo digits.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Otherwise one that is free.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Watch a translation from inside, in the browser or as one file."""
    from onehop.storage.registry import find_model

    if export is None:
        require("starlette", "uvicorn", instead="write a file with --export")
    else:
        check_writable(export)
    path = find_model(model)
    use_threads(threads)
    from onehop.explorer import serve
    from onehop.explorer.content import Explorer
    from onehop.explorer.view import View
    from onehop.interpret.tracer import Tracer

    tracer = Tracer.load(path, device)
    explorer = Explorer(tracer, text, patches, limit=limit * 2**20)
    if text is None and not explorer.readable:
        typer.echo(f"It reads {tracer.translator.source}, and the page opens in English: give a TEXT.", err=True)
    if export is None:
        serve.serve(explorer, port=port, browser=browser, say=typer.echo, edits=edits or [])
    else:
        View(explorer.alone(explorer.opening, edits or [])).save(export)
        typer.echo(export)
