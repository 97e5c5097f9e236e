"""Training on a cluster: a node dies, and the result is that of torchrun on one machine, to the last bit."""

import json
import os
import subprocess
import sys

import pytest
from long_tests import long_only

from onehop.cluster.train import train_on_cluster
from onehop.config import load_settings
from onehop.errors import RunError
from onehop.experiments.verify_resume import last_step, result_hash, set_up


@long_only
@pytest.mark.filterwarnings("ignore")
def test_a_node_dies_and_the_bits_are_the_same(three_nodes, tmp_path, capsys):
    command = set_up(tmp_path, 60, "cpu")
    several = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *command[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*several, str(tmp_path / "whole")], check=True, capture_output=True, env=environment)
    settings = load_settings(str(tmp_path / "settings.toml"))
    pids = tmp_path / "pids"
    pids.mkdir()
    three_nodes.kill_when(
        lambda: last_step(tmp_path / "run") >= 25, lambda: [json.loads(f.read_bytes())[0] for f in pids.iterdir()]
    )
    how = {"address": three_nodes.address, "workers": 2, "store": tmp_path / "store", "device": "cpu", "bleu_on": 0}
    train_on_cluster(settings, tmp_path / "run", pids=pids, **how)
    assert len(three_nodes.nodes) == 1, "a node was killed while it worked"
    assert capsys.readouterr().err.count("A worker died. All workers resume from the checkpoint of step") == 1
    assert result_hash(tmp_path / "run") == result_hash(tmp_path / "whole")


@long_only
@pytest.mark.filterwarnings("ignore")
def test_what_a_user_can_put_right_ends_the_training_at_once(three_nodes, digits, tmp_path):
    settings, store = digits
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.safetensors").write_bytes(b"mine")
    how = {"address": three_nodes.address, "store": store.path, "device": "cpu", "bleu_on": 0}
    with pytest.raises(RunError, match="does not belong to a run, and a run would overwrite it"):
        train_on_cluster(settings, tmp_path / "run", workers=2, **how)
    with pytest.raises(Exception, match=r"The cluster has room for \d of 9 workers"):
        train_on_cluster(settings, tmp_path / "other", workers=9, **how)
