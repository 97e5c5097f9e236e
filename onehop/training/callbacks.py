"""Who is told how a training goes."""

from typing import Any, Protocol, runtime_checkable

Report = dict[str, Any]


@runtime_checkable
class Listener(Protocol):
    """Somebody who is told how it goes; the command line draws it."""

    def began(self, facts: Report) -> None:
        """The run starts or goes on."""

    def stepped(self, report: Report) -> None:
        """A step is done."""

    def validated(self, report: Report) -> None:
        """A validation is done."""

    def said(self, text: str) -> None:
        """Something worth a line happened."""


class Silent:
    """A listener that does nothing."""

    def began(self, facts: Report) -> None:
        """Nothing."""

    def stepped(self, report: Report) -> None:
        """Nothing."""

    def validated(self, report: Report) -> None:
        """Nothing."""

    def said(self, text: str) -> None:
        """Nothing."""
