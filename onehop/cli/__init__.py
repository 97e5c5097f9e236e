"""The command line: `onehop VERB …`. Each verb imports what it needs when it runs, so that `--help` is fast."""

import os
import signal
import sys
from copy import copy
from types import FrameType

import typer
from typer.main import get_command_name

# Their order is the order of `--help`.
# isort: off
from onehop.cli import translate, inspect, train, tasks, experiments, installation

# isort: on
from onehop.cli.app import app

__all__ = ["app", "experiments", "inspect", "installation", "main", "tasks", "train", "translate"]


_INTERRUPTED = 128 + signal.SIGINT


def _with_verb(words: list[str]) -> typer.Typer:
    """The application with the verb that a command line begins with alone: to build all takes 10 ms more."""
    names = {
        each.name or get_command_name(getattr(each.callback, "__name__", "")): each for each in app.registered_commands
    }
    verbs = [names[word] for word in words if word in names]
    if not verbs:
        return app
    alone = copy(app)
    alone.registered_commands, alone.registered_groups = verbs, []
    return alone


def main() -> None:
    """Run the command line. A closed pipe, Ctrl-C and SIGTERM end it without a traceback; finished work is kept."""
    # OpenMP threads sleep while they wait. Spinning threads take the cores from other programs, and each step then
    # waits for a thread without a core. OpenMP reads the variable when torch is imported.
    # Figures: docs/results/translation-speed.md.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    told: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        told.append(number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set while the verbs were imported
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _with_verb(sys.argv[1:2])(prog_name="onehop")
    except SystemExit as e:
        if told and e.code == _INTERRUPTED:  # what typer makes of it
            raise SystemExit(128 + told[0]) from None
        raise
