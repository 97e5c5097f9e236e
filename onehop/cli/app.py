"""The application that the commands belong to, and the options that several of them share."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from onehop._version import __version__
from onehop.config import Settings, load_settings, preset_names, with_changes
from onehop.errors import EXTRAS, MissingPackageError, OnehopError, SettingsError, TextError, missing_package
from onehop.setting_fields import nearest

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Remedies for removed options, where the closest existing name would mislead.
_DROPPED = {"onehop translate --fast": "Use --quality fast."}

# typer does not export this class.
_UsageError: Any = typer.BadParameter.__base__


class OneLineErrors(TyperGroup):
    """The commands. A user error is one line and exit status 2."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as e:
            raise _refused(e, f"{parent.command_path} {info_name}" if parent else "onehop") from None
        except OSError as e:  # --help or --version on a full disk
            _exit_if_full(e)

    def get_params(self, ctx: Any) -> Any:
        return _with_plain_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _with_plain_types(command.get_params(ctx))
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not (args[0] in self.commands or args[0].startswith("-") or ctx.resilient_parsing):
            known = [name for name, command in self.commands.items() if not command.hidden]
            remedy = nearest(args[0], known, f"See `{ctx.command_path} --help`.", cutoff=0.7)
            raise SettingsError(f"`{ctx.command_path}` has no command {args[0]}.", remedy)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as e:
            raise _refused(e, f"{ctx.command_path} {ctx.invoked_subcommand or ''}".rstrip()) from None
        except OnehopError as e:
            _exit_with(e, ctx)
        except ModuleNotFoundError as e:
            if str(e.name).partition(".")[0] not in EXTRAS:
                raise
            _exit_with(missing_package(str(e.name)), ctx)
        except OSError as e:
            if ctx.find_root().params["debug"]:
                raise
            _exit_if_full(e)


def _exit_if_full(error: OSError) -> NoReturn:
    if error.errno not in _DISK_FULL:
        raise error
    # Flushing the buffered output at exit would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print_message(f"The output cannot be written: {error.strerror}. Make room for it.")
    raise typer.Exit(2) from None


def _exit_with(error: OnehopError, ctx: Any) -> NoReturn:
    """Print an error on one line, or its traceback with `--debug`, and exit. A missing package names the command."""
    if ctx.find_root().params["debug"]:
        traceback.print_exc()
    else:
        group = None if ctx.parent is None else ctx.info_name  # `onehop demo reverse`
        command = " ".join(filter(None, ["onehop", group, ctx.invoked_subcommand]))
        prefix = command if isinstance(error, MissingPackageError) else "onehop"
        typer.echo(f"{prefix}: {' '.join(str(error).removeprefix('This ').split())}", err=True)
    raise typer.Exit(2) from None


def _with_plain_types(params: list[Any]) -> list[Any]:
    """Show `<int>` instead of `<int range>` in the help."""
    for param in params:
        param.type.name = param.type.name.removesuffix(" range")
    return params


def _refused(e: Any, command: str) -> Exception:
    """Print a usage error on one line, and return the exception that ends the program."""
    if type(e).__name__ == "NoArgsIsHelpError":  # shows the help
        return cast("Exception", e)
    command = e.ctx.command_path if e.ctx else command
    remedy = f"See `{command} --help`."
    if hasattr(e, "possibilities"):
        options = [name for param in e.ctx.command.get_params(e.ctx) for name in (*param.opts, *param.secondary_opts)]
        what = f"`{command}` has no option {e.option_name}"
        remedy = _DROPPED.get(f"{command} {e.option_name}") or nearest(e.option_name, options, remedy, cutoff=0.7)
    else:
        what = " ".join(e.format_message().split()).replace("Value error, ", "").rstrip(".")
    print_message(f"{what}. {remedy}")
    return typer.Exit(2)


@contextmanager
def errors_name_cli_options() -> Iterator[None]:
    """Make errors about search options name the command line's options: --top-k for search.top_k."""
    try:
        yield
    except SettingsError as e:
        texts = (re.sub(r"\bsearch\.(\w+)", lambda m: f"--{m[1].replace('_', '-')}", t) for t in (e.what, e.remedy))
        raise SettingsError(*(t.replace("Set --sample to true", "Give --sample") for t in texts)) from None


app = typer.Typer(
    name="onehop",
    cls=OneLineErrors,
    help="The Transformer of “Attention Is All You Need”: train it, translate with it, look inside it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # With NO_COLOR, rich would still print bold and dim.
    rich_markup_mode=None if os.environ.get("NO_COLOR") else "rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


# Shell completion. If nothing matches, the shell completes files.
def presets(incomplete: str) -> list[str]:
    return [name for name in preset_names() if name.startswith(incomplete)]


def _models(incomplete: str) -> Iterator[tuple[str, str]]:
    """Matching installed models, each with its languages."""
    from onehop.storage.registry import labels

    for name, label in labels().items():
        if name.startswith(incomplete):
            yield name, f"{label.content['source']} → {label.content['target']}"


SettingsArgument = Annotated[
    str,
    typer.Argument(
        metavar="SETTINGS", autocompletion=presets, help=f"A preset ({', '.join(preset_names())}) or a TOML file."
    ),
]

Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; repeatable.")
]

# Panels of `--help`: one of commands, and two of options below those that most users need.
USE = "Use a model"
search_option = partial(typer.Option, rich_help_panel="Search and sampling")
machine_option = partial(typer.Option, rich_help_panel="Engine and machine")

Device = Annotated[
    str | None,
    machine_option(help="cpu, cuda or cuda:N. Default: a GPU if there is one."),
]

NAME_OR_FILE: Mapping[str, Any] = {"metavar": "NAME_OR_FILE", "autocompletion": _models}

Threads = Annotated[
    int | None,
    machine_option(min=1, help="Threads of torch on a CPU. Default: one per core."),
]

WorkerThreads = Annotated[
    int | None,
    machine_option(min=1, help="Threads. Default: one per core, shared by the workers."),
]

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", **NAME_OR_FILE, help="A model file or an installed model. Default: your default, or en-de."
    ),
]

Alpha = Annotated[
    float | None,
    search_option(help="α of the length penalty |Y|^α; 0: none. Default: the model's own."),
]

Edits = Annotated[
    list[str] | None,
    typer.Option("--edit", metavar="NAME=VALUE", help="Switch a part of the model off, e.g. scale=off; repeatable."),
]

Sentences = Annotated[Path | None, typer.Option(help="Sentences to compare on, one per line. Default: built-in ones.")]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"onehop {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the command."""


def use_threads(threads: int | None) -> None:
    """Set torch's number of threads, here and in child processes."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:  # it has read the variable already
            sys.modules["torch"].set_num_threads(threads)


def settings_of(name: str, changes: list[str] | None) -> Settings:
    """Load a preset or file, with the changes of `--set`."""
    return with_changes(load_settings(name), changes or [])


def print_message(text: str) -> None:
    typer.echo(f"onehop: {text}", err=True)


def say_waiting() -> None:
    """Print on a terminal that lines are expected: a silent program looks stuck."""
    if sys.stdin is not None and sys.stdin.isatty():
        end = "Ctrl-Z and Enter end" if os.name == "nt" else "Ctrl-D ends"
        print_message(f"Waiting for lines on standard input; {end} them.")


def check_writable(file: Path) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    folder = file.absolute().parent
    if file.is_dir():
        error = errno.EISDIR
    elif not folder.is_dir():
        error = errno.ENOENT
    elif not os.access(file if file.exists() else folder, os.W_OK):
        error = errno.EACCES
    else:
        return
    raise TextError(f"{file} cannot be written: {os.strerror(error)}.", "Give another file.")
