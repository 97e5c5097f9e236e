"""Batches against a plain-Python packing; every pair once an epoch; parts that add up to the whole."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onehop.config import ModelSettings
from onehop.data.batches import Batch, Epoch, pack, padding_lengths
from onehop.data.store import Pairs, side_from_lists
from onehop.errors import SettingsError
from onehop.model.transformer import Transformer
from onehop.text.tokenizer import BOS, EOS, PAD
from onehop.training.dataloader import to_device
from onehop.training.distributed import World
from onehop.training.step import Objective

Sentence = list[int]

Corpus = list[tuple[Sentence, Sentence]]


def corpus_of(lengths: list[tuple[int, int]], vocab: int = 60000) -> Corpus:
    """Pairs of sentences of these lengths. Ids repeat only after the whole vocabulary."""
    ids = itertools.cycle(range(4, vocab))
    return [(list(itertools.islice(ids, s)), list(itertools.islice(ids, t))) for s, t in lengths]


lengths = st.tuples(st.integers(0, 9), st.integers(0, 9))
corpora = st.lists(lengths, min_size=1, max_size=60).map(corpus_of)
small_corpora = st.lists(lengths, min_size=1, max_size=6).map(corpus_of)


def pairs_of(corpus: Corpus) -> Pairs:
    return Pairs(*(side_from_lists([pair[side] for pair in corpus], np.dtype("<u2")) for side in (0, 1)))


def random_corpus(count: int, vocab: int = 60000) -> Corpus:
    return corpus_of([tuple(x) for x in np.random.default_rng(0).integers(0, 9, (count, 2)).tolist()], vocab)


def plain_pack(corpus: Corpus) -> dict[str, list[int]]:
    return {
        "src": [i for s, _ in corpus for i in [*s, EOS]],
        "src_lengths": [len(s) + 1 for s, _ in corpus],
        "tgt": [i for _, t in corpus for i in [BOS, *t]],
        "labels": [i for _, t in corpus for i in [*t, EOS]],
        "tgt_lengths": [len(t) + 1 for _, t in corpus],
    }


def as_lists(batch: Batch) -> dict[str, list[int]]:
    return {name: array.tolist() for name, array in vars(batch).items()}


def concatenated(batches: list[Batch]) -> dict[str, list[int]]:
    lists = [as_lists(b) for b in batches]
    return {name: [i for one in lists for i in one[name]] for name in lists[0]}


@given(corpora, st.data())
def test_packing_equals_a_plain_python_reference(corpus, data):
    chosen = data.draw(st.lists(st.integers(0, len(corpus) - 1), min_size=1, max_size=20))
    batch = pack(pairs_of(corpus), np.array(chosen))
    assert as_lists(batch) == plain_pack([corpus[i] for i in chosen])
    assert batch.tokens == len(batch.labels)


@given(corpora, st.integers(10, 60), st.integers(0, 5), st.integers(0, 5))
def test_every_pair_occurs_once_an_epoch(corpus, budget, seed, number):
    epoch = Epoch(pairs_of(corpus), budget, seed, number)
    assert sorted(epoch.order) == list(range(len(corpus)))
    batches = [epoch.order[first:last] for first, last in itertools.pairwise(epoch.bounds)]
    by_length = [i for batch in batches for i in sorted(batch, key=lambda i: sum(map(len, corpus[i])))]
    assert concatenated(list(epoch)) == plain_pack([corpus[i] for i in by_length])
    assert max(len(b.src_lengths) for b in epoch) == epoch.most_sentences


@given(corpora, st.integers(10, 60))
def test_batches_fill_both_token_budgets(corpus, budget):
    epoch = Epoch(pairs_of(corpus), budget, 1, 0)
    batches = list(epoch)
    assert all(len(b.src) <= budget and len(b.tgt) <= budget for b in batches)
    for one, two in itertools.pairwise(batches):
        assert len(one.src) + max(two.src_lengths) > budget or len(one.tgt) + max(two.tgt_lengths) > budget


def test_the_order_depends_on_seed_and_epoch_alone():
    pairs = pairs_of(random_corpus(200))

    def order(seed: int, number: int, budget: int = 50) -> list[int]:
        return Epoch(pairs, budget, seed, number).order.tolist()

    np.random.seed(3)  # the global generator must not matter
    assert order(1, 0) == order(1, 0) == order(1, 0, budget=80)
    assert len({tuple(order(seed, number)) for seed in range(3) for number in range(3)}) == 9
    assert Epoch(pairs, 50, 1, 0, shuffle=False).order.tolist() == list(range(200))


def test_any_batch_can_be_computed_directly():
    pairs = pairs_of(random_corpus(200))
    iterated = [as_lists(b) for b in Epoch(pairs, 50, 1, 7)]
    epoch = Epoch(pairs, 50, 1, 7)
    assert len(epoch) == len(iterated) > 10
    for i in (len(epoch) - 1, 5, 0):
        assert as_lists(epoch[i]) == iterated[i]


def test_a_sentence_larger_than_the_budget_is_refused():
    with pytest.raises(SettingsError) as e:
        Epoch(pairs_of([([5], [5]), ([5] * 9, [5])]), 8, 1, 0)
    assert str(e.value) == (
        "A sentence of 10 tokens does not fit into train.batch_tokens 8. "
        "Set train.batch_tokens to at least 10, or prepare with a smaller data.longest."
    )
    assert len(Epoch(pairs_of([([5] * 7, [5])]), 8, 1, 0)) == 1


# --- parts ----------------------------------------------------------------------------------------------------


@given(small_corpora, st.integers(1, 9))
def test_shares_of_processes_add_up_to_the_batch(corpus, of):
    batch = pack(pairs_of(corpus), np.arange(len(corpus)))
    shares = [batch.share(rank, of) for rank in range(of)]
    assert concatenated(shares) == as_lists(batch)
    # No share exceeds an equal one by more than half a sentence at either end.
    most = batch.tokens / of + int(batch.tgt_lengths.max())
    assert all(share.tokens <= most for share in shares)


def test_halves_and_parts_add_up_to_the_batch():
    corpus = random_corpus(7)
    batch = pack(pairs_of(corpus), np.arange(7))
    assert concatenated(list(batch.halves())) == as_lists(batch)
    assert [len(half.src_lengths) for half in batch.halves()] == [3, 4]
    assert as_lists(batch.part(2, 5)) == plain_pack(corpus[2:5])


def test_twice_repeats_every_sentence():
    corpus = random_corpus(5)
    batch = pack(pairs_of(corpus), np.arange(5))
    assert as_lists(batch.twice()) == plain_pack(corpus + corpus)


# --- fixed shapes ---------------------------------------------------------------------------------------------


@given(small_corpora)
def test_padded_batches_have_one_shape_and_no_empty_position(corpus):
    batch = pack(pairs_of(corpus), np.arange(len(corpus)))
    filled = batch.filled(rows=64, sentences=16, longest=10)
    for ids, lengths in ((filled.src, filled.src_lengths), (filled.tgt, filled.tgt_lengths)):
        assert ids.shape == (64,)
        assert lengths.shape == (16,)
        assert lengths.sum() == 64
        assert lengths.max() <= 10
    assert filled.labels.shape == (64,)
    assert filled.tokens == batch.tokens
    assert as_lists(filled.part(0, len(corpus))) == as_lists(batch)
    assert not filled.src[len(batch.src) :].any()
    assert not filled.tgt[len(batch.tgt) :].any()


def test_sources_that_exceed_the_fixed_shape_are_not_padded():
    """A process's share of the sources can be larger than its share of the targets says."""
    corpus = [([5] * 30, [6]), ([7], [8])]
    batch = pack(pairs_of(corpus), np.arange(2))
    filled = batch.filled(rows=16, sentences=2, longest=8)
    assert as_lists(filled.part(0, 2)) == as_lists(batch)
    assert len(filled.src_lengths) == len(filled.tgt_lengths) == 4
    assert filled.src_lengths.sum() == len(filled.src) == len(batch.src)
    assert filled.tgt_lengths.sum() == len(filled.tgt) == len(filled.labels) == 16


@pytest.mark.parametrize(
    ("rows", "sentences", "longest", "expected"),
    [
        (0, 5, 256, []),
        (-3, 5, 256, []),
        (130, 5, 256, [64, 64, 2]),
        (600, 4, 256, [150] * 4),  # longer ones if only few are allowed
        (600, 0, 256, [256, 256, 88]),  # more than allowed if necessary
        (100, 9, 40, [40, 40, 20]),
    ],
)
def test_padding_sentences_are_short(rows, sentences, longest, expected):
    assert padding_lengths(rows, sentences, longest) == expected


@pytest.mark.parametrize("r_drop", [0.0, 0.7])
def test_padding_sentences_do_not_change_loss_or_gradients(r_drop):
    torch.manual_seed(0)
    settings = ModelSettings(
        n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=32, n_heads=2, dropout=0.0, max_length=12
    )
    objective = Objective(Transformer(settings, 60), 0.1, r_drop)
    batch = pack(pairs_of(random_corpus(5, vocab=60)), np.arange(5))
    found = []
    for one in (batch, batch.filled(rows=90, sentences=30, longest=12)):
        objective.zero_grad()
        loss, nll = objective(to_device(one, World(0, 1, torch.device("cpu")), twice=r_drop > 0))
        loss.backward()
        found.append([loss.detach(), nll, *(p.grad.clone() for p in objective.parameters())])
    assert PAD == 0
    for plain, filled in zip(*found, strict=True):
        torch.testing.assert_close(plain, filled, rtol=1e-5, atol=1e-5)
