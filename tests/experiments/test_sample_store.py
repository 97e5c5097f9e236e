"""A smaller store out of a larger one."""

import pytest

from onehop.errors import StoreError
from onehop.experiments import table3
from onehop.experiments.sample_store import sampled


def test_a_sample_is_so_many_pairs_of_a_store_and_always_the_same(few_rows):
    settings, folder = few_rows
    whole = table3.store_for(settings, folder / "a", folder, None, None)
    sample, again = (table3.store_for(settings, folder / name, folder, whole.path, 20) for name in "bc")
    assert (len(sample.pairs("train")), sample.hash) == (20, again.hash)
    pairs = [
        [
            (store.pairs("train").src(i).tolist(), store.pairs("train").tgt(i).tolist())
            for i in range(len(store.pairs("train")))
        ]
        for store in (sample, whole)
    ]
    places = [pairs[1].index(pair) for pair in pairs[0]]
    assert places == sorted(set(places))
    assert sample.valid_text("src") == whole.valid_text("src")
    assert sample.sources == [(whole.sources[0][0], 20)]
    assert sample.report.train_tokens == tuple(sum(len(pair[side]) for pair in pairs[0]) for side in (0, 1))
    sample.verify()
    assert table3.store_for(settings, folder / "b", folder, whole.path, 20).path == sample.path


def test_a_sample_of_more_than_there_is_or_of_something_else_is_refused(few_rows):
    settings, folder = few_rows
    whole = table3.store_for(settings, folder / "a", folder, None, None)
    with pytest.raises(StoreError) as error:
        sampled(whole, 1000, folder / "b")
    there = len(whole.pairs("train"))
    assert str(error.value) == f"The token store {whole.path} has {there} pairs, not 1,000. Ask for fewer pairs."
    sampled(whole, 20, folder / "b")
    with pytest.raises(StoreError) as error:
        sampled(whole, 21, folder / "b")
    assert (
        str(error.value)
        == f"{folder / 'b'} is not a sample of 21 pairs of {whole.path}. Give another -o, or remove it."
    )
