"""The command line: `onehop VERB …`. Each verb imports what it needs when it runs, so that help comes at once."""

# Their order is the order of `--help`.
# isort: off
from onehop.cli import translate, inspect, train, tasks, experiments, installation

# isort: on
from onehop.cli.app import app

__all__ = ["app", "experiments", "inspect", "installation", "main", "tasks", "train", "translate"]


def main() -> None:
    """Run the command line. A closed pipe and Ctrl-C end it without a traceback: typer sees to that."""
    app(prog_name="onehop")
