"""The application that the verbs belong to, and the options that several of them share."""

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from onehop._version import __version__
from onehop.config import Settings, load_settings, preset_names, with_changes
from onehop.errors import EXTRAS, MissingPackageError, OnehopError, SettingsError, TextError, missing_package

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OneLineErrors(TyperGroup):
    """The verbs; an error that the user can put right is one line and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except OnehopError as e:
            leave(e, ctx)
        except ModuleNotFoundError as e:
            if str(e.name).partition(".")[0] not in EXTRAS:
                raise
            leave(missing_package(str(e.name)), ctx)
        except OSError as e:
            if e.errno not in FULL or ctx.params["debug"]:
                raise
            # What is still held back for standard output could not be written either when the program ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            typer.echo(f"onehop: The output cannot be written: {e.strerror}. Make room for it.", err=True)
            raise typer.Exit(2) from None


def leave(error: OnehopError, ctx: Any) -> NoReturn:
    """End with an error on one line, or its traceback with `--debug`; where a package is missing, name the verb."""
    if ctx.params["debug"]:
        traceback.print_exc()
    else:
        verb = f" {ctx.invoked_subcommand}" if isinstance(error, MissingPackageError) else ""
        typer.echo(f"onehop{verb}: {' '.join(str(error).removeprefix('This ').split())}", err=True)
    raise typer.Exit(2) from None


@contextmanager
def in_the_words_of_options() -> Iterator[None]:
    """A search's settings are called what they are called on the command line."""
    try:
        yield
    except SettingsError as e:
        what, remedy = (re.sub(r"\bsearch\.(\w+)", as_option, text) for text in (e.what, e.remedy))
        raise SettingsError(what, remedy) from None


def as_option(setting: re.Match[str]) -> str:
    """`n_best` as `--n-best`."""
    return f"--{setting[1].replace('_', '-')}"


app = typer.Typer(
    name="onehop",
    cls=OneLineErrors,
    help="The Transformer of “Attention Is All You Need”: train it, translate with it, look inside it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # rich leaves out colours alone: bold and dim would still be there.
    rich_markup_mode=None if os.environ.get("NO_COLOR") else "rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


SettingsArgument = Annotated[
    str, typer.Argument(metavar="SETTINGS", help=f"A preset ({', '.join(preset_names())}) or a TOML file.")
]


Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; may be repeated.")
]


Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; otherwise what is there.")]


ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME_OR_FILE", help="A model file or an installed model; otherwise the only one."
    ),
]


Edits = Annotated[
    list[str] | None,
    typer.Option("--edit", metavar="NAME=VALUE", help="Switch a part off for this run, as scale=off; may be repeated."),
]


Sentences = Annotated[
    Path | None, typer.Option(help="Sentences to compare on, one a line; otherwise some that are built in.")
]


def print_version(wanted: bool) -> None:
    """`--version`."""
    if wanted:
        typer.echo(f"onehop {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the verb."""


def settings_of(name: str, changes: list[str] | None) -> Settings:
    """A preset or file, with the changes of `--set`."""
    return with_changes(load_settings(name), changes or [])


def write_text(file: Path, text: str) -> None:
    """Write a file, and say so."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as e:
        raise TextError(f"{file} cannot be written: {e.strerror}.", "Give another -o.") from None
    typer.echo(file)


def read_bytes(file: Path) -> bytes:
    """A file's content."""
    try:
        return file.read_bytes()
    except OSError as e:
        raise TextError(f"{file} cannot be read: {e.strerror}.", "Check the path.") from None
