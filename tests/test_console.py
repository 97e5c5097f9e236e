"""Progress output: live on a terminal, plain lines elsewhere, and markup in texts is not interpreted."""

import io
import re
import sys

import pytest
from rich.console import Console

from onehop.console import PrepareDisplay, TrainDisplay

METADATA = {"steps": 100, "device": "cpu", "processes": 1, "parameters": 1234567, "pairs": 1000, "batch_tokens": 2048}
METADATA["holds"] = "parallel text"
MARKUP = "[bold]x[/bold] [/x] :smile: [link=a]" + " long" * 40


class Terminal(io.StringIO):
    """Collects the output of a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    """To be called in the test, because pytest replaces standard error after the fixtures."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def become() -> Terminal:
        monkeypatch.setattr("sys.stderr", Terminal())
        return sys.stderr

    return become


@pytest.fixture
def in_pipe(monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def report(step, **more):
    numbers = {"seconds": 0.5, "tokens_per_second": 1000.0 * step, "share_of_peak": 0.25, "learning_rate": 1e-3}
    return {"step": step, "loss": 2.25, "nll": 2.0, "perplexity": 7.39, **numbers, **more}


def train(every=2, steps=(1, 2, 3, 4), last=100):
    with TrainDisplay(every=every) as shown:
        shown.began({**METADATA, "steps": last, "run": "runs/[/x]"})
        for step in steps:
            shown.stepped(report(step))
        shown.validated(
            {"step": 4, "valid_nll": 1.5, "valid_perplexity": 4.48, "bleu": 12.345, "samples": [(MARKUP, "[/red]")]}
        )
        shown.said(MARKUP)
    return shown


def test_training_prints_plain_lines_in_a_pipe(in_pipe, capsys):
    train()
    assert capsys.readouterr().err.splitlines() == [
        "runs/[/x]: 1,234,567 parameters, 1,000 pairs, batches of 2,048 tokens, cpu, 1 process",
        "step 2/100  objective 2.250  nll 2.000  rate 1.0e-03  1,500 target tokens/s, 25% of peak",
        "step 4/100  objective 2.250  nll 2.000  rate 1.0e-03  2,500 target tokens/s, 25% of peak",
        "step 4  validation: nll 1.500  perplexity 4.48  bleu 12.35",
        f"    {MARKUP}",
        "  → [/red]",
        MARKUP,
    ]


@pytest.mark.parametrize(("holds", "said"), [("plain text", "1,000 texts,"), ("images", "1,000 images,")])
def test_examples_are_called_pairs_texts_or_images(in_pipe, capsys, holds, said):
    with TrainDisplay(every=1) as shown:
        shown.began({**METADATA, "run": "run", "holds": holds})
    assert said in capsys.readouterr().err


def test_the_last_step_is_always_reported(in_pipe, capsys):
    train(every=50, steps=(1, 2, 3), last=3)
    assert "step 3/3" in capsys.readouterr().err


def test_training_shows_a_bar_and_a_line_on_a_terminal(on_terminal):
    terminal = on_terminal()
    train(every=1)
    shown = terminal.getvalue()
    assert "\x1b[2K" in shown  # the line is redrawn
    assert "━" in shown
    assert "step 4/100" in shown
    assert "objective 2.250  nll 2.000  rate 1.0e-03  2,500 target tokens/s, 25% of peak" in shown
    assert shown.count("bleu 12.35") == 1
    assert MARKUP in shown
    assert "  → [/red]" in shown


def test_the_bar_and_line_fit_the_terminals_width(on_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    on_terminal()
    shown = TrainDisplay()
    shown.began({**METADATA, "run": "run"})
    shown.stepped(report(1))
    drawn = Console(width=40, file=io.StringIO(), soft_wrap=True)
    drawn.print(shown.bar.get_renderable(), soft_wrap=True)
    assert [len(line) <= 40 for line in drawn.file.getvalue().splitlines()] == [True, True]


def test_a_resumed_run_does_not_count_old_steps_in_its_speed(on_terminal):
    on_terminal()
    with TrainDisplay() as shown:
        shown.began({**METADATA, "run": "run"})
        for step in (91, 92, 93):
            shown.stepped(report(step))
    (task,) = shown.bar.tasks
    assert task.completed == 93
    assert all(sample.completed <= 1 for sample in task._progress)


def test_no_color_prints_no_escape_codes(on_terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = on_terminal()
    train()
    shown = terminal.getvalue()
    assert "\x1b" not in shown
    assert "step 2/100" in shown


def test_prepare_prints_plain_lines_in_a_pipe(in_pipe, capsys):
    with PrepareDisplay() as shown:
        shown.advance(5)  # before any stage: nothing to show
        shown.stage("reading [/x]", 100, "bytes")
        shown.advance(60)
        shown.note(MARKUP)
    assert capsys.readouterr().err.splitlines() == ["reading [/x]", MARKUP]


def test_prepare_shows_bars_on_a_terminal(on_terminal):
    terminal = on_terminal()
    with PrepareDisplay() as shown:
        shown.stage("learning [/x]", None, "")
        shown.stage("encoding", 100, "pairs")
        shown.advance(60)
        shown.note(MARKUP)
        learning, encoding = shown.bars.tasks
        assert learning.finished
        assert (encoding.completed, encoding.finished) == (60, False)
        assert re.fullmatch(r"[\d,]+/s", encoding.fields["rate"])
    text = terminal.getvalue()
    assert "learning [/x]" in text
    assert MARKUP in text
    assert "\x1b[2K" in text
