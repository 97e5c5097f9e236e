"""A cluster of three nodes on this machine, shared by all tests here. Killed nodes are replaced."""

import importlib.util
import os
import threading
import time
import warnings

import pytest


def pytest_collection_modifyitems(items):
    if importlib.util.find_spec("ray") is None:
        for item in items:
            if item.fspath.dirpath().basename == "cluster":
                item.add_marker(pytest.mark.skip(reason="Ray is not installed: pip install 'onehop[ray]'"))


# A dead node is detected after two seconds instead of fifteen.
HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


class ThreeNodes:
    """A head with the driver, and two nodes that a test may kill, of one core each."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={**self._node(1), "_system_config": HEALTH_CHECKS})
        self.nodes = []
        self.fill()

    @staticmethod
    def _node(cpus):
        return {"num_cpus": cpus, "object_store_memory": 80 << 20, "include_dashboard": False}

    def fill(self):
        """Add nodes until there are two beside the head."""
        while len(self.nodes) < 2:
            self.nodes.append(self.cluster.add_node(**self._node(1)))

    @property
    def address(self):
        return self.cluster.address

    def kill_a_node(self, busy):
        node = next((node for node in self.nodes if node.node_id in busy), self.nodes[-1])
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def kill_when(self, due, busy=tuple):
        """Kill a node in a thread as soon as `due()` holds, preferably one of the ids that `busy()` returns."""

        def wait():
            while not due():
                time.sleep(0.01)
            self.kill_a_node(busy())

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread


@pytest.fixture(scope="session")
def _cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = ThreeNodes()
        yield nodes
        nodes.cluster.shutdown()


@pytest.fixture
def three_nodes(_cluster):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own modules
        _cluster.fill()
        yield _cluster


@pytest.fixture
def pairs(tmp_path):
    """Settings for a store of two files of pairs in `tmp_path`, with duplicates."""
    from onehop.config import load_settings, with_changes

    digits = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    texts = [" ".join(digits[int(d) % 9] for d in str(i % 17_000)) + f" {i % 17_000}" for i in range(40_000)]
    for name, part in (("a.tsv", texts[:25_000]), ("b.tsv", texts[20_000:])):
        (tmp_path / name).write_text("".join(f"{t}\t{t[::-1]}\n" for t in part), encoding="utf-8")
    changes = ["data.valid_size=20", "tokenizer.vocab_size=300", "data.train=['a.tsv', 'b.tsv']", "data.language=false"]
    return with_changes(load_settings("tiny"), changes)
