"""Commands about this installation: models, the cache, the machine."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from onehop.cli.app import NAME_OR_FILE, OneLineErrors, app

_PANEL = "What is installed here"

_models_app = typer.Typer(cls=OneLineErrors)
_cache_app = typer.Typer(cls=OneLineErrors, help="Models converted for CTranslate2.")
app.add_typer(_models_app, name="models", rich_help_panel=_PANEL)
app.add_typer(_cache_app, name="cache", rich_help_panel=_PANEL)


@_models_app.callback(invoke_without_command=True)
def models(ctx: typer.Context) -> None:
    """Show and choose installed models. Without a command, list them."""
    if ctx.invoked_subcommand is None:
        list_models()


@_models_app.command(name="list")
def list_models() -> None:
    """List the installed models."""
    from onehop.storage.registry import list_installed

    for line in list_installed():
        typer.echo(line)


@_models_app.command(name="show")
def show_model(model: Annotated[str, typer.Argument(**NAME_OR_FILE, help="A model.")]) -> None:
    """Show a model's settings, provenance and card, and verify its hash."""
    from onehop.storage.model_text import model_to_text
    from onehop.storage.registry import find_model

    typer.echo(model_to_text(find_model(model)), nl=False)


@_models_app.command(name="default")
def default_model(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An installed model. Without it, the defaults are listed.")
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove this default, or all without NAME.")] = False,
) -> None:
    """Choose the default model of its language pair, and for calls that name no language."""
    from onehop.storage import registry

    if unset:
        typer.echo(registry.unset_default(name))
    elif name is not None:
        typer.echo(registry.make_default(name))
    else:
        typer.echo("\n".join(registry.list_defaults()))


@_models_app.command(name="write")
def write_again(
    model: Annotated[str, typer.Argument(**NAME_OR_FILE, help="A model.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    store: Annotated[
        Literal["float32", "bfloat16", "int8"] | None, typer.Option(help="Number format. Default: unchanged.")
    ] = None,
) -> None:
    """Convert a model to another number format."""
    from onehop.storage.model_io import read_model, write_model
    from onehop.storage.registry import copy_alpha, find_model

    path = find_model(model)
    file = write_model(out, read_model(path), store=store)
    typer.echo(f"{file.stat().st_size / 1e6:>10,.1f} MB  {file}")
    copy_alpha(path, out)


@_cache_app.callback(invoke_without_command=True)
def show_cache(ctx: typer.Context) -> None:
    """List the models converted for CTranslate2, with their sizes."""
    from onehop.storage import cache
    from onehop.storage.registry import labels

    if ctx.invoked_subcommand is None:
        sizes, names = cache.entries(), {label.hash[:32]: name for name, label in labels().items()}
        for folder, size in sizes.items():
            name = names.get(folder.name.partition("-")[0], "")
            typer.echo(f"{size / 1e6:>10,.1f} MB  {folder.relative_to(cache.cache_root())}  {name}".rstrip())
        typer.echo(f"{sum(sizes.values()) / 1e6:>10,.1f} MB  in {cache.cache_root()}")


@_cache_app.command(name="clear")
def clear_cache() -> None:
    """Clear the cache. It fills again when needed."""
    from onehop.storage import cache

    typer.echo(f"{cache.clear() / 1e6:,.1f} MB freed in {cache.cache_root()}")


@app.command(rich_help_panel=_PANEL)
def doctor() -> None:
    """Show what this installation has, what is missing, and how to install it."""
    from onehop.cli.doctor import report

    for line in report():
        typer.echo(line)
