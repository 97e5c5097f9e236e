"""The settled prefix of a running search only grows, and becomes the result."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.decoding.beam import History, Kept
from onehop.decoding.engine import SearchCancelled
from onehop.decoding.options import SearchOptions
from onehop.decoding.torch_engine import common_prefix_of_beam, extended_paths
from onehop.pipelines.sentence_translator import SentenceTranslator

TEXTS = ["the old house", "a new tree the bird", "x", "the the the old old"]
OPTIONS = [
    SearchOptions(beam=1),
    SearchOptions(beam=4),
    SearchOptions(beam=4, n_best=3),
    SearchOptions(beam=4, penalty="paper"),
    SearchOptions(sample=True, beam=1, seed=5),
    SearchOptions(sample=True, beam=1, n_best=2, seed=5),
    SearchOptions(beam=2, loop_repeats=2),
]


@pytest.fixture(scope="module", params=["torch", "auto"])
def translator(request, model_file):
    return SentenceTranslator.load(
        model_file, "cpu", engine=request.param, compute=None if request.param == "torch" else "float32"
    )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("text", TEXTS)
def test_settled_prefixes_grow_and_the_result_equals_n_best(translator, text, options):
    received = []
    ids = translator.tokenizer.encode(text)
    found = translator.search(ids, options, settled=lambda settled: received.append(list(settled)))
    final = translator.tokenizer.ids(found[0].tokens)
    for before, after in zip(received, [*received[1:], final], strict=True):
        assert after[: len(before)] == before
    reference = SentenceTranslator(translator.tokenizer, "en", "de", reference=lambda: translator.reference)
    expected = reference.n_best([text], options)[0]
    assert [t.tokens for t in found] == [t.tokens for t in expected]
    assert [t.score for t in found] == pytest.approx([t.score for t in expected], abs=1e-3)


def test_ctranslate2_streams_greedy_search_token_by_token(model_file):
    translator = SentenceTranslator.load(model_file, engine="ctranslate2", compute="float32")
    received = []
    (found,) = translator.search(
        translator.tokenizer.encode("the old house"),
        SearchOptions(beam=1),
        settled=lambda i: received.append(len(i)),
    )
    assert found.engine == "ctranslate2"
    assert received[: len(found.tokens)] == list(range(1, len(found.tokens) + 1))


def test_torch_continues_a_prefix(translator):
    prefix = translator.tokenizer.encode("a new")
    (found,) = translator.search(translator.tokenizer.encode("the old house"), SearchOptions(), prefix=prefix)
    assert translator.tokenizer.ids(found.tokens)[: len(prefix)] == prefix
    assert found.engine == "torch"


@pytest.mark.parametrize("options", [SearchOptions(beam=1), SearchOptions(beam=4), SearchOptions(beam=1, sample=True)])
def test_a_search_can_be_cancelled(translator, options):
    received = []

    def leave(ids):
        received.append(len(ids))
        if len(received) == 3:
            raise SearchCancelled

    with pytest.raises(SearchCancelled):
        translator.search(translator.tokenizer.encode("the old house"), options, settled=leave)
    assert len(received) == 3


def kept(token, parent, state="live", score=-1.0):
    return Kept(token, parent, score, score, state)


def test_the_best_finished_hypothesis_limits_the_settled_prefix():
    history = History([[[kept(5, 0), kept(6, 0)], [kept(7, 0), kept(8, 0)]]])
    assert common_prefix_of_beam(history) == [5]
    history.steps[0][1].append(kept(3, 0, "finished", -2.0))
    assert common_prefix_of_beam(history) == [5]
    history.steps[0][1].append(kept(3, 1, "finished", -1.5))  # continues token 6, and scores best
    assert common_prefix_of_beam(history) == []


def test_looping_hypotheses_count_only_without_finished_ones():
    history = History([[[kept(5, 0), kept(6, 0, "stopped")], [kept(7, 0)]]])
    assert common_prefix_of_beam(history) == []
    history.steps[0][1].append(kept(3, 0, "finished"))
    assert common_prefix_of_beam(history) == [5]
    assert common_prefix_of_beam(History()) == []


def test_sampled_paths_follow_their_parents():
    first = extended_paths(None, [2], None)
    assert first == [[]]
    both = extended_paths(first, [7, 8], [0, 0])
    assert both == [[7], [8]]
    assert extended_paths(both, [9], [1]) == [[8, 9]]
    assert extended_paths(both, [9, 9], None) == [[7, 9], [8, 9]]


@pytest.fixture(scope="module")
def tokenizer(model_file):
    return SentenceTranslator.load(model_file, engine="torch").tokenizer


@given(text=st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_decode_complete_of_a_prefix_is_a_prefix_of_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    for end in range(len(ids) + 1):
        assert whole.startswith(tokenizer.decode_complete(ids[:end]))
