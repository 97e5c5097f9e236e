"""BPE-dropout: other pieces, the same text, determined by seed and epoch."""

import random
import subprocess
import sys
from concurrent.futures import CancelledError
from contextlib import closing
from multiprocessing import active_children
from threading import Event, Thread, Timer

import numpy as np
import pytest

from onehop.config import TokenizerSettings
from onehop.data import bpe_dropout
from onehop.data.bpe_dropout import Resegmenter, Segmenter
from onehop.data.store import Pairs, id_type, side_from_lists
from onehop.text.tokenizer import Tokenizer

WORDS = ["house", "garden", "Straße", "übermorgen", "beautiful", "Übersetzung", "language", "1984", "naïve"]


def sentences(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(1, 9))) + "." for _ in range(n)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.learn(sentences(300, 0), TokenizerSettings(vocab_size=400))


@pytest.fixture(scope="module")
def pairs(tokenizer):
    return encoded(tokenizer, [*sentences(500, 1), "日本 😀 house"], [*sentences(500, 2), "Straße ſ"])


def encoded(tokenizer: Tokenizer, src: list[str], tgt: list[str]) -> Pairs:
    dtype = id_type(tokenizer.vocab_size)
    return Pairs(*(side_from_lists(tokenizer.encode_batch(side), dtype) for side in (src, tgt)))


def content(pairs: Pairs) -> list[list[list[int]]]:
    return [pairs.source.lists(), pairs.target.lists()]


def resegment(pairs: Pairs, tokenizer: Tokenizer, dropout: float, *, epoch: int, **how) -> Pairs:
    with closing(Resegmenter(pairs, tokenizer, dropout, **how)) as resegmenter:
        return resegmenter.epoch(epoch)


@pytest.mark.parametrize("processes", [1, 2])
def test_close_stops_the_processes_and_a_running_epoch(tokenizer, pairs, processes, monkeypatch):
    begun, go_on, ended = Event(), Event(), []

    def chunks(*_):
        begun.set()
        go_on.wait(60)
        for first in range(0, 500 * 10_000, 500):  # longer than the test could wait
            yield 0, first, pairs

    monkeypatch.setattr("onehop.data.bpe_dropout._chunks", chunks)
    resegmenter = Resegmenter(pairs, tokenizer, 0.1, seed=1, processes=processes)

    def make() -> None:
        with pytest.raises((CancelledError, RuntimeError)):  # neither this epoch nor the next is made
            resegmenter.epoch(0)
        ended.append(True)

    thread = Thread(target=make)
    thread.start()
    begun.wait(60)
    Timer(0.2, go_on.set).start()
    resegmenter.close()
    thread.join(60)
    assert ended
    assert active_children() == []


def test_dropout_changes_pieces_but_not_the_text(tokenizer, pairs):
    other = resegment(pairs, tokenizer, 0.2, seed=1, epoch=0)
    assert len(other) == len(pairs)
    for i in range(len(pairs)):
        assert tokenizer.decode(other.src(i).tolist()) == tokenizer.decode(pairs.src(i).tolist())
        assert tokenizer.decode(other.tgt(i).tolist()) == tokenizer.decode(pairs.tgt(i).tolist())
    changed = np.mean([a != b for a, b in zip(*(content(p)[0] for p in (pairs, other)), strict=True)])
    assert changed > 0.5
    assert other.src_lengths.sum() > 1.05 * pairs.src_lengths.sum()
    assert other.src(0).dtype == pairs.src(0).dtype
    assert other.src_lengths.tolist() == [len(other.src(i)) for i in range(len(other))]


def test_without_dropout_the_segmentation_equals_sentencepieces(tokenizer, pairs):
    segmenter = Segmenter(tokenizer, 0.0, "key")
    assert segmenter.segment(pairs.source.lists(), "place") == pairs.source.lists()
    assert segmenter.segment(pairs.target.lists(), "place") == pairs.target.lists()
    assert content(resegment(pairs, tokenizer, 0.0, seed=1, epoch=0)) == content(pairs)


def test_dropout_near_one_gives_characters(tokenizer):
    segmenter = Segmenter(tokenizer, 0.999999, "key")
    assert tokenizer.tokens(segmenter.word("house", 0)) == list("▁house")


def test_bpe_dropout_resegments_words_at_the_expected_rate(tokenizer):
    """A single possible merge is dropped with the given probability."""
    segmenter = Segmenter(tokenizer, 0.3, "key")
    segmenter._random.seed(0)
    segmenter.priority = {"ho": 1.0}
    split = [len(segmenter.pieces("ho")) == 3 for _ in range(4000)]
    assert np.mean(split) == pytest.approx(0.3, abs=0.03)


def test_seed_and_epoch_determine_the_segmentation(tokenizer, pairs):
    def run(seed: int, epoch: int) -> list[list[list[int]]]:
        return content(resegment(pairs, tokenizer, 0.1, seed=seed, epoch=epoch))

    assert run(1, 0) == run(1, 0)
    assert run(1, 0) != run(1, 1)
    assert run(1, 0) != run(2, 0)


def test_the_number_of_processes_does_not_change_the_segmentation(tokenizer, pairs, monkeypatch):
    monkeypatch.setattr(bpe_dropout, "CHUNK", 100)
    one, two = (resegment(pairs, tokenizer, 0.1, seed=1, epoch=3, processes=processes) for processes in (1, 2))
    assert content(one) == content(two)


def test_the_cache_does_not_change_the_segmentation(tokenizer, pairs, monkeypatch):
    usual = content(resegment(pairs, tokenizer, 0.1, seed=1, epoch=0))
    monkeypatch.setattr(bpe_dropout, "_MOST_CACHED", 3)
    assert content(resegment(pairs, tokenizer, 0.1, seed=1, epoch=0)) == usual


def test_another_process_gets_the_same_segmentation(tokenizer, tmp_path):
    """SentencePiece's own sampling does not promise this."""
    (tmp_path / "m").write_bytes(tokenizer.model)
    program = (
        "import sys; from onehop.data.bpe_dropout import Segmenter; from onehop.text.tokenizer import Tokenizer\n"
        "t = Tokenizer(open(sys.argv[1], 'rb').read())\n"
        "print(Segmenter(t, 0.3, '1 0').segment([t.encode('beautiful translation Übersetzung')] * 9, '0 src'))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "m")]
    first, second = (subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(2))
    assert first == second
    assert len(set(map(str, eval(first)))) > 1


def test_a_resegmentation_that_is_too_long_is_discarded(tokenizer, pairs):
    longest = int(pairs.src_lengths.max())
    free = resegment(pairs, tokenizer, 0.5, seed=1, epoch=0)
    bound = resegment(pairs, tokenizer, 0.5, seed=1, epoch=0, longest=longest)
    assert free.src_lengths.max() > longest >= bound.src_lengths.max()
    for i in range(len(pairs)):
        expected = pairs if free.src_lengths[i] > longest else free
        assert bound.src(i).tolist() == expected.src(i).tolist()


def test_a_prefetched_epoch_equals_one_made_on_demand(tokenizer, pairs):
    with closing(Resegmenter(pairs, tokenizer, 0.1, seed=1, processes=2)) as ahead:
        one_after_the_other = [content(ahead.epoch(number)) for number in (0, 1, 5, 2)]
    asked_for = [content(resegment(pairs, tokenizer, 0.1, seed=1, epoch=number)) for number in (0, 1, 5, 2)]
    assert one_after_the_other == asked_for
