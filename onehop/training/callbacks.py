"""Who is told how a training goes: docs/guide/train.md shows how to write one."""

from typing import Any, Protocol, runtime_checkable

Report = dict[str, Any]


@runtime_checkable
class Callback(Protocol):
    """Somebody who is told how a training goes; a class of one's own overrides what it wants to hear.

    An exception that it raises ends the training, which goes on from the last checkpoint when it is started again.
    """

    def began(self, facts: Report) -> None:
        """The run starts or goes on: what its run.json says, and `steps`, the number that it will make."""
        return

    def stepped(self, report: Report) -> None:
        """A step is done: `step`, `loss`, `nll`, `learning_rate`, `gradient`, `tokens_per_second`, `seconds`."""
        return

    def validated(self, report: Report) -> None:
        """A validation is done: `step`, `valid_nll`, `valid_perplexity`; of a translator `bleu`, `chrf`, `samples`."""
        return

    def said(self, text: str) -> None:
        """Something worth a line happened, such as an early end."""
        return


class Callbacks:
    """Several callbacks as one; with none of them, a callback that does nothing."""

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def began(self, facts: Report) -> None:
        """Tell each."""
        for each in self.callbacks:
            each.began(facts)

    def stepped(self, report: Report) -> None:
        """Tell each."""
        for each in self.callbacks:
            each.stepped(report)

    def validated(self, report: Report) -> None:
        """Tell each."""
        for each in self.callbacks:
            each.validated(report)

    def said(self, text: str) -> None:
        """Tell each."""
        for each in self.callbacks:
            each.said(text)
