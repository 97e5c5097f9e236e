"""A store prepared by a cluster equals that of a single machine, even if a node dies."""

import numpy as np
import pytest

from onehop.cluster.prepare import prepare_on_cluster
from onehop.data.prepare import prepare


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_store_is_the_same_after_a_nodes_death(three_nodes, pairs, tmp_path):
    whole = prepare(pairs, tmp_path / "whole", root=tmp_path, processes=1)
    parts = tmp_path / "sharded.partial" / "parts"
    killer = three_nodes.kill_when(lambda: any(parts.glob("*.facts")))
    out = tmp_path / "sharded"
    sharded = prepare_on_cluster(pairs, out, address=three_nodes.address, root=tmp_path, part_chunks=1)
    assert not killer.is_alive(), "the node was killed while it worked"
    assert len(sharded.description["shards"]) == 12
    assert sharded.description["report"] == whole.description["report"]
    for split in ("train", "valid"):
        for side in ("source", "target"):
            one, two = (getattr(store.pairs(split), side) for store in (whole, sharded))
            np.testing.assert_array_equal(one.ids, np.asarray(two.ids))
            np.testing.assert_array_equal(one.ends, np.asarray(two.ends))
