"""A local cluster: it is reachable only from this machine, and errors of its start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onehop.cluster import connection
from onehop.errors import OnehopError

# Prints the addresses at which the processes below this one listen, as /proc/net/tcp writes them.
LISTENING = """
import os
from pathlib import Path
from onehop.cluster.connection import joined

def sockets_below(root):
    parents, sockets = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[process.name] = (process / "stat").read_text().rpartition(")")[2].split()[1]
            sockets[process.name] = {os.readlink(fd) for fd in (process / "fd").iterdir()}
        except OSError:
            pass
    below = {root}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return set().union(*(sockets.get(process, set()) for process in below))

with joined("local"):
    import ray

    class Worker:
        def answers(self):
            return True

    worker = ray.remote(Worker).remote()
    assert ray.get(worker.answers.remote())
    ours = sockets_below(str(os.getpid()))
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in ours:
                print(cells[1].partition(":")[0])
"""
CLUSTER_VARIABLES = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "GLOO_SOCKET_IFNAME")
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """Restore the variables that a local cluster sets in this process."""
    for name in CLUSTER_VARIABLES:
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are read from /proc/net/tcp")
def test_a_local_cluster_listens_only_on_127_0_0_1():
    environment = {name: value for name, value in os.environ.items() if name not in CLUSTER_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.split()
    assert len(addresses) >= 4, "the cluster's processes were found"
    assert set(addresses) <= LOOPBACK


@pytest.mark.filterwarnings("ignore")
def test_a_slow_start_is_retried_and_then_a_one_line_error(monkeypatch):
    import ray

    starts = []

    def init(*_, **__):
        starts.append(1)
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    refused = pytest.raises(OnehopError, match="Ray cannot start here: The current node timed out")
    with refused as error, connection.joined("local"):
        pass
    assert len(starts) == 3
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_on_a_reachable_address_is_refused(monkeypatch):
    import ray

    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.7")
    with pytest.raises(OnehopError, match=r"a cluster would listen on 192\.0\.2\.7"), connection.joined("local"):
        pass
