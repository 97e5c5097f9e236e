"""What a model's ids stand for: our own pieces, the word pieces of a model made elsewhere, or the names of classes.

A model file holds any of them as bytes; `vocabulary_of` tells them apart.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from onehop.errors import ModelFileError, SettingsError
from onehop.text.tokenizer import PAD, Tokenizer

DAMAGED = "The file is damaged: make it again."


@runtime_checkable
class Vocabulary(Protocol):
    """Anything that has ids."""

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""


class WordPieces:
    """The tokenizer of a model made elsewhere, as the library `tokenizers` describes it in JSON."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        described = json.loads(model)
        added = [token["id"] for token in described.get("added_tokens", [])]
        self.vocab_size = 1 + max([*described["model"]["vocab"].values(), *added])

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer as Library
        except ImportError:
            raise SettingsError(
                "This model's word pieces need the package tokenizers, which is not installed.",
                "Run: pip install 'onehop[export]'.",
            ) from None
        found = Library.from_str(self.model.decode())
        found.no_padding()
        found.no_truncation()
        return found

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts with the marks that the model was trained with."""
        return [found.ids for found in self._tokenizer.encode_batch(list(texts))]


class Classes:
    """Names of classes, one an id; id 0 stays free, for everywhere it means that nothing is asked."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return 1 + len(self.names)

    @property
    def model(self) -> bytes:
        """As a model file holds them."""
        return json.dumps(self.names).encode()

    def name(self, i: int) -> str:
        """What an id stands for."""
        return "" if i == PAD else self.names[i - 1]


def vocabulary_of(model: bytes) -> Tokenizer | WordPieces | Classes:
    """Whatever a model file or a store holds."""
    if model[:1] not in (b"{", b"["):
        return Tokenizer(model)
    try:
        return WordPieces(model) if model[:1] == b"{" else Classes([str(name) for name in json.loads(model)])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ModelFileError("The vocabulary is not one that onehop has written.", DAMAGED) from None
