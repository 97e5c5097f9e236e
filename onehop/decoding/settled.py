"""The final prefix of a running search: the common beginning of every hypothesis that may still win."""

from collections.abc import Sequence
from itertools import takewhile

from onehop.decoding.beam import History
from onehop.decoding.engine import Settled
from onehop.decoding.options import Ids
from onehop.decoding.request import LogProbs, RowIds, Step
from onehop.text.tokenizer import EOS


class ReportingStep:
    """A step function that reports, before each step, the prefix that is final."""

    def __init__(self, step: Step, history: History | None, settled: Settled) -> None:
        self.step, self.history, self.settled = step, history, settled
        self.paths: list[list[int]] | None = None

    def __call__(self, tokens: RowIds, parents: RowIds | None) -> LogProbs:
        if self.history is not None:
            self.settled(shared_by_beam(self.history))
        else:
            self.paths = extended(self.paths, tokens.tolist(), None if parents is None else parents.tolist())
            self.settled(shared(self.paths))
        return self.step(tokens, parents)


def extended(paths: list[list[int]] | None, tokens: list[int], parents: list[int] | None) -> list[list[int]]:
    """Sampled paths with one more token each. The first call brings BOS, which is not part of them."""
    if paths is None:
        return [[]]
    return [[*paths[parent], token] for parent, token in zip(parents or range(len(tokens)), tokens, strict=True)]


def shared_by_beam(history: History) -> list[int]:
    """The common prefix of all hypotheses that may still win: the unfinished ones and the best finished ones.

    Before the last step only loops are stopped, and those rank last.
    """
    steps = history.steps[0] if history.steps else []
    if not steps:
        return []
    candidates = [(kept, number, index) for number, step in enumerate(steps) for index, kept in enumerate(step)]
    finished = sorted((c for c in candidates if c[0].state == "finished"), key=lambda c: -c[0].score)[:1]
    ended = finished or [c for c in candidates if c[0].state == "stopped"]
    live = [c for c in candidates if c[1] == len(steps) - 1 and c[0].state == "live"]
    paths = [history.replay(0, number, index) for _, number, index in [*live, *ended]]
    return shared([[token for token in path if token != EOS] for path in paths])


def shared(paths: Sequence[Ids]) -> list[int]:
    """The common prefix of all paths."""
    return [column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*paths, strict=False))]
