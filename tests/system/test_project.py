"""What contributors rely on: the tests' set-up, workflows, hooks, templates and the files at the root."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
