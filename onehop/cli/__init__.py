"""The command line: `onehop VERB …`. Each verb imports what it needs when it runs, so that help comes at once."""

# Their order is the order of `--help`.
# isort: off
from onehop.cli import translating, looking, training, family, papers, models

# isort: on
from onehop.cli.application import app

__all__ = ["app", "family", "looking", "main", "models", "papers", "training", "translating"]


def main() -> None:
    """Run the command line. A closed pipe and Ctrl-C end it without a traceback: typer sees to that."""
    app()
