"""Training on a cluster gives the bits of torchrun on one machine, even if a node dies."""

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
def test_training_ends_with_the_same_bits_after_a_nodes_death(three_nodes, tmp_path, capsys):
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
def test_errors_of_the_user_stop_the_training_without_retries(three_nodes, digits, tmp_path):
    settings, store = digits
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.safetensors").write_bytes(b"mine")
    how = {"address": three_nodes.address, "store": store.path, "device": "cpu", "bleu_on": 0}
    with pytest.raises(RunError, match="does not belong to a run, and a run would overwrite it"):
        train_on_cluster(settings, tmp_path / "run", workers=2, **how)
    with pytest.raises(Exception, match=r"The cluster has room for \d of 9 workers"):
        train_on_cluster(settings, tmp_path / "other", workers=9, **how)
