"""The kernels on a GPU in bfloat16 against the plain functions in float64."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "gpu.py"
# bfloat16 has eight bits: rounding alone makes relative errors of 0.002 to 0.004 (results/gpu/train.json).
MOST_ERROR = 0.01


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernel_errors_have_the_size_of_bfloat16_rounding(tmp_path):
    """In a separate process, without the tests' shape checks."""
    command = [sys.executable, str(BENCHMARK), "--tiny", "--only", "checks", "-o", str(tmp_path / "gpu.json")]
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}  # onehop need not be installed
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    errors = json.loads((tmp_path / "gpu.json").read_text())["checks"]
    assert errors.keys() == {"self", "causal", "cross", "loss", "add_norm", "sum_and_norm", "feed_forward"}
    assert max(errors.values()) < MOST_ERROR, errors
