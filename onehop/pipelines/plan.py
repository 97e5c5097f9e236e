"""What a pipeline asks of its models, apart from who answers and when.

A plan is a generator: it yields the requests of a round, is sent their answers, and returns its result. `run` answers
them in this thread. The server answers them through its queues, where those of many clients are batched together.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from onehop.decoding.options import SearchOptions
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.pipelines.streaming import settle

if TYPE_CHECKING:
    from onehop.pipelines.alignment import Aligned

T = TypeVar("T")


@runtime_checkable
class Request(Protocol):
    """One thing that a plan asks for."""

    def answer(self) -> Any:
        """The answer, found in this thread."""


# The answers come in the order of the requests.
Plan = Generator[Sequence[Request], Sequence[Any], T]


@dataclass(frozen=True)
class Search:
    """The n best translations of each source; `numbers` name the sources for the sampling.

    With `prefixes`, each translation begins with the ids of its own.
    """

    translator: SentenceTranslator
    sources: Sequence[list[int]]
    options: SearchOptions
    numbers: Sequence[int]
    prefixes: Sequence[Sequence[int]] | None = None

    def answer(self) -> list[list[Translation]]:
        if self.prefixes is None:
            return self.translator.found(self.sources, self.options, self.numbers)
        each = zip(self.sources, self.prefixes, self.numbers, strict=True)
        return [settle(self.translator, ids, self.options, prefix=p, number=n) for ids, p, n in each]


@dataclass(frozen=True)
class Alignments:
    """Which tokens of each sentence's translation come from which of its source."""

    translator: SentenceTranslator
    sentences: Sequence[Sentence]

    def answer(self) -> "list[Aligned]":
        from onehop.pipelines.alignment import aligned  # brings NumPy, which most translations are made without

        return aligned(self.translator, self.sentences)


def run(plan: Plan[T]) -> T:
    """What a plan returns, with every request answered in this thread."""
    try:
        requests = next(plan)
        while True:
            requests = plan.send([request.answer() for request in requests])
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
