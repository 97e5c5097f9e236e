"""A translator that can be looked into where it is used: in a notebook, the page stands beneath the cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from onehop.decoding.options import SearchOptions
from onehop.errors import OnehopError
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.registry import find_model

HEIGHT = 900


@dataclass(frozen=True)
class View:
    """The page with one sentence in it, as a notebook shows it and a file holds it."""

    page: str
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="onehop explorer" width="100%" height="{self.height}" '
            'style="border: 0" sandbox="allow-scripts allow-downloads" allow="clipboard-write"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<the explorer's page, {len(self.page) / 1e6:.1f} MB: .save(file) writes it>"

    def save(self, file: str | Path) -> None:
        """Write the page to a file."""
        try:
            Path(file).write_text(self.page, encoding="utf-8")
        except OSError as e:
            raise OnehopError(f"{file} cannot be written: {e.strerror}.", "Choose another place.") from None


class Translator(SentenceTranslator):
    """A model ready to translate, and to be looked into.

    Translator.load("model.safetensors").explore("Hello world.")
    """

    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path | None = None, *args: Any, **options: Any) -> "Translator":
        """Read a model by its file or name; the options are those of `SentenceTranslator.load`."""
        found = find_model(None if path is None else str(path))
        loaded = super().load(found, *args, **options)
        assert isinstance(loaded, cls)
        loaded.path = found
        return loaded

    @cached_property
    def explorer(self) -> Any:
        """The explorer over this model; not named in the type, for that would import torch."""
        from onehop.explorer.content import Explorer
        from onehop.interpret.tracer import Tracer

        return Explorer(Tracer(self) if self.path is None else Tracer.of(self, self.path))

    def trace(self, text: str, edits: Sequence[str] = (), options: SearchOptions | None = None) -> Any:
        """A `onehop.interpret.tracer.Trace`: the translation and every number on the way."""
        return self.explorer.tracer.trace(text, edits, options)

    def explore(self, text: str, edits: Sequence[str] = ()) -> View:
        """The page with this sentence, which Jupyter and VS Code show beneath the cell."""
        return View(self.explorer.alone(text, edits, home="notebook"))
