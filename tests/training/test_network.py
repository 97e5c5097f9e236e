"""`torchrun` on two machines, simulated by two network namespaces: the link is cut, and the run resumes."""

import os
import secrets
import subprocess
import sys
import time

import pytest
from long_tests import long_only

from onehop.experiments.verify_resume import last_step, result_hash, set_up

CUT = "Another process of this training does not answer"


class TwoMachines:
    """Two network namespaces with a cable between them."""

    def __init__(self):
        mark = secrets.token_hex(3)
        self.names, self.cards = [f"onehop-{mark}-{i}" for i in (0, 1)], [f"oh{mark}{i}" for i in (0, 1)]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.cards[0], "type", "veth", "peer", "name", self.cards[1])
        for i, (name, card) in enumerate(zip(self.names, self.cards, strict=True)):
            ip("link", "set", card, "netns", name)
            ip("-n", name, "address", "add", f"10.213.7.{i + 1}/24", "dev", card)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", card, "up")

    def start(self, command, log):
        """The command on both machines, one process on each."""
        running = []
        for i, (name, card) in enumerate(zip(self.names, self.cards, strict=True)):
            torchrun = ["-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={i}", "--nproc-per-node=1"]
            torchrun += ["--master-addr=10.213.7.1", "--master-port=29533"]
            environment = {"GLOO_SOCKET_IFNAME": card, "OMP_NUM_THREADS": "1", "ONEHOP_PEER_SECONDS": "60"}
            with log.with_suffix(f".{i}").open("wb") as said:
                start = ["ip", "netns", "exec", name, sys.executable, *torchrun, *command]
                running.append(subprocess.Popen(start, stdout=said, stderr=said, env={**os.environ, **environment}))
        return running

    def cable(self, state):
        for name, card in zip(self.names, self.cards, strict=True):
            ip("-n", name, "link", "set", card, state)

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def two_machines():
    try:
        machines = TwoMachines()
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no network namespaces here, they need root and iproute2: {e}")
    yield machines
    machines.close()


@long_only
def test_a_run_resumes_after_a_cut_network(two_machines, tmp_path):
    command = set_up(tmp_path, 60, "cpu")[1:]  # without the interpreter
    alone = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*alone, str(tmp_path / "whole")], check=True, capture_output=True, env=environment)
    command.append(str(tmp_path / "run"))
    running = two_machines.start(command, tmp_path / "first")
    while last_step(tmp_path / "run") < 15:
        assert all(process.poll() is None for process in running), (tmp_path / "first.0").read_text()
        time.sleep(0.01)
    two_machines.cable("down")
    assert all(process.wait() != 0 for process in running)
    for i in (0, 1):
        said = (tmp_path / f"first.{i}").read_text()
        assert said.count(CUT) == 1, said
        assert f"onehop: {CUT}" in said
        assert "Start all of them again: they go on from the last checkpoint." in " ".join(said.split())
    assert last_step(tmp_path / "run") < 60
    two_machines.cable("up")
    assert [process.wait() for process in two_machines.start(command, tmp_path / "second")] == [0, 0]
    assert result_hash(tmp_path / "run") == result_hash(tmp_path / "whole")
