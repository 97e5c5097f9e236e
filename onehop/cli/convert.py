"""Commands that exchange models with other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from onehop.cli.app import NAME_OR_FILE, USE, Sentences, Threads, app, use_threads


@app.command(rich_help_panel=USE)
def export(
    model: Annotated[str, typer.Argument(**NAME_OR_FILE, help="A model.")],
    target: Annotated[
        Literal["huggingface", "onnx", "ctranslate2"],
        typer.Option("--to", metavar="PROGRAM", help="huggingface, onnx or ctranslate2."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    sentences: Sentences = None,
    threads: Threads = None,
) -> None:
    """Convert a model for another program, and compare the translations."""
    from onehop.storage.registry import named_model

    named_model(model)  # a wrong name is refused before torch is imported
    use_threads(threads)
    from onehop.converters import convert
    from onehop.converters.parity import read_sentences

    parity = convert.export(model, target, out, read_sentences(sentences))
    typer.echo("\n".join([f"{out}: {model} for {target}", *parity.lines()]))


@app.command(name="import", rich_help_panel=USE)
def import_(
    folder: Annotated[
        Path,
        typer.Argument(
            exists=True, help="A Hugging Face folder, such as OPUS-MT or MiniLM, or an .argosmodel package."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    sentences: Sentences = None,
    threads: Threads = None,
) -> None:
    """Convert another program's model to a model file, and compare the results."""
    use_threads(threads)
    from onehop.converters import convert
    from onehop.converters.parity import read_sentences

    parity = convert.import_folder(folder, out, read_sentences(sentences))
    not_compared = ['not compared with the original: pip install "onehop[export]"']
    typer.echo("\n".join([f"{out}: {folder}", *(parity.lines() if parity else not_compared)]))
