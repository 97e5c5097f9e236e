"""A search that tells what is settled while it goes on, and can begin with a given prefix or be given up.

Settled is what every hypothesis that may still win begins with. CTranslate2 tells it of a single path; of a beam, of
sampling and of a prefix torch does.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from onehop.decoding.engine import greatest_lengths, lacking
from onehop.decoding.loops import ends_in_loop
from onehop.decoding.options import Hypothesis, SearchOptions, allowing
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.tokenizer import EOS, Tokenizer

if TYPE_CHECKING:
    from onehop.decoding.beam import History

# Takes the ids settled so far; to give the search up, it raises GivenUp.
Settled = Callable[[Sequence[int]], None]


class GivenUp(Exception):  # noqa: N818  # nothing went wrong
    """Nobody waits for this search any more."""


def settle(
    translator: SentenceTranslator,
    source: list[int],
    options: SearchOptions,
    *,
    prefix: Sequence[int] = (),
    settled: Settled = lambda ids: None,
    number: int = 0,
) -> list[Translation]:
    """The n best translations of one sentence; `settled` hears of each longer beginning that they will share."""
    options = allowing(translator.with_defaults(options), source)
    if translator.fast is not None and tells(translator, source, options) and not prefix:
        engine: Any = translator.fast
        found = [greedy(engine, source, options, settled)]
    else:
        engine = translator.reference
        found = watched(engine, source, options, prefix, settled, number)
    return [translator.translation(h, engine) for h in found]


def tells(translator: SentenceTranslator, source: list[int], options: SearchOptions) -> bool:
    """Whether the fast engine tells what is settled: it follows one path, and has all that is asked."""
    assert translator.fast is not None
    return options.is_greedy and options.n_best == 1 and not lacking(options) and translator.fast.reaches(source)


def greedy(engine: Any, source: list[int], options: SearchOptions, settled: Settled) -> Hypothesis:
    """CTranslate2's single path, heard token by token. It cannot raise through the library: it is stopped instead."""
    most = greatest_lengths([source], engine.positions if engine.learned else np.inf)[0]
    ids: list[int] = []
    given_up: list[GivenUp] = []

    def hear(step: Any) -> bool:
        if step.token_id == EOS:
            return False
        ids.append(step.token_id)
        try:
            settled(ids)
        except GivenUp as e:
            given_up.append(e)
        return bool(given_up or ends_in_loop(np.array([ids]), options.loop_repeats)[0])

    (result,) = engine.translator.translate_batch(
        [engine.tokenizer.tokens(source)],
        beam_size=1,
        length_penalty=options.exponent or 1e-9,
        max_decoding_length=most,
        min_decoding_length=0,
        max_input_length=0,
        return_scores=True,
        return_end_token=True,
        callback=hear,
    )
    if given_up:
        raise given_up[0]
    (found,) = engine.hypotheses(result, options)
    stopped: Hypothesis = engine.stopped(source, found, most, options)
    return stopped


def watched(
    engine: Any, source: list[int], options: SearchOptions, prefix: Sequence[int], settled: Settled, number: int
) -> list[Hypothesis]:
    """Torch's search, heard before each step."""
    import torch

    from onehop.decoding.beam import History
    from onehop.decoding.search import search
    from onehop.decoding.torch_engine import CachedStep, source_rows

    model, device = engine.model.settings, next(engine.model.parameters()).device
    most = greatest_lengths([source], model.max_length if model.positions == "learned" else np.inf)
    history = None if options.sample else History()
    with torch.inference_mode():
        src = source_rows(engine.model, [source]).to(device)
        step = _Heard(CachedStep(engine.model, src, max(most)), history, settled)
        numbers, prefixes = [number], [list(prefix)]
        return search(step, most, options, prefixes=prefixes, numbers=numbers, history=history, device=device)[0]


class _Heard:
    """A step function that tells, before each step, what the steps before it have settled."""

    def __init__(self, step: Any, history: "History | None", settled: Settled) -> None:
        self.step, self.history, self.settled = step, history, settled
        self.paths: list[list[int]] | None = None

    def __call__(self, tokens: Any, parents: Any) -> Any:
        """Row i appends tokens[i] to row parents[i], as `search.Step` has it."""
        if self.history is not None:
            self.settled(shared_by_beam(self.history))
        else:
            self.paths = extended(self.paths, tokens.tolist(), None if parents is None else parents.tolist())
            self.settled(shared(self.paths))
        return self.step(tokens, parents)


def extended(paths: list[list[int]] | None, tokens: list[int], parents: list[int] | None) -> list[list[int]]:
    """Drawn paths with one more token each; the first call brings the beginning mark, which is none of theirs."""
    if paths is None:
        return [[]]
    return [[*paths[parent], token] for parent, token in zip(parents or range(len(tokens)), tokens, strict=True)]


def shared_by_beam(history: "History") -> list[int]:
    """What all hypotheses begin with that may yet win: those that go on and the best that ended.

    Before the last step only loops are stopped, and those win only for want of others.
    """
    steps = history.steps[0] if history.steps else []
    if not steps:
        return []
    every = [(kept, at, place) for at, step in enumerate(steps) for place, kept in enumerate(step)]
    finished = sorted((e for e in every if e[0].state == "finished"), key=lambda e: -e[0].score)[:1]
    ended = finished or [e for e in every if e[0].state == "stopped"]
    live = [e for e in every if e[1] == len(steps) - 1 and e[0].state == "live"]
    return shared([[i for i in history.replay(0, at, place) if i != EOS] for _, at, place in [*live, *ended]])


def shared(paths: Sequence[Sequence[int]]) -> list[int]:
    """The beginning that all paths have in common."""
    return [column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*paths, strict=False))]


def settled_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of a beginning that no further token can change: without the bytes of an unfinished character."""
    return tokenizer.decode(ids).rstrip("\ufffd")
