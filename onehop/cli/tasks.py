"""Commands of the other models: GPT and BERT."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from onehop.cli.app import NAME_OR_FILE, Device, Threads, app, errors_name_cli_options, say_waiting, use_threads
from onehop.errors import SettingsError, require, write_errors

_PANEL = "The same blocks in other models"


@app.command(rich_help_panel=_PANEL)
def generate(
    model: Annotated[str, typer.Option("--model", "-m", **NAME_OR_FILE, help="A decoder that onehop trained.")],
    prompt: Annotated[str, typer.Argument(help="The beginning of the text. Default: empty.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens.")] = 200,
    temperature: Annotated[float, typer.Option(min=0, help="Below 1 sharper, above 1 flatter; 0: greedy.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Only the k most probable tokens; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Only the most probable tokens that reach this probability together.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling.")] = 1,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of texts; a single one is streamed.")] = 1,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Continue a text, token by token."""
    _check_model(model, "decoder")
    use_threads(threads)
    from onehop.pipelines.generate import Writer, options_of

    writer = Writer.load(model, device)
    with errors_name_cli_options():
        options = options_of(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, count=count)
    if count == 1:
        writer.write(prompt, options, tokens, lambda piece: typer.echo(piece, nl=False))
        typer.echo()
    else:
        for text in writer.write(prompt, options, tokens):
            typer.echo(text)


@app.command(rich_help_panel=_PANEL)
def embed(
    model: Annotated[str, typer.Option("--model", "-m", **NAME_OR_FILE, help="An encoder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Sentences. Default: --input, or stdin.")] = None,
    input_: Annotated[Path | None, typer.Option("--input", "-i", help="A file, one sentence per line.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Save the vectors as .npy instead of printing.")
    ] = None,
    among: Annotated[
        Path | None, typer.Option("--nearest", metavar="FILE", help="Print the nearest lines of this file instead.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 5,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Turn sentences into vectors, or find the lines of a file that are nearest in meaning."""
    _check_model(model, "encoder")
    use_threads(threads)
    import numpy as np

    from onehop.data.filters import counted
    from onehop.evaluation.report import read_lines
    from onehop.pipelines.embed import Embedder, nearest

    if out is not None and out.suffix != ".npy":
        raise SettingsError(f"{out} does not end in .npy, as numpy's files do.", "Name it so, or print without -o.")
    if not (texts or input_):
        say_waiting()
    sentences = texts or (read_lines(input_) if input_ else [line.rstrip("\n") for line in sys.stdin])
    others = read_lines(among) if among else None
    embedder = Embedder.load(model, device)
    vectors = embedder.vectors(sentences)
    if out is not None:
        with write_errors(out), out.open("wb") as file:
            np.save(file, vectors)
        typer.echo(f"{out}: {counted(len(vectors), 'vector')} of {vectors.shape[1]} numbers")
    elif others is None:
        typer.echo("\n".join(json.dumps([round(float(x), 6) for x in vector]) for vector in vectors))
    else:
        near = nearest(vectors, embedder.vectors(others), others, count)
        for sentence, neighbours in zip(sentences, near, strict=True):
            lines = (f"{n.cosine:8.3f}  line {n.index + 1}: {n.text}" for n in neighbours)
            typer.echo("\n".join([sentence, *lines]))
    if embedder.cut:
        typer.echo(f"onehop: Texts truncated to the model's maximum length: {embedder.cut}.", err=True)


@app.command(rich_help_panel=_PANEL)
def fill(
    text: Annotated[str, typer.Argument(help="A text with [MASK] at the wanted word.")],
    model: Annotated[str, typer.Option("--model", "-m", **NAME_OR_FILE, help="An encoder that onehop trained.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Predictions per mask.")] = 5,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Predict the masked words of a text."""
    _check_model(model, "encoder")
    use_threads(threads)
    from onehop.pipelines.fill_mask import Filler

    for gap in Filler.load(model, device).fill(text, count):
        for word in gap:
            typer.echo(f"{word.probability:6.1%}  {word.text}")


def _check_model(model: str, kind: str) -> None:
    """Refuse a model that is missing or of another kind, before torch is imported."""
    require("torch")
    from onehop.storage.model_label import check_kind
    from onehop.storage.registry import named_model

    check_kind(named_model(model), kind)
