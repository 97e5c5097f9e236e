"""Callbacks of a training. docs/guide/train.md shows how to write one."""

from typing import Any, Protocol, runtime_checkable

Report = dict[str, Any]


@runtime_checkable
class Callback(Protocol):
    """The events of a training. Override the methods that you need.

    An exception raised in a callback ends the training. The next start resumes from the last checkpoint.
    """

    def began(self, metadata: Report) -> None:
        """The run starts or resumes: the content of run.json, and `steps`, the total number of steps."""
        return

    def stepped(self, report: Report) -> None:
        """A step is done: `step`, `loss`, `nll`, `learning_rate`, `gradient`, `tokens_per_second`, `seconds`."""
        return

    def validated(self, report: Report) -> None:
        """A validation is done: `step`, `valid_nll`, `valid_perplexity`; of a translator `bleu`, `chrf`, `samples`."""
        return

    def said(self, text: str) -> None:
        """A message for the user, such as early stopping."""
        return


class Callbacks:
    """Several callbacks as one; with none of them, a callback that does nothing."""

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def began(self, metadata: Report) -> None:
        for callback in self.callbacks:
            callback.began(metadata)

    def stepped(self, report: Report) -> None:
        for callback in self.callbacks:
            callback.stepped(report)

    def validated(self, report: Report) -> None:
        for callback in self.callbacks:
            callback.validated(report)

    def said(self, text: str) -> None:
        for callback in self.callbacks:
            callback.said(text)
