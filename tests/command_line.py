"""Runs the command line in the test's process."""

from typer.testing import CliRunner

from onehop.cli import app


def onehop(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)
