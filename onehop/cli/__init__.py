"""The command line: `onehop VERB …`. Each verb imports what it needs when it runs, so that help comes at once."""

import os

# Their order is the order of `--help`.
# isort: off
from onehop.cli import translate, inspect, train, tasks, experiments, installation

# isort: on
from onehop.cli.app import app

__all__ = ["app", "experiments", "inspect", "installation", "main", "tasks", "train", "translate"]


def main() -> None:
    """Run the command line. A closed pipe and Ctrl-C end it without a traceback: typer sees to that."""
    # Threads of torch that wait for one another sleep. Otherwise they spin, and beside other work each step waits for
    # a thread that has no core. OpenMP reads the variable when torch is imported (docs/results.md has the figures).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    app(prog_name="onehop")
