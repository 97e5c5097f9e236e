"""From the store to the device: any position, prefetching, shares of processes, padding to fixed shapes."""

import itertools
import threading
import time

import numpy as np
import pytest
import torch

from onehop.config import load_settings, with_changes
from onehop.data.batches import Batch, Epoch, pack
from onehop.data.store import Pairs
from onehop.model.transformer import Tokens, Transformer
from onehop.model.variants import model_for
from onehop.text.tokenizer import EOS, Tokenizer
from onehop.training.dataloader import FixedShapes, prefetch, to_device, updates
from onehop.training.distributed import World
from onehop.training.step import Objective

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pairs(digits) -> Pairs:
    return digits[1].pairs("train")


def settings_of(digits, *changes: str):
    return with_changes(digits[0], changes)


# --- the stream of updates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [1, 3])
def test_updates_iterate_over_epochs_and_batches(digits, pairs, accumulate):
    settings = settings_of(digits, f"train.accumulate={accumulate}")
    expected = [b.src.tolist() for number in range(3) for b in Epoch(pairs, 256, settings.train.seed, number)]
    count = len(expected) // accumulate
    found = list(itertools.islice(updates(lambda epoch: pairs, settings, 256, 0, 0), count))
    assert [b.src.tolist() for u in found for b in u.batches] == expected[: count * accumulate]
    assert {u.epoch for u in found} == {0, 1, 2}
    for u in found:
        assert len(u.batches) == accumulate
        assert u.tokens == sum(len(b.labels) for b in u.batches)
        assert u.src_tokens == sum(len(b.src) for b in u.batches)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_starts_at_any_position_without_replaying(digits, pairs, accumulate):
    settings = settings_of(digits, f"train.accumulate={accumulate}")

    def content(stream):
        return [([b.labels.tolist() for b in u.batches], u.epoch, u.next_batch) for u in stream]

    whole = list(itertools.islice(updates(lambda epoch: pairs, settings, 256, 0, 0), 30))
    for i in range(29):
        here = whole[i]
        stream = updates(lambda epoch: pairs, settings, 256, here.epoch, here.next_batch)
        assert content(itertools.islice(stream, 1)) == content([whole[i + 1]])


def test_each_epoch_gets_its_own_segmentation(digits, pairs):
    """BPE-dropout segments anew in each epoch; only epochs that are reached are made."""
    made = []
    per_epoch = len(Epoch(pairs, 256, digits[0].train.seed, 0))

    def pairs_of(epoch: int) -> Pairs:
        made.append(epoch)
        return pairs

    list(itertools.islice(updates(pairs_of, digits[0], 256, 4, 0), per_epoch))
    assert made == [4]
    list(itertools.islice(updates(pairs_of, digits[0], 256, 4, per_epoch), 1))
    assert made == [4, 4, 5]


# --- prefetching ----------------------------------------------------------------------------------------------


@pytest.fixture
def no_thread_left():
    """Fail a test that leaves a thread running."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def wait_until(condition) -> None:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.usefixtures("no_thread_left")
def test_prefetch_gives_the_same_items_and_ends():
    with prefetch(iter(range(50)), depth=3) as loader:
        assert list(loader) == list(range(50))


@pytest.mark.usefixtures("no_thread_left")
def test_prefetch_makes_no_more_than_its_depth():
    made = []
    with prefetch((made.append(i) or i for i in range(100)), depth=3) as loader:
        assert next(loader) == 0
        wait_until(lambda: len(made) >= 4)
        time.sleep(0.1)  # meanwhile no further item may be made
        assert len(made) == 4  # one taken and three in advance
    assert len(made) == 4


@pytest.mark.usefixtures("no_thread_left")
def test_an_error_in_the_prefetch_thread_is_raised_in_the_consumer():
    def broken():
        yield 1
        raise RuntimeError("no more")

    with prefetch(broken()) as loader:
        assert next(loader) == 1
        with pytest.raises(RuntimeError, match="no more"):
            next(loader)


@pytest.mark.usefixtures("no_thread_left")
def test_an_error_of_the_consumer_joins_the_thread():
    with pytest.raises(ZeroDivisionError), prefetch(itertools.count()) as loader:
        1 / next(loader)


@pytest.mark.usefixtures("no_thread_left")
def test_stopping_does_not_wait_for_the_next_item():
    stop, made, waited = threading.Event(), threading.Event(), []

    def slow():
        yield 1
        waited.append(made.wait(60))
        yield 2

    with prefetch(slow(), until=stop.is_set) as loader:
        assert next(loader) == 1
        timer = threading.Timer(0.1, stop.set)
        timer.start()
        assert next(loader, None) is None
        assert waited == []
        timer.join()
        made.set()
    assert waited == [True]  # leaving the block waits for the item that is being made


# --- one batch ------------------------------------------------------------------------------------------------


def test_positions_restart_in_each_sentence(pairs):
    batch = pack(pairs, np.array([3, 0, 7]))
    fed = to_device(batch, World(0, 1, CPU))
    for tokens, ids, lengths in ((fed.src, batch.src, batch.src_lengths), (fed.tgt, batch.tgt, batch.tgt_lengths)):
        expected = Tokens.packed(torch.from_numpy(ids), torch.from_numpy(lengths))
        assert torch.equal(tokens.ids, expected.ids)
        assert torch.equal(tokens.positions, expected.positions)
        assert torch.equal(tokens.packing.starts, expected.packing.starts)
        assert tokens.packing.longest == expected.packing.longest
    assert fed.labels.tolist() == batch.labels.tolist()


def test_fixed_shapes_are_the_same_for_every_batch_and_process(pairs):
    fixed = FixedShapes(rows=300, sentences=60, longest=64)
    shapes = set()
    for i in range(4):
        for rank in range(2):
            fed = to_device(Epoch(pairs, 256, 1, 0)[i], World(rank, 2, CPU), fixed)
            sides = [(x.ids.shape, x.packing.starts.shape, x.packing.longest) for x in (fed.src, fed.tgt)]
            shapes.add((*sides, fed.labels.shape))
    assert len(shapes) == 1


def test_twice_repeats_the_share_of_a_process(pairs):
    batch = pack(pairs, np.arange(6))
    fed = to_device(batch, World(1, 2, CPU), twice=True)
    assert fed.labels.tolist() == 2 * batch.share(1, 2).labels.tolist()


@pytest.mark.parametrize("r_drop", [0.0, 0.5])
def test_shares_add_up_even_if_a_process_has_no_sentence(digits, pairs, r_drop):
    """Five processes and two sentences: loss and gradients are the batch's, and every process has some."""
    torch.manual_seed(0)
    model = Transformer(digits[0].model, Tokenizer(digits[1].tokenizer).vocab_size)
    objective = Objective(model, 0.1, r_drop)
    batch = pack(pairs, np.array([1, 5]))

    def gradients(world: World):
        model.zero_grad()
        loss, _ = objective(to_device(batch, world, twice=r_drop > 0))
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    of = 5
    found = [gradients(World(rank, of, CPU)) for rank in range(of)]
    assert sum(float(one[0]) == 0 for one in found) == 3
    for whole, *parts in zip(gradients(World(0, 1, CPU)), *found, strict=True):
        torch.testing.assert_close(sum(parts), whole, rtol=1e-4, atol=1e-5)


def test_the_labels_end_with_the_end_mark(pairs):
    assert to_device(pack(pairs, np.array([0])), World(0, 1, CPU)).labels[-1] == EOS


def test_a_process_without_images_computes_one_with_weight_zero():
    """With more processes than images, a process without one computes a copy of another's."""
    settings = load_settings("digits").model
    image = np.arange(64) % 17
    batch = Batch(image, np.array([64]), image[:1], np.array([3]), np.array([1]))
    shares = [to_device(batch, World(rank, 2, torch.device("cpu"))) for rank in (0, 1)]
    objective = Objective(model_for(settings, 20), 0.1, 0.0)
    values = [float(objective(fed)[0].detach()) for fed in shares]
    assert sorted(value > 0 for value in values) == [False, True]


@pytest.mark.parametrize("twice", [False, True])
def test_only_padded_batches_have_the_fixed_shapes(pairs, twice):
    """A larger batch would be captured in a shape that no other batch has."""
    batch = pack(pairs, np.arange(4))
    fixed, small = (FixedShapes(rows=120, sentences=count, longest=40) for count in (16, 3))
    copies = 2 if twice else 1
    assert fixed.match(to_device(batch, World(0, 1, CPU), fixed, twice=twice), copies)
    assert not small.match(to_device(batch, World(0, 1, CPU), small, twice=twice), copies)
    assert not fixed.match(to_device(batch, World(0, 1, CPU), twice=twice), copies)
