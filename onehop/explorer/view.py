"""The page in a notebook, below the cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path

from onehop.errors import OnehopError, write_errors
from onehop.explorer.content import Explorer
from onehop.interpret.tracer import KEPT, Tracer, load_tracer
from onehop.pipelines.arguments import errors_name_arguments, one_text, strings_of

_HEIGHT = 900


@dataclass(frozen=True)
class View:
    """The page with one sentence, for a notebook or a file."""

    page: str

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="onehop explorer" width="100%" height="{_HEIGHT}" '
            'style="border: 0" sandbox="allow-scripts allow-downloads" allow="clipboard-write"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<the explorer's page, {len(self.page) / 1e6:.1f} MB: .save(file) writes it>"

    def save(self, file: str | Path) -> None:
        with write_errors(file, "Choose another path.", OnehopError):
            Path(file).write_text(self.page, encoding="utf-8")


def explore(
    text: str, model: str | Path | None = None, *, edits: Sequence[str] = (), device: str | None = None
) -> View:
    """The explorer's page with this sentence, which Jupyter and VS Code show below the cell.

    `model` is the name of an installed model or a path; the default is `en-de`. `edits` switch parts of it off. The
    model stays in memory for the next call.

    Examples:
        >>> from onehop import explore
        >>> page = explore("The cat sat because it was sleepy.")
        >>> page.save("page.html")  # doctest: +SKIP
    """
    text, edits = one_text(text), strings_of("edits", edits, "edits")
    with errors_name_arguments():
        return View(explorer_of(load_tracer(model, device)).alone(text, edits, backend="notebook"))


@lru_cache(KEPT)
def explorer_of(tracer: Tracer) -> Explorer:
    """One explorer per tracer, so that its caches are kept."""
    return Explorer(tracer)
