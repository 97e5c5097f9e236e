"""Callbacks of a training."""

from onehop.config import with_changes
from onehop.training.callbacks import Callback, Callbacks
from onehop.training.workflow import train


class Steps(Callback):
    """Implements one event only."""

    def __init__(self):
        self.steps = []

    def stepped(self, report):
        self.steps.append(report["step"])


class RecordsEverything:
    """Records every event without being a subclass of Callback."""

    def __init__(self):
        self.heard = []

    def __getattr__(self, name):
        return lambda what: self.heard.append((name, what))


def test_callbacks_forwards_every_event_to_each_callback():
    recorders = RecordsEverything(), RecordsEverything()
    together = Callbacks(*recorders)
    together.began({"a": 1})
    together.stepped({"step": 1})
    together.validated({"step": 1})
    together.said("hello")
    for recorder in recorders:
        assert recorder.heard == [
            ("began", {"a": 1}), ("stepped", {"step": 1}), ("validated", {"step": 1}), ("said", "hello")
        ]  # fmt: skip


def test_training_calls_callbacks_and_prints(digits, tmp_path, capsys):
    steps, recorder = Steps(), RecordsEverything()
    settings = with_changes(digits[0], ["train.steps=4", "train.validate_every=2"])
    train(
        settings, str(tmp_path / "run"), store=str(digits[1].path), device="cpu", callbacks=[steps, recorder], bleu_on=3
    )
    assert steps.steps == [1, 2, 3, 4]
    names = [name for name, _ in recorder.heard]
    assert names == ["began", "stepped", "stepped", "validated", "stepped", "stepped", "validated"]
    told = dict(recorder.heard)
    assert told["began"]["steps"] == 4
    assert {"step", "loss", "nll", "learning_rate", "gradient", "tokens_per_second", "seconds"} <= set(told["stepped"])
    assert set(told["validated"]) == {"step", "valid_nll", "valid_perplexity", "bleu", "chrf", "samples"}
    assert "The learning rate only rises" in capsys.readouterr().err
