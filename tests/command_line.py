"""Runs the command line in the test's process."""

from typer.testing import CliRunner

from onehop.cli import app


def onehop(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def refused(result, message):
    """Assert that a command ended with this one line and exit status 2."""
    assert result.stderr == f"onehop: {message}\n"
    assert result.exit_code == 2
