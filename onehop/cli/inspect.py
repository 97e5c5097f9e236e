"""Verbs that look inside a translation."""

from pathlib import Path
from typing import Annotated

import typer

from onehop.cli.app import Alpha, Device, Edits, ModelName, app, in_the_words_of_options

PANEL = "Look inside"


@app.command(rich_help_panel=PANEL)
def trace(
    text: Annotated[str, typer.Argument(help="A sentence.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The JSON file to write.")],
    model: ModelName = None,
    edits: Edits = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1: greedy.")] = 4,
    alpha: Alpha = None,
    limit: Annotated[int, typer.Option(min=1, help="Megabytes of tensors at most.")] = 32,
    device: Device = None,
) -> None:
    """Translate a sentence and write down every number on the way."""
    from onehop.decoding.options import SearchOptions
    from onehop.interpret.tracer import Tracer
    from onehop.storage.registry import find_model

    tracer = Tracer.load(find_model(model), device)
    with in_the_words_of_options():
        options = SearchOptions(beam=beam, alpha=alpha)
    found = tracer.trace(text, edits or [], options, limit * 2**20)
    found.write(out)
    left_out = found.header["left_out"]
    typer.echo(found.text)
    typer.echo(f"{out}: {len(found)} tensors" + (f", {len(left_out)} left out for their size" if left_out else ""))


@app.command(rich_help_panel=PANEL)
def explore(
    text: Annotated[str | None, typer.Argument(help="The sentence that the page opens with.")] = None,
    model: ModelName = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the page as one HTML file and leave.")
    ] = None,
    edits: Edits = None,
    patches: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Images to show: the patches.json of onehop demo digits.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Otherwise one that is free.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    device: Device = None,
) -> None:
    """Watch a translation from inside, in the browser or as one file."""
    from onehop.explorer import serve
    from onehop.explorer.content import Explorer
    from onehop.explorer.view import View
    from onehop.interpret.tracer import Tracer
    from onehop.storage.registry import find_model

    tracer = Tracer.load(find_model(model), device)
    explorer = Explorer(tracer, text, patches)
    if text is None and not explorer.readable:
        typer.echo(f"It reads {tracer.translator.source}, and the page opens in English: give a TEXT.", err=True)
    if export is None:
        serve.serve(explorer, port=port, browser=browser, say=typer.echo, edits=edits or [])
    else:
        View(explorer.alone(explorer.opening, edits or [])).save(export)
        typer.echo(export)
