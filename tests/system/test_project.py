"""What contributors rely on: the tests' set-up, workflows, hooks, templates and the files at the root."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# --- the tests' own set-up ------------------------------------------------------------------------------------


def run_pytest(*words: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Pytest in a process of its own, in which `before` runs first."""
    code = f"import sys; {before}\nimport pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_without_beartype_tests_run_unchecked_and_say_so():
    done = run_pytest("tests/text/test_casing.py", before="sys.modules['beartype'] = None")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOTE: types and shapes were not checked. Install beartype" in done.stdout


def test_without_a_gpu_its_tests_say_what_they_need():
    done = run_pytest("-m", "gpu", "tests/training/test_step.py", TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "sees no GPU. These tests need an NVIDIA GPU" in done.stderr


def test_every_test_that_needs_a_gpu_is_marked():
    needing = re.compile(r"((?:@pytest\.mark\..+\n)*)@pytest\.mark\.skipif\(not torch\.cuda\.is_available\(\)")
    found = [marks for file in ROOT.glob("tests/**/test_*.py") for marks in needing.findall(text_of(file))]
    assert len(found) >= 3
    assert all("@pytest.mark.gpu\n" in marks for marks in found)
