"""The command line: `onehop COMMAND …`. Each command imports what it needs when it runs, so that `--help` is fast."""

import os
import signal
import sys
from copy import copy
from types import FrameType

import typer
from typer.main import get_command_name

# Their order is the order of `--help`.
# isort: off
from onehop.cli import translate, serve, convert, inspect, train, tasks, experiments, installation

# isort: on
from onehop.cli.app import app

__all__ = ["app", "convert", "experiments", "inspect", "installation", "main", "serve", "tasks", "train", "translate"]


def _with_command(words: list[str]) -> typer.Typer:
    """The application with only the given command: building all commands takes 10 ms more."""
    commands = [
        command
        for command in app.registered_commands
        if (command.name or get_command_name(getattr(command.callback, "__name__", ""))) in words
    ]
    if not commands:
        return app
    small = copy(app)
    small.registered_commands, small.registered_groups = commands, []
    return small


def main() -> None:
    """Run the command line. A closed pipe, Ctrl-C and SIGTERM end it without a traceback; finished work is kept."""
    # OpenMP threads sleep while they wait. Spinning threads take the cores from other programs, and each step then
    # waits for a thread without a core: docs/results/translation-speed.md. OpenMP reads it when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends the program at once
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set while the commands were imported
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _with_command(sys.argv[1:2])(prog_name="onehop")
    except SystemExit as e:
        if received and e.code == 128 + signal.SIGINT:  # typer's status for KeyboardInterrupt
            raise SystemExit(128 + received[0]) from None
        raise
