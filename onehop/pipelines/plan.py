"""Separates what a pipeline requests from its models from how the requests are answered.

A plan is a generator: it yields a list of requests, is sent their answers, and finally returns its result. `run`
answers requests in this thread. The server queues them, and batches those of many clients together.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from onehop.decoding.options import SearchOptions
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.sentences import Segment

if TYPE_CHECKING:
    from onehop.pipelines.alignment import Aligned

T = TypeVar("T")


@runtime_checkable
class Request(Protocol):
    """One request of a plan."""

    def answer(self) -> Any:
        """Compute the answer in this thread."""


# The segments of each line, and their translations.
Translated = tuple[list[list[Segment]], list[list[Sentence]]]
# The answers come in the order of the requests.
Plan = Generator[Sequence[Request], Sequence[Any], T]


@dataclass(frozen=True)
class Search:
    """The n best translations of each source; `indices` seed the sampling of each source.

    With `prefixes`, the translations of each source begin with the ids of its prefix.
    """

    translator: SentenceTranslator
    sources: Sequence[list[int]]
    options: SearchOptions
    indices: Sequence[int]
    prefixes: Sequence[Sequence[int]] | None = None

    def answer(self) -> list[list[Translation]]:
        if self.prefixes is None:
            return self.translator.translate_ids(self.sources, self.options, self.indices)
        return [
            self.translator.search(ids, self.options, prefix=prefix, index=index)
            for ids, prefix, index in zip(self.sources, self.prefixes, self.indices, strict=True)
        ]


@dataclass(frozen=True)
class Alignments:
    """Alignments of the target tokens to the source tokens of translated sentences."""

    translator: SentenceTranslator
    sentences: Sequence[Sentence]

    def answer(self) -> "list[Aligned]":
        from onehop.pipelines.alignment import align_sentences  # imports NumPy, which most translations do not need

        return align_sentences(self.translator, self.sentences)


def run(plan: Plan[T]) -> T:
    """The result of a plan, with every request answered in this thread."""
    try:
        requests = next(plan)
        while True:
            requests = plan.send([request.answer() for request in requests])
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
