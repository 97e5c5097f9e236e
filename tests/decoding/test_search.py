import itertools
import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from hypotheses import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onehop.decoding.beam import Beam, Candidates, History
from onehop.decoding.options import Hypothesis, SearchOptions, allowing
from onehop.decoding.request import SearchRequest
from onehop.decoding.search import sample_tokens, search
from onehop.errors import OnehopError, SettingsError
from onehop.text.tokenizer import BOS, EOS

A, B, C = 4, 5, 6


class Table:
    """A step function whose log-probabilities are looked up by sentence and by all ids so far.

    It keeps each row's past by `parents` alone, so that a wrong parent gives a wrong answer.
    """

    def __init__(self, seed: int = 0, vocab: int = 6, sentences: Sequence[int] = (0,), spread: float = 1.5) -> None:
        self.seed, self.vocab, self.sentences, self.spread = seed, vocab, sentences, spread
        self.past: list[tuple[int, tuple[int, ...]]] = []
        self.rows: list[int] = []
        self.parents: list[list[int] | None] = []

    def log_probs(self, sentence: int, ids: tuple[int, ...]) -> np.ndarray:
        logits = np.random.default_rng((self.seed, sentence, *ids)).normal(0, self.spread, self.vocab)
        return logits - np.log(np.exp(logits).sum())

    def __call__(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        if not self.rows:
            assert parents is None
            assert tokens.tolist() == [BOS] * len(self.sentences)
            self.past = [(s, ()) for s in self.sentences]
        else:
            origins = range(len(self.past)) if parents is None else parents.tolist()
            assert len(origins) == len(tokens)
            self.past = [
                (self.past[p][0], (*self.past[p][1], t)) for p, t in zip(origins, tokens.tolist(), strict=True)
            ]
        self.rows.append(len(tokens))
        self.parents.append(None if parents is None else parents.tolist())
        return torch.from_numpy(np.stack([self.log_probs(*past) for past in self.past]))


class Fixed(Table):
    """The same probabilities at every step. Tokens that are not named have none."""

    def __init__(self, probs: dict[int, float], sentences: Sequence[int] = (0,), vocab: int = 8) -> None:
        super().__init__(vocab=vocab, sentences=sentences)
        self.row = np.full(vocab, -math.inf)
        for token, p in probs.items():
            self.row[token] = math.log(p)

    def log_probs(self, sentence: int, ids: tuple[int, ...]) -> np.ndarray:
        return self.row


def penalty(options: SearchOptions, length: int) -> float:
    return ((5 + length) / 6 if options.penalty == "paper" else length) ** options.exponent


def every_output(
    table: Table, sentence: int, longest: int, options: SearchOptions, prefix: tuple[int, ...] = ()
) -> list[Hypothesis]:
    """All possible outputs, best first, by enumeration."""
    found = []
    others = [t for t in range(table.vocab) if t != EOS]
    for n in range(longest + 1):
        for ids in itertools.product(others, repeat=n):
            ended = n < longest
            if ids[: len(prefix)] != prefix or (ended and n < options.min_length):
                continue
            whole = (*ids, EOS) if ended else ids
            log_prob = sum(table.log_probs(sentence, whole[:i])[t] for i, t in enumerate(whole))
            found.append(Hypothesis(ids, log_prob, log_prob / penalty(options, len(whole)), ended))
    return sorted(found, key=lambda h: -h.score)


# --- against brute force --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocab=st.integers(4, 6),
    longest=st.integers(1, 4),
    kind=st.sampled_from(["paper", "power"]),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    min_length=st.integers(0, 3),
    prefix=st.lists(st.sampled_from([0, 1, 2]), max_size=2),
    n_best=st.integers(1, 5),
)
def test_an_exhaustive_beam_equals_brute_force(
    seed: int, vocab: int, longest: int, kind: str, alpha: float, min_length: int, prefix: list[int], n_best: int
) -> None:
    prefix = prefix[: longest - 1]
    options = SearchOptions(beam=vocab**longest + 1, penalty=kind, alpha=alpha, min_length=min_length, n_best=n_best)
    table = Table(seed, vocab)
    expected = every_output(table, 0, longest, options, tuple(prefix))[:n_best]
    assert_same(search(table, [longest], options, prefixes=[prefix]), [expected])


def test_length_penalties_count_the_end_token() -> None:
    step = Fixed({A: 0.5, EOS: 0.5})
    for kind, expected in (("paper", (7 / 6) ** 0.6), ("power", 2**0.6)):
        options = SearchOptions(beam=4, n_best=3, penalty=kind, min_length=1)
        best = next(h for h in search(step, [9], options)[0] if h.ids == (A,))
        step.rows.clear()
        assert best.finished
        assert best.log_prob == pytest.approx(math.log(0.25))
        assert best.score == pytest.approx(math.log(0.25) / expected)


def test_the_length_penalty_decides_between_short_and_long_outputs() -> None:
    step = Fixed({A: 0.7, EOS: 0.3})
    short = search(step, [3], SearchOptions(alpha=0.0))[0][0]
    step.rows.clear()
    long = search(step, [3], SearchOptions(alpha=2.0))[0][0]
    assert (short.ids, short.finished) == ((A, A, A), False)  # its probability 0.343 is more than 0.3
    step = Fixed({A: 0.6, EOS: 0.4})
    assert search(step, [3], SearchOptions(alpha=0.0))[0][0].ids == ()
    assert long.ids == (A, A, A)


# --- greedy and beam ------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), min_length=st.integers(0, 4), prefixed=st.booleans())
def test_a_beam_of_one_equals_greedy_search(seed: int, min_length: int, prefixed: bool) -> None:
    sentences, longest = range(4), [3, 8, 5, 8]
    prefixes = [[], [A], [], [A, B]] if prefixed else None
    options = SearchOptions(beam=1, min_length=min_length)
    greedy = search(Table(seed, 7, sentences), longest, options, prefixes=prefixes)
    beam = Beam(SearchRequest.of(longest, options, prefixes), None).search(Table(seed, 7, sentences), "cpu")
    assert_same(greedy, beam)


def test_greedy_search_takes_the_most_probable_token_at_each_step() -> None:
    table = Table(3, 7)
    ids: tuple[int, ...] = ()
    total = 0.0
    while len(ids) < 9 and EOS not in ids:
        row = table.log_probs(0, ids)
        ids, total = (*ids, int(row.argmax())), total + row.max()
    assert len(ids) > 2
    (best,) = search(table, [9], SearchOptions(beam=1))[0]
    assert best.ids == tuple(i for i in ids if i != EOS)
    assert best.finished == (EOS in ids)
    assert best.log_prob == pytest.approx(total)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), beam=st.integers(2, 6), kind=st.sampled_from(["paper", "power"]))
def test_a_beam_that_keeps_the_greedy_path_scores_no_less(seed: int, beam: int, kind: str) -> None:
    greedy = search(Table(seed), [6], SearchOptions(beam=1, penalty=kind))[0][0]
    options = SearchOptions(beam=beam, n_best=beam, penalty=kind, patience=math.inf)
    history = History()
    best = search(Table(seed), [6], options, history=history)[0][0]
    path = (*greedy.ids, EOS) if greedy.finished else greedy.ids
    steps = history.steps[0]
    last = min(len(path), len(steps)) - 1
    kept = {history.replay(0, last, place) for place in range(len(steps[last]))}
    if path[: last + 1] in kept:
        assert best.score >= greedy.score - 1e-9
    else:
        assert len(kept) >= beam


def test_a_beam_finds_an_output_that_greedy_search_misses() -> None:
    class Trap(Fixed):
        def log_probs(self, sentence: int, ids: tuple[int, ...]) -> np.ndarray:
            row = np.full(8, -math.inf)
            after = {(): {A: 0.6, B: 0.4}, (B,): {EOS: 1.0}}
            for token, p in after.get(ids, {C: 0.5, EOS: 0.5}).items():
                row[token] = math.log(p)
            return row

    assert search(Trap({}), [5], SearchOptions(beam=1, alpha=0.0))[0][0].ids[:1] == (A,)
    assert search(Trap({}), [5], SearchOptions(beam=2, alpha=0.0))[0][0].ids == (B,)


def test_float32_and_bfloat16_log_probabilities_give_the_same_output() -> None:
    table = Table(5, 7)
    exact = search(table, [6], SearchOptions(n_best=2))[0]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        table = Table(5, 7)
        got = search(lambda t, p, table=table, dtype=dtype: table(t, p).to(dtype), [6], SearchOptions(n_best=2))[0]
        assert got[0].ids == exact[0].ids
        assert got[0].log_prob == pytest.approx(exact[0].log_prob, rel=tolerance)


@pytest.mark.parametrize("beam", [2, 3, 4, 5, 8])
def test_ties_go_to_the_lower_id(beam: int) -> None:
    step = Fixed({90: 0.1, **dict.fromkeys(range(100, 190), 0.01)}, vocab=300)
    best = search(step, [1], SearchOptions(beam=beam, n_best=beam))[0]
    assert [h.ids for h in best] == [(90,), *((100 + i,) for i in range(beam - 1))]
    step = Fixed(dict.fromkeys(range(100, 200), 0.01), vocab=300)
    best = search(step, [2], SearchOptions(beam=beam, n_best=beam))[0]
    assert [h.ids for h in best] == [(100, 100 + i) for i in range(beam)]
    step.rows.clear()
    assert search(step, [2], SearchOptions(beam=1))[0][0].ids == (100, 100)


def test_a_full_sort_runs_only_if_a_tie_can_reach_the_beam() -> None:
    # Both rows have ties at the cut. Those of the first row can reach the beam, those of the second cannot.
    row = torch.tensor([[-1.0, -2.0, -9.0, -9.0, -9.0], [-8.0, -9.0, -9.5, -9.5, -9.5]])
    values = row.numpy().astype(float)[:, :4]
    ids = np.broadcast_to(np.arange(10, 14), values.shape)
    for so_far, expected in (([[0.0, 0.0]], False), ([[0.0, -50.0]], True)):
        so_far = np.array(so_far)
        candidates = Candidates.ordered(values, ids, so_far)
        assert candidates.may_lack_an_equal(values, so_far, 2 if not expected else 3) is expected


# --- ending ---------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 5),
    n_best=st.integers(1, 5),
    patience=st.sampled_from([1.0, 2.0, math.inf]),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
)
def test_early_termination_does_not_change_the_result(
    seed: int, beam: int, n_best: int, patience: float, alpha: float
) -> None:
    options = SearchOptions(beam=beam, n_best=min(n_best, beam), patience=patience, alpha=alpha, penalty="power")
    early, late = Table(seed, 6, range(3)), Table(seed, 6, range(3))
    got = search(early, [4, 7, 7], options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Beam, "cannot_improve", lambda self: np.zeros(len(self.sentences), dtype=bool))
        expected = Beam(SearchRequest.of([4, 7, 7], options, None), None).search(late, "cpu")
    assert_same(got, expected)
    assert sum(early.rows) <= sum(late.rows)


def test_the_search_ends_when_no_live_hypothesis_can_improve() -> None:
    step = Fixed({EOS: 0.9, A: 0.1})
    # At best a live hypothesis scores ln 0.1 / lp(20), which is less than ln 0.9.
    assert search(step, [20], SearchOptions(alpha=0.6, patience=math.inf))[0][0].ids == ()
    assert len(step.rows) == 1
    # With this strong penalty a certain continuation could still win, so the search goes on.
    step.rows.clear()
    search(step, [20], SearchOptions(alpha=3.0, patience=math.inf, penalty="power"))
    assert len(step.rows) > 1


def test_the_search_ends_after_patience_times_beam_finished_hypotheses() -> None:
    rows = {}
    for patience in (1.0, 2.0):
        step = Fixed({EOS: 0.3, A: 0.7})
        search(step, [30], SearchOptions(beam=2, patience=patience, alpha=2.0, penalty="power"))
        rows[patience] = len(step.rows)
    # One hypothesis ends at each step. Two of them end the search, and four with patience 2.
    assert rows == {1.0: 2, 2.0: 4}


@pytest.mark.parametrize("beam", [1, 3])
def test_an_output_without_eos_stops_at_the_maximum_length(beam: int) -> None:
    options = SearchOptions(beam=beam, loop_repeats=0)
    results = search(Fixed({A: 1.0}, sentences=range(2)), [3, 15], options)
    assert [(h.ids, h.finished, h.looped) for (h,) in results] == [
        ((A,) * 3, False, False),
        ((A,) * 15, False, False),
    ]


@pytest.mark.parametrize("beam", [1, 3])
def test_eos_may_be_the_last_token_allowed(beam: int) -> None:
    (best,) = search(Fixed({A: 0.1, EOS: 0.9}), [3], SearchOptions(beam=beam, min_length=2))[0]
    assert (best.ids, best.finished) == ((A, A), True)


@pytest.mark.parametrize("options", [SearchOptions(beam=1), SearchOptions(beam=3), SearchOptions(sample=True)])
def test_without_possible_tokens_the_output_is_empty_and_unfinished(options: SearchOptions) -> None:
    nothing = [Hypothesis((), -math.inf, -math.inf, finished=False)]
    assert search(Fixed({A: 1.0}), [5], options, prefixes=[[B]]) == [nothing]


def test_finished_sentences_take_no_rows() -> None:
    class Ends(Fixed):
        def log_probs(self, sentence: int, ids: tuple[int, ...]) -> np.ndarray:
            row = np.full(8, -math.inf)
            row[EOS if len(ids) >= sentence else A] = 0.0
            return row

    step = Ends({}, sentences=[3, 0, 1])
    results = search(step, [9, 9, 9], SearchOptions(beam=1))
    assert [h.ids for (h,) in results] == [(A, A, A), (), (A,)]
    assert step.rows == [3, 2, 1, 1]
    assert step.parents == [None, [0, 2], [0], None]


def test_parents_are_passed_only_if_rows_change() -> None:
    step = Fixed({A: 0.9, B: 0.1})
    search(step, [3], SearchOptions(beam=1), history=History())
    assert step.parents == [None, None, None]
    step = Fixed({A: 0.9, B: 0.1}, sentences=range(2))
    search(step, [2, 3], SearchOptions(beam=2))
    assert step.parents == [None, [0, 0, 1, 1], [2, 2]]


def test_a_search_over_no_sentences_takes_no_step() -> None:
    step = Table()
    assert search(step, []) == []
    assert step.rows == []


# --- independence of the batch --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=1),
        SearchOptions(beam=3, n_best=3),
        SearchOptions(beam=4, penalty="power", min_length=2),
        SearchOptions(sample=True, n_best=2, seed=7),
        SearchOptions(sample=True, top_k=4, top_p=0.9, temperature=1.3),
    ],
)
def test_a_result_does_not_depend_on_the_batch(options: SearchOptions) -> None:
    sentences, longest = [5, 2, 9, 4, 7], [4, 9, 6, 12, 1]
    prefixes = [[A], [], [A, B], [], []]
    together = search(Table(1, 8, sentences), longest, options, prefixes=prefixes, indices=sentences)
    for i, sentence in enumerate(sentences):
        alone = search(Table(1, 8, [sentence]), [longest[i]], options, prefixes=[prefixes[i]], indices=[sentence])
        assert alone == [together[i]]
    assert len({h[0].ids for h in together}) > 2


# --- prefixes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [SearchOptions(beam=1), SearchOptions(beam=3, n_best=3), SearchOptions(sample=True, n_best=3)]
)
def test_a_prefix_is_kept_and_scored(options: SearchOptions) -> None:
    table = Table(2, 8)
    unlikely = [A + int(table.log_probs(0, ())[A:].argmin())]
    for h in search(table, [6], options, prefixes=[unlikely])[0]:
        assert h.ids[:1] == tuple(unlikely)
        whole = (*h.ids, EOS) if h.finished else h.ids
        log_prob = sum(table.log_probs(0, whole[:i])[t] for i, t in enumerate(whole))
        assert h.log_prob == pytest.approx(log_prob)
        assert h.score == pytest.approx(log_prob / penalty(options, len(whole)))


# --- sampling -------------------------------------------------------------------------------------------------


def test_sampling_from_one_token_equals_greedy_search() -> None:
    greedy = search(Table(4, 8, range(5)), [9] * 5, SearchOptions(beam=1))
    for narrow in ({"top_k": 1}, {"top_p": 0.0}, {"temperature": 0.01}):
        got = search(Table(4, 8, range(5)), [9] * 5, SearchOptions(sample=True, **narrow))
        assert_same(got, greedy)


def frequencies(probs: dict[int, float], draws: int, **options: float) -> Counter[int]:
    found = search(Fixed(probs), [1], SearchOptions(sample=True, n_best=draws, **options))[0]
    return Counter(EOS if h.finished else h.ids[0] for h in found)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampling_follows_the_distribution(temperature: float) -> None:
    probs = {EOS: 0.1, A: 0.5, B: 0.25, C: 0.15}
    counts = frequencies(probs, 4000, temperature=temperature)
    weights = {t: p ** (1 / temperature) for t, p in probs.items()}
    expected = {t: 4000 * w / sum(weights.values()) for t, w in weights.items()}
    chi_square = sum((counts[t] - e) ** 2 / e for t, e in expected.items())
    assert chi_square < 16.27  # a correct sampler exceeds this in 0.1% of cases (three degrees of freedom)
    assert sum(counts.values()) == 4000


def test_top_k_keeps_the_k_most_probable() -> None:
    assert set(frequencies({EOS: 0.1, A: 0.5, B: 0.25, C: 0.15}, 500, top_k=2)) == {A, B}


@pytest.mark.parametrize(("top_p", "kept"), [(0.49, {A}), (0.51, {A, B}), (0.74, {A, B}), (0.8, {A, B, C})])
def test_top_p_keeps_the_smallest_set(top_p: float, kept: set[int]) -> None:
    counts = frequencies({EOS: 0.1, A: 0.5, B: 0.25, C: 0.15}, 500, top_p=top_p)
    assert set(counts) == kept


def test_sampling_at_the_limits_stays_within_the_allowed_tokens() -> None:
    log_probs = torch.tensor([[0.5, 0.25, 0.25, 0.0]]).log()
    for top_p, last in ((1.0, 2), (0.6, 1), (0.3, 0)):
        options = SearchOptions(sample=True, top_p=top_p)
        assert sample_tokens(log_probs, torch.tensor([1.0]), options)[1].item() == last
        assert sample_tokens(log_probs, torch.tensor([0.0]), options)[1].item() == 0


def test_samples_are_scored_without_temperature_and_top_k() -> None:
    options = SearchOptions(sample=True, temperature=3.0, top_k=5, n_best=20)
    table = Table(6, 8)
    found = search(table, [6], options)[0]
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for h in found:
        whole = (*h.ids, EOS) if h.finished else h.ids
        assert h.log_prob == pytest.approx(sum(table.log_probs(0, whole[:i])[t] for i, t in enumerate(whole)))
    assert len({h.ids for h in found}) > 1


def test_samples_depend_on_seed_and_sentence() -> None:
    def ids(seed: int) -> list[tuple[int, ...]]:
        results = search(Table(1, 8, range(6)), [9] * 6, SearchOptions(sample=True, seed=seed))
        return [h.ids for (h,) in results]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    same_table = search(Fixed({A: 0.5, B: 0.5}, range(8)), [9] * 8, SearchOptions(sample=True))
    assert len({h.ids for (h,) in same_table}) > 4  # each sentence draws its own numbers


# --- the loop guard -------------------------------------------------------------------------------------------


class Cycle(Fixed):
    """Repeats the words for ever after the lead, and ends with probability `end` at each step."""

    def __init__(self, words: Sequence[int], end: float = 0.0, lead: Sequence[int] = ()) -> None:
        super().__init__({}, vocab=20)
        self.words, self.end, self.lead = words, end, lead

    def log_probs(self, sentence: int, ids: tuple[int, ...]) -> np.ndarray:
        row = np.full(20, -math.inf)
        place = len(ids) - len(self.lead)
        token = self.lead[len(ids)] if place < 0 else self.words[place % len(self.words)]
        row[token] = math.log(1 - self.end)
        if self.end:
            row[EOS] = math.log(self.end)
        return row


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("n", "length"), [(1, 12), (2, 12), (3, 12), (4, 16), (5, 20), (6, 24)])
def test_loops_of_up_to_six_tokens_are_stopped_and_marked(n: int, length: int, beam: int) -> None:
    words, lead = range(4, 4 + n), (15, 16)
    (best,) = search(Cycle(words, lead=lead), [80], SearchOptions(beam=beam))[0]
    assert (best.looped, best.finished) == (True, False)
    assert len(best.ids) == length + len(lead)
    (free,) = search(Cycle(words, lead=lead), [80], SearchOptions(beam=beam, loop_repeats=0))[0]
    assert (free.looped, len(free.ids)) == (False, 80)


def test_a_cycle_of_seven_tokens_is_no_loop() -> None:
    (best,) = search(Cycle(range(4, 11)), [60], SearchOptions(beam=1))[0]
    assert (best.looped, len(best.ids)) == (False, 60)


def test_finished_hypotheses_replace_looping_ones() -> None:
    options = SearchOptions(beam=2, n_best=2, alpha=2.0, penalty="power", patience=math.inf)
    found = search(Cycle([A], end=0.001), [80], options)[0]
    assert all(h.finished and not h.looped for h in found)
    assert max(len(h.ids) for h in found) < 12


def test_a_loop_does_not_stop_the_other_hypotheses() -> None:
    class Fork(Cycle):
        """Probably A for ever; else B, then fourteen words that do not repeat, and the end."""

        def log_probs(self, sentence: int, ids: tuple[int, ...]) -> np.ndarray:
            row = np.full(20, -math.inf)
            if not ids:
                row[[A, B]] = math.log(0.9), math.log(0.1)
            else:
                row[A if ids[0] == A else EOS if len(ids) == 15 else B + len(ids) % 7] = 0.0
            return row

    (best,) = search(Fork([]), [40], SearchOptions(beam=2, alpha=0.0))[0]
    assert (best.ids[0], len(best.ids), best.finished, best.looped) == (B, 15, True, False)


def test_a_loop_in_a_given_prefix_is_kept() -> None:
    (best,) = search(Fixed({A: 0.4, EOS: 0.6}), [40], SearchOptions(beam=1), prefixes=[[A] * 20])[0]
    assert (best.ids, best.finished, best.looped) == ((A,) * 20, True, False)


# --- the history ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [1, 4])
def test_the_history_replays_to_the_result(beam: int) -> None:
    options = SearchOptions(beam=beam, n_best=beam)
    longest = [3, 7, 7]
    history = History()
    results = search(Table(8, 7, range(3)), longest, options, history=history)
    assert results == search(Table(8, 7, range(3)), longest, options)
    for sentence, found in enumerate(results):
        replayed = {}
        for i, kept in enumerate(history.steps[sentence]):
            live = [k for k in kept if k.state == "live"]
            assert len(live) <= beam
            for place, k in enumerate(kept):
                replayed[history.replay(sentence, i, place)] = (k.state, k.log_prob, k.score)
        for h in found:
            path = (*h.ids, EOS) if h.finished else h.ids
            assert replayed[path] == ("finished" if h.finished else "stopped", h.log_prob, h.score)


def test_the_history_ends_with_a_loop_and_can_be_reused() -> None:
    history = History()
    search(Cycle([A]), [80], SearchOptions(beam=2), history=history)
    assert [[k.state for k in kept] for kept in history.steps[0]] == [["live"]] * 11 + [["stopped"]]
    search(Fixed({EOS: 1.0}), [80], SearchOptions(beam=2), history=history)
    assert [[k.state for k in kept] for kept in history.steps[0]] == [["finished"]]


# --- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "search.beam is 0. It must be at least 1: hypotheses followed at a time; 1: greedy."),
        (
            {"penalty": "gnmt"},
            "search.penalty is 'gnmt'. It must be 'paper' or 'power': divide by ((5+|Y|)/6)^α or by |Y|^α.",
        ),
        (
            {"n_best": 5},
            "search.n_best is 5, but search.beam is 4. "
            "A beam finds as many as it is wide: set search.beam to 5 or more.",
        ),
        (
            {"loop_repeats": 1},
            "search.loop_repeats is 1. Nothing repeats once: take 2 or more, or 0 for never.",
        ),
        ({"temperature": 0.5}, "search.temperature is 0.5, but nothing is sampled. Set search.sample to true."),
        ({"top_k": 5}, "search.top_k is 5, but nothing is sampled. Set search.sample to true."),
        ({"top_p": 0.5}, "search.top_p is 0.5, but nothing is sampled. Set search.sample to true."),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise the tests' own type check would refuse the value first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}$"):
        SearchOptions(**wrong)


@pytest.mark.parametrize(
    ("longest", "prefix", "message"),
    [
        (
            2,
            [A, B],
            "A prefix of 2 tokens leaves no room in 2, the maximum length. Shorten the prefix or allow more tokens.",
        ),
        (0, [], "A prefix of 0 tokens leaves no room in 0, the maximum length. "),
        (9, [A, EOS], "A prefix contains the end token. Remove it: the search continues the prefix."),
    ],
)
def test_invalid_prefixes_are_refused(longest: int, prefix: list[int], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}"):
        search(Table(), [longest], prefixes=[prefix])


def test_sampling_with_a_history_is_refused() -> None:
    message = "The history shows a beam, but sampling has none. Set search.sample to false."
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}$"):
        search(Table(), [5], SearchOptions(sample=True), history=History())


@pytest.mark.parametrize("options", [SearchOptions(beam=1), SearchOptions(), SearchOptions(sample=True)])
def test_nan_log_probabilities_are_an_error(options: SearchOptions) -> None:
    message = "The model's log-probabilities contain NaN. Try float32, or another checkpoint."
    with pytest.raises(OnehopError, match=f"^{re.escape(message)}$"):
        search(lambda tokens, parents: torch.full((1, 9), math.nan), [5], options)


def test_the_docs_example_prints_the_documented_output(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "decoding.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", page, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == textwrap.dedent(output)


def test_the_docs_list_every_option_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "decoding.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", page.split("## Options")[1], re.MULTILINE))
    assert listed == {
        f.name: f"`{f.default}`" if isinstance(f.default, str) else str(f.default).lower()
        for f in fields(SearchOptions)
    }


@pytest.mark.parametrize(
    ("source", "repeats"),
    [
        ([], 4),
        ([5, 6, 7], 4),
        ([5] * 3, 4),
        ([9, 5, 5, 5, 5, 9], 8),
        ([5, 6] * 8 + [7], 16),
        ([1, 2, 3, 4, 5, 6] * 4, 8),
    ],
)
def test_a_repetitive_source_allows_twice_its_repeats(source, repeats):
    options = SearchOptions(n_best=2)
    assert allowing(options, source) == replace(options, loop_repeats=repeats)
    assert allowing(SearchOptions(loop_repeats=0), source).loop_repeats == 0
